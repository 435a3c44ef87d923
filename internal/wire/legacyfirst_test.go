package wire

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A client that prefers the legacy era gets it from every server that has it, and
// the modern one from the rest. What it got by preference is not remembered.
func TestConnectPrefersLegacy(t *testing.T) {
	never := func(Conn, Message) {}
	legacy := func(c Conn, m Message) { answerWith(c, m, oldServer) }
	modern := func(c Conn, m Message) { answerWith(c, m, newServer) }
	unknown := func(c Conn, m Message) {
		c.Write(context.Background(), Message{ID: m.ID, Error: MethodNotFound(m.Method)})
	}
	tests := []struct {
		name                 string
		initialize, discover func(Conn, Message)
		era                  Era
		took                 time.Duration
		remembered           Dialect
		err                  string
	}{
		{"both eras", legacy, modern, Legacy, 0, "", ""},
		{"legacy only", legacy, unknown, Legacy, 0, "", ""},
		{"modern only", unknown, modern, Modern, 0, DialectModern, ""},
		{"modern only, silent to initialize", never, modern, Modern, 3*time.Second + answerGrace, DialectModern, ""},
		{"another version", func(c Conn, m Message) {
			answerWith(c, m, strings.Replace(oldServer, "2025-06-18", "2026-07-28", 1))
		}, modern, Modern, 0, DialectModern, ""},
		{"slow to start", func(c Conn, m Message) {
			go func() { // as if it read nothing until then
				time.Sleep(20 * time.Second)
				legacy(c, m)
			}()
		}, unknown, Legacy, 20 * time.Second, "", ""},
		{"neither", func(c Conn, m Message) {
			c.Write(context.Background(), Message{ID: m.ID, Error: Errorf(-32603, "out of order")})
		}, unknown, 0, 0, "", "out of order"},
		{"dies of it", func(c Conn, m Message) { c.Close() }, modern, 0, 0, "", "connection closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, seen := streamServer(t, func(c Conn, m Message) {
					switch m.Method {
					case "initialize":
						tt.initialize(c, m)
					case "server/discover":
						tt.discover(c, m)
					}
				})
				eras := &memoryEras{}
				start := time.Now()
				c, err := Connect(t.Context(), tr, &ClientOptions{Eras: eras, EraKey: "k", PreferLegacy: true, Timeout: time.Minute})
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Fatalf("%v, want %q", err, tt.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if c.Opening().Era != tt.era || time.Since(start) != tt.took {
					t.Errorf("era %v after %v", c.Opening().Era, time.Since(start))
				}
				if d := eras.m["k"]; d != tt.remembered {
					t.Errorf("remembered %q", d)
				}
				synctest.Wait()
				if told := slices.Contains(seen(), "notifications/initialized"); told != (tt.era == Legacy) {
					t.Errorf("%v", seen())
				}
			})
		})
	}
}

// Over HTTP the same holds, but that a server without sessions is spoken to in the
// modern era if it has it: in the legacy one it could not ask for much.
func TestConnectPrefersLegacyHTTP(t *testing.T) {
	type script = func(w http.ResponseWriter, m Message)
	legacy := func(w http.ResponseWriter, m Message) {
		w.Header().Set(headerSession, "s1")
		respondJSON(w, m, oldServer)
	}
	sessionless := func(w http.ResponseWriter, m Message) { respondJSON(w, m, oldServer) }
	modern := func(w http.ResponseWriter, m Message) { respondJSON(w, m, newServer) }
	refuse := func(w http.ResponseWriter, m Message) {
		respondError(w, m, 400, Errorf(CodeHeaderMismatch, "no version"))
	}
	tests := []struct {
		name                 string
		initialize, discover script
		version              string // that is spoken
		session              string
		remembered           Dialect
	}{
		{"both eras", legacy, modern, Version20250618, "s1", ""},
		{"both eras, no sessions", sessionless, modern, Version20260728, "", DialectModern},
		{"legacy only, no sessions", sessionless, refuse, Version20250618, "", ""},
		{"modern only", refuse, modern, Version20260728, "", DialectModern},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var last http.Header // of a call
			url := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
				switch {
				case r.Method != http.MethodPost:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case m.Method == "initialize":
					tt.initialize(w, m)
				case m.Method == "server/discover":
					tt.discover(w, m)
				case m.Kind() == KindRequest:
					mu.Lock()
					last = r.Header
					mu.Unlock()
					respondJSON(w, m, `{"content":[]}`)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}).listen(t)
			eras := &memoryEras{}
			c, err := Connect(t.Context(), HTTP(url, nil), &ClientOptions{Eras: eras, EraKey: "k", PreferLegacy: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if v, s := last.Get(headerVersion), last.Get(headerSession); v != tt.version || s != tt.session || c.Opening().Version != tt.version {
				t.Errorf("version %q, session %q, opened %q", v, s, c.Opening().Version)
			}
			if d := eras.m["k"]; d != tt.remembered {
				t.Errorf("remembered %q", d)
			}
		})
	}
}

// A server that takes longer to start than the probe has patience is spoken to in
// the era it would be spoken to in if it were fast.
func TestConnectSlowServerOfBothEras(t *testing.T) {
	for _, preferLegacy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			started := make(chan struct{})
			time.AfterFunc(10*time.Second, func() { close(started) })
			tr, _ := streamServer(t, func(c Conn, m Message) {
				<-started // and then reads what has come
				switch m.Method {
				case "initialize":
					answerWith(c, m, oldServer)
				case "server/discover":
					answerWith(c, m, newServer)
				}
			})
			eras := &memoryEras{}
			c, err := Connect(t.Context(), tr, &ClientOptions{Eras: eras, EraKey: "k", PreferLegacy: preferLegacy, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if legacy := c.Opening().Era == Legacy; legacy != preferLegacy {
				t.Errorf("prefers legacy: %v, era %v", preferLegacy, c.Opening().Era)
			}
			if d := eras.m["k"]; d == DialectLegacy {
				t.Error("it is remembered as one of the legacy era")
			}
		})
	}
}

// A server of the modern era alone that is slow to start refuses what it is asked
// then, and is asked again.
func TestConnectSlowModernHTTPServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var discoveries atomic.Int32
		rt := httpScript(func(w http.ResponseWriter, r *http.Request, m Message) {
			if m.Method != "server/discover" {
				respondError(w, m, 400, Errorf(CodeHeaderMismatch, "no version"))
				return
			}
			if discoveries.Add(1) == 1 {
				<-r.Context().Done()
				return
			}
			respondJSON(w, m, newServer)
		}).inMemory(t)
		eras := &memoryEras{}
		c, err := Connect(t.Context(), HTTP("http://server.example", &HTTPClientOptions{Transport: rt}), &ClientOptions{Eras: eras, EraKey: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if c.Opening().Era != Modern || eras.m["k"] != DialectModern {
			t.Errorf("era %v, remembered %q", c.Opening().Era, eras.m["k"])
		}
		c.Close()
	})
}
