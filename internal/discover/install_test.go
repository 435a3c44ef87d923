package discover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

var testSelf = map[string]Self{
	"stdio": {Command: "/opt/patch bay/patchbay", Args: []string{"serve", "--stdio"}},
	"http":  {URL: "http://127.0.0.1:7332/mcp", Token: config.NewSecret(config.GatewayTokenPrefix + "canary")},
}

// Whatever is in a product's files, the entry can be put in and taken out again:
// the product's own reader finds it and everything it found before, doing it
// again changes nothing, and at the end every byte is as it was.
func TestInstallRoundTrip(t *testing.T) {
	samples, err := os.ReadDir("testdata/config")
	if err != nil {
		t.Fatal(err)
	}
	installed := map[string]bool{}
	for _, sample := range append([]string{""}, directoryNames(samples)...) {
		m := newMachine(t)
		if sample != "" {
			m.lay("testdata/config/" + sample)
		}
		for id, scopes := range Installable("linux") {
			for _, scope := range scopes {
				for form, self := range testSelf {
					if target, err := FindTarget(m.env, id, scope); err != nil || sample != "" && !exists(target.File) {
						continue // as without the sample
					}
					t.Run(strings.Join([]string{sample, id, string(scope), form}, "/"), func(t *testing.T) {
						if roundTrip(t, m, id, scope, self) {
							installed[id+"/"+form] = true
						}
					})
				}
			}
		}
	}
	for id := range Installable("linux") {
		if !installed[id+"/stdio"] {
			t.Errorf("%s was never installed in", id)
		}
	}
}

