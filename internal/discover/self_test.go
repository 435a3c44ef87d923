package discover

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func TestRecognisesItself(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "renamed")
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	alias := filepath.Join(dir, "alias")
	link(t, binary, alias)
	s := newScan(Env{Executable: binary})
	run := func(command string, args ...string) config.Server { return config.Server{Command: command, Args: args} }
	at := func(url string) config.Server { return config.Server{URL: url} }
	for _, tt := range []struct {
		server config.Server
		want   bool
	}{
		{run("patchbay", "serve"), true},
		{run("/usr/local/bin/patchbay", "--quiet", "serve", "--stdio"), true},
		{run(`C:\Tools\Patchbay.EXE`, "code"), true},
		{run("patchbay", "call", "x"), false}, // some other program of that name, perhaps
		{run("patchbay"), false},
		{run("patchbay-linter", "serve"), false},
		{run(binary, "anything"), true},
		{run(alias), true},
		{run(other, "serve"), false},
		{run("env", "A=1", "-i", "patchbay", "serve"), true},
		{run("/usr/bin/env", "A=1"), false},
		{run("go", "run", "./cmd/patchbay", "serve"), true},
		{run("go", "run", "-race", "github.com/patchbay-mcp/patchbay/cmd/patchbay@latest", "code"), true},
		{run("go", "run", "./cmd/other", "serve"), false},
		{run("go", "build", "./cmd/patchbay", "serve"), false},
		{run("go", "run"), false},
		{run("npx", "-y", "server"), false},
		{at("http://127.0.0.1:7332/mcp"), true},
		{at("http://localhost:7332/mcp/"), true},
		{at("http://[::1]:7332/mcp/github?x=1"), true},
		{at("http://127.0.0.1:7332/other"), false},
		{at("http://127.0.0.1:7333/mcp"), false},
		{at("http://127.0.0.1:7332/mcpx"), false},
		{at("https://example.test/mcp"), false},
		{at("://"), false},
	} {
		if got := s.itself(tt.server) != ""; got != tt.want {
			t.Errorf("%s: %v", tt.server.Target(), got)
		}
	}
	s = newScan(Env{Endpoints: []string{"https://bay.example.test/mcp"}})
	if s.itself(at("https://BAY.example.test/mcp/files")) == "" || s.itself(at("http://127.0.0.1:7332/mcp")) == "" {
		t.Error("endpoints given are not compared with, or nothing else is")
	}
	withToken := at("http://localhost:8080/mcp")
	withToken.Headers = map[string]config.Secret{"Authorization": config.NewSecret("Bearer " + config.GatewayTokenPrefix + "x")}
	if s.itself(withToken) == "" {
		t.Error("what install writes for another port is not recognised")
	}
	withToken.URL = "https://elsewhere.example.test/mcp"
	if s.itself(withToken) != "" {
		t.Error("a gateway elsewhere is taken for this one")
	}
}
