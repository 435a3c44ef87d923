package mcptest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// eras is a wire.EraCache.
type eras struct{ known sync.Map }

func (e *eras) Load(key string) (wire.Dialect, bool) {
	d, ok := e.known.Load(key)
	if !ok {
		return "", false
	}
	return d.(wire.Dialect), true
}

func (e *eras) Store(key string, d wire.Dialect) { e.known.Store(key, d) }

// connect connects a client to a scripted server and closes it again.
func connect(t *testing.T, cache *eras, probe time.Duration, args ...string) (*wire.Opening, error) {
	t.Helper()
	child := Start(t, Command(args...), nil)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errHangs)
	defer cancel()
	c, err := wire.Connect(ctx, wire.Stream(child.Conn, nil), &wire.ClientOptions{Eras: cache, EraKey: "scripted", ProbeTimeout: probe})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if tools, err := c.ListTools(ctx); err != nil || len(tools.Items) == 0 {
		t.Errorf("tools: %+v, %v", tools, err)
	}
	return c.Opening(), nil
}

// Row 4: a server that knows nothing of server/discover is spoken to in the
// legacy way, whatever it makes of the question, and is not asked again.
func TestEraOfServer(t *testing.T) {
	for _, c := range []struct {
		discover string
		probe    time.Duration // the first time
		fails    bool          // the first time
		want     string
	}{
		{"answer", time.Hour, false, wire.Version20260728},
		{"unknown", time.Hour, false, wire.Version20251125},
		{"silent", 100 * time.Millisecond, false, wire.Version20251125},
		{"crash", time.Hour, true, wire.Version20251125},
	} {
		t.Run(c.discover, func(t *testing.T) {
			LeavesNothing(t)
			var cache eras
			opening, err := connect(t, &cache, c.probe, "-discover="+c.discover)
			switch {
			case c.fails && !errors.Is(err, wire.ErrClosed):
				t.Errorf("a server that dies of the question: %v", err)
			case !c.fails && (err != nil || opening.Version != c.want):
				t.Errorf("the first time: %+v, %v", opening, err)
			}
			// With this patience a question to the silent server would hang.
			opening, err = connect(t, &cache, time.Hour, "-discover="+c.discover)
			if err != nil || opening.Version != c.want {
				t.Errorf("the second time: %+v, %v", opening, err)
			}
		})
	}
}
