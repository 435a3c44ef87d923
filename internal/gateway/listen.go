package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/lane"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// ListenOptions say where the gateway is reached over HTTP.
type ListenOptions struct {
	Address           string // host and port, or a port alone; empty means config.DefaultListen
	CertFile, KeyFile string // for TLS; both or none

	// Insecure allows other machines to connect without TLS: because a proxy
	// before the gateway has it, or the network is trusted.
	Insecure bool

	// NoAuth says that requests will be answered whoever sends them, which no
	// other machine may be able to do.
	NoAuth bool
}

// Listener is an address that is listened on.
type Listener struct {
	net.Listener
	URL      string // how to reach it from this machine
	Loopback bool   // no other machine can
}

// Listen opens the address, if it is safe to.
func Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	if o.Address == "" {
		o.Address = config.DefaultListen
	}
	if _, err := strconv.ParseUint(o.Address, 10, 16); err == nil {
		o.Address = net.JoinHostPort("127.0.0.1", o.Address)
	}
	addr, err := net.ResolveTCPAddr("tcp", o.Address)
	if err != nil {
		return nil, &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: fmt.Sprintf("Cannot listen on %q: %v", o.Address, err), Hint: "Give a host and a port, such as " + config.DefaultListen + "."}
	}
	l := &Listener{Loopback: addr.IP.IsLoopback()}
	if err := o.check(l.Loopback); err != nil {
		return nil, err
	}
	var shown *certificate
	if o.CertFile != "" {
		if shown, err = newCertificate(o.CertFile, o.KeyFile); err != nil {
			return nil, err
		}
	}
	if l.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", addr.String()); err != nil {
		return nil, cannotListen(o.Address, err)
	}
	l.Listener = newConnections(wire.NewListener(l.Listener), maxConnections, maxStrangers)
	l.URL = "http://" + l.host(o.Address)
	if shown != nil {
		l.URL = "https://" + l.host(o.Address)
		l.Listener = tls.NewListener(l.Listener, &tls.Config{
			GetCertificate: shown.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	return l, nil
}

// host is the host and port of the listener as a client on this machine would
// write them: the name that was asked for, unless that means every address.
func (l *Listener) host(asked string) string {
	addr := l.Addr().(*net.TCPAddr)
	host, _, _ := net.SplitHostPort(asked) // it was resolved
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

func (o ListenOptions) check(loopback bool) error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "TLS needs both a certificate and its key.", Hint: "Give --tls-cert and --tls-key."}
	case loopback:
		return nil
	case o.NoAuth:
		return &patchbay.Error{Kind: patchbay.KindDenied, Message: fmt.Sprintf("Other machines can reach %s, so requests must be authenticated there.", o.Address), Hint: "Leave out --no-auth, or listen on " + config.DefaultListen + "."}
	case o.CertFile == "" && !o.Insecure:
		return &patchbay.Error{
			Kind:    patchbay.KindDenied,
			Message: fmt.Sprintf("Other machines can reach %s, and without TLS everybody in between can read the token.", o.Address),
			Hint:    "Give --tls-cert and --tls-key, or --insecure-bind if a proxy before it speaks TLS.",
		}
	}
	return nil
}

func cannotListen(address string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return &patchbay.Error{Kind: patchbay.KindTransport, Message: fmt.Sprintf("Cannot listen on %s: %v", address, err)}
	}
	return &patchbay.Error{
		Kind:    patchbay.KindTransport,
		Message: fmt.Sprintf("%s is in use by another program.", address),
		Hint:    "Choose another address with --http, or port 0 for any that is free. If it is Patchbay that listens there, agents can connect to it, or run `patchbay serve --stdio`.",
	}
}

// drainTime is how long calls in flight may take to finish when the gateway is
// asked to end.
const drainTime = 10 * time.Second

// lastWords is how long the last answers may take to be written after that.
const lastWords = 2 * time.Second

// Site is what is served on an address: the gateway, and beside it what tells
// others about it.
type Site struct {
	Gateway *Gateway
	Auth    *Auth // nil: requests are answered whoever sends them

	Hosts   []string // further names under which the site may be addressed; "*" means any
	Origins []string // web pages that may send requests

	patience time.Duration // for calls in flight at the end; 0 means drainTime
}

// Serve serves until ctx ends, and then lets calls in flight finish.
func (s *Site) Serve(ctx context.Context, l net.Listener) error {
	// Requests outlive ctx: its end is where draining begins.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	plain := wire.NewHTTPServer(life, s.handler())
	plain.ConnContext = withConnection
	server := lane.New(plain)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		_ = server.Close() // or what it has accepted would stay, with nobody behind it
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(life, cmp.Or(s.patience, drainTime))
	defer cancel()
	// Until the calls are done clients have to reach us, to answer what a call
	// asks and to come back for what they were sent away from.
	_ = s.Gateway.Shutdown(wait) // that some were cancelled is what is meant to happen
	written, cancel := context.WithTimeout(life, lastWords)
	defer cancel()
	_ = server.Shutdown(written)
	end()
	_ = server.Close()
	<-failed
	return nil
}

func (s *Site) handler() http.Handler {
	opts := wire.HTTPOptions{Guard: wire.Guard{Hosts: s.Hosts, Origins: s.Origins}}
	if s.Auth != nil {
		opts.Principal = func(r *http.Request) (string, error) {
			principal, err := s.Auth.Principal(r)
			if c := connectionOf(r.Context()); c != nil && err == nil {
				c.known.Store(true)
			}
			return principal, err
		}
	}
	next := s.routes(s.Gateway.HTTP(opts))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connectionOf(r.Context()); c != nil {
			if s.Auth == nil {
				c.known.Store(true)
			}
			c.enter()
			defer c.leave()
		}
		next.ServeHTTP(w, r)
	})
}

// routes puts what is beside the gateway beside it.
func (s *Site) routes(mcp http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(endpointRoot+"/", mcp)
	// It is ready as soon as it listens: no list waits for a server.
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", alive)
	if s.Auth != nil {
		s.Auth.handleMetadata(mux)
	}
	mux.HandleFunc("/", s.lost)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == endpointRoot { // as nearly always
			mcp.ServeHTTP(w, r)
		} else {
			mux.ServeHTTP(w, r)
		}
	})
}

// lost answers for what is not there. Clients without a token look here for a
// way to get one, and show their user what they find.
func (s *Site) lost(w http.ResponseWriter, _ *http.Request) {
	text := "There is nothing here: MCP is at " + endpointRoot + "."
	if s.Auth != nil && s.Auth.issuer == nil {
		text += " " + tokenHint
	}
	w.Header().Set("Connection", "close") // as everywhere where nobody had to show who they are
	http.Error(w, text, http.StatusNotFound)
}

// tokenHint says how to get in where nobody issues tokens.
const tokenHint = `Send the header "Authorization: Bearer TOKEN" with the token that "patchbay token" prints.`

func alive(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, "ok\n") // the client may be gone
}

// ServeMetrics offers metrics at /metrics of an address of their own until stop
// is called. Web pages get nothing.
func ServeMetrics(ctx context.Context, l *Listener, metrics http.Handler) (stop func()) {
	guard := wire.Guard{}
	if !l.Loopback {
		guard.Hosts = []string{"*"} // that others see them is what was asked for
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guard.Protect(metrics))
	server := wire.NewHTTPServer(ctx, mux)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // ends with Close
	}()
	return func() {
		_ = server.Close()
		<-ended
	}
}
