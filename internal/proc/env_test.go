package proc

import (
	"slices"
	"testing"
)

func TestBaseEnv(t *testing.T) {
	environ := []string{
		"PATH=/bin", "AWS_SECRET_ACCESS_KEY=s", "HOME=/home/me", "LC_ALL=C", "LCX=1", "XDG_CONFIG_HOME=", "TERM=xterm", "TERMINFO=x", "HTTPS_PROXY=http://u:p@h", "no_proxy=*",
		"LD_PRELOAD=x", "NODE_OPTIONS=x", "=C:=C:\\", "USER", "LANG=() { :; }", "GITHUB_TOKEN=s",
	}
	if got, want := BaseEnv(environ), []string{"PATH=/bin", "HOME=/home/me", "LC_ALL=C", "XDG_CONFIG_HOME=", "TERM=xterm"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got, want := ProxyEnv(environ), []string{"HTTPS_PROXY=http://u:p@h", "no_proxy=*"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := BaseEnv(nil); got == nil || len(got) > 0 {
		t.Errorf("%#v", got)
	}
}

func TestBaseEnvByPlatform(t *testing.T) {
	for _, name := range []string{"SystemRoot", "ComSpec", "PATHEXT", "APPDATA", "Path", "ProgramFiles(x86)"} {
		if !isBase(name, true) {
			t.Errorf("%s is missing on Windows", name)
		}
		if isBase(name, false) {
			t.Errorf("%s is passed on elsewhere", name)
		}
	}
	if isBase("home", false) || !isBase("home", true) {
		t.Error("the case of names")
	}
}
