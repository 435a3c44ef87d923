package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Daemon is what a process offers on its control socket.
type Daemon struct {
	Identity Identity
	Views    *Views
	Metrics  http.Handler // nil means none
	Logger   *slog.Logger // nil discards
}

const (
	hostName    = "patchbay"       // the Host of every request
	attachProto = "patchbay-mcp/2" // what a connection is upgraded to: MCP with control lines
	drainTime   = 10 * time.Second
)

// Serve answers on the socket until ctx ends, lets what is under way finish, for
// ten seconds at most, and closes the socket. The views stay open.
func (d Daemon) Serve(ctx context.Context, s *Socket) error {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	// Requests outlive ctx: its end is where draining begins.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var attached sync.WaitGroup
	srv := &http.Server{
		Handler:           d.handler(ctx, life, &attached),
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(d.Logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return life },
		ConnContext:       withCaller,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(own{s.listener}) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		_ = s.Close() // at once, so that another process can be the daemon
		<-served
		d.drain(life, srv)
	}
	stop()
	_ = srv.Close() // whoever is left has had its time
	attached.Wait()
	return errors.Join(err, s.Close())
}

// drain lets what is under way finish.
func (d Daemon) drain(life context.Context, srv *http.Server) {
	patience, enough := context.WithTimeout(life, drainTime)
	defer enough()
	var work sync.WaitGroup
	work.Go(func() { d.Views.drain(patience) })
	work.Go(func() { _ = srv.Shutdown(patience) }) // Close ends whoever takes longer
	work.Wait()
}

// handler routes what is the daemon's own, and hands the rest to the view of the
// caller. When ctx has ended nothing new is begun, with life ends
// what was.
func (d Daemon) handler(ctx, life context.Context, attached *sync.WaitGroup) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d.Identity) // the client may be gone
	})
	mux.HandleFunc("POST "+callerPath, meet)
	if d.Metrics != nil {
		mux.Handle("GET /metrics", d.Metrics)
	}
	mux.HandleFunc("POST /v1/attach", func(w http.ResponseWriter, r *http.Request) {
		attached.Add(1)
		defer attached.Done()
		d.attach(life, w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.view(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		defer d.Views.release(v)
		if r.URL.Path == watchPath { // which would never finish
			watching, end := context.WithCancel(r.Context())
			defer context.AfterFunc(ctx, end)()
			r = r.WithContext(watching)
		}
		v.handler.ServeHTTP(w, r)
	})
	return refusePages(onlyHere(keepTime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, errEnding.Error(), http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))))
}

// onlyHere refuses requests that were meant for another host.
func onlyHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != hostName {
			http.Error(w, "this is not the host of the request", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// view returns the view of a request's caller, to be released.
func (d Daemon) view(r *http.Request) (*view, error) {
	c, err := callerOf(r.Context())
	if err != nil {
		return nil, err
	}
	return d.Views.use(r.Context(), c)
}

// attach makes an MCP connection of an HTTP connection and serves it.
func (d Daemon) attach(life context.Context, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != attachProto {
		http.Error(w, "the upgrade to "+attachProto+" is missing", http.StatusUpgradeRequired)
		return
	}
	v, err := d.view(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer d.Views.release(v)
	if v.Attach == nil {
		answer(w, nil, &patchbay.Error{Kind: patchbay.KindDenied, Message: "This process does not serve MCP clients."})
		return
	}
	endpoint := r.URL.Query().Get("endpoint")
	if v.Check != nil {
		if err := v.Check(endpoint); err != nil {
			answer(w, nil, err)
			return
		}
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, nil, err)
		return
	}
	_ = conn.SetDeadline(time.Time{}) // those of the HTTP server
	const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + attachProto + "\r\n\r\n"
	if _, err := conn.Write([]byte(accepted)); err != nil {
		conn.Close()
		return
	}
	stream := &daemonConn{StreamConn: wire.NewStreamConn(&upgraded{Conn: conn, r: buffered.Reader}, conn, nil), open: map[wire.ID]bool{}}
	if err := v.Attach(life, stream, endpoint); err != nil {
		d.Logger.Warn("attached client", "error", err)
	}
}
