package patchbay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// watching is a computer whose host watches its files.
func watching(t *testing.T) *computer {
	t.Helper()
	leavesNothing(t)
	c := newComputer(t)
	c.opts.WatchFiles = true
	return c
}

// replace saves a file the way editors do: beside the old one, then in its place.
func (c *computer) replace(path, text string) {
	c.t.Helper()
	c.write(path+"~", text)
	if err := os.Rename(path+"~", path); err != nil {
		c.t.Fatal(err)
	}
}

// has waits until the servers in force are these.
func (c *computer) has(h *patchbay.Host, names ...string) patchbay.Snapshot {
	c.t.Helper()
	want := strings.Join(names, " ")
	return await(c.t.(*testing.T), h, "servers: "+want, func(s patchbay.Snapshot) bool {
		var got []string
		for _, st := range s.Servers {
			if st.InForce {
				got = append(got, st.Name)
			}
		}
		return strings.Join(got, " ") == want
	})
}

// Files count as soon as they are written, wherever a product keeps them, and
// whether or not its directory was there before.
func TestFilesAreWatched(t *testing.T) {
	c := watching(t)
	h := c.open()
	cursor := filepath.Join(c.home, ".cursor", "mcp.json")
	c.write(cursor, `{"mcpServers": {"a": {"command": "x"}}}`)
	c.has(h, "a")
	c.replace(cursor, `{"mcpServers": {"b": {"command": "x"}}}`)
	c.has(h, "b")
	extension := filepath.Join(c.home, ".gemini", "extensions", "one", "gemini-extension.json")
	c.write(extension, `{"name": "one", "mcpServers": {"c": {"command": "x"}}}`)
	c.has(h, "b", "c")
	if err := os.RemoveAll(filepath.Dir(cursor)); err != nil {
		t.Fatal(err)
	}
	c.has(h, "c")
	c.write(cursor, `{"mcpServers": {"d": {"command": "x"}}}`)
	c.has(h, "c", "d")

	// A link is followed to where it leads.
	elsewhere := filepath.Join(c.home, "dotfiles", "cursor.json")
	c.write(elsewhere, `{"mcpServers": {"e": {"command": "x"}}}`)
	if err := os.Remove(cursor); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, cursor); err != nil {
		t.Fatal(err)
	}
	c.has(h, "c", "e")
	c.write(elsewhere, `{"mcpServers": {"f": {"command": "x"}}}`)
	c.has(h, "c", "f")
}

// The files of a product that the settings switch on are watched from then on.
func TestProductSwitchedOn(t *testing.T) {
	c := watching(t)
	settings := filepath.Join(c.home, ".config", "patchbay", "settings.json")
	cursor := filepath.Join(c.home, ".cursor", "mcp.json")
	c.write(settings, `{"discovery": {"disabledProviders": ["cursor"]}}`)
	c.write(cursor, `{"mcpServers": {"a": {"command": "x"}}}`)
	h := c.open()
	c.has(h)
	c.replace(settings, `{}`)
	c.has(h, "a")
	c.replace(cursor, `{"mcpServers": {"b": {"command": "x"}}}`)
	c.has(h, "b")
}

// A file that breaks keeps its servers and says so until it is repaired.
func TestBrokenFileKeepsItsServers(t *testing.T) {
	c := watching(t)
	file := filepath.Join(c.home, ".cursor", "mcp.json")
	settings := filepath.Join(c.home, ".config", "patchbay", "settings.json")
	c.write(file, `{"mcpServers": {"a": {"command": "x"}}}`)
	c.write(settings, `{"permissions": {"deny": ["mcp__a"]}}`)
	h := c.open()
	problems := func(files ...string) patchbay.Snapshot {
		t.Helper()
		return await(t, h, "problems in "+strings.Join(files, ", "), func(s patchbay.Snapshot) bool {
			var got []string
			for _, p := range s.Problems {
				got = append(got, p.File)
			}
			got = slices.Compact(got) // a rule about a server that is gone is one, too
			return strings.Join(got, " ") == strings.Join(files, " ")
		})
	}
	c.write(file, `{"mcpServers": {"a": {"command": `)
	if p := problems(file).Problems[0]; p.Line != 1 || p.Severity != config.SeverityError {
		t.Errorf("%+v", p)
	}
	c.has(h, "a")
	c.write(settings, `{"permissions": {`)
	problems(settings, file)
	if err := h.Connect(t.Context(), "a"); err == nil {
		t.Error("connected")
	}
	if _, err := anyone(t, h).Forward(t.Context(), "a", "tools/list", nil); kindOf(err) != patchbay.KindDenied {
		t.Errorf("the settings that broke denied it, now: %v", err)
	}
	c.write(file, `{"mcpServers": {"b": {"command": "x"}}}`)
	c.has(h, "b")
	problems(settings)
	c.write(settings, `{}`)
	problems()
}

// What another process decides counts in this one.
func TestApprovalElsewhere(t *testing.T) {
	c := watching(t)
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	h := c.open()
	awaitState(t, h, "tool", config.NeedsApproval)
	c.approve("tool")
	awaitState(t, h, "tool", config.Pending)
}

