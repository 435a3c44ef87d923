//go:build unix

package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/cli"
)

// TestEveryProductIsListed lays out the samples of every product as one home
// and one project, in which every command is a canary and every URL leads to a
// listener, and looks at it with each command that only shows.
func TestEveryProductIsListed(t *testing.T) {
	home, project := machine(t)
	samples, err := filepath.Glob("../discover/testdata/config/[^_]*")
	if err != nil || len(samples) < 30 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connections atomic.Int32
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			c.Close()
		}
	}()
	for _, s := range samples {
		layOut(t, filepath.Join(s, "home"), home, listener.Addr().String())
		layOut(t, filepath.Join(s, "project"), project, listener.Addr().String())
	}

	bin, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	t.Setenv("PATH", bin)
	run := func(wantCode int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), cli.Env{
			Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home, "PATH=" + bin}, Now: time.Now,
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		})
		if code != wantCode {
			t.Fatalf("patchbay %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, wantCode, errs.String())
		}
		return out.String()
	}
	list := func() (snap patchbay.Snapshot) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(0, "list", "--all", "--json", "--show-secrets")), &snap); err != nil {
			t.Fatal(err)
		}
		return snap
	}
	canary := []byte("#!/bin/sh\necho \"$0 $*\" >> " + mark + "\n")
	for _, name := range append(commandsOf(t, list()), "sh", "bash", "cat", "git", "pass", "op") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(bin, name)
		} else if !strings.HasPrefix(path, filepath.Dir(home)) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, canary, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	snap := list()
	text := run(0, "list", "--sources", "--all")
	if len(snap.Servers) < 90 {
		t.Errorf("only %d servers", len(snap.Servers))
	}
	products := map[string]bool{}
	for _, s := range snap.Servers {
		products[s.Origin.Product] = true
		place := strings.NewReplacer(project+"/", "", home, "~").Replace(fmt.Sprintf("%s:%d", s.Origin.File, s.Origin.Line))
		row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(s.Name) + ` +\S+ +` + regexp.QuoteMeta(s.Origin.Product) + ` +` + string(s.Origin.Scope) + ` +` + regexp.QuoteMeta(place) + `$`)
		if !row.MatchString(text) {
			t.Errorf("no row for %s of %s at %s", s.Name, s.Origin.Product, place)
		}
		if s.InForce {
			run(0, "get", s.Name)
		}
	}
	if len(products) < 28 {
		t.Errorf("only %d products: %v", len(products), products)
	}
	run(1, "doctor")
	run(0, "import", "cursor", "--dry-run")
	run(0, "__complete", "get", "")

	if ran, err := os.ReadFile(mark); err == nil {
		t.Errorf("something ran:\n%s", ran)
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("%d connections were made", n)
	}
	// The traps work: sprung on purpose, they show it.
	if err := exec.Command(filepath.Join(bin, "npx")).Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
}

// sampleURL matches the addresses of the samples.
var sampleURL = regexp.MustCompile(`https?://[\w.-]*example\.test(:\d+)?`)

// layOut copies a tree of samples, with every URL leading to the listener.
func layOut(t *testing.T, from, to, listener string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // not every product has both scopes
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, sampleURL.ReplaceAll(data, []byte("http://"+listener)), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commandsOf returns the programs that the servers would start, and the first
// word of what would run to obtain a value.
func commandsOf(t *testing.T, snap patchbay.Snapshot) []string {
	t.Helper()
	var names []string
	for _, s := range snap.Servers {
		var entry struct{ Command string }
		if err := json.Unmarshal(s.Config, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Command != "" && !strings.ContainsAny(entry.Command, "${}") {
			names = append(names, entry.Command)
		}
		for _, line := range s.Executes {
			word, _, _ := strings.Cut(strings.TrimPrefix(line, "!"), " ")
			names = append(names, strings.Trim(word, "'"))
		}
	}
	return names
}

// TestManyProcessesAdd lets processes add a server to one file at once. (That
// fifty of them lose nothing is proved where the lock is, in atomicfile.)
func TestManyProcessesAdd(t *testing.T) {
	home, project := machine(t)
	program, err := exec.LookPath("patchbay")
	if err != nil {
		t.Fatal(err)
	}
	const writers = 12
	errs := make(chan error, writers)
	for i := range writers {
		cmd := exec.Command(program, "add", "-s", "user", fmt.Sprintf("s%02d", i), "--", "x")
		cmd.Dir, cmd.Env = project, []string{"HOME=" + home, "PATH=", "GORACE=" + quickExit}
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			errs <- err
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(home, ".config", "patchbay", "mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ MCPServers map[string]any }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.MCPServers) != writers {
		t.Errorf("%d servers in the file, want %d", len(file.MCPServers), writers)
	}
}
