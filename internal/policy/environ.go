package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// indifferent are the variables that differ from window to window and decide
// nothing about what a server does: programs that would be started with other
// values of these alone are the same. A name may begin or end with *.
var indifferent = []string{
	// The shell, and where it stands.
	"_", "PWD", "OLDPWD", "SHLVL", "INIT_CWD",

	// The terminal.
	"TERM", "TERM_*", "TERMINFO", "TERMCAP", "TERMINAL_EMULATOR", "COLORTERM", "COLORFGBG", "COLUMNS", "LINES", "WINDOWID", "GPG_TTY", "VTE_VERSION",
	"TMUX*", "STY", "WINDOW", "*_SESSION_ID", "WT_SESSION", "WT_PROFILE_ID", "LC_TERMINAL", "LC_TERMINAL_VERSION", "ITERM_PROFILE",
	"KITTY_*", "ALACRITTY_*", "WEZTERM_*", "KONSOLE_*", "GHOSTTY_*", "GNOME_TERMINAL_*", "ZED_TERM", "INSIDE_EMACS", "NVIM", "NVIM_LISTEN_ADDRESS",
	"SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY",

	// The agent or editor.
	"VSCODE_*", "VSCODE_GIT_IPC_AUTH_TOKEN", "CURSOR_*", "CLAUDECODE", "CLAUDE_CODE_*",

	// What npm and npx tell what they run.
	"npm_lifecycle_*", "npm_package_*", "npm_command", "npm_execpath", "npm_node_execpath", "npm_config_user_agent", "npm_config_npm_version",
	"npm_config_node_gyp", "npm_config_init_module", "npm_config_local_prefix", "npm_config_global_prefix", "npm_config_prefix", "npm_config_cache",
	"npm_config_globalconfig", "npm_config_userconfig", "npm_config_noproxy",

	// The login and the desktop.
	"XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR", "XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID", "GIO_LAUNCHED_DESKTOP_FILE*", "SESSION_MANAGER", "WINDOWPATH",
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "XPC_*", "__CFBundleIdentifier", "SECURITYSESSIONID",

	// Sockets: those of whoever starts the program.
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_*", "XDG_RUNTIME_DIR", "GNOME_KEYRING_CONTROL",
}

// credentials are parts of names that decide in whose name a program acts,
// whatever they begin with.
var credentials = []string{"TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY"}

// Decides reports whether the value of a variable may decide what a program does
// that has it in its environment.
func Decides(name string) bool {
	if slices.Contains(indifferent, name) {
		return false
	}
	upper := strings.ToUpper(name)
	if slices.ContainsFunc(credentials, func(part string) bool { return strings.Contains(upper, part) }) {
		return true
	}
	return !slices.ContainsFunc(indifferent, func(pattern string) bool {
		if begin, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, begin)
		}
		end, ok := strings.CutPrefix(pattern, "*")
		return ok && strings.HasSuffix(name, end)
	})
}

// Deciding returns what of an environment decides what a program does that gets
// it, sorted: of two assignments the last, and of PATH what can be found in it.
// isDir tells which directories are there.
func Deciding(environ []string, isDir func(path string) bool) []string {
	values := map[string]string{}
	for _, assignment := range environ {
		if name, value, ok := strings.Cut(assignment, "="); ok && Decides(name) {
			values[name] = value
		}
	}
	for name, path := range values {
		if !strings.EqualFold(name, "PATH") {
			continue
		}
		var dirs []string
		for _, dir := range filepath.SplitList(path) {
			if !slices.Contains(dirs, dir) && (!filepath.IsAbs(dir) || isDir(dir)) {
				dirs = append(dirs, dir)
			}
		}
		values[name] = strings.Join(dirs, string(filepath.ListSeparator))
	}
	all := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, name+"="+values[name])
	}
	return all
}

// EnvironHash returns a number that is equal for environments of which the same
// was Deciding. It is keyed: without the key it tells nothing about a value.
func EnvironHash(key []byte, deciding []string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("patchbay environment 1\n"))
	for _, assignment := range deciding { // which cannot hold a zero byte
		mac.Write(append([]byte(assignment), 0))
	}
	return hex.EncodeToString(mac.Sum(nil))
}
