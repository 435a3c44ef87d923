package gateway

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Modern clients have no session: each request says who its client is. Requests
// that say the same share a client, which is kept for a while after the last, or
// until the connection ends that they come on.

// clientIdle is how long a client is kept without a request.
const clientIdle = 5 * time.Minute

// maxClients bounds the clients of one endpoint. More are served, but forgotten
// after each request.
const maxClients = 1024

// clientKey is what makes two requests be of the same client. What it says of
// itself may be long, so hashes of it are kept. A client that finds another's
// hashes gains nothing: those of one owner may as well say the same.
type clientKey struct {
	owner              string
	info, capabilities uint64
}

var clientSeed = maphash.MakeSeed()

func keyOf(sess *wire.Session) clientKey {
	return clientKey{sess.Owner(), maphash.Bytes(clientSeed, sess.ClientInfo), maphash.Bytes(clientSeed, sess.ClientCapabilities)}
}

// clients are the modern clients of an endpoint.
type clients struct {
	ep *endpoint

	mu     sync.Mutex
	closed bool
	all    map[clientKey]*modernClient
}

// modernClient is a client and how it is used.
type modernClient struct {
	*client
	key   clientKey
	done  func() // ends a use
	users int
	used  time.Time   // when the last use ended
	idle  *time.Timer // looks whether that is long ago; nil until it was idle once
}

// get returns the client of a request. One that is made or ended keeps no other
// waiting: sessions are opened and closed without the lock.
func (cs *clients) get(sess *wire.Session) (*client, func(), error) {
	key := keyOf(sess)
	m, err := cs.use(key, nil)
	if m == nil && err == nil {
		var made *client
		if made, err = cs.ep.newClient(sess); err != nil {
			return nil, nil, err
		}
		if m, err = cs.use(key, made); m == nil || m.client != made { // another request was faster
			made.session.Close()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return m.client, m.done, nil
}

// use begins a use of the client with a key, which is the one that was made for
// it if there is none yet.
func (cs *clients) use(key clientKey, made *client) (*modernClient, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, wire.Errorf(wire.CodeInternal, "the gateway is shut down")
	}
	m := cs.all[key]
	if m == nil {
		if made == nil {
			return nil, nil
		}
		m = &modernClient{client: made, key: key}
		m.done = func() { cs.leave(m) }
		if cs.all == nil {
			cs.all = map[clientKey]*modernClient{}
		}
		if len(cs.all) < maxClients {
			cs.all[key] = m
		}
	}
	m.users++
	return m, nil
}

// leave ends a use of a client.
func (cs *clients) leave(m *modernClient) {
	cs.mu.Lock()
	m.users--
	over := m.users == 0 && cs.all[m.key] != m
	if m.users == 0 && !over {
		m.used = time.Now()
		if m.idle == nil {
			m.idle = time.AfterFunc(clientIdle, func() { cs.forget(m) })
		}
	}
	cs.mu.Unlock()
	if over {
		m.end()
	}
}

// forget ends a client that has been idle for long enough, and else looks again
// when it may have been.
func (cs *clients) forget(m *modernClient) {
	if cs.idled(m) {
		m.session.Close()
	}
}

func (cs *clients) idled(m *modernClient) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all[m.key] != m {
		return false
	}
	left := clientIdle
	if m.users == 0 {
		left -= time.Since(m.used)
	}
	if left > 0 {
		m.idle.Reset(left)
		return false
	}
	delete(cs.all, m.key)
	return true
}

// left ends the clients of a connection that has ended.
func (cs *clients) left(owner string) {
	cs.mu.Lock()
	var over []*modernClient
	for key, m := range cs.all {
		if key.owner != owner {
			continue
		}
		delete(cs.all, key) // those that are in use end with that
		if m.users == 0 {
			over = append(over, m)
		}
	}
	cs.mu.Unlock()
	for _, m := range over {
		m.end()
	}
}

// end ends a client that nobody uses.
func (m *modernClient) end() {
	if m.idle != nil {
		m.idle.Stop()
	}
	m.session.Close()
}

