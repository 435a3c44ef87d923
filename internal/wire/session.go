package wire

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
)

// Session is what a Server knows of one client. In the legacy era there is one
// from initialize until the connection, or the HTTP session, ends. In the
// modern era every request describes its client anew and has a Session of its
// own.
//
// A Session is a Link: the road to the client outside of any call. What it
// carries arrives on the connection, on the GET stream of legacy HTTP, or, in
// the modern era, on the subscriptions of the client. A modern client can be
// asked something only within a call, so there Call fails.
//
// The exported fields do not change, except State.
type Session struct {
	ID                 string // of a legacy HTTP session, else empty
	Principal          string // as HTTPOptions.Principal named it
	PID                int    // the client's process, as its connection knows it (see Server.Serve); 0 if it does not
	Era                Era
	Version            string          // the protocol revision
	ClientInfo         json.RawMessage // nil if the client did not say
	ClientCapabilities json.RawMessage

	// State belongs to whoever uses the server. ServerOptions.Opened may set
	// it; modern requests on one connection share it, those over HTTP have none.
	State any

	server *Server
	owner  string // who may resume and listen: the principal of HTTP, or the connection
	out    Link   // of a legacy session
	level  atomic.Uint32
	life   *life     // of a session that ends, nil for one that is a request's
	heard  *listener // of the session of a subscription: it hears only itself

	// described is what the client was told of the server: nil before a legacy
	// session has been answered, and in the modern era as long as nobody said
	// anything else than what all are told.
	described atomic.Pointer[Description]

	standalone *outStream // of a legacy HTTP session: what the GET stream carries
}

// maxSubscribed bounds the resources that one client may subscribe to.
const maxSubscribed = 1024

var errModernCall = errors.New("a client of this protocol revision can be asked only within a call")

