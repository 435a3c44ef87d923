package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestDescribeProcess(t *testing.T) {
	e := config.Entry{
		Name: "build", Dialect: config.DialectPatchbay,
		Origin: config.Origin{Product: "Patchbay", Scope: config.ScopeProject, File: "/src/p/.patchbay/mcp.json", Line: 4, Project: "/src/p"},
		Server: config.Server{
			Command: "npx", Args: []string{"-y", "@acme/build", "", " two  spaces ", "--config=./build.json", "rm\x1b[2K\u202e -rf"},
			Env: map[string]config.Secret{
				"TOKEN": config.NewSecret("${BUILD_TOKEN}"), "LITERAL": config.NewSecret("hunter2"), "CMD": config.NewSecret("!pass show x"),
				"NODE_OPTIONS": config.NewSecret("--require=./evil.js"), "NAMED": config.NewSecret("AWS_SECRET"),
			},
			EnvVars: []string{"LANG"}, EnvFile: "/src/p/.env", Sandbox: []byte(`{"network":false}`),
		},
	}
	l := LaunchOf(e)
	l.ResolvedCommand = "/usr/bin/npx"
	want := `
Server       build (stdio)
Declared in  /src/p/.patchbay/mcp.json:4 (Patchbay, project scope)
Project      /src/p
Command      npx
Program      /usr/bin/npx
Arguments    -y
             @acme/build
             ""
             " two  spaces "
             --config=./build.json
             rm<U+001B>[2K<U+202E> -rf
Directory    the project
Sets         CMD = !pass show x
             LITERAL = hunter2
             NAMED = AWS_SECRET
             NODE_OPTIONS = --require=./evil.js
             TOKEN = ${BUILD_TOKEN}
Passes on    LANG
Reads        /src/p/.env
Also runs    pass show x
Gives        the variable AWS_SECRET, if one of that name is set, to env "NAMED"
             the variable BUILD_TOKEN to env "TOKEN"
             the variable LANG to envVars
Warnings     fetches @acme/build without an exact version: what runs can change without asking again
             --config=./build.json may be a file of this project; a change of its content does not ask again
             CMD is set by the project; what it changes is up to the program
             LITERAL is set by the project; what it changes is up to the program
             NAMED is set by the project; what it changes is up to the program
             NODE_OPTIONS can change which code runs
             the variables in /src/p/.env can change without asking again
             sandbox has no effect yet: nothing confines the program
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), Describe(l)); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeRemote(t *testing.T) {
	e := config.Entry{
		Name: "docs", Dialect: config.DialectClaude,
		Origin: config.Origin{Product: "Claude Code", Scope: config.ScopeProject, File: "/src/p/.mcp.json", Line: 2, Project: "/src/p"},
		Server: config.Server{
			Type: config.HTTP, URL: "https://docs.test:8443/mcp?team=${TEAM}",
			Headers:       map[string]config.Secret{"Authorization": config.NewSecret("Bearer ${DOCS_TOKEN}"), "X-Key": config.NewSecret("hunter2")},
			HeadersHelper: "./headers.sh", EnvHeaders: map[string]string{"X-Org": "ORG"}, BearerTokenEnvVar: "BEARER",
			Auth: &config.Auth{Mode: config.AuthClientCredentials, TokenURL: "https://login.test/token", ClientID: config.NewSecret("${CID}"), ClientSecret: config.NewSecret("hunter2")},
		},
	}
	want := `
Server          docs (http)
Declared in     /src/p/.mcp.json:2 (Claude Code, project scope)
Project         /src/p
URL             https://docs.test:8443/mcp?team=${TEAM}
Headers         Authorization: Bearer ${DOCS_TOKEN}
                X-Key: hunter2
                X-Org: the variable ORG
                Authorization: Bearer and the variable BEARER
Header program  ./headers.sh
Login           clientCredentials
Login at        https://login.test/token
Sends           the variable BEARER to https://docs.test:8443 (in the header "Authorization")
                the variable CID to https://login.test (in auth.clientId)
                the variable DOCS_TOKEN to https://docs.test:8443 (in the header "Authorization")
                the variable ORG to https://docs.test:8443 (in the header "X-Org")
                the variable TEAM to https://docs.test:8443 (in url)
Warnings        ./headers.sh may be a file of this project; a change of its content does not ask again
                auth.mode clientCredentials has no effect yet: nobody is logged in, and nothing is sent
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), Describe(LaunchOf(e))); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeDestination(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h.test/${X}":         "https://h.test",
		"https://${HOST}/mcp":         "wherever https://${HOST}/mcp leads",
		"${URL}":                      "wherever ${URL} leads",
		"https://good.test@evil.test": "https://evil.test",
		"http://h.test:81":            "http://h.test:81",
	} {
		if got := origin(raw); got != want {
			t.Errorf("origin(%q) = %q, want %q", raw, got, want)
		}
	}
}

