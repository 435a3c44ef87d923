package wire

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// drainTime is what calls under way get after a client has closed its side, for
// example at the end of a piped input.
const drainTime = 5 * time.Second

// Serve serves one client on conn, which it closes in the end, in both eras:
// each request says to which it belongs. It returns when the client has gone,
// ctx has ended or the server has been shut down, and everything that belongs
// to the client has ended. The error is nil in those cases and otherwise says
// what was wrong with the conn. A conn that knows the client's process says so by
// a method PID() int.
func (s *Server) Serve(ctx context.Context, conn Conn) error {
	c := &client{server: s, owner: "conn:" + rand.Text(), gone: make(chan struct{})}
	_, c.encodes = conn.(*StreamConn)
	if known, ok := conn.(interface{ PID() int }); ok {
		c.pid = known.PID()
	}
	peer := c.start(&gatekeeper{Conn: conn, client: c})
	select {
	case <-peer.Done():
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	err := peer.Err()
	c.close()
	if c.left.Load() || ctx.Err() != nil || s.ctx.Err() != nil {
		return nil
	}
	return err
}

// A client is the other end of a connection, or of a legacy HTTP session, which
// is a connection in disguise. It is the Handler of the connection's Peer.
type client struct {
	server    *Server
	owner     string
	principal string
	pid       int  // of its process; 0 if that is not known
	encodes   bool // its conn writes messages with AppendTo

	id         string     // of an HTTP session
	standalone *outStream // of an HTTP session

	left atomic.Bool    // it has closed its side in order
	jobs sync.WaitGroup // modern requests that ask their client
	crew *crew          // runs them: not the peer's, which they may outlive

	hangsUp atomic.Bool
	gone    chan struct{} // closed when everything has ended

	mu     sync.Mutex
	peer   *Peer
	legacy *Session // since initialize
	modern *Session // since the first modern request; its requests share its State

	opening    chan struct{} // closed when initialize, which is being answered, has been
	openFailed bool          // with an error
}

func (c *client) start(conn Conn) *Peer {
	c.mu.Lock() // whoever handles messages waits until the peer is known
	defer c.mu.Unlock()
	c.peer = NewPeer(conn, c, &PeerOptions{
		Logger:       c.server.log,
		ReplyInvalid: true,
		Drain:        drainTime,
	})
	c.crew = newCrew(c.peer.Done(), nil)
	return c.peer
}

// close ends everything that belongs to the client.
func (c *client) close() {
	c.hangUp()
	c.mu.Lock()
	sessions := []*Session{c.legacy, c.modern}
	c.mu.Unlock()
	for _, sess := range sessions {
		if sess != nil {
			sess.Close()
		}
	}
}

// hangUp cancels what is under way, lets it say its last word, and ends the
// connection.
func (c *client) hangUp() {
	if c.hangsUp.Swap(true) {
		<-c.gone
		return
	}
	if c.id == "" { // an HTTP session has no modern calls; its principal may
		c.server.parked.drop(c.owner)
	}
	c.peer.cancelHandlers(ErrClosed)
	c.peer.drain()
	c.peer.Close()
	c.jobs.Wait()
	close(c.gone)
}

// cancelHandlers ends the contexts of the requests that are being handled; they
// are answered all the same.
func (p *Peer) cancelHandlers(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.requests {
		in.cancel(cause)
	}
}

// A gatekeeper answers initialize while it reads, before any message after it
// is handled: clients that do not wait for the answer are served all the same.
type gatekeeper struct {
	Conn
	client *client
}

// Read implements Conn.
func (g *gatekeeper) Read() (Message, error) {
	for {
		m, err := g.Conn.Read()
		if errors.Is(err, io.EOF) {
			g.client.inputEnded()
			g.client.awaitOpening()
		}
		if err != nil || m.Method != "initialize" || m.Kind() != KindRequest {
			return m, err
		}
		if meta, ok := Member(m.Params, "_meta"); ok {
			if version, ok := metaVersion(meta); ok && EraOf(version) == Modern {
				return m, nil
			}
		}
		if err := g.initialize(m); err != nil {
			return Message{}, err
		}
	}
}

// initialize answers an initialize. If it may take time, the client can go away
// meanwhile, and what it sends waits elsewhere.
func (g *gatekeeper) initialize(m Message) error {
	c := g.client
	opening := c.beginOpening()
	if opening == nil {
		return g.Write(c.peer.life, Message{ID: m.ID, Error: errInitialized()})
	}
	answer := func() error {
		defer c.endOpening(opening)
		answer := Message{ID: m.ID}
		answer.Result, answer.Error = c.open(c.peer.life, m.Params)
		if answer.Error != nil {
			c.failOpening(opening) // who reads the answer may try again
		}
		return g.Write(c.peer.life, answer)
	}
	if c.server.opts.Describe == nil {
		return answer()
	}
	c.jobs.Go(func() {
		if err := answer(); err != nil {
			c.server.log.Debug("sending an answer", "error", err)
		}
	})
	return nil
}

// inputEnded ends what only the client could have ended.
func (c *client) inputEnded() {
	c.left.Store(true)
	c.server.parked.drop(c.owner)
	c.server.endListeners(c.owner)
}

// beginOpening makes whatever needs the legacy session of the client wait until
// endOpening. It returns nil if there is, or soon will be, such a session.
func (c *client) beginOpening() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.legacy != nil || c.opening != nil && !c.openFailed {
		return nil
	}
	c.opening, c.openFailed = make(chan struct{}), false
	return c.opening
}

