package control

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	statusPath = "/v1/status"
	stopPath   = "/v1/stop"
	pidHeader  = "Patchbay-Pid" // the client's process
)

// Status is what a daemon does at the moment.
type Status struct {
	Identity
	Started   time.Time        `json:"started"`
	Clients   []AttachedClient `json:"clients"`             // the longest attached first
	Listeners []Listener       `json:"listeners,omitempty"` // over HTTP, for a `serve` each; the oldest first
	Servers   []ServerProcess  `json:"servers"`             // by name
}

// ServerProcess is the process of a server, and for whom it runs.
type ServerProcess struct {
	patchbay.Process          // Users are those of all directories and environments
	Dirs             []string `json:"dirs"` // of those who may use it

	// Unlike says how it differs from the process that is most like it of those of
	// its server that come before, and so why there are two; nil for the first.
	Unlike *UnlikeProcess `json:"unlike,omitempty"`
}

// UnlikeProcess is how a process differs from another one.
type UnlikeProcess struct {
	PID int `json:"pid"` // of the other one
	patchbay.Unlike
}

// processes are those of all views, each once.
func (v *Views) processes() []ServerProcess {
	v.mu.Lock()
	open := slices.Collect(maps.Keys(v.views))
	v.mu.Unlock()
	slices.SortFunc(open, func(a, b *view) int { return cmp.Compare(a.caller.Dir, b.caller.Dir) })
	all := []ServerProcess{}
	for _, w := range open {
		select {
		case <-w.ready:
		default:
			continue // it has none yet
		}
		if w.err != nil || w.Host == nil {
			continue
		}
		for _, p := range w.Host.Processes() {
			at := slices.IndexFunc(all, func(s ServerProcess) bool { return s.PID == p.PID })
			if at < 0 {
				at = len(all)
				all = append(all, ServerProcess{Process: p})
			} else {
				all[at].Users = append(all[at].Users, p.Users...)
			}
			if !slices.Contains(all[at].Dirs, w.caller.Dir) {
				all[at].Dirs = append(all[at].Dirs, w.caller.Dir)
			}
		}
	}
	slices.SortFunc(all, func(a, b ServerProcess) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.PID, b.PID))
	})
	for i := range all {
		for _, before := range all[:i] {
			if before.Server != all[i].Server {
				continue
			}
			if u := all[i].Process.Unlike(before.Process); all[i].Unlike == nil || u.Count() < all[i].Unlike.Count() {
				all[i].Unlike = &UnlikeProcess{before.PID, u}
			}
		}
	}
	return all
}

// AttachedClient is an MCP client that has a relay attached to a daemon.
type AttachedClient struct {
	PID      int       `json:"pid,omitempty"` // of the relay
	Name     string    `json:"name,omitempty"`
	Version  string    `json:"version,omitempty"`
	Dir      string    `json:"dir"`
	Endpoint string    `json:"endpoint,omitempty"` // empty means everything
	Since    time.Time `json:"since"`
}

// attachedClient is one of them, as it becomes known.
type attachedClient struct {
	mu    sync.Mutex
	heard bool // it has said who it is, or will not
	known AttachedClient
}

func newAttachedClient(r *http.Request, dir, endpoint string) *attachedClient {
	pid, _ := strconv.Atoi(r.Header.Get(pidHeader)) // it need not say
	return &attachedClient{known: AttachedClient{PID: pid, Dir: dir, Endpoint: endpoint, Since: time.Now()}}
}

// asked takes note of who a client says it is: in initialize, which comes first,
// or in every request of the modern era.
func (c *attachedClient) asked(m wire.Message) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return
	}
	c.heard = true
	at := []string{"_meta", wire.MetaClientInfo}
	if m.Method == "initialize" {
		at = []string{"clientInfo"}
	}
	said := func(member string) string {
		text, _ := wire.StringMember(m.Params, append(at, member)...)
		return text[:min(len(text), maxSaid)]
	}
	c.known.Name, c.known.Version = said("name"), said("version")
}

// maxSaid is how much is kept of what a client says of itself, in bytes.
const maxSaid = 128

// enter takes note of a client that comes or goes.
func (d *run) enter(c *attachedClient, here bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if here {
		d.clients[c] = true
	} else {
		delete(d.clients, c)
	}
}

// Status returns what the daemon does.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, "GET", statusPath, nil, &s)
}

func (d *run) status(w http.ResponseWriter, _ *http.Request) {
	s := Status{Identity: d.Identity, Started: d.started, Clients: []AttachedClient{}, Servers: d.Views.processes()}
	d.mu.Lock()
	clients := slices.Collect(maps.Keys(d.clients))
	for l := range d.listeners {
		s.Listeners = append(s.Listeners, *l)
	}
	d.mu.Unlock()
	slices.SortFunc(s.Listeners, func(a, b Listener) int { return a.Since.Compare(b.Since) })
	for _, c := range clients {
		c.mu.Lock()
		s.Clients = append(s.Clients, c.known)
		c.mu.Unlock()
	}
	slices.SortFunc(s.Clients, func(a, b AttachedClient) int { return a.Since.Compare(b.Since) })
	answer(w, s, nil)
}

// Stop asks the daemon to end, and waits until it has: what is under way is
// finished first, for ten seconds at most.
func (c *Client) Stop(ctx context.Context) error {
	return askToEnd(ctx, c.socket, true)
}

// askToEnd asks the daemon to end. If wait is not set, it returns as soon as the
// daemon has heard of it.
func askToEnd(ctx context.Context, socket string, wait bool) error {
	conn, err := dial(ctx, socket)
	if err != nil {
		return orGone(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	req, err := newRequest(ctx, "POST", stopPath, http.NoBody)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return orGone(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return orGone(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return orGone(refusal(resp))
	}
	if !wait {
		return nil
	}
	if _, err := io.Copy(io.Discard, r); ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil // however the connection ended, so did the daemon
}

// stop answers at once, and keeps the connection until this process has ended.
func (d *run) stop(w http.ResponseWriter, _ *http.Request) {
	if d.Identity.Foreground {
		answer(w, nil, &patchbay.Error{
			Kind:    patchbay.KindDenied,
			Message: "The daemon is a `patchbay serve` (process " + strconv.Itoa(d.Identity.PID) + "), which is not ended from elsewhere.",
			Hint:    "End it where it runs, with Ctrl-C.",
		})
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, nil, err)
		return
	}
	_, _ = conn.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n")) // it may have gone
	d.mu.Lock()
	d.waiting = append(d.waiting, conn)
	d.mu.Unlock()
	d.end()
}
