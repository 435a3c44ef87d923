// Package control is the one road from a face of Patchbay to its host: HTTP and
// JSON, a route for each method of patchbay.Host, and beside each route the
// client method that calls it, so that the two cannot drift apart.
//
// Handler serves a host; Client calls one. InProcess joins the two in memory,
// for a command that runs its own host. Daemon serves a host for each project
// directory on a Unix socket of the user's own, and Dial is the way to it; what
// attaches to the daemon there is an MCP client, which Relay takes to another
// host if the daemon dies. The types on the wire are the host's own: there is
// no second model.
//
//	routes and client methods           control.go, install.go, adopt.go, token.go, session.go, call.go, user.go, watch.go
//	client: in memory, of a daemon      client.go, patience.go, inprocess.go
//	the socket, and whose it is         socket.go, identity.go, os_*.go, peer_*.go
//	the daemon and its views            daemon.go, views.go
//	MCP clients of the daemon           attach.go, stdio.go, relay.go, replay.go
package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// What a request and a response may come to. An answer may hold a message of
// the greatest length that a server may send, with every character escaped.
const (
	maxBody     = 64 << 20
	maxResponse = 160 << 20
)

// Handler serves the host's operations. A request that a browser made on behalf
// of a page is refused: nothing here is for pages.
func Handler(h *patchbay.Host) http.Handler {
	mux := http.NewServeMux()
	for pattern, op := range map[string]operation{
		"GET /v1/snapshot":               snapshot,
		"GET /v1/server":                 server,
		"POST /v1/servers":               add,
		"POST /v1/server/remove":         remove,
		"POST /v1/server/rename":         rename,
		"POST /v1/server/enabled":        setEnabled,
		"POST /v1/server/shared":         setShared,
		"POST /v1/server/inputs":         giveInputs,
		"GET /v1/server/approval":        approval,
		"POST /v1/server/approve":        approve,
		"POST /v1/server/reject":         reject,
		"POST /v1/project/choices/reset": resetProjectChoices,
		"POST /v1/import":                importServers,
		"POST /v1/token":                 token,
		"POST /v1/install":               install,
		"POST /v1/uninstall":             uninstall,
		"POST /v1/adopt":                 adopt,
		"POST /v1/release":               release,
		"POST /v1/reload":                reload,
		"POST /v1/wait":                  wait,
		"POST /v1/server/connect":        connect,
		"POST /v1/server/reconnect":      reconnect,
		"GET /v1/server/logs":            logs,
		"GET /v1/server/tools/changes":   toolChanges,
		"POST /v1/server/tools/accept":   acceptTools,
	} {
		mux.Handle(pattern, serve(h, op))
	}
	mux.HandleFunc("GET "+watchPath, func(w http.ResponseWriter, r *http.Request) { watch(h, w, r) })
	handleSession(mux, h)
	return refusePages(current(h, mux))
}

