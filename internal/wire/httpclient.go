package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPClientOptions are the options of an HTTP transport. The zero value works.
type HTTPClientOptions struct {
	// Transport makes the requests; nil means NewRoundTripper(). Redirects,
	// cookies and the like are none of its business.
	Transport http.RoundTripper

	// Header returns what every request carries besides the headers of the
	// protocol: credentials, mostly. It is asked anew for each request, and
	// its error is the error of the call. nil adds nothing.
	Header func(ctx context.Context) (http.Header, error)

	Limits Limits // of one message

	// ListenIdle is how long a stream that carries no call may be silent before
	// it is taken for dead: the GET stream and subscriptions/listen. 0 means
	// five minutes. How long that of a call may be is the caller's business.
	ListenIdle time.Duration

	MaxInFlight int // calls sent and not answered; 0 means 64; subscriptions do not count
	MaxQueued   int // calls waiting for that; 0 means 10000, after which they fail with ErrOverloaded

	Logger *slog.Logger // nil discards

	// SSEFallback allows Connect to try the HTTP+SSE transport of 2024-11-05
	// if the server does not speak Streamable HTTP.
	SSEFallback bool
}

func (o HTTPClientOptions) withDefaults() HTTPClientOptions {
	if o.ListenIdle == 0 {
		o.ListenIdle = 5 * time.Minute
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 64
	}
	if o.MaxQueued <= 0 {
		o.MaxQueued = 10_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// What a server can make an HTTPClient do, and how long what is sent by the way
// may take.
const (
	maxServerRequests       = 64 // being handled, and as many again for each call under way
	serverRequestsPerSecond = 50
	maxBatch                = 1000 // messages
	cancelTimeout           = 5 * time.Second
	deleteTimeout           = 3 * time.Second
	respondTimeout          = 30 * time.Second
)

// HTTPClient is the client side of Streamable HTTP, as a Link. In the legacy
// era it keeps a session: it takes the id and the version from the answer to
// initialize, opens the GET stream after notifications/initialized, replaces
// a session the server has forgotten, and ends it with DELETE. In the modern
// era each request stands alone.
//
// It never ends by itself: a server that is gone shows in the calls.
type HTTPClient struct {
	endpoint
	handler Handler

	// reopen opens a new session in place of one the server has forgotten.
	// nil means that it cannot be done.
	reopen func(ctx context.Context) error

	// missed is told that notifications may have been lost, because the GET
	// stream was interrupted and could not be resumed. nil means nobody is.
	missed func()

	ctx     context.Context // ends with the link
	stop    context.CancelCauseFunc
	done    chan struct{}
	wg      sync.WaitGroup
	session atomic.Pointer[clientSession]
	lastID  atomic.Int64

	turns   *turnstile    // for calls
	turn    chan struct{} // held while a notification is being handled
	readers sync.Pool     // of *sseReader
	blocks  blockPool

	mu       sync.Mutex
	closed   bool
	calls    map[int64]*httpCall            // under way, by id
	requests map[ID]context.CancelCauseFunc // of the server, being handled
	replied  time.Time                      // when the last one had been
	flood    limiter                        // of those
	tasks    taskTokens                     // of calls that were answered with a task
	renewal  *renewal                       // under way, or nil
	endGET   context.CancelFunc             // ends the GET stream; nil if there is none
}

// newHTTPClient returns a link to the server at rawURL. It makes no request.
func newHTTPClient(rawURL string, handler Handler, options HTTPClientOptions) (*HTTPClient, error) {
	h := &HTTPClient{
		handler:  handler,
		done:     make(chan struct{}),
		turn:     make(chan struct{}, 1),
		calls:    make(map[int64]*httpCall),
		requests: make(map[ID]context.CancelCauseFunc),
		flood:    limiter{perSecond: serverRequestsPerSecond},
	}
	if err := h.endpoint.init(rawURL, options); err != nil {
		return nil, err
	}
	h.turns = newTurnstile(h.options.MaxInFlight, h.options.MaxQueued)
	h.session.Store(&clientSession{})
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	return h, nil
}

// Call implements Link. The answer is read on the goroutine of the caller.
func (h *HTTPClient) Call(ctx context.Context, c Call) (json.RawMessage, error) {
	if c.Repeats == nil {
		c.Repeats = new(Repeats)
	}
	s := h.session.Load()
	result, err := h.callOnce(ctx, c, s)
	lost, maybe := s.lostBy(err)
	if !lost && !maybe || c.Method == "initialize" || isRenewing(ctx, h) {
		return result, err
	}
	next, failed := h.renew(ctx, s, err)
	if failed != nil {
		return nil, failed
	}
	if maybe && !SafeToRepeat(c.Method) || !c.Repeats.Again(SignSession) {
		return nil, err // the next call has a session
	}
	return h.callOnce(ctx, c, next)
}

func (h *HTTPClient) callOnce(ctx context.Context, c Call, s *clientSession) (json.RawMessage, error) {
	call, err := h.begin(ctx, c, s)
	if err != nil {
		return nil, err
	}
	defer call.end()
	if call.takesTurn() {
		if err := h.turns.acquire(call.ctx, "", []byte(c.Sender)); err != nil {
			return nil, err
		}
		defer h.turns.release("")
	}
	m, err := call.exchange()
	if err != nil {
		return nil, call.explain(err)
	}
	if m.Error != nil {
		return nil, m.Error
	}
	if err := checkResult(c.Method, m.Result); err != nil {
		return nil, err
	}
	if call.tracked && isTask(m.Result) {
		h.mu.Lock()
		h.tasks.add(taskToken{call.id, call.token, c.Tag})
		h.mu.Unlock()
	}
	return m.Result, nil
}

// httpCall is one request on its way.
type httpCall struct {
	Call
	link    *HTTPClient
	session *clientSession
	id      int64
	tracked bool            // it has a progress token, which is its id
	token   json.RawMessage // the caller's own, for which that stands

	// The context of the HTTP requests. It outlives the caller's if the stream
	// needs time to end, and ends early when the call is given up.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unhook   func() bool // from the context of the caller
	clock    *callClock  // nil if the call has no timeout
	detached bool        // someone else will cancel ctx

	progress sync.Mutex // held while Progress runs
	ended    bool       // guarded by progress
}

func (h *HTTPClient) begin(ctx context.Context, c Call, s *clientSession) (*httpCall, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	call := &httpCall{Call: c, link: h, session: s, id: h.lastID.Add(1)}
	if token, ok := Member(c.Params, "_meta", MetaProgressToken); ok || c.Progress != nil {
		params, err := SetMember(c.Params, strconv.AppendInt(nil, call.id, 10), "_meta", MetaProgressToken)
		if err == nil { // else the server may complain of the params
			call.Params, call.token, call.tracked = params, token, true
		}
	}
	call.ctx, call.cancel = context.WithCancelCause(context.WithoutCancel(ctx))

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		call.cancel(nil)
		return nil, notSent(ErrClosed)
	}
	h.calls[call.id] = call
	h.flood.called()
	call.unhook = context.AfterFunc(ctx, func() { call.cancel(context.Cause(ctx)) })
	call.clock = newCallClock(&c, h.lastAsked, call.cancel)
	return call, nil
}

// lastAsked is when the server last waited for us.
func (h *HTTPClient) lastAsked() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.requests) > 0 {
		return time.Now()
	}
	return h.replied
}

