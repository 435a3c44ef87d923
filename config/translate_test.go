package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestTranslate(t *testing.T) {
	tests := []struct {
		dialect     config.Dialect
		arg, want   string
		wantUnclear bool
	}{
		{config.DialectClaude, "${A}-${B:-x}", "${A}-${B:-x}", false},
		{config.DialectClaude, "${env:A}", "$${env:A}", true},
		{config.DialectCursor, "${env:A}/${workspaceFolder}/${userHome}", "${A}/${workspaceRoot}/${HOME}", false},
		{config.DialectCursor, "${workspaceFolderBasename}", "$${workspaceFolderBasename}", true},
		{config.DialectVSCode, "${input:key}", "$${input:key}", true},
		{config.DialectGemini, "$A ${B}", "${A:-} ${B:-}", false},
		{config.DialectOpencode, "{env:A}", "${A:-}", false},
		{config.DialectOpencode, "{file:~/key}", "{file:~/key}", true},
		{config.DialectMcporter, "$env:A", "${A}", false},
		{config.DialectNone, "${A}", "$${A}", true},
		{config.DialectPatchbay, "${workspaceRoot}", "${workspaceRoot}", false},
	}
	for _, tt := range tests {
		s, unclear := config.Translate(config.Server{Command: "x", Args: []string{tt.arg}}, tt.dialect)
		if s.Args[0] != tt.want || (len(unclear) > 0) != tt.wantUnclear {
			t.Errorf("%s %q: got %q, unclear %v; want %q, %v", tt.dialect, tt.arg, s.Args[0], unclear, tt.want, tt.wantUnclear)
		}
	}
}

// What was plain text elsewhere and would be looked up or run here is for
// somebody to look at.
func TestTranslateResolvedValues(t *testing.T) {
	s := config.Server{Command: "x", Env: map[string]config.Secret{"A": config.NewSecret("!important"), "B": config.NewSecret("HOME"), "C": config.NewSecret("plain")}}
	_, unclear := config.Translate(s, config.DialectClaude)
	if d := cmp.Diff([]string{`env "A"`, `env "B"`}, unclear); d != "" {
		t.Error(d)
	}
	if _, unclear := config.Translate(s, config.DialectOMP); unclear != nil {
		t.Errorf("unclear: %v", unclear)
	}
}
