package patchbay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// temporaryHome is an empty home for the examples; real programs leave Home and
// Dir empty.
func temporaryHome() (home string, remove func()) {
	home, err := os.MkdirTemp("", "patchbay")
	if err != nil {
		log.Fatal(err)
	}
	return home, func() { os.RemoveAll(home) }
}

func Example() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{}, Lazy: true})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	_, err = h.Add(ctx, patchbay.AddRequest{
		Name: "files", Scope: config.ScopeUser,
		Server: json.RawMessage(`{"command": "acme-files", "env": {"KEY": "hunter2"}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range h.Servers() {
		fmt.Println(s.Name, s.State, s.Origin.Product, s.Target, string(s.Config))
	}
	// Output:
	// files pending Patchbay acme-files {"command":"acme-files","env":{"KEY":"[redacted]"}}
}

// A server from a project's files is not used before a person approved exactly
// what it would run.
func ExampleHost_Approve() {
	ctx := context.Background()
	home, remove := temporaryHome()
	defer remove()
	project := filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		log.Fatal(err)
	}
	entry := []byte(`{"mcpServers": {"tool": {"type": "http", "url": "https://tool.example.test/mcp"}}}`)
	if err := os.WriteFile(filepath.Join(project, ".mcp.json"), entry, 0o644); err != nil {
		log.Fatal(err)
	}

	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: project, Environ: []string{}, Lazy: true})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	s, _ := h.Server("tool")
	fmt.Println(s.State)

	request, err := h.Approval("tool") // request.Text is what to show the person
	if err != nil {
		log.Fatal(err)
	}
	if _, err := h.Approve(ctx, "tool", request.Hash); err != nil {
		log.Fatal(err)
	}
	s, _ = h.Server("tool")
	fmt.Println(s.State)
	// Output:
	// needs-approval
	// pending
}
