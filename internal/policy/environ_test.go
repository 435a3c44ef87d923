package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// person is what all programs of a person have in common.
const person = `HOME=/home/ann
USER=ann
LOGNAME=ann
SHELL=/bin/bash
LANG=en_US.UTF-8
PATH=/home/ann/.nvm/versions/node/v22/bin:/usr/local/bin:/usr/bin:/bin
NVM_DIR=/home/ann/.nvm
GITHUB_TOKEN=ghp_one
`

// environments are those of programs that a person starts in different ways, as
// far as they differ.
var environments = map[string]string{
	"bash": person + `TERM=xterm-256color
COLORTERM=truecolor
PWD=/home/ann/work
OLDPWD=/home/ann
SHLVL=1
_=/usr/bin/env
DISPLAY=:0
WAYLAND_DISPLAY=wayland-0
XAUTHORITY=/run/user/1000/.mutter-Xwaylandauth.X1
DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus
SSH_AUTH_SOCK=/run/user/1000/keyring/ssh
XDG_RUNTIME_DIR=/run/user/1000
XDG_SESSION_ID=2
XDG_SESSION_TYPE=wayland
XDG_SESSION_CLASS=user
GNOME_TERMINAL_SCREEN=/org/gnome/Terminal/screen/1
GNOME_TERMINAL_SERVICE=:1.93
VTE_VERSION=7600
WINDOWID=60817411
INVOCATION_ID=7b9d
JOURNAL_STREAM=8:30161
SYSTEMD_EXEC_PID=2141
MANAGERPID=1890
SESSION_MANAGER=local/host:@/tmp/.ICE-unix/2141
`,
	"another window, in tmux": person + `TERM=tmux-256color
TERM_PROGRAM=tmux
TERM_PROGRAM_VERSION=3.4
TMUX=/tmp/tmux-1000/default,3012,0
TMUX_PANE=%4
PWD=/home/ann/other
SHLVL=2
_=/usr/bin/tmux
COLUMNS=180
LINES=50
DISPLAY=:1
SSH_AUTH_SOCK=/tmp/ssh-XXXX/agent.3012
XDG_RUNTIME_DIR=/run/user/1000
XDG_SESSION_ID=7
`,
	"the terminal of VS Code": person + `TERM=xterm-256color
TERM_PROGRAM=vscode
TERM_PROGRAM_VERSION=1.104.0
VSCODE_GIT_IPC_HANDLE=/run/user/1000/vscode-git-5f0.sock
VSCODE_GIT_ASKPASS_NODE=/usr/share/code/code
VSCODE_GIT_ASKPASS_MAIN=/usr/share/code/askpass-main.js
VSCODE_GIT_IPC_AUTH_TOKEN=f00f
VSCODE_INJECTION=1
VSCODE_PID=4711
CHROME_SESSION_ID=1
DISPLAY=:0
PWD=/home/ann/work
SHLVL=2
`,
	"the terminal of Cursor": person + `TERM=xterm-256color
TERM_PROGRAM=vscode
CURSOR_TRACE_ID=0c2f
VSCODE_IPC_HOOK=/run/user/1000/vscode.sock
DISPLAY=:0
`,
	"Claude Code": person + `CLAUDECODE=1
CLAUDE_CODE_ENTRYPOINT=cli
CLAUDE_CODE_SSE_PORT=41123
CLAUDE_CODE_SESSION_ID=0e5c
TERM=xterm-256color
TERM_SESSION_ID=w0t0p0
PWD=/home/ann/work
OLDPWD=/home/ann
SHLVL=3
npm_lifecycle_event=npx
npm_command=exec
npm_config_user_agent=npm/11.0 node/v22
npm_package_json=/home/ann/work/package.json
npm_execpath=/usr/lib/npm/bin/npm-cli.js
npm_node_execpath=/usr/bin/node
npm_config_cache=/home/ann/.npm
INIT_CWD=/home/ann/work
`,
	"ssh": person + `SSH_CONNECTION=10.0.0.2 50022 10.0.0.1 22
SSH_CLIENT=10.0.0.2 50022 22
SSH_TTY=/dev/pts/3
SSH_AUTH_SOCK=/tmp/ssh-YYYY/agent.9
XDG_SESSION_ID=12
XDG_SESSION_TYPE=tty
XDG_RUNTIME_DIR=/run/user/1000
DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus
TERM=screen
STY=9.pts-3.host
WINDOW=0
SHLVL=1
PWD=/home/ann
PATH=/home/ann/.nvm/versions/node/v22/bin:/usr/local/bin:/usr/bin:/home/ann/gone:/usr/bin:/bin
`,
}

