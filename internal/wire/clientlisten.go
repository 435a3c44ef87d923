package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// In the modern era a client hears of changes only on the streams of its own
// subscriptions/listen requests. A Client keeps up to two of them, because they
// live differently: one for the changes of lists, as long as the Client lives,
// and one for the updates of resources, opened anew whenever their set changes.

// subscription is a listen request that is sent again whenever it ends.
type subscription struct {
	client *Client
	want   Filter
	stale  []string // resources that may have changed before it was open
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when it will not be sent again

	// Guarded by client.mu.
	acks int    // how often the server has acknowledged
	gaps bool   // it was tried in vain, or interrupted, since it was last open
	has  Filter // what it will honour, as of the last time

	first chan struct{} // closed by the first acknowledgement
	err   error         // why it ended, when it has
}

// listenForLists subscribes to the changes of the lists that the server
// announces.
func (c *Client) listenForLists() {
	lists := c.Opening().announced()
	if c.options.Changed == nil || len(lists) == 0 {
		return
	}
	want := Filter{
		ToolsListChanged:     slices.Contains(lists, Tools),
		ResourcesListChanged: slices.Contains(lists, Resources),
		PromptsListChanged:   slices.Contains(lists, Prompts),
	}
	s := c.newSubscription(want)
	c.mu.Lock()
	c.lists = s
	c.mu.Unlock()
	s.open()
}

