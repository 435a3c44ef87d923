package patchbay_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// A subscription that was forwarded outlives the connection it was made on.
func TestSubscriptionIsKept(t *testing.T) {
	subscribed := make(chan string, 2)
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: []string{"2025-11-25"},
		SubscribeHandler:          func(_ context.Context, r *mcp.SubscribeRequest) error { subscribed <- r.Params.URI; return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	server.AddResource(&mcp.Resource{URI: "note://1", Name: "first"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(server)}
	h := c.open()
	s := session(t, h, patchbay.SessionOptions{})
	if _, err := s.Forward(t.Context(), "notes", "resources/subscribe", json.RawMessage(`{"uri":"note://1"}`)); err != nil {
		t.Fatal(err)
	}
	if got := <-subscribed; got != "note://1" {
		t.Errorf("subscribed to %q", got)
	}
	if err := h.Reconnect(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	if got := <-subscribed; got != "note://1" {
		t.Errorf("after a new connection: subscribed to %q", got)
	}
}

func TestServerThatIsNotAllowed(t *testing.T) {
	c := newComputer(t)
	c.write(c.home+"/.cursor/mcp.json", `{"mcpServers": {"tool": {"command": "acme"}}}`)
	c.opts.AllowedServerNames = []string{}
	err := c.open().Connect(t.Context(), "tool")
	if kindOf(err) != patchbay.KindDenied || err.Error() != `Server "tool" is not among the allowed servers.` {
		t.Errorf("got %v", err)
	}
}

// A rule for a tool that is not there is most likely misspelt, and said to be.
func TestRuleForAMissingTool(t *testing.T) {
	c := newComputer(t)
	h := c.open()
	s := scripted()
	s.DisabledTools = []string{"ecoh"}
	if err := h.Apply(t.Context(), map[string]config.Server{"srv": s}); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	st, err := h.Server("srv")
	if err != nil || len(st.Problems) != 1 || !strings.Contains(st.Problems[0].Message, `"ecoh"`) {
		t.Errorf("%v, %v", st.Problems, err)
	}
}

// A server that wants authentication says how, and so does its status, without
// what may be a secret.
func TestChallengeIsShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://u:p@a.example.test/meta?key=abc", scope="read `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`", ticket="c2VjcmV0"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	c := newComputer(t)
	h := c.open()
	if err := h.Apply(t.Context(), map[string]config.Server{"srv": {Type: config.HTTP, URL: server.URL, Headers: map[string]config.Secret{"Authorization": config.NewSecret("Bearer tok_12345")}}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "srv"); kindOf(err) != patchbay.KindAuthUnavailable || strings.Contains(err.Error(), "tok_") {
		t.Errorf("got %v", err)
	}
	st, err := h.Server("srv")
	want := &patchbay.Challenge{Scheme: "bearer", Params: map[string]string{"resource_metadata": "https://a.example.test/meta", "scope": "read [redacted]", "ticket": "[redacted]"}}
	if d := cmp.Diff(want, st.Challenge); err != nil || st.State != config.NeedsAuth || d != "" {
		t.Errorf("%s, %v\n%s", st.State, err, d)
	}
}

// A header whose value resolves to nothing is left out, the entry says so, and
// says it again when the server then wants authentication.
func TestMissingSecretIsNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	c := newComputer(t)
	h := c.open()
	err := h.Apply(t.Context(), map[string]config.Server{"srv": {
		Type: config.HTTP, URL: server.URL, Headers: map[string]config.Secret{"X-Key": config.NewSecret("!true")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "srv"); kindOf(err) != patchbay.KindAuthUnavailable || !strings.Contains(err.Error(), "X-Key") {
		t.Errorf("got %v", err)
	}
	st, err := h.Server("srv")
	if err != nil || st.State != config.NeedsAuth || len(st.Problems) != 1 || !strings.Contains(st.Problems[0].Message, "X-Key") {
		t.Errorf("%s, %v, %v", st.State, st.Problems, err)
	}
}

// Credentials that go to another machine without TLS are warned of.
func TestOpenSecrets(t *testing.T) {
	key := map[string]config.Secret{"X-Api-Key": config.NewSecret("k")}
	for _, tt := range []struct {
		server config.Server
		warned bool
	}{
		{config.Server{URL: "http://tools.example.test/mcp", Headers: key}, true},
		{config.Server{URL: "http://10.1.2.3/mcp", Headers: map[string]config.Secret{"Authorization": config.NewSecret("Bearer ${A:-b}")}}, true},
		{config.Server{URL: "HTTP://tools.example.test/mcp?api_key=k"}, true},
		{config.Server{URL: "http://tools.example.test/mcp", Auth: &config.Auth{Mode: config.AuthAPIKey, Key: config.NewSecret("k")}}, true},
		{config.Server{URL: "http://tools.example.test/mcp", Headers: map[string]config.Secret{"X-Region": config.NewSecret("eu")}}, false},
		{config.Server{URL: "https://tools.example.test/mcp", Headers: key}, false},
		{config.Server{URL: "http://localhost:1/mcp", Headers: key}, false},
		{config.Server{URL: "http://127.0.0.9:1/mcp", Headers: key}, false},
		{config.Server{URL: "http://[::1]:1/mcp", Headers: key}, false},
	} {
		c := newComputer(t)
		h := c.open()
		tt.server.Type, tt.server.Enabled = config.HTTP, new(false) // nothing is contacted
		if err := h.Apply(t.Context(), map[string]config.Server{"srv": tt.server}); err != nil {
			t.Fatal(err)
		}
		st, err := h.Server("srv")
		warned := slices.ContainsFunc(st.Problems, func(p config.Problem) bool {
			return p.Severity == config.SeverityWarning && strings.Contains(p.Message, "over plain http")
		})
		if err != nil || warned != tt.warned {
			t.Errorf("%s: %v, %v", tt.server.URL, st.Problems, err)
		}
	}
}