func (c *httpCall) end() {
	h := c.link
	h.mu.Lock()
	delete(h.calls, c.id)
	h.mu.Unlock()
	c.progress.Lock() // waits for a Progress that runs on another stream
	c.ended = true
	c.clock.stop()
	c.progress.Unlock()
	c.unhook()
	if !c.detached {
		c.cancel(nil)
	}
}

// takesTurn reports whether the call counts as one in flight. A subscription
// lasts, and an initialize is what others may be waiting for.
func (c *httpCall) takesTurn() bool {
	return c.Method != "subscriptions/listen" && c.Method != "initialize"
}

// explain turns an error that stems from the end of the call's context into
// the reason for that end, and tells the server.
func (c *httpCall) explain(err error) error {
	if c.ctx.Err() == nil {
		return err
	}
	err = context.Cause(c.ctx)
	if !c.session.modern && c.Method != "initialize" && !errors.Is(err, ErrClosed) {
		c.link.sendCancelled(c)
	} // in the modern era the end of the connection says it
	return err
}

// sendCancelled tells a legacy server that nobody waits for a call any more.
func (h *HTTPClient) sendCancelled(c *httpCall) {
	params := strconv.AppendInt([]byte(`{"requestId":`), c.id, 10)
	params = append(params, `,"reason":`...)
	params = AppendString(params, cancelReason(context.Cause(c.ctx)))
	params = append(params, '}')
	h.start(func() {
		ctx, stop := context.WithTimeout(h.ctx, cancelTimeout)
		defer stop()
		_ = h.post(ctx, Message{Method: "notifications/cancelled", Params: params}, c.session) // it is a courtesy
	})
}

// exchange posts the request and reads the answer.
func (c *httpCall) exchange() (Message, error) {
	h := c.link
	msg := httpMessage{
		verb:   http.MethodPost,
		method: c.Method,
		params: c.Params,
		body:   encodeRequest(Message{ID: NumberID(c.id), Method: c.Method, Params: c.Params}),
		header: c.Header,
	}
	if countsRepeats(c.Method) {
		msg.repeats = c.Repeats
	}
	resp, req, err := h.send(c.ctx, msg, c.session)
	if err != nil {
		return Message{}, err
	}
	if resp.StatusCode/100 != 2 {
		defer finish(resp.Body)
		return Message{}, newHTTPError(resp, req)
	}
	var m Message
	switch kind := mediaType(resp.Header); {
	case kind == "text/event-stream":
		m, err = c.stream(&streamBody{body: resp.Body, host: req.URL.Host})
	case kind == "application/json" || kind == "" && resp.StatusCode == http.StatusOK:
		m, err = c.read(resp, req)
	default:
		finish(resp.Body)
		return Message{}, fmt.Errorf("%s answered %s with %d and content type %q", req.URL.Host, c.Method, resp.StatusCode, kind)
	}
	if err == nil && c.Method == "initialize" && m.Error == nil {
		h.openSession(resp.Header.Get(headerSession), m.Result)
	}
	return m, err
}

