package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// Daemon is what a process offers on its control socket.
type Daemon struct {
	Identity Identity
	Views    *Views
	Metrics  http.Handler  // nil means none
	Logger   *slog.Logger  // nil discards
	Idle     time.Duration // after which it ends if nobody uses it; 0 means never
}

const (
	hostName    = "patchbay" // the Host of every request
	attachPath  = "/v1/attach"
	attachProto = "patchbay-mcp/3" // what a connection is upgraded to: MCP with control lines
	drainTime   = 10 * time.Second
)

// Serve answers on the socket until ctx ends, a client asks it to end, or nobody
// has used it for long enough; it lets what is under way finish, for ten seconds
// at most, and closes the socket. The views stay open. Whoever asked it to end
// waits for release: at the latest, the end of the process.
func (d Daemon) Serve(ctx context.Context, s *Socket) (release func(), err error) {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	// Requests outlive ctx: its end is where draining begins.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r := &run{Daemon: d, ctx: ctx, end: end, life: life, clients: map[*attachedClient]bool{}, listeners: map[*Listener]bool{}, started: time.Now()}
	r.idle = newIdle(d.Idle, end)
	defer r.idle.stop()
	srv := &http.Server{
		Handler:           r.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(d.Logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return life },
		ConnContext:       withCaller,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(own{s.listener}) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		_ = s.Close() // at once, so that another process can be the daemon
		<-served
		d.drain(life, srv)
	}
	stop()
	_ = srv.Close() // whoever is left has had its time
	r.attached.Wait()
	return r.release, errors.Join(err, s.Close())
}

// run is a daemon that serves.
type run struct {
	Daemon
	ctx      context.Context // when it has ended nothing new is begun
	end      context.CancelFunc
	life     context.Context // with it ends what was begun
	idle     *idle
	started  time.Time
	attached sync.WaitGroup

	mu        sync.Mutex
	clients   map[*attachedClient]bool
	listeners map[*Listener]bool
	waiting   []net.Conn // for the end of all this
}

// release lets go of those who wait for the end.
func (d *run) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		_ = c.Close() // it may have given up
	}
	d.waiting = nil
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
// caller.
func (d *run) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, d.Identity, nil)
	})
	mux.HandleFunc("POST "+callerPath, meet)
	mux.HandleFunc("GET "+statusPath, d.status)
	mux.HandleFunc("POST "+stopPath, d.stop)
	if d.Metrics != nil {
		mux.Handle("GET /metrics", d.Metrics)
	}
	mux.HandleFunc("POST "+listenPath, func(w http.ResponseWriter, r *http.Request) {
		d.attached.Add(1)
		defer d.attached.Done()
		d.listen(w, r)
	})
	mux.HandleFunc("POST "+attachPath, func(w http.ResponseWriter, r *http.Request) {
		d.attached.Add(1)
		defer d.attached.Done()
		d.attach(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.view(r)
		if err != nil {
			d.refuse(w, err)
			return
		}
		defer d.Views.release(v)
		if r.URL.Path == watchPath { // which would never finish
			watching, end := context.WithCancel(r.Context())
			defer context.AfterFunc(d.ctx, end)()
			r = r.WithContext(watching)
		}
		v.handler.ServeHTTP(w, r)
	})
	return refusePages(onlyHere(keepTime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer d.idle.use()()
		if d.ctx.Err() != nil {
			d.refuse(w, errEnding)
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

// refuse answers a request that cannot be served. Whatever fails while the daemon
// is about to end fails because of that, and the next daemon may serve it.
func (d *run) refuse(w http.ResponseWriter, err error) {
	if d.ctx.Err() != nil {
		http.Error(w, errEnding.Error(), http.StatusServiceUnavailable)
		return
	}
	answer(w, nil, err)
}

// attach makes an MCP connection of an HTTP connection and serves it.
func (d *run) attach(w http.ResponseWriter, r *http.Request) {
	if !speaks(w, r, attachProto) {
		return
	}
	v, err := d.view(r)
	if err != nil {
		d.refuse(w, err)
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
			d.refuse(w, err)
			return
		}
	}
	conn, buffered, err := takeOver(w, attachProto)
	if conn == nil {
		answer(w, nil, err)
		return
	}
	if err != nil {
		conn.Close()
		return
	}
	client := newAttachedClient(r, v.caller.Dir, endpoint)
	d.enter(client, true)
	defer d.enter(client, false)
	stream := newDaemonConn(&upgraded{Conn: conn, r: buffered}, conn)
	stream.client = client
	if v.Needs != nil {
		needs, stop := context.WithCancel(d.life)
		defer stop()
		d.attached.Go(func() {
			for _, text := range v.Needs(needs) {
				_ = stream.WriteControl(needs, wordSay+text) // it may have gone
			}
		})
	}
	if err := v.Attach(d.life, stream, endpoint); err != nil && d.ctx.Err() == nil { // else it goes on with the next daemon
		d.Logger.Warn("attached client", "error", err)
	}
}
