//go:build unix

package secret

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func secrets(values map[string]string) map[string]config.Secret {
	out := map[string]config.Secret{}
	for k, v := range values {
		out[k] = config.NewSecret(v)
	}
	return out
}

func revealed(values map[string]config.Secret) map[string]string {
	out := map[string]string{}
	for k, v := range values {
		out[k] = v.Reveal()
	}
	return out
}

// resolve expands and resolves a server, as is done before connecting.
func resolve(t *testing.T, r *Resolver, e config.Entry, allow bool) (config.Server, []config.Problem) {
	t.Helper()
	s, problems := config.Expand(e.Server, e.Dialect, config.Vars{Lookup: r.opts.Lookup})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return r.ResolveServer(t.Context(), e, s, allow)
}

func TestResolveServer(t *testing.T) {
	r := newResolver(t)
	e := config.Entry{
		Dialect: config.DialectPatchbay, Origin: config.Origin{File: "/home/u/mcp.json", Line: 3, Pointer: "/mcpServers/s"},
		Server: config.Server{
			Command: "c",
			Env: secrets(map[string]string{
				"CMD": "!echo out", "NAME": "NAMED", "LOWER": "lower", "LITERAL": "plain text", "NONE": "", "UNSET": "SOME_WORD",
				"FAILS": "!echo hunter2; exit 2", "EXPANDED": "${NAMED}",
				// The content of a variable is neither run nor looked up.
				"TRICKED": "${TRICK}", "POINTED": "${POINTER}",
			}),
			Headers: secrets(map[string]string{"H": "!echo header", "G": "!false"}),
			Auth:    &config.Auth{Mode: config.AuthAPIKey, Key: config.NewSecret("!echo key"), ValuePrefix: "NAMED"},
		},
	}
	got, problems := resolve(t, r, e, true)
	want := map[string]string{
		"CMD": "out", "NAME": "from-env", "LOWER": "from-lower", "LITERAL": "plain text", "NONE": "", "UNSET": "SOME_WORD",
		"EXPANDED": "from-env", "TRICKED": "!echo pwned", "POINTED": "NAMED",
	}
	if diff := cmp.Diff(want, revealed(got.Env)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"H": "header"}, revealed(got.Headers)); diff != "" {
		t.Error(diff)
	}
	if got.Auth.Key.Reveal() != "key" || got.Auth.ValuePrefix != "NAMED" {
		t.Errorf("auth: %q, %q", got.Auth.Key.Reveal(), got.Auth.ValuePrefix)
	}
	var texts []string
	for _, p := range problems {
		texts = append(texts, fmt.Sprint(p.Severity, " ", p))
	}
	wantProblems := []string{
		`warning /home/u/mcp.json:3: env "FAILS" is left out: its command failed: exit status 2 (at /mcpServers/s/env/FAILS)`,
		`warning /home/u/mcp.json:3: env "UNSET" looks like the name of a variable that is not set; it is taken as it is written (at /mcpServers/s/env/UNSET)`,
		`warning /home/u/mcp.json:3: the header "G" is left out: its command failed: exit status 1 (at /mcpServers/s/headers/G)`,
	}
	if diff := cmp.Diff(wantProblems, texts); diff != "" {
		t.Error(diff)
	}
	if e.Server.Env["CMD"].Reveal() != "!echo out" {
		t.Error("the entry was changed")
	}
}

// Only dialects whose products do so resolve whole values.
func TestResolveServerOtherDialects(t *testing.T) {
	r := newResolver(t)
	for _, d := range []config.Dialect{config.DialectClaude, config.DialectCursor, config.DialectNone, config.DialectGemini} {
		e := config.Entry{Dialect: d, Server: config.Server{Command: "c", Env: secrets(map[string]string{"A": "!echo x", "B": "NAMED"})}}
		got, problems := resolve(t, r, e, true)
		if diff := cmp.Diff(revealed(e.Server.Env), revealed(got.Env)); diff != "" || len(problems) > 0 {
			t.Errorf("%s: %s %v", d, diff, problems)
		}
	}
}

func TestResolveServerRefusesCommands(t *testing.T) {
	r := newResolver(t)
	canary := filepath.Join(t.TempDir(), "canary")
	e := config.Entry{
		Dialect: config.DialectOMP,
		Server:  config.Server{Command: "c", Env: secrets(map[string]string{"A": "!echo x >" + canary, "B": "NAMED"})},
	}
	got, problems := resolve(t, r, e, false)
	if diff := cmp.Diff(map[string]string{"B": "from-env"}, revealed(got.Env)); diff != "" {
		t.Error(diff)
	}
	if len(problems) != 1 || problems[0].Severity != config.SeverityError {
		t.Error(problems)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("the command ran")
	}
}

// Of a project's file only what the approval showed as a variable is one.
func TestResolveServerProject(t *testing.T) {
	r := newResolver(t)
	e := config.Entry{
		Dialect: config.DialectPatchbay, Origin: config.Origin{Project: "/src/p"},
		Server: config.Server{Command: "c", Env: secrets(map[string]string{"A": "NAMED", "B": "lower"})},
	}
	got, _ := resolve(t, r, e, true)
	if diff := cmp.Diff(map[string]string{"A": "from-env", "B": "lower"}, revealed(got.Env)); diff != "" {
		t.Error(diff)
	}
	var shown []string
	for _, u := range config.Uses(e.Server, e.Dialect) {
		shown = append(shown, u.Name)
	}
	if !slices.Equal(shown, []string{"NAMED"}) {
		t.Errorf("the approval shows %q", shown)
	}
}

