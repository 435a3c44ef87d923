//go:build unix

package patchbay_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// script is a program that starts the scripted server and says a word before.
func script(t *testing.T, c *computer, path, word string) (said string) {
	t.Helper()
	said = filepath.Join(c.home, "said")
	s := scripted()
	text := fmt.Sprintf("#!/bin/sh\necho %s >> '%s'\nexec '%s' %s\n", word, said, s.Command, strings.Join(s.Args, " "))
	c.write(path, text)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return said
}

func words(t *testing.T, said string) string {
	t.Helper()
	text, err := os.ReadFile(said)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// ofProject declares a server in the project's file, with the variables that the
// scripted server needs.
func ofProject(t *testing.T, c *computer, s config.Server) {
	t.Helper()
	env := map[string]string{}
	for name, value := range scripted().Env {
		env[name] = value.Reveal()
	}
	for name, value := range s.Env {
		env[name] = value.Reveal()
	}
	entry, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"s": map[string]any{"command": s.Command, "args": s.Args, "env": env}}})
	if err != nil {
		t.Fatal(err)
	}
	c.write(filepath.Join(c.project, ".patchbay", "mcp.json"), string(entry))
}

// What an entry of a project runs is what was approved, however it is named: by a
// path, in a PATH of its own, by a placeholder or as an argument. A changed byte
// asks again, also of a host that has approved and started it before.
func TestStartedIsApproved(t *testing.T) {
	for name, tt := range map[string]struct {
		server config.Server
		file   string // that is run
	}{
		"path":        {config.Server{Command: "./run.sh"}, "run.sh"},
		"PATH":        {config.Server{Command: "tool", Env: map[string]config.Secret{"PATH": config.NewSecret("PROJECT/bin:/bin:/usr/bin")}}, "bin/tool"},
		"placeholder": {config.Server{Command: "${TOOL:-./run.sh}"}, "run.sh"},
		"argument":    {config.Server{Command: "/bin/sh", Args: []string{"lib/start"}}, "lib/start"},
		"root":        {config.Server{Command: "sh", Args: []string{"${workspaceRoot}/run.sh"}}, "run.sh"},
		"option":      {config.Server{Command: "/bin/sh", Args: []string{"run.sh", "--config=conf.json"}}, "conf.json"},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			c := newComputer(t)
			c.opts.Environ = []string{"PATH=/bin:/usr/bin"}
			file := filepath.Join(c.project, tt.file)
			for variable, value := range tt.server.Env {
				tt.server.Env[variable] = config.NewSecret(strings.ReplaceAll(value.Reveal(), "PROJECT", c.project))
			}
			said := script(t, c, filepath.Join(c.project, "run.sh"), "good")
			if tt.file != "conf.json" {
				script(t, c, file, "good")
			} else {
				c.write(file, `{"a":1}`)
			}
			ofProject(t, c, tt.server)
			h := c.open()
			req, err := h.Approval("s")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(req.Text, file) || !strings.Contains(req.Text, "a change of its content asks again") {
				t.Errorf("the approval does not say that %s is bound:\n%s", file, req.Text)
			}
			if _, err := h.Approve(t.Context(), "s", req.Hash); err != nil {
				t.Fatal(err)
			}
			if err := h.Connect(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			if got := words(t, said); got != "good" {
				t.Fatalf("it said %q", got)
			}

			if tt.file != "conf.json" {
				script(t, c, file, "evil")
			} else {
				c.write(file, `{"a":2}`)
			}
			if err := h.Reconnect(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "changed since it was approved") {
				t.Errorf("a changed program: %v", err)
			}
			if got := words(t, said); got != "good" {
				t.Errorf("what was not approved ran: %q", got)
			}
			awaitState(t, h, "s", config.NeedsApproval)
			if st, err := h.Server("s"); err != nil || st.Reason != "changed since it was approved" {
				t.Errorf("%q, %v", st.Reason, err)
			}
			again, err := h.Approval("s")
			if err != nil || again.Hash == req.Hash {
				t.Fatalf("%+v, %v", again, err)
			}
			if _, err := h.Approve(t.Context(), "s", again.Hash); err != nil {
				t.Fatal(err)
			}
			if err := h.Connect(t.Context(), "s"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A link of the project that leads elsewhere asks again as well, also if it leads
// out of the project.
func TestApprovedLink(t *testing.T) {
	for _, outside := range []bool{false, true} {
		t.Run(fmt.Sprintf("outside %v", outside), func(t *testing.T) {
			leavesNothing(t)
			c := newComputer(t)
			dir := c.project
			if outside {
				dir = t.TempDir()
			}
			good, evil, link := filepath.Join(dir, "good.sh"), filepath.Join(dir, "evil.sh"), filepath.Join(c.project, "run.sh")
			said := script(t, c, good, "good")
			script(t, c, evil, "evil")
			lead := func(to string) {
				t.Helper()
				_ = os.Remove(link) // it may not be there yet
				if err := os.Symlink(to, link); err != nil {
					t.Fatal(err)
				}
			}
			lead(good)
			ofProject(t, c, config.Server{Command: "/bin/sh", Args: []string{"run.sh"}})
			c.approve("s")
			h := c.open()
			if err := h.Connect(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			lead(evil)
			if err := h.Reconnect(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "changed since it was approved") {
				t.Errorf("a link that leads elsewhere: %v", err)
			}
			if got := words(t, said); got != "good" {
				t.Errorf("what was not approved ran: %q", got)
			}
			awaitState(t, h, "s", config.NeedsApproval)
			lead(good)
			watching := c
			watching.opts.WatchFiles = true
			h = watching.open()
			awaitState(t, h, "s", config.Pending)
			for range 2 {
				lead(evil)
				awaitState(t, h, "s", config.NeedsApproval)
				lead(good)
				awaitState(t, h, "s", config.Pending)
			}
		})
	}
}

// Data that a server changes while it works does not ask again, and the approval
// says so.
func TestDataIsNotBound(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, "notes.txt"), "one")
	ofProject(t, c, config.Server{Command: "/bin/true", Args: []string{"./notes.txt"}})
	h := c.open()
	before, err := h.Approval("s")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(before.Text, "./notes.txt may be a file of this project; a change of its content does not ask again") {
		t.Errorf("%s", before.Text)
	}
	c.write(filepath.Join(c.project, "notes.txt"), "two")
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := h.Approval("s"); err != nil || after.Hash != before.Hash {
		t.Errorf("it asks again: %v", err)
	}
}

// A host that watches files notices when an approved program changes.
func TestApprovedProgramIsWatched(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.WatchFiles = true
	run := filepath.Join(c.project, "tools", "run.sh")
	script(t, c, run, "good")
	ofProject(t, c, config.Server{Command: "/bin/sh", Args: []string{"tools/run.sh"}})
	c.approve("s")
	h := c.open()
	awaitState(t, h, "s", config.Pending)
	for range 2 { // the first change may be seen for another reason: files are looked at again after the start
		script(t, c, run, "evil")
		awaitState(t, h, "s", config.NeedsApproval)
		script(t, c, run, "good")
		awaitState(t, h, "s", config.Pending)
	}
}