func exists(dir string) bool { return dir != "/home/ann/gone" }

// A person who starts the same program from here or from there has one.
func TestEnvironmentsThatAreTheSame(t *testing.T) {
	key := []byte("key")
	hash := func(environ string) string {
		return EnvironHash(key, Deciding(strings.Split(environ, "\n"), exists))
	}
	want := hash(person)
	for name, environ := range environments {
		if hash(environ) != want {
			t.Errorf("%s: %q", name, Deciding(strings.Split(environ, "\n"), exists))
		}
	}
	// What decides anything tells them apart.
	for _, change := range []string{
		"GITHUB_TOKEN=ghp_two", "KUBECONFIG=/home/ann/b", "PATH=/opt/bin:/usr/bin", "AWS_PROFILE=b", "HTTPS_PROXY=http://p", "NODE_EXTRA_CA_CERTS=/ca.pem",
		"VIRTUAL_ENV=/home/ann/venv", "HOME=/home/bob", "XDG_CONFIG_HOME=/x", "CLAUDE_CONFIG_DIR=/x", "CODEX_HOME=/x", "npm_config_registry=https://r.test",
		"CLAUDE_CODE_OAUTH_TOKEN=two", "CURSOR_API_KEY=two", "npm_config__authToken=two", "VSCODE_SECRET=two", "AWS_SESSION_TOKEN=two", "LC_ALL=C", "TERMINUS_SITE=b",
	} {
		if hash(environments["bash"]+change+"\n") == want {
			t.Errorf("%s makes no difference", change)
		}
	}
	// Codex and cron pass on so little that it is another environment, and each is
	// the same as itself.
	const codex, cron = "HOME=/home/ann\nLOGNAME=ann\nPATH=/usr/bin:/bin\nSHELL=/bin/bash\nUSER=ann\nLANG=C\nTERM=xterm", "HOME=/home/ann\nLOGNAME=ann\nPATH=/usr/bin:/bin\nSHELL=/bin/sh\nLANG=C\nPWD=/home/ann"
	if hash(codex) == want || hash(cron) == want || hash(codex) == hash(cron) || hash(codex) != hash(strings.Replace(codex, "xterm", "dumb", 1)) {
		t.Error("Codex and cron")
	}
	if EnvironHash([]byte("another"), Deciding(strings.Split(person, "\n"), exists)) == want {
		t.Error("the key does not matter")
	}
}

func ExampleDeciding() {
	environ := []string{"PATH=/bin:/gone:/usr/bin:/bin", "SHLVL=3", "B=1", "A=1", "B=2", "odd"}
	fmt.Printf("%q", Deciding(environ, func(dir string) bool { return dir != "/gone" }))
	// Output: ["A=1" "B=2" "PATH=/bin:/usr/bin"]
}

// What decides about a connection besides its entry.
func TestConnectHashCoversTheSurroundings(t *testing.T) {
	all := []Around{{}, {Environ: []string{"A=1"}}, {Named: []string{"A=1"}}, {Commands: []string{"A=1"}}, {Dir: "A=1"}, {Environ: []string{"A=2"}}, {Environ: []string{"A=1", "B=1"}}}
	var seen []string
	for _, around := range all {
		hash := ConnectHash([]byte("key"), "", config.Server{Command: "x"}, around)
		if slices.Contains(seen, hash) {
			t.Errorf("%+v makes no difference", around)
		}
		seen = append(seen, hash)
	}
}