// close ends all clients. Their requests have ended.
func (cs *clients) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for _, m := range cs.all {
		m.end()
	}
	clear(cs.all)
}

// listen opens a subscription for a modern client.
func (ep *endpoint) listen(ctx context.Context, sess *wire.Session, want wire.Filter) (wire.Filter, error) {
	if want.TaskIDs != nil {
		if err := needsTasks(sess); err != nil {
			return wire.Filter{}, err
		}
	}
	c, done, err := ep.client(sess)
	if err != nil {
		return wire.Filter{}, err
	}
	if want.TaskIDs != nil {
		want.TaskIDs = c.listenForTasks(ctx, want.TaskIDs)
	}
	c.listens(sess, want.ResourceSubscriptions) // first: what it wants, nobody else's end takes back
	honoured := c.subscribeAll(ctx, want.ResourceSubscriptions)
	if want.ResourceSubscriptions != nil {
		want.ResourceSubscriptions = honoured
	}
	c.listens(sess, honoured)
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		delete(c.reach, sess)
		c.mu.Unlock()
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		for _, uri := range honoured {
			if c.wants(uri) {
				continue
			}
			_ = c.unsubscribe(ctx, uri)
			if c.wants(uri) { // since a moment ago
				_ = c.subscribe(ctx, uri)
			}
		}
		done()
	})
	return want, nil
}

const (
	// subscribePatience is how long a subscription waits for servers to refuse a
	// resource. What they say later comes too late to be told.
	subscribePatience = time.Second

	maxSubscribing = 16 // resources of one subscription, at a time
)

// subscribeAll asks for updates of resources, side by side, and returns those that
// were not refused.
func (c *client) subscribeAll(ctx context.Context, uris []string) []string {
	refused := make([]atomic.Bool, len(uris))
	var asking sync.WaitGroup
	all := make(chan struct{})
	turns := make(chan struct{}, maxSubscribing)
	for i, uri := range uris {
		asking.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := c.subscribe(ctx, uri); err != nil {
				refused[i].Store(true)
				c.ep.gateway.log.Info("not subscribed", "uri", uri, "error", err)
			}
		})
	}
	go func() {
		asking.Wait()
		close(all)
	}()
	patience := time.NewTimer(subscribePatience)
	defer patience.Stop()
	select {
	case <-all:
	case <-patience.C:
	}
	honoured := uris[:0:0]
	for i, uri := range uris {
		if !refused[i].Load() {
			honoured = append(honoured, uri)
		}
	}
	return honoured
}

// listens takes note of a subscription, and of the resources that it is about.
func (c *client) listens(sess *wire.Session, uris []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach[sess] = uris
}

// wants reports whether a subscription is about a resource.
func (c *client) wants(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uris := range c.reach {
		if slices.Contains(uris, uri) {
			return true
		}
	}
	return false
}

// subscribe asks for updates of a resource, for as long as the client wants it.
func (c *client) subscribe(ctx context.Context, uri string) error {
	server, own, err := c.resource(ctx, uri)
	if err != nil {
		return err
	}
	if err := c.session.Subscribe(ctx, server, own); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[uri] = watched{server, own}
	return nil
}

// unsubscribe takes that back, at the server that was asked: by now the URI may
// be another's too.
func (c *client) unsubscribe(ctx context.Context, uri string) error {
	c.mu.Lock()
	was, ok := c.watched[uri]
	delete(c.watched, uri)
	again := slices.Contains(slices.Collect(maps.Values(c.watched)), was) // under another name
	c.mu.Unlock()
	if !ok {
		var err error
		if was.server, was.uri, err = c.resource(ctx, uri); err != nil {
			return err
		}
	}
	if ok && again {
		return nil
	}
	return c.session.Unsubscribe(ctx, was.server, was.uri)
}

// level asks servers for log messages as a modern request does: from a level on,
// for as long as this client asks for nothing else.
func (c *client) level(ctx context.Context, sess *wire.Session) {
	if level := sess.LogLevel(); level != "" {
		_ = c.session.SetLogLevel(ctx, c.ep.single, level) // the wire has checked it
	}
}
