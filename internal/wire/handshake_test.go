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