// current answers requests with what files say now, also if one was saved a
// moment ago.
func current(h *patchbay.Host, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Refresh(r.Context()); err != nil {
			answer(w, nil, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// operation answers one request with a value that becomes the JSON body.
type operation func(h *patchbay.Host, r *http.Request) (any, error)

func serve(h *patchbay.Host, op operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		result, err := op(h, r)
		answer(w, result, err)
	})
}

// answer writes the result of an operation, or its error.
func answer(w http.ResponseWriter, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		e := asError(err)
		w.WriteHeader(statusOf(e.Kind))
		result = e
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // raw results pass as they are
	// The client may be gone; there is nobody to tell.
	_ = enc.Encode(result)
}

// asError gives every error a kind, as far as it has one.
func asError(err error) *patchbay.Error {
	if e, ok := errors.AsType[*patchbay.Error](err); ok {
		return e
	}
	e := &patchbay.Error{Message: err.Error()}
	if _, answered := errors.AsType[*patchbay.RPCError](err); answered {
		e.Kind = patchbay.KindServer
	} else if errors.Is(err, context.DeadlineExceeded) {
		e.Kind = patchbay.KindTimeout
	}
	return e
}

func statusOf(k patchbay.Kind) int {
	switch k {
	case patchbay.KindConfigInvalid:
		return http.StatusUnprocessableEntity
	case patchbay.KindNotFound, patchbay.KindToolNotFound:
		return http.StatusNotFound
	case patchbay.KindDenied:
		return http.StatusForbidden
	default:
		return http.StatusInternalServerError
	}
}

func refusePages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || r.Header.Get("Referer") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "requests from web pages are refused", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func decode[T any](r *http.Request) (T, error) {
	var v T
	err := json.NewDecoder(r.Body).Decode(&v)
	return v, err
}

// none is the answer of operations that return nothing.
type none struct{}

// serverPath is the path of an operation on one server. The name goes into the
// query: it may be "..", which a path cannot carry.
func serverPath(verb, name string) string {
	return "/v1/server" + verb + "?name=" + url.QueryEscape(name)
}

func nameOf(r *http.Request) string { return r.URL.Query().Get("name") }

func wantsSecrets(r *http.Request) bool { return r.URL.Query().Get("secrets") == "true" }

// Snapshot returns what the host knows now; secrets are masked unless asked for.
// The tools of servers are left out, of which there may be thousands: Server and
// Tools have them.
func (c *Client) Snapshot(ctx context.Context, secrets bool) (s patchbay.Snapshot, err error) {
	return s, c.call(ctx, "GET", "/v1/snapshot?secrets="+strconv.FormatBool(secrets), nil, &s)
}

func snapshot(h *patchbay.Host, r *http.Request) (any, error) {
	s := h.Snapshot().WithoutTools()
	if wantsSecrets(r) {
		s = s.WithSecrets()
	}
	return s, nil
}

// Server returns the declaration that stands for a name.
func (c *Client) Server(ctx context.Context, name string, secrets bool) (s patchbay.ServerStatus, err error) {
	return s, c.call(ctx, "GET", serverPath("", name)+"&secrets="+strconv.FormatBool(secrets), nil, &s)
}

func server(h *patchbay.Host, r *http.Request) (any, error) {
	s, err := h.Server(nameOf(r))
	if err == nil && wantsSecrets(r) {
		s.Config = config.EncodeServer(s.Server)
	}
	return s, err
}

// Add writes a new server into one of Patchbay's own files.
func (c *Client) Add(ctx context.Context, req patchbay.AddRequest) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", "/v1/servers", req, &ch)
}

func add(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.AddRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Add(r.Context(), req)
}

// Remove deletes a server from the file that declares it.
func (c *Client) Remove(ctx context.Context, req patchbay.RemoveRequest) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/remove", req.Name), req, &ch)
}

func remove(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.RemoveRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Remove(r.Context(), req)
}

// Rename changes the name of a server in the file that declares it.
func (c *Client) Rename(ctx context.Context, req patchbay.RenameRequest) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", "/v1/server/rename", req, &ch)
}

func rename(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.RenameRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Rename(r.Context(), req)
}

// SetShared has all directories have one process of a server, or not.
func (c *Client) SetShared(ctx context.Context, name string, on bool) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/shared", name), on, &ch)
}

func setShared(h *patchbay.Host, r *http.Request) (any, error) {
	on, err := decode[bool](r)
	if err != nil {
		return nil, err
	}
	return h.SetShared(r.Context(), nameOf(r), on)
}

// GiveInputs answers what a server asks for.
func (c *Client) GiveInputs(ctx context.Context, name string, answers map[string]string) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/inputs", name), answers, &ch)
}

func giveInputs(h *patchbay.Host, r *http.Request) (any, error) {
	answers, err := decode[map[string]string](r)
	if err != nil {
		return nil, err
	}
	return h.GiveInputs(r.Context(), nameOf(r), answers)
}

// SetEnabled switches a server on or off.
func (c *Client) SetEnabled(ctx context.Context, name string, on bool) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/enabled", name), on, &ch)
}

func setEnabled(h *patchbay.Host, r *http.Request) (any, error) {
	on, err := decode[bool](r)
	if err != nil {
		return nil, err
	}
	return h.SetEnabled(r.Context(), nameOf(r), on)
}

// Approval returns what approving a server would mean.
func (c *Client) Approval(ctx context.Context, name string) (a patchbay.ApprovalRequest, err error) {
	return a, c.call(ctx, "GET", serverPath("/approval", name), nil, &a)
}

