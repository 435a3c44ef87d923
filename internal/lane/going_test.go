package lane

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A client that goes away cancels its request: also one that only stops sending,
// one behind TLS, and one whose body came late.
func TestClientGoesAway(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"closes":       func(c *client) { c.Close() },
		"resets":       func(c *client) { c.Conn.(*net.TCPConn).SetLinger(0); c.Close() },
		"half-closes":  func(c *client) { c.Conn.(*net.TCPConn).CloseWrite() },
		"is closed on": nil,
	} {
		t.Run(name, func(t *testing.T) {
			began, left := make(chan struct{}), make(chan struct{})
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				began <- struct{}{}
				<-r.Context().Done()
				close(left)
			})
			c := s.dial()
			c.send(request("POST / HTTP/1.1", "Host: a", "Content-Length: 2") + "x")
			c.send("y")
			<-began
			if leave == nil {
				s.server.Close()
			} else {
				leave(c)
			}
			<-left
		})
	}
}

// What is read ahead while a handler runs is the next request.
func TestPipelineBehindLongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path == "/long" {
				time.Sleep(time.Second)
			}
			if !inLane(w) || r.Context().Err() != nil {
				t.Errorf("in the lane: %v, %v", inLane(w), r.Context().Err())
			}
			w.Write(body)
		})
		in := bufio.NewReader(near)
		expect := func(want string) {
			t.Helper()
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
				t.Errorf("%.20q instead of %.20q, %v", body, want, err)
			}
		}
		large := strings.Repeat("three", 5000)
		for range 3 {
			go func() {
				io.WriteString(near, post("/long", "one"))
				time.Sleep(time.Second / 2)
				io.WriteString(near, post("/long", "two")+post("/short", large)+"POST /sho")
				time.Sleep(3 * time.Second)
				io.WriteString(near, strings.TrimPrefix(post("/short", "four"), "POST /sho"))
				io.WriteString(near, post("/long", "five"))
			}()
			for _, want := range []string{"one", "two", large, "four", "five"} {
				expect(want)
			}
		}
	})
}

// A body that is cut short cancels its request, which can be answered still.
func TestClientGoesAwayEarly(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, io.ErrUnexpectedEOF) || r.Context().Err() == nil {
			t.Errorf("%v, %v", err, r.Context().Err())
		}
		io.WriteString(w, "cut")
	})
	c := s.dial()
	c.send(request("POST / HTTP/1.1", "Host: a", "Content-Length: 2") + "x")
	c.Conn.(*net.TCPConn).CloseWrite()
	if resp, body := c.receive(); body != "cut" || !resp.Close {
		t.Errorf("%q, close %v", body, resp.Close)
	}
}

// Who cannot be written to has gone, too.
func TestWriteFails(t *testing.T) {
	left := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "late")
		if err := http.NewResponseController(w).Flush(); err == nil || r.Context().Err() == nil {
			t.Errorf("%v, %v", err, r.Context().Err())
		}
	})
	c := s.dial()
	c.send(post("/", "x"))
	<-left
	if text, _ := io.ReadAll(c); len(text) > 0 {
		t.Errorf("%q", text)
	}
}

// Shutdown closes what is idle at once and waits for the rest, in the lane and
// beside it.
func TestShutdown(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			began <- struct{}{}
			<-goOn
		}
		io.Copy(w, r.Body)
	})
	fresh, idle, long, beside := s.dial(), s.dial(), s.dial(), s.dial()
	idle.send(post("/", "x"))
	idle.receive()
	long.send(post("/long", "long"))
	<-began
	beside.send(request("GET /long HTTP/1.1", "Host: a"))
	<-began
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.server.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, c := range []*client{fresh, idle} {
		if _, err := c.in.ReadByte(); err == nil {
			t.Error("an idle connection is open")
		}
	}
	if c, err := net.Dial("tcp", s.addr); err == nil {
		c.Close()
		t.Error("it accepts still")
	}
	done := make(chan error)
	go func() { done <- s.server.Shutdown(context.Background()) }()
	close(goOn)
	if resp, body := long.receive(); body != "long" || !resp.Close {
		t.Errorf("%q, close %v", body, resp.Close)
	}
	beside.receive()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// memory is a listener whose connections are pipes, so that a server works in a
