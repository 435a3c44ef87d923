package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testVars is a small world: two variables, one of them empty, a workspace.
func testVars() Vars {
	env := map[string]string{"SET": "value", "EMPTY": "", "NESTED": "${SET} $SET {env:SET} !id $(id)"}
	return Vars{
		Lookup:        func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		WorkspaceRoot: "/src/proj", Home: "/home/u", OS: "linux",
		File: func(path string) (string, error) {
			if path == "/home/u/.token" || path == "rel/token" {
				return " from-file\n", nil
			}
			return "", errors.New("no such file")
		},
		Input: func(id string) (string, bool) { return "answer", id == "known" },
	}
}

// Each row is one line of the table of placeholders: what becomes of an
// argument, and with which severity it is reported.
func TestExpandDialects(t *testing.T) {
	tests := []struct {
		dialect Dialect
		in      string
		want    string
		problem Severity
	}{
		{DialectPatchbay, "a ${SET} b ${SET}", "a value b value", ""},
		{DialectPatchbay, "${env:SET}", "value", ""},
		{DialectPatchbay, "${SET:-d}", "value", ""},
		{DialectPatchbay, "${NOPE:-d}", "d", ""},
		{DialectPatchbay, "${NOPE:-}", "", ""},
		{DialectPatchbay, "${EMPTY}", "", ""},
		{DialectPatchbay, "${EMPTY:-d}", "d", ""},
		{DialectPatchbay, "${workspaceRoot}/x", "/src/proj/x", ""},
		{DialectPatchbay, "${NOPE}", "${NOPE}", SeverityError},
		{DialectPatchbay, "${env:NOPE}", "${env:NOPE}", SeverityError},
		{DialectPatchbay, "${workspaceFolder}", "${workspaceFolder}", SeverityError},
		{DialectPatchbay, "${input:x}", "${input:x}", SeverityError},
		{DialectPatchbay, "$${SET}", "${SET}", ""},
		{DialectPatchbay, "$SET %SET% {env:SET} $(id) ${", "$SET %SET% {env:SET} $(id) ${", ""},

		{DialectOMP, "${SET}", "value", ""},
		{DialectOMP, "${EMPTY}", "", ""},
		{DialectOMP, "${EMPTY:-d}", "d", ""},
		{DialectOMP, "${NOPE:-d}", "d", ""},
		{DialectOMP, "${NOPE}", "${NOPE}", SeverityWarning},
		{DialectOMP, "${env:SET}", "${env:SET}", SeverityWarning},
		{DialectOMP, "$${SET}", "$value", ""},

		{DialectClaude, "${SET}-${NOPE:-d}", "value-d", ""},
		{DialectClaude, "${EMPTY:-d}", "", ""},
		{DialectClaude, "${NOPE:-http://x:8080/{id}", "http://x:8080/{id", ""},
		{DialectClaude, "${NOPE}", "${NOPE}", SeverityWarning},
		{DialectClaude, "$SET", "$SET", ""},
		{DialectClaude, "${1A}", "${1A}", SeverityWarning},
		{DialectClaude, "${${SET}", "${value", ""},

		{DialectElectric, "${SET} ${env:SET} ${workspaceRoot}", "value value /src/proj", ""},
		{DialectElectric, "${NOPE}", "${NOPE}", SeverityError},
		{DialectElectric, "${NOPE:-d}", "${NOPE:-d}", SeverityError},

		{DialectCursor, "${env:SET}", "value", ""},
		{DialectCursor, "${workspaceFolder}|${workspaceFolderBasename}|${userHome}|${pathSeparator}|${/}", "/src/proj|proj|/home/u|/|/", ""},
		{DialectCursor, "${env:NOPE}", "${env:NOPE}", SeverityWarning},
		{DialectCursor, "${SET}", "${SET}", SeverityWarning},

		{DialectVSCode, "${env:SET} ${workspaceFolder} ${userHome}", "value /src/proj /home/u", ""},
		{DialectVSCode, "${env:NOPE}", "", SeverityWarning},
		{DialectVSCode, "${input:known}", "answer", ""},
		{DialectVSCode, "${input:pg-url}", "${input:pg-url}", SeverityError},
		{DialectVSCode, "${command:x}", "${command:x}", SeverityWarning},

		{DialectEnvOnly, "Bearer ${env:SET} ${workspaceFolder}", "Bearer value /src/proj", ""},
		{DialectEnvOnly, "${env:NOPE}", "${env:NOPE}", SeverityWarning},

		{DialectGemini, "$SET ${SET}", "value value", ""},
		{DialectGemini, "$SETX", "", SeverityWarning},
		{DialectGemini, "${NOPE}", "", SeverityWarning},
		{DialectGemini, "${NOPE:-d}", "d", ""},
		{DialectGemini, "%SET%", "%SET%", ""},
		{DialectGemini, "$5 and 100% $", "$5 and 100% $", ""},

		{DialectOpencode, "{env:SET}", "value", ""},
		{DialectOpencode, "{env:NOPE}", "", SeverityWarning},
		{DialectOpencode, "{file:~/.token}|{file:rel/token}", "from-file|from-file", ""},
		{DialectOpencode, "{file:/missing}", "{file:/missing}", SeverityError},
		{DialectOpencode, "{other} {env:}", "{other} {env:}", ""},

		{DialectShell, "$SET ${SET} ${NOPE:-d} ${EMPTY:-d}", "value value d d", ""},
		{DialectShell, "$NOPE", "", SeverityWarning},
		{DialectShell, `\$SET \\ a\b`, `$SET \ a\b`, ""},
		{DialectShell, "$(cat /x)", "$(cat /x)", SeverityError},
		{DialectShell, "`id`", "`id`", SeverityError},
		{DialectShell, "${NOPE:-$(id)}", "${NOPE:-$(id)}", SeverityError},
		{DialectShell, "${#SET}", "${#SET}", SeverityError},

		{DialectDollar, "$SET ${SET}", "value value", ""},
		{DialectDollar, "$NOPE ${NOPE}", "$NOPE ${NOPE}", SeverityWarning},
		{DialectBraces, "$SET ${SET}", "$SET value", ""},

		{DialectSecrets, "${{ secrets.SET }}${{secrets.SET}}", "valuevalue", ""},
		{DialectSecrets, "${{ secrets.NOPE }}", "${{ secrets.NOPE }}", SeverityWarning},
		{DialectSecrets, "${{ inputs.SET }}", "${{ inputs.SET }}", SeverityWarning},

		{DialectMcporter, "$env:SET ${SET} ${NOPE:-d} ${EMPTY:-d}", "value value d d", ""},
		{DialectMcporter, "$env:NOPE", "$env:NOPE", SeverityWarning},

		{DialectNone, "${SET} $SET {env:SET} %SET% $(id)", "${SET} $SET {env:SET} %SET% $(id)", ""},
		{Dialect("no such"), "${SET}", "${SET}", SeverityWarning},
	}
	for _, tt := range tests {
		t.Run(string(tt.dialect)+" "+tt.in, func(t *testing.T) {
			out, problems := Expand(Server{Command: "x", Args: []string{tt.in}}, tt.dialect, testVars())
			if out.Args[0] != tt.want {
				t.Errorf("got %q, want %q", out.Args[0], tt.want)
			}
			if worst := worst(problems); worst != tt.problem {
				t.Errorf("severity %q, want %q: %v", worst, tt.problem, problems)
			}
		})
	}
}