func (c *Client) newSubscription(want Filter) *subscription {
	s := &subscription{client: c, want: want, ended: make(chan struct{}), first: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	return s
}

func (s *subscription) open() {
	s.client.wg.Go(func() {
		defer close(s.ended)
		defer s.cancel()
		s.err = s.keepOpen(s.ctx)
	})
}

// keepOpen sends the request until ctx ends or the server will not have it.
func (s *subscription) keepOpen(ctx context.Context) error {
	c := s.client
	for attempt := 1; ; attempt++ {
		acks := s.acknowledgements()
		_, err := c.callModern(ctx, Call{Method: "subscriptions/listen", Params: s.want.params(), Tag: s})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !s.canListenAgain(err) {
			c.options.Logger.Info("the server does not announce changes", "error", err)
			return err
		}
		c.mu.Lock()
		s.gaps = true
		c.mu.Unlock()
		if s.acknowledgements() > acks {
			attempt = 1 // it had worked
		}
		wait := backoff(time.Second, attempt)
		if e, ok := errors.AsType[*HTTPError](err); ok {
			wait = max(wait, min(e.RetryAfter, maxRetry))
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

func (s *subscription) acknowledgements() int {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return s.acks
}

// canListenAgain reports whether a subscription that ended like this may be
// tried again.
func (s *subscription) canListenAgain(err error) bool {
	if errors.Is(err, ErrClosed) {
		return false
	}
	// What stands before the server may have put its status on an error of its
	// own, so the status comes first.
	if _, ok := errors.AsType[*HTTPError](err); ok {
		return canRetry(err)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return true // the connection broke
	}
	switch e.Code {
	case CodeMethodNotFound, CodeInvalidParams, CodeInvalidRequest, CodeMissingClientCapability, CodeUnsupportedVersion, CodeHeaderMismatch:
		return false // the server understood, and refused
	}
	// Who subscribes to a resource waits for the answer, and hears the reason.
	// For lists nobody waits, and without them changes would be lost for good.
	return len(s.want.lists()) > 0
}

// params writes the filter as the params of subscriptions/listen.
func (f Filter) params() json.RawMessage {
	out := []byte(`{"notifications":{`)
	member := func(name string) {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(AppendString(out, name), ':')
	}
	for _, b := range []struct {
		name string
		on   bool
	}{
		{"toolsListChanged", f.ToolsListChanged},
		{"promptsListChanged", f.PromptsListChanged},
		{"resourcesListChanged", f.ResourcesListChanged},
	} {
		if b.on {
			member(b.name)
			out = append(out, "true"...)
		}
	}
	for _, l := range []struct {
		name string
		list []string
	}{{"resourceSubscriptions", f.ResourceSubscriptions}, {"taskIds", f.TaskIDs}} {
		for i, s := range l.list {
			if i == 0 {
				member(l.name)
				out = append(out, '[')
			} else {
				out = append(out, ',')
			}
			out = AppendString(out, s)
		}
		if len(l.list) > 0 {
			out = append(out, ']')
		}
	}
	return append(out, `}}`...)
}

// acknowledged takes note of what the server will honour. If that is not at the
// first attempt, whatever it is about may have changed meanwhile. It reports
// whether the subscription is certainly one of ours, and not one that was made
// with Call.
func (c *Client) acknowledged(n *Notification) bool {
	has, bad := parseFilter(n.Params)
	s, ours := n.Tag.(*subscription)
	_, named := Member(n.Params, "_meta", MetaSubscriptionID)
	c.mu.Lock()
	if n.Tag == nil && !named { // what it is about tells
		if s = c.lists; len(has.ResourceSubscriptions) > 0 {
			s = c.updates
		}
	}
	if s == nil || bad != nil {
		c.mu.Unlock()
		return ours
	}
	s.has = has
	s.acks++
	first, again := s.acks == 1, s.gaps
	s.gaps = false
	c.mu.Unlock()
	if first {
		close(s.first)
	}
	if !again {
		c.updated(s.stale)
		return ours
	}
	c.changed(has.lists()...)
	c.updated(has.ResourceSubscriptions)
	return ours
}

func (f Filter) lists() []List {
	var lists []List
	if f.ToolsListChanged {
		lists = append(lists, Tools)
	}
	if f.ResourcesListChanged {
		lists = append(lists, Resources)
	}
	if f.PromptsListChanged {
		lists = append(lists, Prompts)
	}
	return lists
}

// updated tells the Handler that resources may have changed, as the server
// would have.
func (c *Client) updated(uris []string) {
	for _, uri := range uris {
		n := &Notification{Method: "notifications/resources/updated", Params: uriParams(uri), Link: c}
		c.options.Handler.HandleNotification(c.ctx, n)
	}
}

// Announced returns the lists whose changes are announced at present. In the
// modern era the server says so when it acknowledges the subscription.
func (c *Client) Announced() []List {
	if !c.modern() {
		return c.Opening().announced()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		return nil
	}
	return c.lists.has.lists()
}

// Subscribe asks for the updates of a resource, which arrive at the Handler as
// notifications/resources/updated in both eras.
func (c *Client) Subscribe(ctx context.Context, uri string) error {
	if !c.modern() {
		if _, err := c.typed(ctx, "resources/subscribe", uriParams(uri)); err != nil {
			return err
		}
		c.setSubscribed(uri, true)
		return nil
	}
	select {
	case c.subscribing <- struct{}{}:
		defer func() { <-c.subscribing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.setSubscribed(uri, true)
	s := c.renewUpdates()
	var err error
	select {
	case <-s.first:
		c.mu.Lock()
		honoured := slices.Contains(s.has.ResourceSubscriptions, uri)
		c.mu.Unlock()
		if honoured {
			return nil
		}
		err = fmt.Errorf("the server does not announce updates of %s", uri)
	case <-s.ended:
		err = s.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.setSubscribed(uri, false)
	return err
}

// Unsubscribe is the opposite of Subscribe.
func (c *Client) Unsubscribe(ctx context.Context, uri string) error {
	if !c.modern() {
		c.setSubscribed(uri, false)
		_, err := c.typed(ctx, "resources/unsubscribe", uriParams(uri))
		return err
	}
	select {
	case c.subscribing <- struct{}{}:
		defer func() { <-c.subscribing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.setSubscribed(uri, false)
	c.renewUpdates()
	return nil
}

func uriParams(uri string) json.RawMessage { return append(AppendString([]byte(`{"uri":`), uri), '}') }

func (c *Client) setSubscribed(uri string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.subscribed[uri] = true
	} else {
		delete(c.subscribed, uri)
	}
}

// subscriptions returns the URIs of the subscribed resources.
func (c *Client) subscriptions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.subscribed))
}

// renewUpdates replaces the subscription to the updates of resources by one to
// the present set of them, or by none if that is empty. One that ends first
// cannot be mixed up with its successor on a shared stream; but in between an
// update may be missed, so what was subscribed before counts as updated.
func (c *Client) renewUpdates() *subscription {
	c.mu.Lock()
	old := c.updates
	c.mu.Unlock()
	if old != nil {
		old.cancel()
		<-old.ended
	}
	uris := c.subscriptions()
	var s *subscription
	if len(uris) > 0 {
		s = c.newSubscription(Filter{ResourceSubscriptions: uris})
		if old != nil {
			for _, uri := range old.want.ResourceSubscriptions {
				if slices.Contains(uris, uri) {
					s.stale = append(s.stale, uri)
				}
			}
		}
	}
	c.mu.Lock()
	c.updates = s
	c.mu.Unlock()
	if s != nil {
		s.open()
	}
	return s
}

// restoreSession subscribes again and sets the log level again after a legacy
// session has been replaced.
func (c *Client) restoreSession(ctx context.Context) {
	uris := c.subscriptions()
	c.mu.Lock()
	level := c.logLevel
	c.mu.Unlock()
	if level != "" {
		if err := c.SetLevel(ctx, level); err != nil {
			c.options.Logger.Warn("setting the log level in a new session", "error", err)
		}
	}
	for _, uri := range uris {
		if err := c.Subscribe(ctx, uri); err != nil {
			c.options.Logger.Warn("subscribing in a new session", "error", err)
		}
	}
	c.updated(uris)
}
