package conn

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// remote is a server over Streamable HTTP, of the legacy era and without
// sessions.
type remote struct {
	*httptest.Server

	mu       sync.Mutex
	refuse   func(method string, h http.Header) (status int, header map[string]string) // status 0 answers
	fail     func(method string, r *http.Request) *wire.Error                          // set before use; nil answers
	requests map[string]int                                                            // by method
	last     http.Header
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{requests: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *remote) set(refuse func(method string, h http.Header) (int, map[string]string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

func (r *remote) count(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[method]
}

// header is what the last request carried.
func (r *remote) header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *remote) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(req.Body)
	m, err := wire.Parse(body, wire.Limits{})
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.requests[m.Method]++
	r.last = req.Header.Clone()
	status, header := 0, map[string]string(nil)
	if r.refuse != nil {
		status, header = r.refuse(m.Method, req.Header)
	}
	r.mu.Unlock()
	if status != 0 {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		return
	}
	answer := wire.Message{ID: m.ID}
	if r.fail != nil {
		answer.Error = r.fail(m.Method, req)
	}
	switch {
	case answer.Error != nil:
	case m.Method == "initialize":
		answer.Result = json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"remote","version":"1"}}`)
	case m.Method == "tools/list":
		answer.Result = json.RawMessage(`{"tools":[{"name":"echo"}]}`)
	case slices.Contains([]string{"tools/call", "resources/read", "ping"}, m.Method):
		answer.Result = json.RawMessage(`{}`)
	default:
		answer.Error = wire.MethodNotFound(m.Method)
	}
	if m.Kind() != wire.KindRequest {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer.AppendTo(nil))
}

func (r *remote) target() Target {
	return Target{ConnectHash: "1", Entry: config.Entry{Server: config.Server{Type: config.HTTP, URL: r.URL + "/mcp"}}}
}

func read(t *testing.T, s *Server) error {
	_, err := s.Call(t.Context(), wire.Call{Method: "resources/read", Params: json.RawMessage(`{"uri":"x:y"}`)})
	return err
}

func TestHTTP(t *testing.T) {
	r := newRemote(t)
	target := r.target()
	target.Entry.Server.Headers = map[string]config.Secret{"X-Team": config.NewSecret("red")}
	target.Entry.Server.Auth = &config.Auth{Mode: config.AuthAPIKey, Key: config.NewSecret("k3y"), HeaderName: "X-Key", ValuePrefix: "Key "}
	s := one(t, newManager(t, Options{}), target)
	mustWait(t, s)
	mustCall(t, s)
	if h := r.header(); h.Get("X-Team") != "red" || h.Get("X-Key") != "Key k3y" || h.Get("Authorization") != "" {
		t.Errorf("headers %v", h)
	}
	target.Entry.Server.Auth = &config.Auth{Mode: config.AuthAPIKey, Key: config.NewSecret("k3y"), ValuePrefix: "Bearer "}
	target.ConnectHash = "2"
	s = one(t, s.manager, target)
	mustCall(t, s)
	if h := r.header(); h.Get("Authorization") != "Bearer k3y" {
		t.Errorf("headers %v", h)
	}
}

// Row 20, as far as there are no credentials to renew: the server needs some,
// says which, and is left alone until then.
func TestNeedsAuth(t *testing.T) {
	challenge := map[string]string{"WWW-Authenticate": `Bearer resource_metadata="https://x/.well-known/y", scope="a b"`}
	r := newRemote(t)
	r.set(func(_ string, h http.Header) (int, map[string]string) {
		if h.Get("Authorization") == "" {
			return http.StatusUnauthorized, challenge
		}
		return 0, nil
	})
	m := newManager(t, Options{})
	s := one(t, m, r.target())
	e := callError(t, s.Wait(t.Context()))
	st := wantState(t, s, config.NeedsAuth, "401")
	if e.Kind != KindAuth || st.Challenge == nil || st.Challenge.Params["scope"] != "a b" || !st.NextRetry.IsZero() {
		t.Errorf("%+v, %+v", e, st)
	}
	asked := r.count("initialize") + r.count("server/discover")
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth || !e.RetrySafe {
		t.Errorf("%+v", e)
	}
	if again := r.count("initialize") + r.count("server/discover"); again != asked {
		t.Errorf("asked %d times, then %d", asked, again)
	}
	target := r.target()
	target.ConnectHash = "2"
	target.Entry.Server.Headers = map[string]config.Secret{"Authorization": config.NewSecret("Bearer x")}
	s = one(t, m, target)
	mustCall(t, s)
	mustWait(t, s)

	// Credentials may cease to be good.
	r.set(func(string, http.Header) (int, map[string]string) { return http.StatusUnauthorized, challenge })
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth || !strings.Contains(e.Error(), "401") {
		t.Errorf("%+v", e)
	}
	if err := callError(t, s.Wait(t.Context())); err.Kind != KindAuth {
		t.Error(err)
	}
	wantState(t, s, config.NeedsAuth, "401")
	r.set(nil)
	if err := s.Reconnect(t.Context()); err != nil {
		t.Error(err)
	}
}

// What an entry could not send is recalled whenever credentials are missing, not
// only when the server is connected.
func TestLaterRefusalRecallsWhatIsMissing(t *testing.T) {
	r := newRemote(t)
	r.set(func(method string, _ http.Header) (int, map[string]string) {
		if method == "tools/call" {
			return http.StatusUnauthorized, nil
		}
		return 0, nil
	})
	target := r.target()
	target.Entry.Dialect = config.DialectPatchbay
	target.Entry.Server.BearerTokenEnvVar = "NO_SUCH_TOKEN"
	s := one(t, newManager(t, Options{}), target)
	mustWait(t, s)
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth || strings.Count(e.Error(), "NO_SUCH_TOKEN") != 1 {
		t.Errorf("%+v", e)
	}
	wantState(t, s, config.NeedsAuth, "NO_SUCH_TOKEN")
	if e := callError(t, call(t.Context(), s)); strings.Count(e.Error(), "NO_SUCH_TOKEN") != 1 {
		t.Errorf("%+v", e)
	}
}

// A server may say what it was sent, in an answer that is none of HTTP's errors.
func TestAnswersDoNotTellSecrets(t *testing.T) {
	server := config.Server{Type: config.HTTP, Headers: map[string]config.Secret{
		"Authorization": config.NewSecret("Bearer hunter2-token"), "X-Key": config.NewSecret("hunter2-key"),
	}}
	for method, want := range map[string]config.State{"initialize": config.Failed, "tools/list": config.Connected} {
		r := newRemote(t)
		r.fail = func(asked string, req *http.Request) *wire.Error {
			if asked != method {
				return nil
			}
			token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
			return &wire.Error{Code: -32000, Message: "who is " + token + " with " + req.Header.Get("X-Key") + " and " + req.URL.RawQuery + "?"}
		}
		target := r.target()
		server.URL = target.Entry.Server.URL + "?key=hunter2-query"
		target.Entry.Server = server
		s := one(t, newManager(t, Options{}), target)
		err := s.Wait(t.Context())
		st := wantState(t, s, want, "who is [redacted] with [redacted] and [redacted]?")
		if text := fmt.Sprint(err, st, s.Catalog()); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", method, text)
		}
	}
}

// Credentials may be good, but not for everything: that is no reason to give up
// the rest.
func TestInsufficientScope(t *testing.T) {
	r := newRemote(t)
	r.set(func(method string, _ http.Header) (int, map[string]string) {
		if method == "tools/call" {
			return http.StatusForbidden, map[string]string{"WWW-Authenticate": `Bearer error="insufficient_scope", scope="files:write"`}
		}
		return 0, nil
	})
	s := one(t, newManager(t, Options{}), r.target())
	mustWait(t, s)
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth || !strings.Contains(e.Err.Error(), "files:write") {
		t.Errorf("%+v", e)
	}
	wantState(t, s, config.Connected, "")
	if err := read(t, s); err != nil {
		t.Error(err)
	}
}

// A server may want credentials for its lists only.
func TestNeedsAuthToList(t *testing.T) {
	r := newRemote(t)
	r.set(func(method string, _ http.Header) (int, map[string]string) {
		if method == "tools/list" {
			return http.StatusUnauthorized, nil
		}
		return 0, nil
	})
	s := one(t, newManager(t, Options{}), r.target())
	if e := callError(t, s.Wait(t.Context())); e.Kind != KindAuth {
		t.Error(e)
	}
	wantState(t, s, config.NeedsAuth, "401")
}

// The headers of a helper are obtained on every connect, and anew when they are
// refused; the call that was refused is made again.
func TestHeadersHelper(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("the helper is a shell script")
		return
	}
	r := newRemote(t)
	dir := t.TempDir()
	good := "1"
	r.set(func(_ string, h http.Header) (int, map[string]string) {
		if h.Get("X-Run") != good {
			return http.StatusUnauthorized, nil
		}
		return 0, nil
	})
	target := r.target()
	target.AllowCommands = true
	target.Entry.Server.HeadersHelper = `echo x >> runs; echo "{\"X-Run\":\"$(wc -l < runs | tr -d ' ')\"}"`
	m := newManager(t, Options{Environ: os.Environ(), Vars: config.Vars{WorkspaceRoot: dir}})
	s := one(t, m, target)
	mustWait(t, s)
	mustCall(t, s)
	r.mu.Lock()
	good = "2"
	r.mu.Unlock()
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if err := call(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || string(runs) != "x\nx\n" {
		t.Errorf("runs %q, %v", runs, err)
	}
	wantState(t, s, config.Connected, "")
	r.mu.Lock()
	good = "never"
	r.mu.Unlock()
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth {
		t.Error(e)
	}
	callError(t, s.Wait(t.Context()))
	wantState(t, s, config.NeedsAuth, "401")

	// One that fails, or may not run, connects nothing.
	asked := r.count("initialize")
	target.ConnectHash, target.Entry.Server.HeadersHelper = "3", "exit 3"
	s = one(t, m, target)
	if e := callError(t, s.Wait(t.Context())); e.Kind != KindAuth || !strings.Contains(e.Error(), "headersHelper: exit status 3") {
		t.Error(e)
	}
	wantState(t, s, config.Failed, "")
	target.ConnectHash, target.AllowCommands = "4", false
	s = one(t, m, target)
	if e := callError(t, s.Wait(t.Context())); e.Kind != KindConfig || r.count("initialize") != asked {
		t.Error(e)
	}
}

// What a command printed is used until it is refused, by a call or by a connection,
// or until somebody has the server connected anew. The call that was refused is
// made again with what the command prints then, and with nothing else.
func TestCommandValues(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("the commands are for a shell")
		return
	}
	r, dir := newRemote(t), t.TempDir()
	accept := func(value string) {
		r.set(func(_ string, h http.Header) (int, map[string]string) {
			if h.Get("X-Run") != value {
				return http.StatusUnauthorized, nil
			}
			return 0, nil
		})
	}
	target := r.target()
	target.AllowCommands = true
	target.Entry.Dialect = config.DialectPatchbay
	target.Entry.Server.Headers = map[string]config.Secret{"X-Run": config.NewSecret(`!echo x >> runs; echo run $(cat runs | wc -l)`)}
	m := newManager(t, Options{Environ: os.Environ(), Vars: config.Vars{WorkspaceRoot: dir}})
	accept("run 1")
	s := one(t, m, target)
	mustWait(t, s)

	accept("run 2")
	mustCall(t, s)
	if n := r.count("tools/call"); n != 2 {
		t.Errorf("called %d times", n)
	}
	accept("run 3")
	target.ConnectHash = "2" // another connection, for which the command need not run
	s = one(t, m, target)
	mustWait(t, s)

	r.set(nil)
	if err := s.Reconnect(t.Context()); err != nil || r.header().Get("X-Run") != "run 4" {
		t.Errorf("%v, %v", err, r.header())
	}
	accept("none of them")
	if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth {
		t.Error(e)
	}
	callError(t, s.Wait(t.Context()))
	wantState(t, s, config.NeedsAuth, "401")
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	r.set(nil)
	m.Renew()
	mustWait(t, s)
	if got, want := r.header().Get("X-Run"), fmt.Sprintf("run %d", len(runs)/2+1); got != want {
		t.Errorf("after a reload %q, want %q", got, want)
	}
}

// Credentials that were refused and are what they were are not sent again, but for
// somebody who calls the server much later.
func TestRefusedCredentials(t *testing.T) {
	r := newRemote(t)
	target := r.target()
	target.Entry.Server.Headers = map[string]config.Secret{"Authorization": config.NewSecret("Bearer x")}
	s := one(t, newManager(t, Options{}), target)
	mustWait(t, s)
	r.set(func(string, http.Header) (int, map[string]string) { return http.StatusUnauthorized, nil })
	for range 3 {
		if e := callError(t, call(t.Context(), s)); e.Kind != KindAuth {
			t.Error(e)
		}
	}
	if n := r.count("tools/call"); n != 1 {
		t.Errorf("called %d times", n)
	}
	callError(t, s.Wait(t.Context()))
	wantState(t, s, config.NeedsAuth, "401")
	r.set(nil)
	l, _ := s.manager.present(s.name, s.profile)
	l.mu.Lock()
	if left := time.Until(l.retry.earliest); left <= 0 || left > authPause {
		t.Errorf("the next dial may be in %v", left)
	}
	l.retry.earliest = time.Now() // that is, later
	l.mu.Unlock()
	callError(t, s.Wait(t.Context())) // which dials nobody
	mustCall(t, s)
}

// Row 23: a server that is too busy is asked later, as it wants.
func TestTooBusy(t *testing.T) {
	busy := func(of string) func(string, http.Header) (int, map[string]string) {
		first := true
		return func(method string, _ http.Header) (int, map[string]string) {
			if method != of || !first {
				return 0, nil
			}
			first = false
			return http.StatusServiceUnavailable, map[string]string{"Retry-After": "0"}
		}
	}
	r := newRemote(t)
	s := one(t, newManager(t, Options{}), r.target())
	mustWait(t, s)

	r.set(busy("resources/read"))
	if err := read(t, s); err != nil || r.count("resources/read") != 2 {
		t.Errorf("%v, read %d times", err, r.count("resources/read"))
	}
	r.set(busy("tools/call"))
	if e := callError(t, call(t.Context(), s)); e.Kind != KindServer || !e.RetrySafe || r.count("tools/call") != 1 {
		t.Errorf("%+v, called %d times", e, r.count("tools/call"))
	}
	r.set(func(string, http.Header) (int, map[string]string) { return http.StatusInternalServerError, nil })
	if e := callError(t, call(t.Context(), s)); e.Kind != KindServer || e.RetrySafe {
		t.Errorf("%+v", e)
	}
	wantState(t, s, config.Connected, "")

	r.set(func(string, http.Header) (int, map[string]string) {
		return http.StatusTooManyRequests, map[string]string{"Retry-After": "3600"}
	})
	if e := callError(t, read(t, s)); e.Kind != KindServer || !e.RetrySafe {
		t.Errorf("%+v", e)
	}
	if e := callError(t, s.Reconnect(t.Context())); e.Kind != KindServer {
		t.Errorf("%+v", e)
	}
	st := wantState(t, s, config.Failed, "429")
	if wait := time.Until(st.NextRetry); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("next try in %v", wait)
	}
	asked := r.count("initialize") + r.count("server/discover")
	if e := callError(t, call(t.Context(), s)); e.Kind != KindServer || r.count("initialize")+r.count("server/discover") != asked {
		t.Errorf("%+v", e)
	}
}

// What a server does not understand is not tried again by itself.
func TestRefusedForGood(t *testing.T) {
	for _, status := range []int{400, 403, 404, 405, 410} {
		r := newRemote(t)
		r.set(func(string, http.Header) (int, map[string]string) { return status, nil })
		s := one(t, newManager(t, Options{}), r.target())
		e := callError(t, s.Wait(t.Context()))
		if st := wantState(t, s, config.Failed, fmt.Sprint(status)); e.Kind != KindServer || !st.NextRetry.IsZero() {
			t.Errorf("%d: %+v", status, st)
		}
	}
}

// What is no URL is a mistake in the entry, and is not shown: it may be a secret
// that stands in the wrong place.
func TestNoURL(t *testing.T) {
	for _, url := range []string{"s3cret", "ftp://s3cret/x", "http://", "http://s3cret:port/", "//s3cret"} {
		s := one(t, newManager(t, Options{}), Target{Entry: config.Entry{Server: config.Server{Type: config.HTTP, URL: url}}})
		e := callError(t, s.Wait(t.Context()))
		if st := wantState(t, s, config.Failed, "URL"); e.Kind != KindConfig || !st.NextRetry.IsZero() || strings.Contains(e.Error(), "s3cret") {
			t.Errorf("%q: %v, %+v", url, e, st)
		}
	}
}

// A remote server that goes away fails, and is back for the next call.
func TestRemoteGoesAway(t *testing.T) {
	r := newRemote(t)
	m := newManager(t, Options{})
	s := one(t, m, r.target())
	mustWait(t, s)
	address := r.Listener.Addr().String()
	r.CloseClientConnections()
	r.Close()
	err := call(t.Context(), s)
	if strings.Contains(err.Error(), "connection lost") { // it may go out on what is just being closed
		err = call(t.Context(), s)
	}
	if e := callError(t, err); e.Kind != KindTransport || !strings.Contains(e.Error(), "connection refused") || !e.RetrySafe {
		t.Errorf("%+v", e)
	}
	wantState(t, s, config.Failed, "connection refused")

	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: r}
	go back.Serve(listener)
	defer back.Close()
	mustCall(t, s)
}

// A name that does not exist, an address that refuses: failed, and tried again.
func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://user:pass-word@" + listener.Addr().String() + "/mcp?key=query-secret"
	listener.Close()
	s := one(t, newManager(t, Options{}), Target{Entry: config.Entry{Server: config.Server{URL: url}}})
	e := callError(t, s.Wait(t.Context()))
	st := wantState(t, s, config.Failed, "connection refused")
	if e.Kind != KindTransport || st.NextRetry.IsZero() || strings.Contains(e.Error(), "pass-word") || strings.Contains(e.Error(), "query-secret") {
		t.Errorf("%v, %+v", e, st)
	}
}