func worst(problems []Problem) Severity {
	var w Severity
	for _, p := range problems {
		if w == "" || p.Severity == SeverityError {
			w = p.Severity
		}
	}
	return w
}

func TestExpandWindows(t *testing.T) {
	v := testVars()
	v.OS = "windows"
	out, problems := Expand(Server{Args: []string{"%SET%", "${pathSeparator}"}}, DialectGemini, v)
	if out.Args[0] != "value" {
		t.Errorf("Gemini's %%SET%% on Windows: %q %v", out.Args[0], problems)
	}
	out, _ = Expand(Server{Args: []string{"${/}"}}, DialectCursor, v)
	if out.Args[0] != `\` {
		t.Errorf("separator on Windows: %q", out.Args[0])
	}
}

// A placeholder that nothing stands for never reaches the wire, in any dialect.
func TestExpandWire(t *testing.T) {
	texts := []string{"${NOPE}", "Bearer ${NOPE}", "${env:NOPE}", "${{ secrets.NOPE }}", "${NOPE:-${SET}}", "${weird thing}", "$env:NOPE"}
	for d := range allDialects() {
		for _, text := range texts {
			s := Server{
				URL:     "https://h.test/" + text,
				Headers: map[string]Secret{"X-Key": NewSecret(text), "X-Plain": NewSecret("plain")},
				Auth:    &Auth{Mode: AuthAPIKey, Key: NewSecret(text)},
				OAuth:   &OAuth{ClientID: text},
			}
			out, problems := Expand(s, d, testVars())
			values := []string{out.URL, out.Auth.Key.Reveal(), out.OAuth.ClientID}
			for _, h := range out.Headers {
				values = append(values, h.Reveal())
			}
			for _, v := range values {
				if strings.Contains(v, "${") && !strings.HasPrefix(v, "https://h.test/$${") {
					t.Errorf("%s: %q goes on the wire as %q; %v", d, text, v, problems)
				}
			}
			if out.Headers["X-Plain"].Reveal() != "plain" {
				t.Errorf("%s: a header without placeholders got lost", d)
			}
			if s.URL != "https://h.test/"+text || len(s.Headers) != 2 || s.Auth.Key.Reveal() != text {
				t.Fatalf("%s: the server given was changed", d)
			}
		}
	}
}

func allDialects() map[Dialect]grammar {
	all := maps.Clone(dialects)
	all[DialectNone] = grammar{}
	return all
}

// What an unset variable costs depends on what its value is for.
func TestExpandUnresolved(t *testing.T) {
	s := Server{
		Command: "${CMD}", Args: []string{"-x", "${ARG}"}, Cwd: "${CWD}", EnvFile: "${FILE}",
		Env: map[string]Secret{"A": NewSecret("${ENV}")},
		URL: "${URL}", Headers: map[string]Secret{"H": NewSecret("${HEADER}")},
		Auth:          &Auth{Key: NewSecret("${KEY}"), Client: &OAuthClient{ClientID: "${CID}"}, Tokens: &OAuthTokens{AccessToken: NewSecret("${TOK}")}},
		OAuth:         &OAuth{Scopes: []string{"a", "${SCOPE}"}},
		HeadersHelper: "print ${HELPER}",
	}
	_, problems := Expand(s, DialectClaude, Vars{})
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s %s %s", p.Severity, p.Pointer, p.Message))
	}
	want := []string{
		"error /command CMD is not set, but command needs it",
		"warning /args/1 ARG is not set: the text stays as it is in args[1]",
		`warning /env/A ENV is not set: the text stays as it is in env "A"`,
		"error /envFile FILE is not set, but envFile needs it",
		"error /cwd CWD is not set, but cwd needs it",
		"error /url URL is not set, but url needs it",
		`warning /headers/H HEADER is not set: the header "H" is left out`,
		"error /auth/key KEY is not set, but auth.key needs it",
		"error /auth/client/clientId CID is not set, but auth.client.clientId needs it",
		"error /auth/tokens/accessToken TOK is not set, but auth.tokens.accessToken needs it",
		"error /oauth/scopes/1 SCOPE is not set, but oauth.scopes.1 needs it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	_, problems = Expand(s, DialectPatchbay, Vars{})
	if len(problems) != len(want)+1 {
		t.Errorf("our own files: %d problems, want one for each variable: %v", len(problems), problems)
	}
	for _, p := range problems {
		if p.Severity != SeverityError {
			t.Errorf("our own files: %v is no error", p)
		}
	}
}

// What is not set is told with a default, where the product has them.
func TestExpandHints(t *testing.T) {
	for dialect, want := range map[Dialect]bool{
		DialectPatchbay: true, DialectOMP: true, DialectClaude: true, DialectGemini: true, DialectShell: true, DialectMcporter: true,
		DialectElectric: false, DialectDollar: false,
	} {
		_, problems := Expand(Server{Command: "x", Args: []string{"${NOPE}"}}, dialect, testVars())
		if len(problems) != 1 || strings.Contains(problems[0].Hint, "${NOPE:-default}") != want {
			t.Errorf("%s: %+v", dialect, problems)
		}
	}
}

func TestExpandToNothing(t *testing.T) {
	for _, s := range []Server{{Command: "$NOPE"}, {URL: "$NOPE"}} {
		_, problems := Expand(s, DialectGemini, testVars())
		if worst(problems) != SeverityError {
			t.Errorf("%+v: an empty command or URL must be an error: %v", s, problems)
		}
	}
}

// The content of a variable is data: neither expanded, nor run, nor reported.
func TestExpandContentIsData(t *testing.T) {
	want, _ := testVars().Lookup("NESTED")
	for d, text := range map[Dialect]string{
		DialectPatchbay: "${NESTED}", DialectOMP: "${NESTED}", DialectClaude: "${NESTED}", DialectGemini: "$NESTED", DialectShell: "$NESTED",
		DialectOpencode: "{env:NESTED}", DialectCursor: "${env:NESTED}", DialectSecrets: "${{ secrets.NESTED }}", DialectMcporter: "$env:NESTED",
	} {
		s := Server{URL: "https://h.test", Headers: map[string]Secret{"H": NewSecret(text)}, Env: map[string]Secret{"E": NewSecret(text)}}
		out, problems := Expand(s, d, testVars())
		if out.Headers["H"].Reveal() != want || out.Env["E"].Reveal() != want || len(problems) > 0 {
			t.Errorf("%s: %q %q %v", d, out.Headers["H"].Reveal(), out.Env["E"].Reveal(), problems)
		}
	}
}

// Text that a shell will run is left to the shell.
func TestExpandShellText(t *testing.T) {
	const cmd = "!pass show ${SET}"
	s := Server{
		URL: "https://h.test", HeadersHelper: "helper ${SET} ${NOPE:-x}",
		Headers: map[string]Secret{"H": NewSecret(cmd)}, Env: map[string]Secret{"E": NewSecret(cmd)},
		Auth: &Auth{Key: NewSecret(cmd)},
	}
	for _, d := range []Dialect{DialectPatchbay, DialectOMP} {
		out, problems := Expand(s, d, testVars())
		if out.HeadersHelper != s.HeadersHelper || out.Headers["H"].Reveal() != cmd || out.Env["E"].Reveal() != cmd || out.Auth.Key.Reveal() != cmd || len(problems) > 0 {
			t.Errorf("%s: %v", d, problems)
		}
	}
	out, _ := Expand(s, DialectClaude, testVars())
	if got := out.Env["E"].Reveal(); got != "!pass show value" {
		t.Errorf("to Claude a leading ! means nothing: %q", got)
	}
	for _, bad := range []string{"!x ${NOPE}", "!x ${env:SET}", "!x ${workspaceRoot}"} {
		_, problems := Expand(Server{Command: "c", Env: map[string]Secret{"E": NewSecret(bad)}}, DialectPatchbay, testVars())
		if worst(problems) != SeverityError {
			t.Errorf("%q: %v", bad, problems)
		}
	}
}

func TestExpandTooLong(t *testing.T) {
	v := Vars{Lookup: func(string) (string, bool) { return strings.Repeat("x", maxExpanded/2), true }}
	out, problems := Expand(Server{Command: "c", Args: []string{"${A}${B}${C}"}}, DialectClaude, v)
	if worst(problems) != SeverityError || len(out.Args[0]) > maxExpanded {
		t.Errorf("%d bytes, %v", len(out.Args[0]), problems)
	}
}

func TestExpandManyVariables(t *testing.T) {
	var names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&names, "${V%d}", i)
	}
	s := Server{Command: "c", Args: []string{names.String()}}
	if got := len(References(s, DialectClaude)); got != 20_000 {
		t.Errorf("%d references", got)
	}
	if _, problems := Expand(s, DialectClaude, Vars{}); len(problems) != 20_000 {
		t.Errorf("%d problems", len(problems))
	}
}

// A problem quotes no part of a value that might be a password.
func TestExpandProblemsKeepSecrets(t *testing.T) {
	s := Server{URL: "https://h.test", Headers: map[string]Secret{"H": NewSecret("pa${ss}w?rd ${s3cret!}")}}
	_, problems := Expand(s, DialectCursor, testVars())
	if text := fmt.Sprint(problems); strings.Contains(text, "ss}") || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
	if len(problems) == 0 {
		t.Error("nothing reported")
	}
}

func TestUses(t *testing.T) {
	s := Server{
		Command: "${CMD}", Args: []string{"${ARG:-x}", "$OTHER"}, EnvVars: []string{"PASSED"},
		Env:     map[string]Secret{"E": NewSecret("WHOLE_NAME"), "F": NewSecret("debug"), "G": NewSecret("!get ${INSHELL}")},
		URL:     "https://${HOST}/${CMD}",
		Headers: map[string]Secret{"H": NewSecret("AWS_SECRET")}, EnvHeaders: map[string]string{"K": "KEYVAR"}, BearerTokenEnvVar: "BEARER",
		HeadersHelper: "helper ${HELP}",
	}
	if diff := cmp.Diff([]string{"ARG", "BEARER", "CMD", "HELP", "HOST", "INSHELL", "KEYVAR", "PASSED"}, References(s, DialectPatchbay)); diff != "" {
		t.Error(diff)
	}
	var sent []string
	for _, u := range Uses(s, DialectPatchbay) {
		if u.Sent {
			sent = append(sent, u.Name+" in "+u.Member)
		}
	}
	if diff := cmp.Diff([]string{`AWS_SECRET in the header "H"`, `BEARER in the header "Authorization"`, "CMD in url", "HOST in url", `KEYVAR in the header "K"`}, sent); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"BEARER", "HELP", "HOST", "INSHELL", "KEYVAR"}, Unset(s, DialectPatchbay, Vars{Lookup: func(n string) (string, bool) { return "", n == "CMD" }})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"helper ${HELP}", "get ${INSHELL}"}, Executes(s, DialectPatchbay)); diff != "" {
		t.Error(diff)
	}
	if got := Executes(s, DialectClaude); !slices.Equal(got, []string{"helper ${HELP}"}) {
		t.Errorf("only some dialects run !commands: %q", got)
	}
	if got := References(Server{Command: "c", Args: []string{"%TEMP%", "${X}"}}, DialectGemini); !slices.Equal(got, []string{"TEMP", "X"}) {
		t.Errorf("%q", got)
	}
	if got := Unset(Server{Command: "c", Args: []string{"%TEMP%", "${X}"}}, DialectGemini, Vars{OS: "linux"}); !slices.Equal(got, []string{"X"}) {
		t.Errorf("%q", got)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "a", "${A}", "${A:-b}", "${A:-${B}}", "$A%B%{env:C}{file:d}${{ secrets.E }}$(f)`g`\\$", "${${${", "{env:{file:", "$${", "${input:x}${/}", "\xff${\xffA}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for d := range allDialects() {
			joined := ""
			for _, p := range d.parse(text) {
				joined += p.text
				if p.text == "" {
					t.Fatalf("%s: an empty part of %q", d, text)
				}
			}
			if joined != text {
				t.Fatalf("%s: the parts of %q join to %q", d, text, joined)
			}
			s := Server{Command: text, Args: []string{text}, URL: text, Headers: map[string]Secret{"h": NewSecret(text)}, HeadersHelper: text}
			out, problems := Expand(s, d, Vars{})
			if len(out.Args[0]) > len(text) {
				t.Fatalf("%s: %q grew to %q", d, text, out.Args[0])
			}
			if !strings.ContainsAny(text, "${%\\`") && (out.Args[0] != text || len(problems) > 0 && text != "") {
				t.Fatalf("%s: text without placeholders %q became %q: %v", d, text, out.Args[0], problems)
			}
			if h, ok := out.Headers["h"]; ok && !strings.HasPrefix(text, "!") && leftover.MatchString(h.Reveal()) && !strings.Contains(text, "$${") {
				t.Fatalf("%s: %q goes on the wire as %q", d, text, h.Reveal())
			}
			// With a content that would be a placeholder in every dialect, no
			// piece of it is touched, wherever it was put.
			const content = "${A}$A{env:A}%A%$(A)"
			out, _ = Expand(s, d, Vars{OS: "windows", Lookup: func(string) (string, bool) { return content, true }})
			if n := strings.Count(out.Args[0], content); len(out.Args[0]) > len(text)+n*len(content) {
				t.Fatalf("%s: %q became %q", d, text, out.Args[0])
			}
		}
	})
}

// A translated value that is not reported means in our files what it meant in
// its own.
func FuzzTranslate(f *testing.F) {
	for _, s := range []string{"${A}", "$${A}", "$$A", "$$$A", "a$\\{b", "{env:A}$", "${A:-b}", "\\$A", "${{ secrets.A }}", "$(x)", "${", "%A%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars := Vars{Lookup: func(name string) (string, bool) { return "<" + name + ">", true }, WorkspaceRoot: "/w", Home: "<HOME>", OS: "linux"}
		s := Server{Command: "c", Args: []string{text}}
		for d := range allDialects() {
			native, unclear := Translate(s, d)
			if len(unclear) > 0 {
				continue
			}
			want, problems := Expand(s, d, vars)
			if worst(problems) == SeverityError {
				continue
			}
			if got, problems := Expand(native, DialectPatchbay, vars); got.Args[0] != want.Args[0] {
				t.Fatalf("%s: %q means %q, but its translation %q means %q: %v", d, text, want.Args[0], native.Args[0], got.Args[0], problems)
			}
		}
	})
}