func mediaType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// directRead is the size up to which a body of known length is read straight
// into the memory it will stay in. A server that promises more has to send it
// first.
const directRead = 4 << 20

// read reads an answer in plain JSON.
func (c *httpCall) read(resp *http.Response, req *http.Request) (Message, error) {
	body := &streamBody{body: resp.Body, host: req.URL.Host}
	body.watch(c.idle())
	defer body.Close()
	data, err := c.link.readAll(body, resp.ContentLength)
	if err != nil {
		if errors.Is(err, errSilent) {
			return Message{}, c.broken(body.host, err)
		}
		if c.ctx.Err() != nil || errors.Is(err, ErrTooLong) {
			return Message{}, err
		}
		return Message{}, newNetError(err, req)
	}
	answer, err := c.answerIn(data)
	if err != nil {
		return Message{}, fmt.Errorf("answer of %s to %s: %w", req.URL.Host, c.Method, err)
	}
	return answer, nil
}

// readAll reads a body, whose length is -1 if it is not known.
func (h *HTTPClient) readAll(body io.Reader, length int64) ([]byte, error) {
	limit := h.options.Limits.size()
	if length > int64(limit) {
		return nil, ErrTooLong
	}
	if 0 <= length && length <= directRead {
		data := make([]byte, length)
		_, err := io.ReadFull(body, data)
		return data, err
	}
	s := spool{pool: &h.blocks, limit: limit}
	defer s.release()
	if err := s.readFrom(body); err != nil {
		return nil, err
	}
	return s.take(), nil
}

var errNoAnswer = errors.New("no response with the id of the request")

// answerIn returns the answer to the call that data holds. Other messages in
// the same batch are handled like those of a stream.
func (c *httpCall) answerIn(data []byte) (Message, error) {
	if !IsBatch(data) {
		m, err := Parse(data, c.link.options.Limits)
		if err == nil && !c.isAnswer(m) {
			err = errNoAnswer
		}
		return m, err
	}
	messages, _, err := ParseBatch(data, c.link.options.Limits, maxBatch)
	if err != nil {
		return Message{}, err
	}
	for _, m := range messages {
		if c.isAnswer(m) {
			return m, nil
		}
		c.handle(m)
	}
	return Message{}, errNoAnswer
}

// isAnswer reports whether m answers the call. An error without an id does
// too: where only one request was sent, it can mean no other.
func (c *httpCall) isAnswer(m Message) bool {
	if m.Kind() != KindResponse {
		return false
	}
	n, ok := m.ID.integer()
	return ok && n == c.id || m.Error != nil && m.ID.IsNull()
}

// Notify implements Link. It returns when the server has accepted.
func (h *HTTPClient) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if h.ctx.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(ErrClosed) })()
	m := Message{Method: method, Params: params}
	s := h.session.Load()
	err := h.post(ctx, m, s)
	if lost, maybe := s.lostBy(err); (lost || maybe) && !isRenewing(ctx, h) {
		if s, err = h.renew(ctx, s, err); err == nil {
			err = h.post(ctx, m, s)
		}
	}
	if err == nil && method == "notifications/initialized" {
		h.openGET(ctx, s)
	}
	return err
}

// post sends a message that has no answer: a notification or a response.
func (h *HTTPClient) post(ctx context.Context, m Message, s *clientSession) error {
	msg := httpMessage{verb: http.MethodPost, method: m.Method, params: m.Params, body: encodeRequest(m)}
	resp, req, err := h.send(ctx, msg, s)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		defer finish(resp.Body)
		return newHTTPError(resp, req)
	}
	if mediaType(resp.Header) == "text/event-stream" {
		return resp.Body.Close() // nothing can come on it
	}
	finish(resp.Body)
	return nil
}

// start runs f on a goroutine that Close waits for. It reports false, and does
// not, if the link is closed.
func (h *HTTPClient) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Go(f)
	return true
}

// Done implements Link.
func (h *HTTPClient) Done() <-chan struct{} { return h.done }

// Err implements Link.
func (h *HTTPClient) Err() error {
	select {
	case <-h.done:
		return ErrClosed
	default:
		return nil
	}
}

// Close implements Link. It ends the session on the server if there is one.
func (h *HTTPClient) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		<-h.done
		return nil
	}
	h.closed = true
	for _, c := range h.calls {
		c.cancel(ErrClosed)
	}
	h.mu.Unlock()
	h.stop(ErrClosed)
	h.wg.Wait()
	h.deleteSession()
	h.closeIdle()
	close(h.done)
	return nil
}