func directoryNames(entries []os.DirEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func roundTrip(t *testing.T, m *machine, id string, scope config.Scope, self Self) bool {
	target, err := FindTarget(m.env, id, scope)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(target.File)
	if errors.Is(err, fs.ErrNotExist) {
		old = nil
		if target.MustExist() {
			old = []byte("name: mine\nversion: 1.0.0\n")
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if self.URL != "" && !target.HTTP() {
		return false
	}
	before, parseErr := target.parse(old)
	out, err := target.Set(old, self)
	if err != nil {
		// Files that are broken, or not for us, are left alone.
		if parseErr == nil && before.Kind == config.Object && !errors.Is(err, ErrCannotAdd) && !strings.Contains(err.Error(), "expected an object") && !strings.Contains(err.Error(), "duplicate key") {
			t.Fatalf("%s: %v", target.File, err)
		}
		return false
	}
	if again, err := target.Set(out, self); err != nil || string(again) != string(out) {
		t.Errorf("a second time gives %v\n%s\nafter\n%s", err, again, out)
	}
	if target.Texts(out) == nil {
		t.Errorf("no entry in\n%s", out)
	}
	compareScans(t, m, target, old, out, self)

	back, err := target.Remove(out)
	if err != nil {
		t.Fatal(err)
	}
	want := string(old)
	if want != "" && !strings.HasSuffix(want, "\n") && target.marked() {
		want += "\n"
	}
	if got := string(back); got != want && !(strings.TrimSpace(want) == "" && strings.TrimSpace(got) == "{}") {
		t.Errorf("removed again it is\n%q\nwant\n%q\nfrom\n%q", got, want, out)
	}
	return true
}

// compareScans reads the file before and after as every product would.
func compareScans(t *testing.T, m *machine, target Target, old, out []byte, self Self) {
	t.Helper()
	write := func(data []byte) []config.Entry {
		t.Helper()
		if data == nil {
			if err := os.Remove(target.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		} else {
			if err := os.MkdirAll(filepath.Dir(target.File), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(target.File, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return Scan(t.Context(), m.env).Entries
	}
	isOurs := func(e config.Entry) bool { return e.Name == SelfName && e.Origin.File == target.File }
	after := write(out)
	before := write(old)
	i := slices.IndexFunc(after, isOurs)
	if i < 0 {
		t.Fatalf("%s does not find the entry in\n%s", target.Provider.Product, out)
	}
	found := after[i]
	if found.Skip != SkipItself || !found.Valid() {
		t.Errorf("%s takes it for %+v", target.Provider.Product, found)
	}
	if s := found.Server; self.URL != "" && (s.URL != self.URL || s.Headers["Authorization"].Reveal() != "Bearer "+self.Token.Reveal()) ||
		self.URL == "" && (s.Command != self.Command || !slices.Equal(s.Args, self.Args)) {
		t.Errorf("%s reads %+v", target.Provider.Product, s)
	}
	rest := func(all []config.Entry) (out []string) {
		for _, e := range all {
			if !isOurs(e) {
				out = append(out, e.Origin.Provider+" "+e.Name+" "+string(config.EncodeServer(e.Server)))
			}
		}
		return out
	}
	if a, b := rest(after), rest(before); !slices.Equal(a, b) {
		t.Errorf("the others change from\n%q\nto\n%q", b, a)
	}
}

func TestInstallRefuses(t *testing.T) {
	self := testSelf["stdio"]
	target := func(id string) Target {
		found, err := FindTarget(newMachine(t).env, id, config.ScopeUser)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, tt := range []struct {
		name, id, text string
		set, remove    error // nil: works
	}{
		{"another's entry", "cursor", `{"mcpServers": {"patchbay": {"command": "other"}}}`, ErrForeign, ErrForeign},
		{"an entry in TOML by hand", "codex", "[mcp_servers.patchbay]\nurl = \"http://127.0.0.1:7332/mcp\"\nhttp_headers = { Authorization = \"Bearer pbgw_x\" }\n", ErrUnmarked, ErrUnmarked},
		{"another's entry in TOML", "codex", "[mcp_servers.patchbay]\ncommand = \"other\"\n", ErrForeign, ErrForeign},
		{"servers on one line of TOML", "codex", "mcp_servers = { a = { command = \"x\" } }\n", ErrCannotAdd, nil},
		{"a block that does not end", "codex", blockBegin + "\n[mcp_servers.patchbay]\n", ErrCannotAdd, ErrCannotAdd},
		{"a block that only ends", "codex", blockEnd + "\n", ErrCannotAdd, ErrCannotAdd},
		{"two blocks", "codex", strings.Repeat(blockBegin+"\n"+blockEnd+"\n", 2), ErrCannotAdd, ErrCannotAdd},
		{"another's entry in YAML", "goose", "extensions:\n  patchbay:\n    cmd: other\n", ErrForeign, ErrForeign},
		{"extensions on one line", "goose", "extensions: {a: {cmd: x, type: stdio}}\n", ErrCannotAdd, nil},
		{"extensions that are a list", "goose", "extensions:\n- a\n", ErrCannotAdd, nil},
		{"an empty mapping", "goose", "extensions:\n", nil, nil},
		{"a comment behind", "goose", "extensions: # mine\n    a:\n        cmd: x\n        type: stdio\nGOOSE_MODE: auto\n", nil, nil},
		{"carriage returns", "codex", "model = \"x\"\r\n", nil, nil},
		{"a list without indentation", "continue", "name: x\nmcpServers:\n- name: a\n  command: x\nmodels: []\n", nil, nil},
		{"a list with", "continue", "mcpServers:\n    - name: a\n      command: x\n", nil, nil},
	} {
		tg := target(tt.id)
		out, err := tg.Set([]byte(tt.text), self)
		if !errors.Is(err, tt.set) || (err == nil) != (tt.set == nil) {
			t.Errorf("%s: setting gives %v\n%s", tt.name, err, out)
		}
		if tt.set == nil {
			if back, err := tg.Remove(out); err != nil || string(back) != tt.text {
				t.Errorf("%s: %v\n%q\nand back\n%q", tt.name, err, out, back)
			}
			if strings.Contains(tt.text, "\r\n") && strings.Count(string(out), "\r\n") != strings.Count(string(out), "\n") {
				t.Errorf("%s: mixed line ends in %q", tt.name, out)
			}
		}
		if _, err := tg.Remove([]byte(tt.text)); !errors.Is(err, tt.remove) || (err == nil) != (tt.remove == nil) {
			t.Errorf("%s: removing gives %v", tt.name, err)
		}
	}
}

// What `codex mcp add` wrote is as good.
func TestInstalledByHand(t *testing.T) {
	target, err := FindTarget(newMachine(t).env, "codex", config.ScopeUser)
	if err != nil {
		t.Fatal(err)
	}
	text := "[mcp_servers.patchbay]\ncommand = \"patchbay\"\nargs = [\"serve\", \"--stdio\"]\n"
	if out, err := target.Set([]byte(text), testSelf["stdio"]); err != nil || string(out) != text {
		t.Errorf("%v\n%s", err, out)
	}
}

// What a person added to the entry stays.
func TestInstallKeepsAdditions(t *testing.T) {
	target, err := FindTarget(newMachine(t).env, "cursor", config.ScopeUser)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"mcpServers": {"patchbay": {"args": ["serve", "--stdio"], "command": "/opt/patch bay/patchbay", "env": {"A": "b"}}}} /* mine */`)
	if out, err := target.Set(text, testSelf["stdio"]); err != nil || string(out) != string(text) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := target.Set(text, testSelf["http"]); err != nil || !strings.HasSuffix(string(out), "/* mine */") || strings.Contains(string(out), "command") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A block that is put into any file leaves what else it says, and can be taken
// out again.
func FuzzInstallBlock(f *testing.F) {
	f.Add("model = 1\n[a]\nb = \"c\"", true)
	f.Add("extensions:\n  a:\n    cmd: x\nz: 1\n", false)
	f.Add("extensions:\n- a\n# >>> patchbay\n# <<< patchbay", false)
	f.Add("a: |\n  extensions:\nextensions:\n", false)
	f.Fuzz(func(t *testing.T, text string, toml bool) {
		target := Target{File: "config.yaml", form: forms()["goose"]}
		if toml {
			target = Target{File: "config.toml", form: forms()["codex"]}
		}
		out, err := target.Set([]byte(text), testSelf["stdio"])
		if err != nil {
			return
		}
		rest, _, _, err := cutBlock([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		before, err := target.parse(rest)
		if err != nil {
			t.Fatalf("%v: %q was accepted", err, text)
		}
		after, err := target.parse(out)
		if err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		if target.Texts(out) == nil || string(target.without(after).JSON()) != string(target.without(before).JSON()) {
			t.Fatalf("%q became %q", text, out)
		}
		back, err := target.Remove(out)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimRight(string(back), "\r\n") != strings.TrimRight(string(rest), "\r\n") {
			t.Fatalf("%q became %q and %q", rest, out, back)
		}
	})
}
