package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"slices"
	"sync"
)

// ServerOptions describe a server. Info and Handler are required.
type ServerOptions struct {
	Info         json.RawMessage // the implementation object: name, version, and so on
	Capabilities json.RawMessage // nil means none
	Instructions string

	// Describe says how the server presents itself to one client, in place of
	// Info, Capabilities and Instructions. It is asked for initialize, after
	// Opened, for server/discover and for subscriptions/listen, and may take its
	// time: ctx ends when the client has gone. In the Session is what is known
	// of the client. A returned *Error is the answer, any other error an
	// internal error that does not show its text. nil means that all clients
	// are told the same.
	Describe func(ctx context.Context, s *Session) (*Description, error)

	// Handler answers what is not the protocol's own housekeeping: tools,
	// resources, prompts, completion, logging/setLevel, tasks and whatever else
	// a client may send. What it does not know it answers with
	// CodeMethodNotFound. It never sees initialize, ping, server/discover,
	// subscriptions/listen, nor a method that the client's revision has not.
	Handler Handler

	// Versions are the protocol revisions to speak; nil means all.
	Versions []string

	// MinVersion, if not empty, refuses an initialize that asks for an older
	// revision or for none, instead of answering with one that is spoken here.
	MinVersion string

	// RequireInitialize refuses with CodeNotInitialized what a legacy client
	// asks before initialize, except ping. Otherwise it is answered.
	RequireInitialize bool

	// ComeBack says whether a client may be asked to come back for the answers
	// to its requests (Request.ComeBack), for each request of a client that can.
	// Such a request has a goroutine of its own, which costs time. nil means
	// that none may.
	ComeBack func(*Session) bool

	// Batches is the longest batch to take, in every legacy revision. 0 means
	// 50, and only in 2025-03-26, which alone has batches.
	Batches int

	// MaxByOne is how many modern calls of one client may wait for it at once, and
	// how many subscriptions it may have; 0 means 64. Over HTTP all that come from
	// one principal count as one client.
	MaxByOne int

	// Opened is called when a legacy session begins, before its initialize is
	// answered, and once for a connection on which modern requests come. Closed
	// is called for the same sessions after their last call has returned.
	Opened func(*Session)
	Closed func(*Session)

	// Listen says what of a subscription will be honoured. It is asked with
	// what the client wants and the capabilities offer; ctx lasts as long as
	// the subscription. nil honours all of that.
	Listen func(ctx context.Context, s *Session, want Filter) (Filter, error)

	// ParamHeaders returns which arguments of a tool are repeated in headers.
	// nil means that none are.
	ParamHeaders func(s *Session, tool string) ParamHeaders

	// Cache says how long and by whom the result of a method may be kept, if
	// the result itself does not say. nil means not at all, and privately.
	Cache func(method string) CacheHint

	Logger *slog.Logger // nil discards
}

// CacheHint is how the modern era lets clients keep a result.
type CacheHint struct {
	TTLMillis int64
	Public    bool // the same for everybody
}

// Server is MCP's server side, in both eras. It answers the protocol's own
// requests and hands the others to its Handler. One Server may be served on any
// number of connections (Serve) and over HTTP (NewHTTPHandler) at once.
//
//	what is answered here, versions, gates       server.go
//	how it presents itself                       describe.go
//	what modern results must have                dress.go
//	what is known of a client                    session.go, lifetime.go
//	connections                                  serve.go
//	modern requests, asking the client           job.go, mrtr.go, parking.go, seal.go
//	subscriptions                                listen.go
//	HTTP: order of checks, era, guard            httpserver.go, httprequest.go, guard.go
//	HTTP: modern requests                        httpmodern.go
//	HTTP: legacy sessions, GET and DELETE        httplegacy.go, httpsession.go
//	HTTP: answers, streams, resumption           exchange.go, outstream.go, httpwrite.go
type Server struct {
	opts   ServerOptions
	log    *slog.Logger
	legacy []string // revisions spoken, oldest first
	modern bool

	description *Description    // of Info, Capabilities and Instructions
	supported   json.RawMessage // the revisions, as a JSON array

	seal   *sealer
	parked *parking

	ctx  context.Context // ends when the server is closed
	stop context.CancelCauseFunc
	crew *crew // over HTTP: runs modern requests that may ask their client, and writes streams

	mu        sync.Mutex
	draining  bool
	calls     int
	idle      chan struct{} // closed when draining and no call is left; nil if nobody waits
	sessions  map[*Session]struct{}
	listeners map[*listener]struct{}
}