// A change of one server leaves the calls and connections of others alone, and
// its own connection follows the file.
func TestReloadDisturbsNobody(t *testing.T) {
	c := watching(t)
	c.opts.Lazy = false
	started, release := make(chan bool), make(chan bool)
	server := mcp.NewServer(&mcp.Implementation{Name: "slow", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		started <- true
		<-release
		return &mcp.CallToolResult{}, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	slow := config.Server{Type: config.HTTP, URL: web.URL}
	c.declare(map[string]config.Server{"slow": slow, "other": scripted()})
	h := c.open()
	awaitState(t, h, "slow", config.Connected)
	awaitState(t, h, "other", config.Connected)
	s, answer := anyone(t, h), make(chan error)
	go func() {
		_, err := s.Call(t.Context(), patchbay.Call{Tool: "slow.wait"})
		answer <- err
	}()
	<-started
	c.declare(map[string]config.Server{"slow": slow, "third": scripted()})
	c.has(h, "slow", "third")
	awaitState(t, h, "third", config.Connected)
	close(release)
	if err := <-answer; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if st, err := h.Server("slow"); err != nil || st.Restarts != 0 {
		t.Errorf("%d restarts, %v", st.Restarts, err)
	}
}

// A reading that finds nothing new is no news.
func TestReloadWithoutChange(t *testing.T) {
	c := newComputer(t)
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"a": {"command": "x"}}}`)
	h := c.open()
	before := h.Snapshot().Seq
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := h.Snapshot().Seq; now != before {
		t.Errorf("change %d, before %d", now, before)
	}
	c.write(filepath.Join(c.home, ".cursor", "mcp.json"), `{"mcpServers": {"a": {"command": "y"}}}`)
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := h.Snapshot().Seq; now == before {
		t.Error("a change is no news")
	}
}

// A server that gets another name keeps its process, and one that is edited the
// calls that are under way, with whatever it asks in them.
func TestRenamedAndEdited(t *testing.T) {
	c := watching(t)
	c.opts.Lazy = false
	c.declare(map[string]config.Server{"old": scripted()})
	h := c.open()
	awaitState(t, h, "old", config.Connected)
	before := h.Processes()
	c.declare(map[string]config.Server{"new": scripted()})
	c.has(h, "new")
	awaitState(t, h, "new", config.Connected)
	after := h.Processes()
	if len(before) != 1 || len(after) != 1 || before[0].PID != after[0].PID || after[0].Server != "new" {
		t.Errorf("renamed: %+v\nbefore: %+v", after, before)
	}

	edited := scripted("-discover=unknown")
	c.declare(map[string]config.Server{"srv": edited})
	var asked atomic.Int32
	var first string
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Elicit: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			if asked.Add(1) == 1 {
				edited.Env["ANOTHER"] = config.NewSecret("value")
				c.declare(map[string]config.Server{"srv": edited})
				await(t, h, "another process", func(patchbay.Snapshot) bool {
					all := h.Processes()
					return len(all) == 1 && fmt.Sprint(all[0].PID) != first
				})
			}
			return json.RawMessage(`{"action":"decline"}`), nil
		},
	}})
	c.has(h, "srv")
	first = say(t, s, "srv.pid", `{}`)
	if got := say(t, s, "srv.ask", `{"count":2}`); got != "decline decline" {
		t.Errorf("the call under way: %q", got)
	}
	if now := say(t, s, "srv.pid", `{}`); now == first {
		t.Errorf("process %s goes on", now)
	}
}

// The project is the repository that is there now, also if it was made around a
// directory that somebody works in already.
func TestRepositoryAppears(t *testing.T) {
	c := watching(t)
	outer := filepath.Join(c.home, "work")
	c.opts.Dir = filepath.Join(outer, "deep", "down")
	c.write(filepath.Join(c.opts.Dir, "notes"), "")
	h := c.open()
	if got := h.Snapshot().Project; got != c.opts.Dir {
		t.Fatalf("the project is %s", got)
	}
	c.write(filepath.Join(outer, ".mcp.json"), `{"mcpServers": {"shared": {"command": "x"}}}`)
	c.write(filepath.Join(outer, ".git", "HEAD"), "")
	if err := h.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.Snapshot().Project; got != outer {
		t.Errorf("the project is %s", got)
	}
	added, err := h.Add(t.Context(), patchbay.AddRequest{Name: "mine", Scope: config.ScopeProject, Server: json.RawMessage(`{"command": "x"}`)})
	if err != nil || added.File != filepath.Join(outer, ".patchbay", "mcp.json") {
		t.Errorf("%+v, %v", added, err)
	}
	c.has(h, "mine", "shared")
	c.replace(filepath.Join(outer, ".mcp.json"), `{"mcpServers": {"other": {"command": "x"}}}`)
	c.has(h, "mine", "other") // it is watched, too
	if err := os.RemoveAll(filepath.Join(outer, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := h.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.has(h)
}
