package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// scripted is a server that runs in a process of its own and misbehaves on
// request.
func scripted(t *testing.T, args ...string) config.Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args, env := mcptest.Launch(args...)
	s := config.Server{Command: self, Args: args, Env: map[string]config.Secret{}}
	for name, value := range env {
		s.Env[name] = config.NewSecret(value)
	}
	return s
}

// A call that dies with its server is one clear error, and the next call works.
func TestCrashDuringACall(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t)}, nil)
	for _, version := range []string{wire.Version20251125, wire.Version20260728} {
		a := w.connect(t, "http", version, "", `{}`)
		before := a.call(t, "srv__pid", `{}`)
		raw, err := a.CallTool(t.Context(), "srv__crash", json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		failed, _ := wire.Member(raw, "isError")
		if text := textOf(raw); string(failed) != "true" || !strings.Contains(text, "srv: ") || !strings.Contains(text, "The call may have been carried out") {
			t.Errorf("%s: %s", version, raw)
		}
		if after := a.call(t, "srv__pid", `{}`); after == before {
			t.Errorf("%s: the process is still %s", version, after)
		}
	}
}

// Garbage on a server's standard output and large results pass.
func TestGarbageAndLargeResults(t *testing.T) {
	w := newWorld(t, nil, map[string]config.Server{"srv": scripted(t, "-banner", "5")}, nil)
	a := w.connect(t, "http", wire.Version20251125, "srv", `{}`)
	if got := a.call(t, "noise", `{"count":50,"bytes":200}`); got != "noisy" {
		t.Errorf("got %q", got)
	}
	for _, size := range []int{1 << 10, 20 << 20} {
		if got := a.call(t, "long", fmt.Sprintf(`{"bytes":%d}`, size)); len(got) < size {
			t.Errorf("%d bytes of %d", len(got), size)
		}
	}
	if got := a.call(t, "echo", `{"text":"still here"}`); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// Servers that hang, die, shout or never list are not noticed by clients of
// another: neither in a list nor in a call.
func TestBadNeighbours(t *testing.T) {
	t.Parallel() // it waits
	bad := map[string]config.Server{
		"good": scripted(t), "hung": scripted(t, "-start", "hang"), "dead": scripted(t, "-start", "exit"),
		"noisy": scripted(t, "-start", "noise"), "listless": scripted(t, "-tools", "none"),
	}
	w := newWorld(t, nil, bad, nil)
	if err := w.host.Connect(t.Context(), "good"); err != nil {
		t.Fatal(err)
	}
	a := w.connect(t, "http", wire.Version20251125, "", `{}`)
	for range 3 {
		list, err := a.ListTools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		good := 0
		for _, def := range list.Items {
			name, _ := wire.StringMember(def, "name")
			if strings.HasPrefix(name, "good__") {
				good++
			}
		}
		if good != len(mcptest.ToolNames()) {
			t.Errorf("%d tools of %d", good, len(mcptest.ToolNames()))
		}
		if got := a.call(t, "good__echo", `{"text":"x"}`); got != "x" {
			t.Errorf("got %q", got)
		}
	}
	if st, err := w.host.Server("hung"); err != nil || st.State != config.Connecting {
		t.Errorf("the server that hangs is %s: it was waited for", st.State)
	}
}

// A client that does not read keeps nobody else from hearing what a server says.
func TestDeafClient(t *testing.T) {
	w := newWorld(t, map[string]patchbay.LocalServer{"up": newUpstream(t, "up", wire.Version20251125)}, nil, nil)
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- w.gateway.Serve(context.Background(), wire.NewStreamConn(far, far, nil), "")
	}()
	defer func() {
		near.Close()
		<-done
	}()
	if _, err := near.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"deaf","version":"1"}}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(near).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	a := w.connect(t, "stdio", wire.Version20251125, "", `{}`)
	for range 200 { // which is more than is kept for one
		a.call(t, "up__log", `{}`)
		a.await(t, "notifications/message")
	}
}