// Whatever text a launch holds, now or later, is shown, and harmlessly. What
// need not be shown is listed here, with the reason.
func TestDescribeShowsEverything(t *testing.T) {
	hidden := map[string]string{
		".ProjectID": "stands for .Project", ".Dialect": "shown by what it makes of placeholders",
		".Server.Auth.ValuePrefix": "part of a header's value", ".Server.Auth.Type": "shown when there is no mode",
		".Server.Auth.Client.ClientID": "public", ".Server.OAuth.CallbackPath": "on this machine", ".Server.OAuth.Prompt": "a hint",
		".Origin.Provider": "stands for .Origin.Product", ".Origin.Project": "shown as .Project", ".Origin.Pointer": "stands for the line",
		".Origin.AlsoReadBy": "no part of what is approved", ".Server.Description": "no part of what is approved",
		".Files[0].Named": "shown as .Argument and .Path", ".Files[1].Named": "shown as .Argument and .Path",
		".Server.Pin": "no part of what is approved: a project cannot lower it",
	}
	var l Launch
	fill(reflect.ValueOf(&l).Elem())
	l.Server = launchFields(l.Server)
	n := 0
	visitStrings(reflect.ValueOf(&l).Elem(), "", func(path string, v reflect.Value) {
		n++
		old := v.String()
		v.SetString(fmt.Sprintf("<mark%d>\x1b\r\n\u202e\u200b", n))
		text := Describe(l)
		for _, r := range text {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Errorf("%s: %U reaches the terminal", path, r)
			}
		}
		_, mayHide := hidden[strings.TrimRight(path, "[01]")]
		if shows := strings.Contains(text, fmt.Sprintf("<mark%d><U+001B><U+000D><U+000A><U+202E><U+200B>", n)); !shows && !mayHide {
			t.Errorf("%s is not shown:\n%s", path, text)
		}
		v.SetString(old)
	})
	if n < 30 {
		t.Errorf("only %d texts tried", n)
	}
}

// What the project's file sets is shown as it is, and pointed at unless it is
// known to be harmless.
func TestDescribeVariables(t *testing.T) {
	for name, want := range map[string]string{
		"HOME=./evil": "HOME can change which code runs", "PYTHONUSERBASE=/src/p/.py": "PYTHONUSERBASE can change which code runs",
		"GOFLAGS=-toolexec=./x": "GOFLAGS can change which code runs", "NODE_EXTRA_CA_CERTS=ca.pem": "NODE_EXTRA_CA_CERTS can change which code runs",
		"HTTPS_PROXY=http://evil.test": "HTTPS_PROXY can change where data goes", "API_BASE=https://evil.test": "API_BASE can change where data goes",
		"DATA=../../x": "DATA names a file or directory", "SOMETHING=x": "SOMETHING is set by the project", "API_KEY=k": "API_KEY is set by the project",
		"CONFIG=${X:-y}": "CONFIG is set by the project", "LOG_LEVEL=debug": "", "LC_ALL=C": "", "TOKEN=${TOKEN}": "",
	} {
		variable, value, _ := strings.Cut(name, "=")
		l := Launch{Project: "/src/p", Server: config.Server{Command: "x", Env: map[string]config.Secret{variable: config.NewSecret(value)}}}
		text := Describe(l)
		if !strings.Contains(text, variable+" = "+value+"\n") {
			t.Errorf("%s is not shown:\n%s", name, text)
		}
		if _, warned, _ := strings.Cut(text, "Warnings"); want == "" && warned != "" || !strings.Contains(warned, want) {
			t.Errorf("%s: %q, want %q", name, warned, want)
		}
	}
}

