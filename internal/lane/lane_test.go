package lane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a handler behind a lane, on loopback.
type site struct {
	t      *testing.T
	server *Server
	addr   string
	log    *logbook
	served chan error
}

// logbook is what a server has logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func settings(h http.Handler) (*http.Server, *logbook) {
	l := &logbook{}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		ErrorLog:          log.New(l, "", 0),
	}, l
}

func newSite(t *testing.T, h http.HandlerFunc) *site {
	t.Helper()
	server, book := settings(h)
	s := serveSite(t, server)
	s.log = book
	return s
}

func serveSite(t *testing.T, server *http.Server) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, server: New(server), addr: l.Addr().String(), served: make(chan error, 1)}
	go func() { s.served <- s.server.Serve(l) }()
	t.Cleanup(func() {
		s.server.Close()
		if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
		s.gone()
	})
	return s
}

// gone waits until no connection is left in the lane.
func (s *site) gone() {
	s.t.Helper()
	select {
	case <-s.server.drained:
	case <-time.After(time.Minute):
		s.t.Error("connections are left")
	}
}

// A client is a connection that a test writes to as it likes.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (s *site) dial() *client {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	return newClient(s.t, c)
}

func newClient(t *testing.T, c net.Conn) *client {
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads one response.
func (c *client) receive() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, string(body)
}

// post is a plain request.
func post(path, body string) string {
	return request("POST "+path+" HTTP/1.1", "Host: localhost", fmt.Sprintf("Content-Length: %d", len(body))) + body
}

// inLane reports whether the lane serves a response.
func inLane(w http.ResponseWriter) bool {
	_, ok := w.(*response)
	return ok
}

// Real clients, at once, with connections that change between plain requests and
// others.
func TestClients(t *testing.T) {
	var mu sync.Mutex
	taken := map[bool]int{}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		taken[inLane(w)]++
		mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for i := range 30 {
				method, body := "POST", strings.Repeat("x", n*i*i*17+1)
				if n == 7 && i > 20 {
					method, body = "PUT", ""
				}
				req, _ := http.NewRequest(method, fmt.Sprintf("http://%s/%d/%d", s.addr, n, i), strings.NewReader(body))
				resp, err := hc.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := fmt.Sprintf("%s /%d/%d %s", method, n, i, body); err != nil || string(got) != want {
					t.Errorf("%.40q for %.40q, %v", got, want, err)
				}
			}
		})
	}
	group.Wait()
	if taken[true] < 8*20 || taken[false] < 9 {
		t.Errorf("%d in the lane, %d beside it", taken[true], taken[false])
	}
}

// What net/http would put in a request is there.
func TestRequest(t *testing.T) {
	type key struct{}
	got := make(chan *http.Request, 1)
	server, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !inLane(w) {
			t.Error("not in the lane")
		}
		got <- r
	}))
	server.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), key{}, "base") }
	s := serveSite(t, server)
	c := s.dial()
	c.send(request("POST /a HTTP/1.1", "Host: here", "X-A: 1", "Content-Length: 4", "X-A: 2") + "body")
	c.receive()
	r := <-got
	if r.Method != "POST" || r.URL.String() != "/a" || r.RequestURI != "/a" || r.Proto != "HTTP/1.1" || r.ProtoMajor != 1 || r.ProtoMinor != 1 ||
		r.Host != "here" || r.ContentLength != 4 || r.TLS != nil || r.RemoteAddr != c.LocalAddr().String() || fmt.Sprint(r.Header) != "map[Content-Length:[4] X-A:[1 2]]" {
		t.Errorf("%+v", r)
	}
	ctx := r.Context()
	if ctx.Value(key{}) != "base" || ctx.Value(http.ServerContextKey) != server || ctx.Value(http.LocalAddrContextKey).(net.Addr).String() != s.addr {
		t.Errorf("%v", ctx)
	}
	select {
	case <-ctx.Done(): // a moment after the response, at the latest
	case <-time.After(time.Minute):
		t.Error("the context outlives the handler")
	}
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("body: %v", err)
	}
}

// What the server allows for a head counts, if it is less than the lane would.
func TestHeadLimit(t *testing.T) {
	lanes := make(chan bool, 2)
	server, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { lanes <- inLane(w) }))
	server.MaxHeaderBytes = 100
	c := serveSite(t, server).dial()
	for _, size := range []int{10, 100} {
		c.send(request("POST / HTTP/1.1", "Host: a", "Content-Length: 1", "X: "+strings.Repeat("x", size)) + "x")
		c.receive()
	}
	if a, b := <-lanes, <-lanes; !a || b {
		t.Errorf("in the lane: %v, %v", a, b)
	}
}

// A listener that fails ends Serve, and not what was accepted.
func TestListenerFails(t *testing.T) {
	server, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, served := New(server), make(chan error)
	go func() { served <- s.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, conn)
	for range 2 {
		c.send(post("/", "x"))
		if _, body := c.receive(); body != "x" {
			t.Errorf("%q", body)
		}
		l.Close()
	}
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	c.send(request("GET / HTTP/1.1", "Host: a"))
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("there is nobody to serve it")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// A response that was left to its handler by mistake is not another's.
func TestLateHandler(t *testing.T) {
	var late http.ResponseWriter
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if late != nil {
			w.Header().Set("Content-Length", "2")
			for _, do := range []func() error{
				func() error { _, err := late.Write([]byte("late")); return err },
				http.NewResponseController(late).Flush,
			} {
				if do() == nil {
					t.Error("no error")
				}
			}
			late.WriteHeader(500)
		}
		late = w
		io.WriteString(w, "ok")
	})
	c := s.dial()
	for range 2 {
		c.send(post("/", "x"))
		if resp, body := c.receive(); resp.StatusCode != 200 || body != "ok" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
}
