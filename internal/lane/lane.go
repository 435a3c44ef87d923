// Package lane is a fast lane through net/http for the requests that MCP clients
// send over and over: a POST of a known length to a plain path. For each of them
// net/http makes header maps, buffers and a goroutine; BenchmarkRequest shows what
// that costs.
//
// A Server stands before an http.Server and shares its handler and its limits.
// It reads the heads of requests itself and serves the plain ones (see head);
// a connection on which anything else comes, at whatever time, is given to
// net/http with all that was not consumed, for good. So there is one opinion on
// what is unusual, and it is net/http's: the lane accepts only what net/http
// would read the same way.
//
// A handler sees no difference, with these exceptions: the header of a request
// is not to be changed, because the next request may have the same one; that of
// a response belongs to the next one as soon as the handler has returned; a
// client that leaves is noticed after some milliseconds; and the ResponseWriter
// has no hijacking, no full duplex, no trailers and no informational responses.
//
// TLS connections must not negotiate anything but HTTP/1.1.
package lane

import (
	"bufio"
	"context"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves what its http.Server would, plain requests faster. It takes the
// place of the http.Server's own Serve, Shutdown and Close.
type Server struct {
	http    *http.Server
	ctx     context.Context // of the connections; set by Serve
	aside   aside
	writers sync.Pool // of *bufio.Writer
	date    atomic.Pointer[date]

	ending   atomic.Bool
	sweeping atomic.Bool // sweeper is set
	sweeper  *time.Timer

	mu      sync.Mutex
	conns   map[*conn]struct{}
	drained chan struct{} // closed when the last of conns goes after ending
}

// New returns a Server in front of server, whose fields must not change any more.
func New(server *http.Server) *Server {
	s := &Server{
		http:    server,
		aside:   aside{conns: make(chan net.Conn), closed: make(chan struct{})},
		conns:   map[*conn]struct{}{},
		drained: make(chan struct{}),
	}
	s.writers.New = func() any { return bufio.NewWriterSize(nil, writeBuffer) }
	s.sweeper = time.AfterFunc(time.Hour, s.sweep)
	s.sweeper.Stop()
	return s
}

// Serve serves the connections that l accepts. It is called once, and returns as
// http.Server.Serve does.
func (s *Server) Serve(l net.Listener) error {
	s.ctx = context.Background()
	if s.http.BaseContext != nil {
		s.ctx = s.http.BaseContext(l)
	}
	s.ctx = context.WithValue(s.ctx, http.ServerContextKey, s.http)
	s.aside.addr = l.Addr()
	var others sync.WaitGroup
	others.Go(func() {
		_ = s.http.Serve(&s.aside) // its end is that of the other
		_ = s.aside.Close()
	})
	// What there is to accepting, such as patience when there are no more
	// descriptors, is left to net/http.
	err := s.http.Serve(entrance{l, s})
	_ = s.aside.Close()
	others.Wait()
	return err
}

// Shutdown stops accepting, closes idle connections and waits until the others
// have finished their request, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end((*conn).closeIdle)
	err := s.http.Shutdown(ctx)
	select {
	case <-s.drained:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes everything at once.
func (s *Server) Close() error {
	s.end(func(c *conn) { _ = c.Close() })
	return s.http.Close()
}

// end lets no request begin any more, and closes connections.
func (s *Server) end(closing func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending.Swap(true) && len(s.conns) == 0 {
		close(s.drained)
	}
	for c := range s.conns {
		closing(c)
	}
}

// add takes a connection into the books, unless it comes too late.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.ending.Load() && len(s.conns) == 0 {
		close(s.drained)
	}
}

// maxHead is how large the head of a plain request may be, and so how much a
// connection has room to read.
func (s *Server) maxHead() int {
	const most = 8 << 10
	if own := s.http.MaxHeaderBytes; own > 0 {
		return min(own, most)
	}
	return most
}

func (s *Server) handler() http.Handler {
	if s.http.Handler == nil {
		return http.DefaultServeMux
	}
	return s.http.Handler
}

func (s *Server) logf(format string, args ...any) {
	if s.http.ErrorLog != nil {
		s.http.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

// entrance is the listener through which net/http accepts connections, all of
// which turn into the lane at once.
type entrance struct {
	net.Listener
	s *Server
}

// Accept implements net.Listener. It returns with an error only.
func (e entrance) Accept() (net.Conn, error) {
	for {
		c, err := e.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := newConn(e.s, c); e.s.add(c) {
			go c.serve()
		} else {
			_ = c.Close()
		}
	}
}
