package discover

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// TestAnchor checks what becomes of relative paths.
func TestAnchor(t *testing.T) {
	for _, tt := range []struct{ goos, base, cwd, command, helper, want string }{
		{"linux", "/w/app", "", "npx", "get-headers --x", " | npx | get-headers --x"},
		{"linux", "/w/app", ".", "./bin/x", "./h.sh --y ./z", "/w/app | /w/app/bin/x | /w/app/h.sh --y ./z"},
		{"linux", "/w/my app", "../up", "bin/x", "./h.sh", "/w/up | /w/my app/bin/x | '/w/my app/h.sh'"},
		{"linux", "/w/it's", "/abs", "/bin/x", "bin/h", `/abs | /bin/x | '/w/it'\''s/bin/h'`},
		{"linux", "/w/app", "${HOME}/x", "$BIN/x", "$HOME/h", "${HOME}/x | $BIN/x | $HOME/h"},
		{"linux", "/w/app", "./${NAME:-a/../b}", "{env:BIN}/x", "a/b;c", "/w/app/${NAME:-a/../b} | {env:BIN}/x | a/b;c"},
		{"linux", "/w/app", "~/x", "~/bin/x", "~/h", "~/x | ~/bin/x | ~/h"},
		{"linux", "/w/app", "", `a\b`, "", ` | a\b | `},
		{"windows", "/w/app", `C:\x`, `C:\bin\x.exe`, "", `C:\x | C:\bin\x.exe | `},
		{"windows", "/w/app", `%X%\y`, `\\host\share\x`, "", `%X%\y | \\host\share\x | `},
	} {
		d := &doc{scan: newScan(Env{OS: tt.goos}), base: tt.base}
		s := config.Server{Cwd: tt.cwd, Command: tt.command, HeadersHelper: tt.helper}
		d.anchor(&s)
		if got := s.Cwd + " | " + s.Command + " | " + s.HeadersHelper; got != tt.want {
			t.Errorf("%s %+v: %s", tt.goos, tt, got)
		}
	}
}
