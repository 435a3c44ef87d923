package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// What clients of a gateway do is in every book, and what they say in none.
func TestBooksOfAGateway(t *testing.T) {
	const canary = "hunter2hunter2"
	var log, spans bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(&spans, r.Body) }))
	defer collector.Close()
	dir := t.TempDir()
	b := New(Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), AuditDir: dir, Traces: &Collector{URL: collector.URL}})

	server := mcp.NewServer(&mcp.Implementation{Name: "vault", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "keep", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	home := t.TempDir()
	o := patchbay.Options{Home: home, Dir: home, SystemRoot: home, Environ: []string{}, InProcess: map[string]patchbay.LocalServer{"vault": patchbay.FromSDK(server)}}
	b.Attach(&o)
	h, err := patchbay.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b.Follow(h)
	if err := h.Connect(t.Context(), "vault"); err != nil {
		t.Fatal(err)
	}
	g := gateway.New(h, gateway.Options{})
	defer g.Shutdown(context.Background())
	front := httptest.NewServer(g.HTTP(wire.HTTPOptions{}))
	defer front.Close()

	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent-7", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: front.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"vault__keep", "vault__steal"} {
		_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"secret": canary}})
		if (err == nil) != (tool == "vault__keep") {
			t.Errorf("%s: %v", tool, err)
		}
	}
	client.Close()
	page := strings.Join(scrape(t, b), "\n")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	lines := auditLines(t, dir)
	calls := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, `"tools/call"`) })
	if len(calls) != 2 {
		t.Fatalf("audited %q", lines)
	}
	var kept, stolen patchbay.CallRecord
	for i, r := range []*patchbay.CallRecord{&kept, &stolen} {
		if err := json.Unmarshal([]byte(calls[i]), r); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(kept.Session, "agent-7") || kept.Server != "vault" || kept.Tool != "keep" || kept.Outcome != "tool_error" || kept.Decision != patchbay.Allow {
		t.Errorf("%+v", kept)
	}
	if stolen.Tool != "vault__steal" || stolen.Outcome != "tool_not_found" {
		t.Errorf("%+v", stolen)
	}
	for what, text := range map[string]string{
		"metrics": page, "spans": spans.String(), "the log": log.String(), "the audit log": strings.Join(lines, "\n"),
	} {
		if !strings.Contains(text, "keep") {
			t.Errorf("%s: nothing of the call in\n%s", what, text)
		}
		if strings.Contains(text, canary) {
			t.Errorf("%s: the secret is in\n%s", what, text)
		}
	}
	if want := `"spanId":"` + kept.SpanID + `"`; kept.SpanID == "" || !strings.Contains(spans.String(), want) {
		t.Errorf("no span %s in %s", want, spans.String())
	}
	if want := `outcome="tool_error"} 1`; !strings.Contains(page, want) {
		t.Errorf("no %s in\n%s", want, page)
	}
}