// The forms that name variables, as Codex has them.
func TestResolveServerNamedVariables(t *testing.T) {
	r := newResolver(t)
	e := config.Entry{Dialect: config.DialectNone, Server: config.Server{
		Env: secrets(map[string]string{"lower": "own"}), EnvVars: []string{"NAMED", "lower", "UNSET", "EMPTY"},
		URL: "https://h.test", Headers: secrets(map[string]string{"authorization": "old"}),
		EnvHeaders: map[string]string{"X-A": "NAMED", "X-B": "UNSET", "X-C": "EMPTY"}, BearerTokenEnvVar: "lower",
	}}
	got, problems := resolve(t, r, e, false)
	if diff := cmp.Diff(map[string]string{"NAMED": "from-env", "lower": "own", "EMPTY": ""}, revealed(got.Env)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"X-A": "from-env", "Authorization": "Bearer from-lower"}, revealed(got.Headers)); diff != "" {
		t.Error(diff)
	}
	if len(problems) != 2 || !strings.Contains(problems[0].Message, "UNSET") || !strings.Contains(problems[1].Message, "EMPTY") {
		t.Error(problems)
	}
	if got.EnvVars != nil || got.EnvHeaders != nil || got.BearerTokenEnvVar != "" {
		t.Error("what is resolved is still to be resolved")
	}
	if len(e.Server.Headers) != 1 || len(e.Server.Env) != 1 {
		t.Error("the entry was changed")
	}
}

func TestResolveServerEnvFile(t *testing.T) {
	r := newResolver(t)
	dir := t.TempDir()
	path := filepath.Join(dir, ".env")
	if err := os.WriteFile(path, []byte("A=file\nB=file\nbroken hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := config.Entry{Dialect: config.DialectVSCode, Server: config.Server{Command: "c", Env: secrets(map[string]string{"A": "own"}), EnvFile: path}}
	got, problems := resolve(t, r, e, false)
	if diff := cmp.Diff(map[string]string{"A": "own", "B": "file"}, revealed(got.Env)); diff != "" {
		t.Error(diff)
	}
	if len(problems) != 1 || problems[0].Place() != path+":3" || strings.Contains(problems[0].Message, "hunter2") {
		t.Error(problems)
	}
	for _, bad := range []string{filepath.Join(dir, "absent"), dir} {
		e.Server.EnvFile = bad
		got, problems = resolve(t, r, e, false)
		if len(problems) != 1 || len(got.Env) != 1 {
			t.Errorf("%s: %v", bad, problems)
		}
	}
}

func TestParseEnvFile(t *testing.T) {
	const text = "\xef\xbb\xbf# comment\r\n" + `
A=1
 B = two words  # comment
export C=x#y
D="a\tb\n\"q\" \$E # no comment" # comment
E='as $A "it" is\n'
F=
G=""
H.i-j=k
A=again
URL=https://h.test/#part?x=y
` + "LAST=${A}"
	values, problems := ParseEnvFile([]byte(text))
	want := map[string]string{
		"A": "again", "B": "two words", "C": "x#y", "D": "a\tb\n\"q\" $E # no comment", "E": `as $A "it" is\n`,
		"F": "", "G": "", "H.i-j": "k", "URL": "https://h.test/#part?x=y", "LAST": "${A}",
	}
	if diff := cmp.Diff(want, revealed(values)); diff != "" || len(problems) > 0 {
		t.Error(diff, problems)
	}
	for _, bad := range []string{"hunter2", "=hunter2", "1A=hunter2", "a b=hunter2", `A="hunter2`, `A='hunter2`, `A="x" hunter2`, "A=\x00hunter2"} {
		values, problems := ParseEnvFile([]byte("OK=1\n" + bad))
		if len(values) != 1 || len(problems) != 1 || problems[0].Line != 2 || strings.Contains(problems[0].Message, "hunter2") {
			t.Errorf("%q: %d values, %v", bad, len(values), problems)
		}
	}
}

func FuzzParseEnvFile(f *testing.F) {
	f.Add("A=1\nexport B='x' # c\nC=\"\\n\"\n")
	f.Add("\xef\xbb\xbfA = \"unclosed\n=\n#\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, problems := ParseEnvFile([]byte(text))
		if len(values)+len(problems) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d values and %d problems from %q", len(values), len(problems), text)
		}
		// Written out again, the values are the same.
		var b strings.Builder
		escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !envName.MatchString(name) {
				t.Fatalf("%q is no name", name)
			}
			fmt.Fprintf(&b, "%s=\"%s\"\n", name, escape.Replace(values[name].Reveal()))
		}
		again, problems := ParseEnvFile([]byte(b.String()))
		if !maps.Equal(values, again) || len(problems) > 0 {
			t.Fatalf("%q became %q: %v", revealed(values), revealed(again), problems)
		}
	})
}

func FuzzParseHeaders(f *testing.F) {
	f.Add(`{"A":"b"}`)
	f.Add(`{"A\n":"b"}`)
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := parseHeaders([]byte(text))
		if (err == nil) != (headers != nil) {
			t.Fatalf("%d headers, %v", len(headers), err)
		}
		for name, value := range headers {
			if !headerName.MatchString(name) || strings.ContainsAny(value.Reveal(), "\r\n\x00") {
				t.Fatalf("%q: %q", name, value.Reveal())
			}
		}
	})
}