func (c *client) endOpening(opening chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(opening)
	if c.opening == opening {
		c.opening = nil
	}
}

// failOpening lets another initialize come while the answer to this one is being
// written.
func (c *client) failOpening(opening chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == opening {
		c.openFailed = true
	}
}

// awaitOpening lets an initialize be answered after the client has ended its
// side.
func (c *client) awaitOpening() {
	c.mu.Lock()
	opening := c.opening
	c.mu.Unlock()
	if opening == nil {
		return
	}
	patience := time.NewTimer(drainTime)
	defer patience.Stop()
	select {
	case <-opening:
	case <-patience.C:
	case <-c.peer.life.Done():
	}
}

// legacySession is the session that initialize opened, nil if there is none. It
// waits for one that is being opened.
func (c *client) legacySession(ctx context.Context) (*Session, error) {
	c.mu.Lock()
	sess, opening := c.legacy, c.opening
	c.mu.Unlock()
	if opening == nil {
		return sess, nil
	}
	select {
	case <-opening:
		return c.legacySession(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// initialize opens the legacy session of the client, if it has none.
func (c *client) initialize(ctx context.Context, params json.RawMessage) (json.RawMessage, *Error) {
	opening := c.beginOpening()
	if opening == nil {
		return nil, errInitialized()
	}
	defer c.endOpening(opening)
	return c.open(ctx, params)
}

// open opens the legacy session and returns the result of initialize.
func (c *client) open(ctx context.Context, params json.RawMessage) (json.RawMessage, *Error) {
	sess := &Session{ID: c.id, Principal: c.principal, PID: c.pid, owner: c.owner, out: c.peer, standalone: c.standalone}
	if err := c.server.negotiate(sess, params); err != nil {
		return nil, err
	}
	if c.standalone != nil { // as long as nobody can have anything to say on it
		c.standalone.prime = sess.Version >= Version20251125
	}
	cleanUp := func() {
		if c.has(sess) { // else it could not be described, and the client may try again
			c.hangUp()
		}
	}
	if !c.server.openSession(sess, cleanUp) {
		return nil, errShuttingDown()
	}
	d, err := c.server.describe(ctx, sess)
	if err != nil {
		sess.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sess.Err() != nil {
		return nil, errShuttingDown()
	}
	c.legacy = sess
	return d.initializeResult(sess.Version), nil
}

// has reports whether sess has become the legacy session of the client.
func (c *client) has(sess *Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legacy == sess
}

func errInitialized() *Error {
	return Errorf(CodeInvalidRequest, "this session is initialized already")
}

// errShuttingDown refuses a request that no handler has seen.
func errShuttingDown() *Error {
	return &Error{Code: CodeOverloaded, Message: "the server is shutting down", unhandled: true}
}

// uninitialized is the session of a client that did not initialize.
func (c *client) uninitialized(ctx context.Context, method string) (*Session, *Error) {
	switch {
	case c.server.legacy == nil:
		return nil, missingMeta(MetaProtocolVersion)
	case c.server.opts.RequireInitialize && method != "ping":
		return nil, Errorf(CodeNotInitialized, "Server not initialized")
	}
	// What the protocol assumes of a client that does not say.
	_, err := c.initialize(ctx, json.RawMessage(`{"protocolVersion":"`+Version20250326+`"}`))
	if sess, _ := c.legacySession(ctx); sess != nil {
		return sess, nil
	}
	return nil, err
}

// HandleRequest implements Handler.
func (c *client) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	c.mu.Lock()
	sess := c.legacy
	c.mu.Unlock()
	meta, _ := Member(r.Params, "_meta")
	version, named := metaVersion(meta)
	if named && EraOf(version) != Legacy || sess == nil && modernOnly(r.Method) {
		return c.handleModern(ctx, r, meta)
	}
	if sess == nil {
		var err error
		if sess, err = c.legacySession(ctx); err != nil {
			return nil, err
		}
	}
	if sess == nil {
		var err *Error
		if sess, err = c.uninitialized(ctx, r.Method); err != nil {
			return nil, err
		}
	}
	return c.handleLegacy(ctx, r, sess)
}

// modernOnly reports whether a method shows that its sender is modern, even if
// it forgot to say so.
func modernOnly(method string) bool {
	return method == "server/discover" || method == "subscriptions/listen"
}

// HandleNotification implements Handler.
func (c *client) HandleNotification(ctx context.Context, n *Notification) {
	sess, err := c.legacySession(ctx)
	if err != nil {
		return
	}
	if n.Session = sess; sess == nil {
		c.mu.Lock()
		n.Session = c.modern
		c.mu.Unlock()
	}
	if sess != nil {
		sess.life.begin()
	}
	if n.Session != nil && n.Method != "notifications/initialized" {
		c.server.opts.Handler.HandleNotification(ctx, n)
	}
}

func (c *client) handleLegacy(ctx context.Context, r *Request, sess *Session) (json.RawMessage, error) {
	sess.life.begin()
	answer, done, refused := c.server.legacyGate(sess, r)
	if refused != nil {
		return nil, refused
	}
	if done {
		return answer, nil
	}
	if !c.server.enter() {
		return nil, errShuttingDown()
	}
	defer c.server.leave()
	r.Session, r.Link = sess, &requestLink{Link: r.Link, session: sess, id: r.ID}
	answer, err := c.server.opts.Handler.HandleRequest(ctx, r)
	if err == nil && (r.Method == "resources/subscribe" || r.Method == "resources/unsubscribe") {
		uri, _ := StringMember(r.Params, "uri")
		err = sess.subscribe(uri, r.Method == "resources/subscribe")
	}
	return answer, err
}

// A requestLink is the Link of a legacy request: what goes out on it travels
// with the request, on transports that have a stream for each.
type requestLink struct {
	Link
	session *Session
	id      ID
}

// Call implements Link.
func (l *requestLink) Call(ctx context.Context, q Call) (json.RawMessage, error) {
	if err := l.session.mayAsk(q.Method, q.Params); err != nil {
		return nil, err
	}
	return l.Link.Call(withRequest(ctx, l.id), q)
}

// Notify implements Link.
func (l *requestLink) Notify(ctx context.Context, method string, params json.RawMessage) error {
	if !belongsToRequest(method) {
		return l.session.Notify(ctx, method, params)
	}
	if method == "notifications/message" && !l.session.wantsLog(params) {
		return nil
	}
	return l.Link.Notify(withRequest(ctx, l.id), method, params)
}

// Close implements Link. A request ends when its handler returns, not before.
func (l *requestLink) Close() error { return nil }

type requestKey struct{}

// withRequest tells a Conn to which request the message belongs that it is
// about to write.
func withRequest(ctx context.Context, id ID) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

func requestOf(ctx context.Context) (ID, bool) {
	id, ok := ctx.Value(requestKey{}).(ID)
	return id, ok
}

// handleModern answers a modern request on a connection.
func (c *client) handleModern(ctx context.Context, r *Request, meta json.RawMessage) (json.RawMessage, error) {
	s := c.server
	j := &job{server: s}
	if refused := s.modernGate(&j.own, r.Method, meta); refused != nil {
		return nil, refused
	}
	j.own.owner, j.own.Principal, j.own.PID = c.owner, c.principal, c.pid
	j.own.State = c.sharedState(&j.own)
	m := Message{ID: r.ID, Method: r.Method, Params: r.Params}
	switch r.Method {
	case "server/discover":
		result, refused := s.discover(ctx, &j.own)
		if refused != nil {
			return nil, refused
		}
		return result, nil
	case "subscriptions/listen":
		return c.handleListen(ctx, &j.own, m)
	}
	parked, refused := s.unpark(&j.own, m)
	if refused != nil {
		return nil, refused
	}
	out := &connOutlet{link: r.Link, done: make(chan Message, 1)}
	wake := make(reader, 1)
	switch {
	case parked != nil:
		j = parked
		j.resume(out, wake, r.Params)
	case !s.enter():
		return nil, errShuttingDown()
	case j.mayAsk(r.Method):
		j.begin(s.ctx, m)
		j.heardBy(out, wake)
		c.jobs.Add(1)
		c.crew.do(func() { defer c.jobs.Done(); j.run() })
	default:
		j.begin(ctx, m)
		j.heardBy(out, wake)
		j.run()
	}
	return c.await(ctx, r, j, out, wake)
}

// await returns what the request is answered with: the result of the job, or
// what the job asks.
func (c *client) await(ctx context.Context, r *Request, j *job, out *connOutlet, wake reader) (json.RawMessage, error) {
	var grace <-chan time.Time
	for {
		if grace == nil && j.asksClient() {
			grace = time.After(askGrace)
		}
		select {
		case answer := <-out.done:
			if answer.Error != nil {
				return nil, answer.Error
			}
			return c.dress(r, j, answer.Result), nil
		case <-wake:
		case <-grace:
			grace = nil
			if !j.asksClient() {
				continue
			}
			if result, ok := c.server.park(j); ok {
				return c.dress(r, j, result), nil
			}
		case <-ctx.Done():
			j.cancel(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

// dress dresses the result of a request, in two pieces if the conn puts them
// together.
func (c *client) dress(r *Request, j *job, result json.RawMessage) json.RawMessage {
	d := j.own.description()
	if !c.encodes {
		return c.server.dressAs(d, r.Method, result)
	}
	r.lead, result = c.server.dressed(d, r.Method, result)
	return result
}

// sharedState opens the session of the connection's modern requests, once, and
// returns its State. Of is the first of them.
func (c *client) sharedState(of *Session) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modern == nil {
		sess := &Session{
			Principal: c.principal, PID: c.pid, Era: Modern, Version: of.Version, owner: c.owner,
			ClientInfo: of.ClientInfo, ClientCapabilities: of.ClientCapabilities,
		}
		if !c.server.openSession(sess, c.hangUp) {
			return nil
		}
		c.modern = sess
	}
	return c.modern.State
}

// A connOutlet is where a job on a connection is heard.
type connOutlet struct {
	link Link
	done chan Message // capacity 1
}

func (o *connOutlet) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return o.link.Notify(ctx, method, params)
}

func (o *connOutlet) finish(answer Message) { o.done <- answer }

// handleListen keeps a subscription on a connection.
func (c *client) handleListen(ctx context.Context, sess *Session, m Message) (json.RawMessage, error) {
	l := newListener(sess, m.ID, func(m Message) error {
		c.peer.post(m)
		return nil
	})
	if refused := c.server.listen(ctx, l, m.Params); refused != nil {
		return nil, refused
	}
	defer c.server.unlisten(l)
	ack := l.acknowledgement()
	if err := c.peer.Notify(ctx, ack.Method, ack.Params); err != nil {
		return nil, err
	}
	l.acknowledged()
	select {
	case <-l.end:
		return l.result(c.server), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