// NewServer returns a Server that runs until Shutdown.
func NewServer(opts ServerOptions) (*Server, error) {
	s := &Server{
		opts:      opts,
		log:       opts.Logger,
		sessions:  map[*Session]struct{}{},
		listeners: map[*listener]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if opts.Handler == nil {
		return nil, errors.New("server options: no handler")
	}
	var err error
	if s.description, err = NewDescription(opts.Info, opts.Capabilities, opts.Instructions); err != nil {
		return nil, fmt.Errorf("server options: %w", err)
	}
	if opts.MaxByOne == 0 {
		s.opts.MaxByOne = 64
	}
	s.parked = newParking(s.opts.MaxByOne)
	versions := opts.Versions
	if versions == nil {
		versions = Versions()
	}
	for _, v := range Versions() {
		if !slices.Contains(versions, v) {
			continue
		}
		if EraOf(v) == Modern {
			s.modern = true
		} else {
			s.legacy = append(s.legacy, v)
		}
	}
	for _, v := range versions {
		if EraOf(v) == 0 {
			return nil, fmt.Errorf("server options: unknown protocol revision %q", v)
		}
	}
	if s.legacy == nil && !s.modern {
		return nil, errors.New("server options: no protocol revision")
	}
	spoken := slices.Clone(s.legacy)
	if s.modern {
		spoken = append(spoken, Version20260728)
	}
	slices.Reverse(spoken) // the one to prefer first
	s.supported, _ = json.Marshal(spoken)
	if s.seal, err = newSealer(); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.crew = newCrew(s.ctx.Done(), nil)
	return s, nil
}

// Sessions ranges over the clients that can be told something of their own
// accord: every legacy session, and a session for every subscription.
func (s *Server) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		s.mu.Lock()
		var all []*Session
		for sess := range s.sessions {
			if sess.Era == Legacy {
				all = append(all, sess)
			}
		}
		for l := range s.listeners {
			all = append(all, l.session)
		}
		s.mu.Unlock()
		for _, sess := range all {
			if !yield(sess) {
				return
			}
		}
	}
}

// A request goes to its handler through one of two gates, by its era.

// modernGate takes a request that says of itself, in meta, that it is modern.
// It fills in the session and refuses what the era has not.
func (s *Server) modernGate(sess *Session, method string, meta json.RawMessage) *Error {
	version, ok := metaVersion(meta)
	if !ok {
		return missingMeta(MetaProtocolVersion)
	}
	if version != Version20260728 || !s.modern {
		return s.unsupported(version)
	}
	sess.Era, sess.Version, sess.server = Modern, Version20260728, s
	for c := newCursor(meta); c.next(); {
		switch string(c.name()) {
		case MetaClientCapabilities:
			sess.ClientCapabilities = c.value()
		case MetaClientInfo:
			sess.ClientInfo = c.value()
		case MetaLogLevel:
			if err := sess.setLogLevel(c.value()); err != nil {
				return err
			}
		}
	}
	if !IsObject(sess.ClientCapabilities) {
		return missingMeta(MetaClientCapabilities)
	}
	if err := sess.tooLong(); err != nil {
		return err
	}
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return MethodNotFound(method)
	}
	return nil
}