// visitStrings calls f for every settable string of a value.
func visitStrings(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	if v.Type() == reflect.TypeFor[config.Secret]() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		f(path, v)
	case reflect.Pointer:
		if !v.IsNil() {
			visitStrings(v.Elem(), path, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visitStrings(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(v.Type()) {
			visitStrings(v.FieldByIndex(field.Index), path+"."+field.Name, f)
		}
	}
}

func TestUnpinned(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y pkg":                            "pkg",
		"npx -y @scope/pkg":                     "@scope/pkg",
		"npx -y @scope/pkg@latest":              "@scope/pkg@latest",
		"npx -y pkg@^1.2.3":                     "pkg@^1.2.3",
		"npx -y pkg@1":                          "pkg@1",
		"npx -y pkg@1.2.3":                      "",
		"npx -y @scope/pkg@1.2.3-beta.1":        "",
		"npx --package=a@1.0.0 --package b run": "b",
		"npx -p a@1.0.0 run":                    "",
		"npx --registry https://r.test pkg":     "pkg",
		"npx ./local":                           "",
		"/usr/local/bin/npx pkg":                "pkg",
		`C:\nodejs\npx.cmd pkg`:                 "pkg",
		"cmd /c npx -y pkg":                     "pkg",
		"npm exec -- pkg":                       "pkg",
		"pnpm dlx pkg":                          "pkg",
		"bunx pkg@2.0.0":                        "",
		"uvx pkg":                               "pkg",
		"uvx pkg@latest":                        "pkg@latest",
		"uvx pkg@1.2":                           "",
		"uvx pkg==1.2.3":                        "",
		"uvx --from pkg==1.2.3 cmd":             "",
		"uvx --from pkg cmd":                    "pkg",
		"uvx --from git+https://h.test/r cmd":   "git+https://h.test/r",
		"uvx --python 3.12 pkg[extra]==1.0":     "",
		"uv tool run pkg":                       "pkg",
		"pipx run --spec pkg==1.0 cmd":          "",
		"npx":                                   "",
		"node npx":                              "",
		"cmd /c":                                "",
	} {
		words := strings.Fields(line)
		if got := strings.Join(unpinned(words[0], words[1:]), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestTakesCode(t *testing.T) {
	for line, want := range map[string]bool{
		"sh -c x": true, "/bin/bash -lc x": true, "bash script.sh": false, "cmd.exe /C x": true, "pwsh -EncodedCommand x": true, "powershell -c x": true,
		"powershell -File x": false, "python3 -c x": true, "python3 -m x": false, "node -e x": true, "node --eval=x": true, "node server.js": false, "npx -c x": false,
	} {
		words := strings.Fields(line)
		if got := takesCode(words[0], words[1:]); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestWarnsOfProjectCommands(t *testing.T) {
	for command, want := range map[string]bool{"${workspaceRoot}/run.sh": true, "/src/p/run.sh": true, "node": false, "/usr/bin/node": false} {
		got := strings.Join(warnings(Launch{Project: "/src/p", Server: config.Server{Command: command}}), "\n")
		if strings.Contains(got, "whose content is not checked") != want {
			t.Errorf("%s: %q", command, got)
		}
	}
}

func TestProjectFile(t *testing.T) {
	for arg, want := range map[string]bool{
		"./x": true, "../x": true, "server.py": true, "dist/index.js": true, "/src/p/x": true, "--config=./x": true, "${workspaceFolder}/x": true,
		"/usr/bin/x": false, "/src/parallel": false, "https://h.test/x.js": false, "-y": false, "@scope/pkg": false, "stdio": false, `C:\x.js`: false, "": false,
	} {
		if got := projectFile(arg, "/src/p"); got != want {
			t.Errorf("%q: %v", arg, got)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add("npx", "-y\x00pkg\x00@a/b", "https://${H}/\x1b", "K", "!v")
	f.Add("cmd", "/c", "", "", "")
	f.Fuzz(func(t *testing.T, command, args, url, name, value string) {
		e := config.Entry{Name: name, Dialect: config.DialectPatchbay, Server: config.Server{
			Command: command, Args: strings.Split(args, "\x00"), URL: url,
			Env: map[string]config.Secret{name: config.NewSecret(value)}, Headers: map[string]config.Secret{name: config.NewSecret(value)},
		}}
		text := Describe(LaunchOf(e))
		lines := strings.Split(text, "\n")
		for _, a := range e.Server.Args {
			if want := config.Escape(shownAll([]string{a})[0]); !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "  "+want) }) {
				t.Fatalf("argument %q is not on a line of its own:\n%s", a, text)
			}
		}
		for _, r := range text {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Fatalf("%U reaches the terminal", r)
			}
		}
	})
}