func approval(h *patchbay.Host, r *http.Request) (any, error) {
	return h.Approval(nameOf(r))
}

// Approve records that a server may be used as the hash describes it.
func (c *Client) Approve(ctx context.Context, name, hash string) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/approve", name), hash, &ch)
}

func approve(h *patchbay.Host, r *http.Request) (any, error) {
	hash, err := decode[string](r)
	if err != nil {
		return nil, err
	}
	return h.Approve(r.Context(), nameOf(r), hash)
}

// Reject records that a server must not be used as the hash describes it.
func (c *Client) Reject(ctx context.Context, name, hash string) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/reject", name), hash, &ch)
}

func reject(h *patchbay.Host, r *http.Request) (any, error) {
	hash, err := decode[string](r)
	if err != nil {
		return nil, err
	}
	return h.Reject(r.Context(), nameOf(r), hash)
}

// ResetProjectChoices forgets every approval and rejection of the project.
func (c *Client) ResetProjectChoices(ctx context.Context) (f patchbay.ForgottenChoices, err error) {
	return f, c.call(ctx, "POST", "/v1/project/choices/reset", nil, &f)
}

func resetProjectChoices(h *patchbay.Host, r *http.Request) (any, error) {
	return h.ResetProjectChoices(r.Context())
}

// Import copies the servers of a product into a file of Patchbay's own.
func (c *Client) Import(ctx context.Context, req patchbay.ImportRequest) (ch []patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", "/v1/import", req, &ch)
}

func importServers(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.ImportRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Import(r.Context(), req)
}

// Reload reads all configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/reload", nil, &none{})
}

func reload(h *patchbay.Host, r *http.Request) (any, error) {
	return none{}, h.Reload(r.Context())
}

// Wait waits until every server is connected or cannot be.
func (c *Client) Wait(ctx context.Context) error {
	return c.call(ctx, "POST", "/v1/wait", nil, &none{})
}

func wait(h *patchbay.Host, r *http.Request) (any, error) { return none{}, h.Wait(r.Context()) }

// Connect makes sure that a server is connected.
func (c *Client) Connect(ctx context.Context, name string) error {
	return c.call(ctx, "POST", serverPath("/connect", name), nil, &none{})
}

func connect(h *patchbay.Host, r *http.Request) (any, error) {
	return none{}, h.Connect(r.Context(), nameOf(r))
}

// Reconnect drops a server's connection and makes a new one.
func (c *Client) Reconnect(ctx context.Context, name string) error {
	return c.call(ctx, "POST", serverPath("/reconnect", name), nil, &none{})
}

func reconnect(h *patchbay.Host, r *http.Request) (any, error) {
	return none{}, h.Reconnect(r.Context(), nameOf(r))
}

// Logs returns the last of what a server's process wrote to its standard error.
func (c *Client) Logs(ctx context.Context, name string) (text string, err error) {
	return text, c.call(ctx, "GET", serverPath("/logs", name), nil, &text)
}

func logs(h *patchbay.Host, r *http.Request) (any, error) { return h.Logs(nameOf(r)) }

// ToolChanges returns how the tools of a server differ from what was accepted.
func (c *Client) ToolChanges(ctx context.Context, name string) (ch []patchbay.ToolChange, err error) {
	return ch, c.call(ctx, "GET", serverPath("/tools/changes", name), nil, &ch)
}

func toolChanges(h *patchbay.Host, r *http.Request) (any, error) {
	return h.ToolChanges(r.Context(), nameOf(r))
}

// AcceptTools accepts the changes of a server's tools that were shown.
func (c *Client) AcceptTools(ctx context.Context, name string, shown []patchbay.ToolChange) (ch patchbay.Change, err error) {
	return ch, c.call(ctx, "POST", serverPath("/tools/accept", name), shown, &ch)
}

func acceptTools(h *patchbay.Host, r *http.Request) (any, error) {
	shown, err := decode[[]patchbay.ToolChange](r)
	if err != nil {
		return nil, err
	}
	return h.AcceptTools(r.Context(), nameOf(r), shown)
}
