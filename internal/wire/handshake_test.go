package wire

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// What a legacy server sends before its GET stream is open may be lost, so the
// handshake waits for it, but not for one that does not come.
func TestHandshakeWaitsForStream(t *testing.T) {
	for _, c := range []struct {
		name string
		get  func(w http.ResponseWriter, r *http.Request)
		want time.Duration
	}{
		{"opened late", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, 100 * time.Millisecond},
		{"refused late", func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(200 * time.Millisecond)
			w.WriteHeader(http.StatusMethodNotAllowed)
		}, 200 * time.Millisecond},
		{"never answered", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, openTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &legacyServer{}
				script := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
					if r.Method == http.MethodGet {
						c.get(w, r)
						return
					}
					server.serve(w, r, m)
				})
				h := link(t, "http://server.test/mcp", nil, HTTPClientOptions{Transport: script.inMemory(t)})
				start := time.Now()
				openSession(t, h)
				if took := time.Since(start); took != c.want {
					t.Errorf("the handshake took %v, want %v", took, c.want)
				}
				h.Close()
			})
		})
	}
}

// A server that refuses the revision it says it supports is asked once more.
func TestDiscoverOnceMore(t *testing.T) {
	for _, c := range []struct {
		refusals  int
		connected bool
	}{{0, true}, {1, true}, {2, false}} {
		asked := 0
		url := httpScript(func(w http.ResponseWriter, _ *http.Request, m Message) {
			if asked++; asked <= c.refusals {
				refusal := Errorf(CodeUnsupportedVersion, "Unsupported protocol version")
				refusal.Data = []byte(`{"supported":["2026-07-28"],"requested":"2026-07-28"}`)
				respondError(w, m, http.StatusBadRequest, refusal)
				return
			}
			respondJSON(w, m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`)
		}).listen(t)
		client, err := Connect(t.Context(), HTTP(url, nil), nil)
		if (err == nil) != c.connected || asked != min(c.refusals, 1)+1 {
			t.Errorf("after %d refusals and %d requests: %v", c.refusals, asked, err)
		}
		if err == nil {
			if v := client.Opening().Version; v != Version20260728 {
				t.Errorf("after %d refusals: version %s", c.refusals, v)
			}
			client.Close()
		}
	}
}