// bubble.
type memory struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newMemory() *memory {
	m := &memory{conns: make(chan net.Conn)}
	m.closed, m.close = context.WithCancel(context.Background())
	return m
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed.Done():
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.close(); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// inMemory serves a connection in a bubble and returns its other end.
func inMemory(t *testing.T, h http.HandlerFunc) net.Conn {
	config, _ := settings(h)
	return serveMemory(t, config)
}

func serveMemory(t *testing.T, config *http.Server) net.Conn {
	s, l := New(config), newMemory()
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	near, far := net.Pipe()
	l.conns <- far
	t.Cleanup(func() {
		near.Close()
		s.Close()
		<-served
		<-s.drained
	})
	return near
}

// A client that reads nothing is given up.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		near := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(left)
			w.Write(make([]byte, 100000))
			if r.Context().Err() == nil {
				t.Error("not cancelled")
			}
		})
		start := time.Now()
		io.WriteString(near, post("/", "x"))
		<-left
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// The server's limits of time hold.
func TestTimes(t *testing.T) {
	half := strings.TrimSuffix(post("/", "x"), "\r\n\r\nx")
	for _, c := range []struct {
		name string
		send []string // a second after the other
		want time.Duration
		says string // the last answer, if there is one
	}{
		{"nothing comes", nil, 5 * time.Second, ""},
		{"half a head", []string{half}, 5 * time.Second, ""},
		{"half of the second head", []string{post("/", "x"), half}, 6 * time.Second, "1"},
		{"a head bit by bit", []string{post("/", "x"), "P", "O", "S", "T", " ", "/", "a"}, 6 * time.Second, "1"},
		{"idle", []string{post("/", "x"), post("/", "x")}, 91 * time.Second, "1"},
		{"empty lines", []string{post("/", "x"), "\r\n"}, 90 * time.Second, "1"},
		{"empty lines at once", []string{post("/", "x") + "\r\n"}, 90 * time.Second, "1"},
		{"empty lines during a long call", []string{post("/long", "x"), "\r\n"}, 2*time.Minute + 90*time.Second, "1"},
		{"half a body", []string{request("POST / HTTP/1.1", "Host: a", "Content-Length: 2") + "x"}, 30*time.Second + lingerTime, "timeout"},
		{"half a body for long", []string{request("POST /own HTTP/1.1", "Host: a", "Content-Length: 2") + "x"}, time.Minute + lingerTime, "timeout"},
		{"half a body not read", []string{request("POST /not HTTP/1.1", "Host: a", "Content-Length: 2") + "x"}, 30*time.Second + lingerTime, "not"},
		{"long call", []string{post("/long", "x")}, 2*time.Minute + 90*time.Second, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config, _ := settings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					control := http.NewResponseController(w)
					switch r.URL.Path {
					case "/own":
						control.SetReadDeadline(time.Now().Add(time.Minute))
					case "/not":
						io.WriteString(w, "not")
						return
					case "/long":
						defer func() {
							time.Sleep(2 * time.Minute)
							if r.Context().Err() != nil {
								t.Error("cancelled")
							}
						}()
					}
					n, err := io.Copy(io.Discard, r.Body)
					if err != nil {
						w.Header().Set("Connection", "close")
						io.WriteString(w, "timeout")
						return
					}
					w.Write([]byte{'0' + byte(n)})
				}))
				config.WriteTimeout = 5 * time.Minute
				near := serveMemory(t, config)
				var sender sync.WaitGroup
				sender.Go(func() {
					for _, text := range c.send {
						io.WriteString(near, text) // once it is closed to no effect
						time.Sleep(time.Second)
					}
				})
				start, last, in := time.Now(), "", bufio.NewReader(near)
				for {
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						break
					}
					text, _ := io.ReadAll(resp.Body)
					last = string(text)
				}
				if took := time.Since(start); took != c.want || last != c.says {
					t.Errorf("closed after %v, having said %q", took, last)
				}
				sender.Wait()
			})
		})
	}
}
