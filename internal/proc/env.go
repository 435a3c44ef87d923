package proc

import (
	"runtime"
	"slices"
	"strings"
)

// baseNames are the variables any program may need to find its files, its
// language, its user, the tools it is made with, the certificates of the network
// it is in, and the user's screen and agents of keys. Everything else in an
// environment, secrets above all, is for those to whom somebody gives it.
var (
	baseNames = []string{
		"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "USER", "LOGNAME", "SHELL", "TERM",

		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "PIP_CERT",
		"GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "DENO_CERT", "DENO_TLS_CA_STORE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "npm_config_cafile", "NPM_CONFIG_CAFILE",

		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GPG_AGENT_INFO", "GNUPGHOME",

		"NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR", "FNM_MULTISHELL_PATH", "N_PREFIX", "PNPM_HOME", "COREPACK_HOME", "BUN_INSTALL", "DENO_DIR", "DENO_INSTALL",
		"ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "MISE_SHIMS_DIR", "PYENV_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_EXE", "PIPX_HOME", "PIPX_BIN_DIR",
		"UV_CACHE_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_PYTHON_INSTALL_DIR", "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "CARGO_HOME", "RUSTUP_HOME",
		"GOPATH", "GOROOT", "GOBIN", "GOCACHE", "GOMODCACHE", "JAVA_HOME", "SDKMAN_DIR", "DOTNET_ROOT", "ANDROID_HOME", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR", "HOMEBREW_REPOSITORY", "NIX_PROFILES", "NIX_SSL_CERT_FILE",
	}
	basePrefixes = []string{"LC_", "XDG_"}
	proxyNames   = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
	windowsNames = []string{
		"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432", "COMSPEC", "HOMEDRIVE", "HOMEPATH",
		"LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)",
		"PROGRAMW6432", "PUBLIC", "SYSTEMDRIVE", "SYSTEMROOT", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR",
	}
)

// BaseEnv returns the part of environ that every child gets, in its order: what
// a program needs to run at all. Proxies are not among it, see ProxyEnv.
func BaseEnv(environ []string) []string {
	return pick(environ, func(name string) bool { return isBase(name, runtime.GOOS == "windows") })
}

// ProxyEnv returns the proxy settings of environ, for children that shall use
// the network as this process does. They may hold a password.
func ProxyEnv(environ []string) []string {
	return pick(environ, func(name string) bool { return slices.Contains(proxyNames, strings.ToUpper(name)) })
}

// Inherited returns what a child gets of environ that nobody gave to it in
// particular: all of it, but for what is ours, or else the basic part and the
// proxies.
func Inherited(environ []string, all bool) []string {
	if !all {
		return append(BaseEnv(environ), ProxyEnv(environ)...)
	}
	return pick(environ, func(name string) bool { return name != "" && !strings.HasPrefix(strings.ToUpper(name), "PATCHBAY_") })
}

func pick(environ []string, wanted func(name string) bool) []string {
	picked := []string{}
	for _, assignment := range environ {
		name, value, ok := strings.Cut(assignment, "=")
		// A value with this beginning is a function that an old bash exported.
		if ok && wanted(name) && !strings.HasPrefix(value, "() {") {
			picked = append(picked, assignment)
		}
	}
	return picked
}

func isBase(name string, windows bool) bool {
	if windows { // where names have no case
		name = strings.ToUpper(name)
	}
	return slices.Contains(baseNames, name) || windows && slices.Contains(windowsNames, name) ||
		slices.ContainsFunc(basePrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