// Call asks a legacy client outside of any call.
func (s *Session) Call(ctx context.Context, c Call) (json.RawMessage, error) {
	if s.Era == Modern {
		return nil, errModernCall
	}
	if err := s.mayAsk(c.Method, c.Params); err != nil {
		return nil, err
	}
	select {
	case <-s.life.ready: // before that a client expects the answer to initialize, and nothing else
	case <-s.life.ctx.Done():
		return nil, context.Cause(s.life.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.out.Call(ctx, c)
}

// Notify tells the client something outside of any call, if the client wants to
// hear it: resource updates go to subscribers only, log messages to those who
// asked for that level, changes of lists to those who were told that they would
// be, and a modern client gets what its subscriptions name.
func (s *Session) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if s.Era == Modern {
		s.server.publish(s, method, params)
		return nil
	}
	if d := s.described.Load(); d == nil || !d.announces(method) {
		return nil
	}
	switch method {
	case "notifications/message":
		if !s.wantsLog(params) {
			return nil
		}
	case "notifications/resources/updated":
		uri, _ := StringMember(params, "uri")
		if !s.subscribedTo(uri) {
			return nil
		}
	}
	return s.out.Notify(ctx, method, params)
}

// Done is closed when the session has ended, that of a modern request when the
// server has.
func (s *Session) Done() <-chan struct{} {
	if s.life == nil {
		return s.server.ctx.Done()
	}
	return s.life.ctx.Done()
}

// Err says why the session ended, nil if it has not.
func (s *Session) Err() error {
	if s.life == nil {
		return context.Cause(s.server.ctx)
	}
	return context.Cause(s.life.ctx)
}

// Close ends a legacy session: its calls are cancelled and its streams end. It
// returns when that is done, so neither a handler nor a hook may call it. The
// session of a modern request has nothing to end.
func (s *Session) Close() error {
	if s.life != nil {
		s.life.end(ErrClosed)
		<-s.life.over
	}
	return nil
}

// Owner is the same for all that comes from one connection, and over HTTP from
// one principal.
func (s *Session) Owner() string { return s.owner }

// OneProgram reports whether all that has the same Owner is of one program: over
// HTTP a principal may use several at a time.
func (s *Session) OneProgram() bool { return s.owner != httpOwner(s.Principal) }

// logLevels are those of RFC 5424, the least severe first.
var logLevels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogLevels returns the levels of log messages, the least severe first.
func LogLevels() []string { return logLevels[:] }

func (s *Session) setLogLevel(raw json.RawMessage) *Error {
	name, _ := Unquote(raw)
	i := slices.Index(logLevels[:], name)
	if i < 0 {
		return Errorf(CodeInvalidParams, "no log level: it must be one of %s", strings.Join(logLevels[:], ", "))
	}
	s.level.Store(uint32(i + 1))
	return nil
}

// LogLevel is the least severe level of log messages that the client asked for,
// empty if it did not ask.
func (s *Session) LogLevel() string {
	if wanted := s.level.Load(); wanted > 0 {
		return logLevels[wanted-1]
	}
	return ""
}

// wantsLog reports whether a log message may go to the client. A legacy client
// that never set a level gets all, a modern one none.
func (s *Session) wantsLog(params json.RawMessage) bool {
	wanted := s.level.Load()
	if wanted == 0 {
		return s.Era == Legacy
	}
	name, _ := StringMember(params, "level")
	return slices.Index(logLevels[:], name)+1 >= int(wanted)
}

// Supports reports whether the client declared the capability at path, for
// example "elicitation", "url".
func (s *Session) Supports(path ...string) bool {
	value, ok := Member(s.ClientCapabilities, path...)
	return ok && !isNull(value)
}

// mayAsk returns an error if the client did not declare what the request needs.
func (s *Session) mayAsk(method string, params json.RawMessage) error {
	var needs string
	switch method {
	case "roots/list":
		if !s.Supports("roots") {
			needs = `{"roots":{}}`
		}
	case "sampling/createMessage":
		if _, tools := Member(params, "tools"); tools && !s.Supports("sampling", "tools") {
			needs = `{"sampling":{"tools":{}}}`
		} else if !s.Supports("sampling") {
			needs = `{"sampling":{}}`
		}
	case "elicitation/create":
		if mode, _ := StringMember(params, "mode"); mode == "url" {
			if !s.Supports("elicitation", "url") {
				needs = `{"elicitation":{"url":{}}}`
			}
		} else if !s.Supports("elicitation") || s.Supports("elicitation", "url") && !s.Supports("elicitation", "form") {
			// A client that names no mode means forms.
			needs = `{"elicitation":{"form":{}}}`
		}
	}
	if needs == "" {
		return nil
	}
	return &Error{
		Code:    CodeMissingClientCapability,
		Message: "the client does not support " + method,
		Data:    json.RawMessage(`{"requiredCapabilities":` + needs + `}`),
	}
}

// subscribe takes note that the client wants updates of a resource, or no more.
func (s *Session) subscribe(uri string, on bool) error {
	l := s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.subscribed, uri)
	switch {
	case on && i < 0:
		if len(l.subscribed) >= maxSubscribed {
			return tooManySubscribed()
		}
		l.subscribed = append(l.subscribed, uri)
	case !on && i >= 0:
		l.subscribed = slices.Delete(l.subscribed, i, i+1)
	}
	return nil
}

func tooManySubscribed() *Error {
	return Errorf(CodeOverloaded, "more than %d subscriptions", maxSubscribed)
}

// roomFor reports whether the client may subscribe to a resource.
func (s *Session) roomFor(uri string) bool {
	l := s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.subscribed) < maxSubscribed || slices.Contains(l.subscribed, uri)
}

func (s *Session) subscribedTo(uri string) bool {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return covers(s.life.subscribed, uri)
}

// Covers reports whether a resource is the one that was subscribed to, or lies
// inside it: an update may name a sub-resource.
func Covers(subscribed, uri string) bool {
	rest, ok := strings.CutPrefix(uri, subscribed)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(subscribed, "/"))
}

func covers(subscribed []string, uri string) bool {
	return slices.ContainsFunc(subscribed, func(s string) bool { return Covers(s, uri) })
}
