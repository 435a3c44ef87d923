package proc

import (
	"runtime"
	"slices"
	"strings"
)

// baseNames are the variables any program may need to find its files, its
// language and its user. Everything else in an environment, secrets above all,
// is for those to whom somebody gives it.
var (
	baseNames    = []string{"PATH", "HOME", "LANG", "TMPDIR", "TEMP", "TMP", "USER", "LOGNAME", "SHELL", "TERM"}
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
