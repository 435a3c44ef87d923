package patchbay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// computer is a home with a project in it.
type computer struct {
	t             testing.TB
	home, project string
	opts          patchbay.Options
}

func newComputer(t testing.TB) *computer {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &computer{t: t, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "home", "src", "project")}
	c.write(filepath.Join(c.project, ".git", "HEAD"), "ref: refs/heads/main\n")
	c.opts = patchbay.Options{Home: c.home, Dir: c.project, Environ: []string{}, SystemRoot: filepath.Join(dir, "system"), Lazy: true}
	return c
}

func (c *computer) write(path, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *computer) userSettings(text string) {
	c.t.Helper()
	c.write(filepath.Join(c.home, ".config", "patchbay", "settings.json"), text)
}

func (c *computer) projectSettings(text string) {
	c.t.Helper()
	c.write(filepath.Join(c.project, ".patchbay", "settings.json"), text)
}

func (c *computer) open() *patchbay.Host {
	c.t.Helper()
	h, err := patchbay.Open(c.t.Context(), c.opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { h.Close() })
	return h
}

func (c *computer) state(name string) config.State {
	c.t.Helper()
	s, err := c.open().Server(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return s.State
}

const projectServer = `{"mcpServers": {"tool": {"command": "acme"}}}`

// approve opens a host, approves the server and returns the host's own state
// directory.
func (c *computer) approve(name string) {
	c.t.Helper()
	h := c.open()
	req, err := h.Approval(name)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := h.Approve(c.t.Context(), name, req.Hash); err != nil {
		c.t.Fatal(err)
	}
}

func TestApprovalIsForOnePlace(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	c.approve("tool")
	if s := c.state("tool"); s != config.Pending {
		t.Fatalf("state %s", s)
	}
	// From a directory below it is the same project; a copy elsewhere is not.
	below := filepath.Join(c.project, "a", "b")
	c.write(filepath.Join(below, "x"), "")
	c.opts.Dir = below
	if s := c.state("tool"); s != config.Pending {
		t.Errorf("below the project: state %s", s)
	}
	c.opts.Dir = filepath.Join(c.home, "src", "copy")
	c.write(filepath.Join(c.opts.Dir, ".mcp.json"), projectServer)
	if s := c.state("tool"); s != config.NeedsApproval {
		t.Errorf("a copy of the project: state %s", s)
	}
}

// A project is one project however one got there: its approvals and local
// servers are the same behind a symbolic link.
func TestProjectBehindALink(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	link := filepath.Join(c.home, "link")
	if err := os.Symlink(c.project, link); err != nil {
		t.Fatal(err)
	}
	c.opts.Dir = link
	c.approve("tool")
	if _, err := c.open().Add(t.Context(), patchbay.AddRequest{Name: "mine", Server: []byte(`{"command":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	c.opts.Dir = c.project
	if tool, mine := c.state("tool"), c.state("mine"); tool != config.Pending || mine != config.Pending {
		t.Errorf("tool is %s, mine is %s", tool, mine)
	}
	if f, err := c.open().ResetProjectChoices(t.Context()); f.Forgotten != 1 || err != nil {
		t.Errorf("forgot %d choices, %v", f.Forgotten, err)
	}
}

func TestHomeDirectory(t *testing.T) {
	c := newComputer(t)
	for _, home := range []string{".", "home", "../home"} {
		c.opts.Home = home
		if _, err := patchbay.Open(t.Context(), c.opts); err == nil || !strings.Contains(err.Error(), "is not an absolute path") {
			t.Errorf("home %q: %v", home, err)
		}
	}
	// A repository in the home directory is not the project of what lies below,
	// however the home directory is spelled.
	c.write(filepath.Join(c.home, ".git", "HEAD"), "")
	c.write(filepath.Join(c.home, "notes", "x"), "")
	link := filepath.Join(filepath.Dir(c.home), "link")
	if err := os.Symlink(c.home, link); err != nil {
		t.Fatal(err)
	}
	c.opts.Dir = filepath.Join(c.home, "notes")
	for _, home := range []string{c.home, c.home + "/", link} {
		c.opts.Home = home
		if got := c.open().Snapshot().Project; got != c.opts.Dir {
			t.Errorf("home %q: project %s", home, got)
		}
	}
}

// No directory that a project brings may hold the user's decisions.
func TestStateStaysOutsideTheProject(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	c.opts.Environ = []string{"XDG_STATE_HOME=" + filepath.Join(c.project, "state")}
	c.approve("tool")
	if _, err := os.Stat(filepath.Join(c.project, "state")); err == nil {
		t.Error("the state directory lies in the project")
	}
	if _, err := os.Stat(filepath.Join(c.home, ".local", "state", "patchbay", "approvals.json")); err != nil {
		t.Error(err)
	}
	// A link out of the state directory is not followed.
	other := newComputer(t)
	other.write(filepath.Join(other.project, ".mcp.json"), projectServer)
	target := filepath.Join(other.project, "stolen")
	other.write(filepath.Join(target, "x"), "")
	if err := os.MkdirAll(filepath.Join(other.home, ".local", "state", "patchbay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(target, "approvals.json"), filepath.Join(other.home, ".local", "state", "patchbay", "approvals.json")); err != nil {
		t.Fatal(err)
	}
	h := other.open()
	req, err := h.Approval("tool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Approve(t.Context(), "tool", req.Hash); err == nil {
		t.Error("an approval was written through a symbolic link")
	}
}

func TestApprovalOfWhatWasShown(t *testing.T) {
	c := newComputer(t)
	file := filepath.Join(c.project, ".mcp.json")
	c.write(file, projectServer)
	h := c.open()
	req, err := h.Approval("tool")
	if err != nil {
		t.Fatal(err)
	}
	c.write(file, strings.Replace(projectServer, "acme", "evil", 1))
	_, err = h.Approve(t.Context(), "tool", req.Hash)
	if e, ok := errors.AsType[*patchbay.Error](err); !ok || e.Kind != patchbay.KindDenied {
		t.Errorf("got %v", err)
	}
	if s := c.state("tool"); s != config.NeedsApproval {
		t.Errorf("state %s", s)
	}
}

// A project's entry never takes a name away from a server that works.
func TestProjectCannotShadow(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"tool": {"command": "mine"}}}`)
	for name, entry := range map[string]string{
		"unapproved": projectServer,
		"disabled":   `{"mcpServers": {"tool": {"command": "acme", "enabled": false}}, "disabledServers": ["tool"]}`,
		"invalid":    `{"mcpServers": {"tool": {}}}`,
	} {
		c.write(filepath.Join(c.project, ".patchbay", "mcp.json"), entry)
		s, err := c.open().Server("tool")
		if err != nil || s.Server.Command != "mine" || s.State != config.Pending {
			t.Errorf("%s: %s is %s, %v", name, s.Server.Command, s.State, err)
		}
	}
}

// Names that differ only in case are one name, whatever files they are in.
func TestNamesThatDifferInCase(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), projectServer)
	add := func(name string) error {
		_, err := c.open().Add(t.Context(), patchbay.AddRequest{Name: name, Scope: config.ScopeUser, Server: []byte(`{"command":"x"}`)})
		return err
	}
	if err := add("TOOL"); err == nil || !strings.Contains(err.Error(), `exists already as "tool"`) {
		t.Errorf("got %v", err)
	}
	// A project cannot keep a name from anybody.
	c.write(filepath.Join(c.project, ".mcp.json"), strings.Replace(projectServer, "tool", "MINE", 1))
	if err := errors.Join(add("tool"), add("mine")); err != nil {
		t.Error(err)
	}
}

// What the administrator forbids, no list of the user's brings back.
func TestForbiddenStaysOff(t *testing.T) {
	c := newComputer(t)
	for _, dir := range []string{"etc/claude-code", "Library/Application Support/ClaudeCode", "Program Files/ClaudeCode"} {
		c.write(filepath.Join(c.opts.SystemRoot, filepath.FromSlash(dir), "managed-settings.json"), `{"deniedMcpServers": [{"serverName": "tool"}]}`)
	}
	c.write(filepath.Join(c.home, ".claude.json"), projectServer)
	h := c.open()
	if _, err := h.Add(t.Context(), patchbay.AddRequest{Name: "x", Scope: config.ScopeUser, Server: []byte(`{"command":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	_, err := h.SetEnabled(t.Context(), "tool", true)
	if e, ok := errors.AsType[*patchbay.Error](err); !ok || e.Kind != patchbay.KindDenied {
		t.Errorf("got %v", err)
	}
	c.write(h.Servers()[1].Origin.File, // the user's own file
		`{"enabledServers": ["tool"]}`)
	if s, err := c.open().Server("tool"); err != nil || s.State != config.Disabled || !strings.Contains(s.Reason, "deniedMcpServers") {
		t.Errorf("%s %s, %v", s.State, s.Reason, err)
	}
}

// An administrator's lock-down of Claude Code holds for its servers, and for no
// other product's; nobody lifts it, and who asks is told.
func TestLockDown(t *testing.T) {
	for name, test := range map[string]struct {
		file, text string
		off        string // why mine is; empty if it is not
	}{
		"exclusive":          {"managed-mcp.json", `{"mcpServers": {"theirs": {"command": "x"}}}`, "no servers but those of the administrator's file"},
		"none at all":        {"managed-mcp.json", `{"mcpServers": {}}`, "no servers but those of the administrator's file"},
		"damaged":            {"managed-mcp.json", `{"mcpServers": {`, "no servers but those of the administrator's file"},
		"damaged settings":   {"managed-settings.json", `{"deniedMcpServers": [`, "the administrator's settings cannot be read"},
		"managed only":       {"managed-settings.json", `{"allowManagedMcpServersOnly": true}`, "allowManagedMcpServersOnly"},
		"managed servers":    {"managed-settings.json", `{"allowManagedMcpServersOnly": true, "managedMcpServers": {"theirs": {"command": "x"}}}`, "allowManagedMcpServersOnly"},
		"a managed list":     {"managed-settings.json", `{"allowManagedMcpServersOnly": true, "allowedMcpServers": [{"serverName": "mine"}]}`, ""},
		"another list":       {"managed-settings.d/10-mcp.json", `{"allowManagedMcpServersOnly": true, "allowedMcpServers": [{"serverName": "other"}]}`, "not among allowedMcpServers"},
		"plugins only":       {"managed-settings.json", `{"strictPluginOnlyCustomization": ["hooks", "mcp"]}`, "strictPluginOnlyCustomization"},
		"plugins only, all":  {"managed-settings.json", `{"strictPluginOnlyCustomization": true}`, "strictPluginOnlyCustomization"},
		"plugins, not these": {"managed-settings.json", `{"strictPluginOnlyCustomization": ["hooks"], "allowManagedMcpServersOnly": false}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newComputer(t)
			for _, dir := range []string{"etc/claude-code", "Library/Application Support/ClaudeCode", "Program Files/ClaudeCode"} {
				c.write(filepath.Join(c.opts.SystemRoot, filepath.FromSlash(dir), filepath.FromSlash(test.file)), test.text)
			}
			c.write(filepath.Join(c.home, ".claude.json"), `{"mcpServers": {"mine": {"command": "x"}}}`)
			c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"cursors": {"command": "x"}}}`)
			c.userSettings(`{"discovery": {"disabledProviders": ["managed"]}}`)
			h := c.open()
			snap := h.Snapshot()
			for _, st := range snap.Servers {
				if st.Name != "mine" {
					if st.State != config.Pending {
						t.Errorf("%s is %s: %s", st.Name, st.State, st.Reason)
					}
					continue
				}
				if test.off == "" {
					if st.State != config.Pending || st.Forbidden || len(st.Problems) > 0 {
						t.Errorf("mine is %s: %s", st.State, st.Reason)
					}
					continue
				}
				noted := slices.ContainsFunc(st.Problems, func(p config.Problem) bool {
					return strings.Contains(p.Message, "forbidden by the administrator") && strings.Contains(p.Message, test.off)
				})
				if st.State != config.Disabled || !st.Forbidden || !strings.Contains(st.Reason, test.off) || !noted {
					t.Errorf("mine is %s: %s; %+v", st.State, st.Reason, st.Problems)
				}
				s, err := h.NewSession(patchbay.SessionOptions{})
				if err != nil {
					t.Fatal(err)
				}
				_, _, err = s.Why("mcp__mine__tool")
				for _, err := range []error{err, h.Connect(t.Context(), "mine")} {
					if err == nil || !strings.Contains(err.Error(), "forbidden by the administrator") || !strings.Contains(err.Error(), test.off) {
						t.Errorf("got %v", err)
					}
				}
				s.Close()
			}
			if strings.Contains(test.text, "theirs") && !slices.ContainsFunc(snap.Servers, func(st patchbay.ServerStatus) bool { return st.Name == "theirs" }) {
				t.Error("the administrator's own server is not there")
			}
		})
	}
}

func TestFailOnInvalid(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"bad": {}, "good": {"command": "x"}}}`)
	c.opts.FailOnInvalid = true
	_, err := patchbay.Open(t.Context(), c.opts)
	e, ok := errors.AsType[*patchbay.Error](err)
	if !ok || e.Kind != patchbay.KindConfigInvalid || len(e.Problems) != 1 || e.Problems[0].Line != 1 {
		t.Errorf("got %#v", err)
	}
}

// A file that breaks while the host runs keeps the host usable, and the broken
// file is not written to.
func TestBrokenFileIsNotEdited(t *testing.T) {
	c := newComputer(t)
	file := filepath.Join(c.home, ".config", "patchbay", "mcp.json")
	const broken = `{"mcpServers": {"a": {"command": "x"}`
	c.write(file, broken)
	h := c.open()
	_, err := h.Add(t.Context(), patchbay.AddRequest{Name: "b", Scope: config.ScopeUser, Server: []byte(`{"command":"x"}`)})
	e, ok := errors.AsType[*patchbay.Error](err)
	if !ok || len(e.Problems) != 1 || e.Problems[0].File != file {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != broken {
		t.Errorf("the file was changed: %s", got)
	}
}

// If the approvals cannot be read nothing is approved, the problem is shown, and
// nothing overwrites the file.
func TestDamagedApprovals(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	c.approve("tool")
	file := filepath.Join(c.home, ".local", "state", "patchbay", "approvals.json")
	c.write(file, "{oops")
	h := c.open()
	snap := h.Snapshot()
	if snap.Servers[0].State != config.NeedsApproval || len(snap.Problems) != 1 || snap.Problems[0].File != file {
		t.Errorf("%s, %v", snap.Servers[0].State, snap.Problems)
	}
	req, err := h.Approval("tool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Approve(t.Context(), "tool", req.Hash); err == nil || !strings.Contains(err.Error(), "approvals.json is damaged") {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "{oops" {
		t.Errorf("the file was overwritten: %s", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	h := c.open()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := string(rune('a' + i))
			_, err := h.Add(context.Background(), patchbay.AddRequest{Name: name, Scope: config.ScopeUser, Server: []byte(`{"command":"x"}`)})
			if err != nil {
				t.Error(err)
			}
			if _, err := h.SetEnabled(context.Background(), name, false); err != nil {
				t.Error(err)
			}
			h.Servers()
		})
	}
	wg.Wait()
	if n := len(h.Servers()); n != 9 {
		t.Errorf("%d servers, want 9", n)
	}
}

// Row 34 of the fault matrix: hosts that edit one file at the same time lose
// nothing of each other's.
func TestTwoHostsLoseNoEdit(t *testing.T) {
	c := newComputer(t)
	const each = 10
	var wg sync.WaitGroup
	for _, who := range []string{"one", "two"} {
		h := c.open()
		wg.Go(func() {
			for i := range each {
				_, err := h.Add(t.Context(), patchbay.AddRequest{Name: fmt.Sprint(who, i), Scope: config.ScopeUser, Server: []byte(`{"command":"x"}`)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(c.open().Servers()); n != 2*each {
		t.Errorf("%d servers, want %d", n, 2*each)
	}
}

// What the host does for a caller ends in time, and with the caller.
func TestRequestTimeout(t *testing.T) {
	c := newComputer(t)
	file := c.declare(map[string]config.Server{"srv": scripted()})
	held, free := make(chan struct{}), make(chan struct{})
	holder := make(chan error, 1)
	go func() {
		_, err := atomicfile.Update(context.Background(), file, atomicfile.Options{LockDir: filepath.Join(c.home, ".local", "state", "patchbay", "locks")}, func([]byte) ([]byte, error) {
			close(held)
			<-free
			return nil, nil
		})
		holder <- err
	}()
	<-held
	c.opts.RequestTimeout = 50 * time.Millisecond
	if _, err := c.open().SetEnabled(t.Context(), "srv", false); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "not done after 50ms") {
		t.Errorf("limited: %v", err)
	}
	c.opts.RequestTimeout = -1
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.open().SetEnabled(ctx, "srv", false); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "not done") {
		t.Errorf("unlimited: %v", err)
	}
	close(free)
	if err := <-holder; err != nil {
		t.Error(err)
	}
	if _, err := c.open().SetEnabled(t.Context(), "srv", false); err != nil {
		t.Error(err)
	}
}

// What a product keeps in a file besides servers is never touched, however much
// it is.
func TestLongFileOfAProduct(t *testing.T) {
	c := newComputer(t)
	file := filepath.Join(c.home, ".claude.json")
	history := strings.Repeat(`    {"display": "what \"was\" typed", "pastedContents": {}},`+"\n", 100_000)
	text := "{\n  \"history\": [\n" + history + "  ],\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"},\n    \"b\": {\"command\": \"x\"}\n  },\n  \"numStartups\": 7\n}\n"
	c.write(file, text)
	h := c.open()
	is := func(when, want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %v, the end is\n%s", when, err, got[min(len(got), len(history)):])
		}
	}
	ctx := t.Context()
	install := patchbay.InstallRequest{Product: "claude", Command: []string{"/usr/bin/patchbay", "serve", "--stdio"}}
	dry := install
	dry.DryRun = true
	if done, err := h.Install(ctx, dry); err != nil || strings.Count(done.Diff, "\n") > 30 || !strings.Contains(done.Diff, `+    "patchbay": {`) {
		t.Errorf("dry run: %v\n%.2000s", err, done.Diff)
	}
	is("after a dry run", text)
	if done, err := h.Install(ctx, install); err != nil || done.Action != "installed" || done.File != file {
		t.Errorf("%+v, %v", done, err)
	}
	is("installed", strings.Replace(text, "\"b\": {\"command\": \"x\"}\n", "\"b\": {\"command\": \"x\"},\n    \"patchbay\": {\n      \"type\": \"stdio\",\n      \"command\": \"/usr/bin/patchbay\",\n      \"args\": [\"serve\", \"--stdio\"]\n    }\n", 1))
	if done, err := h.Uninstall(ctx, install); err != nil || done.Action != "removed" || done.Deleted {
		t.Errorf("%+v, %v", done, err)
	}
	is("uninstalled", text)
	if _, err := h.Remove(ctx, patchbay.RemoveRequest{Name: "a", From: "claude"}); err != nil {
		t.Error(err)
	}
	is("removed", strings.Replace(text, "    \"a\": {\"command\": \"x\"},\n", "", 1))
	if _, err := h.Server("b"); err != nil {
		t.Error(err)
	}
}