// metaVersion is the revision that a modern request names in its _meta.
func metaVersion(meta json.RawMessage) (string, bool) {
	raw, ok := Member(meta, MetaProtocolVersion)
	if string(raw) == `"`+Version20260728+`"` {
		return Version20260728, true
	}
	version, isString := Unquote(raw)
	return version, ok && isString
}

func missingMeta(key string) *Error {
	return Errorf(CodeInvalidParams, "_meta member %q is missing or of the wrong type", key)
}

// unsupported is the answer to a revision that is not spoken here.
func (s *Server) unsupported(version string) *Error {
	data := append([]byte(`{"supported":`), s.supported...)
	data = append(data, `,"requested":`...)
	data = append(AppendString(data, version), '}')
	return &Error{Code: CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: data}
}

// legacyGate takes a request of a legacy session and answers what is the
// protocol's own.
func (s *Server) legacyGate(sess *Session, r *Request) (answer json.RawMessage, done bool, err *Error) {
	switch r.Method {
	case "ping":
		return json.RawMessage("{}"), true, nil
	case "initialize":
		return nil, true, Errorf(CodeInvalidRequest, "this session is initialized already")
	case "server/discover", "subscriptions/listen":
		return nil, true, MethodNotFound(r.Method)
	case "logging/setLevel":
		level, _ := Member(r.Params, "level")
		if err := sess.setLogLevel(level); err != nil {
			return nil, true, err
		}
	case "resources/subscribe": // before the handler keeps it
		if uri, _ := StringMember(r.Params, "uri"); !sess.roomFor(uri) {
			return nil, true, tooManySubscribed()
		}
	}
	return nil, false, nil
}

var versionForm = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)

// negotiate fills in a legacy session from the params of initialize.
func (s *Server) negotiate(sess *Session, params json.RawMessage) *Error {
	requested, ok := StringMember(params, "protocolVersion")
	if !ok {
		return Errorf(CodeInvalidParams, "protocolVersion is missing or not a string")
	}
	if s.legacy == nil {
		err := s.unsupported(requested)
		err.Message = "initialize is not part of the protocol revisions spoken here: " + string(s.supported)
		return err
	}
	version := s.legacy[len(s.legacy)-1]
	if slices.Contains(s.legacy, requested) {
		version = requested
	}
	if least := s.opts.MinVersion; least != "" && (!versionForm.MatchString(requested) || requested < least) {
		data := append([]byte(`{"supported":`), s.supported...)
		data = append(data, `,"received":`...)
		data = append(AppendString(data, requested), '}')
		return &Error{Code: CodeInvalidParams, Message: "Unsupported MCP protocol version", Data: data}
	}
	sess.Era, sess.Version, sess.server = Legacy, version, s
	info, _ := Member(params, "clientInfo")
	capabilities, _ := Member(params, "capabilities")
	sess.ClientInfo, sess.ClientCapabilities = bytes.Clone(info), bytes.Clone(capabilities)
	return sess.tooLong()
}

// maxIntroduction is how much a client may say of itself: it is kept for as long
// as the client is.
const maxIntroduction = 32 << 10

// tooLong is the error for a client that says too much of itself.
func (s *Session) tooLong() *Error {
	if len(s.ClientInfo)+len(s.ClientCapabilities) > maxIntroduction {
		return Errorf(CodeInvalidParams, "clientInfo and capabilities are more than %d bytes", maxIntroduction)
	}
	return nil
}

// handle has the handler answer a request, whatever happens in it.
func (s *Server) handle(ctx context.Context, r *Request) Message {
	return respond(ctx, s.opts.Handler, r, s.log)
}

// publicError is an error of ours as the client may see it.
func (s *Server) publicError(method string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	ref := reference()
	s.log.Error("request failed", "ref", ref, "method", method, "error", err)
	return internalError(ref)
}

// batchLimit is the longest batch a session may send, 0 if none.
func (s *Server) batchLimit(version string) int {
	switch {
	case s.opts.Batches > 0:
		return s.opts.Batches
	case version == Version20250326:
		return 50
	}
	return 0
}
