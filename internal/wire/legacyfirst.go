package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A server of both eras is spoken to in the modern one, unless that is of no use
// to who speaks to it: a client of the legacy era that can be asked things would
// hear from such a server that it cannot ask.

// legacyFirst prefers the legacy era, and takes the modern one of a server that
// does not speak it. The dialect is empty where it was reached by preference:
// that says nothing of what others would reach.
func (c *Client) legacyFirst(ctx context.Context) (Dialect, error) {
	if h, ok := c.link.(*HTTPClient); ok {
		return c.legacyFirstHTTP(ctx, h)
	}
	result, refusal, _ := c.firstAnswer(ctx,
		func(ctx context.Context) (json.RawMessage, error) { return c.askInitialize(ctx, Version20251125) },
		func(err error) request {
			if err != nil && !refusesLegacy(err) {
				return nil
			}
			return c.askDiscover
		})
	switch {
	case result == nil:
		return "", refusal
	case isDiscovery(result):
		c.opened(Modern, Version20260728, result)
		return DialectModern, nil
	}
	return "", c.initialized(ctx, result)
}

// modernFirst prefers the modern era of a server on a stream.
func (c *Client) modernFirst(ctx context.Context) (Dialect, error) {
	discover := func(ctx context.Context) (json.RawMessage, error) {
		result, err := c.askDiscover(ctx)
		if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeUnsupportedVersion {
			if supported, _ := Member(e.Data, "supported"); listsVersion(supported, Version20260728) {
				result, err = c.askDiscover(ctx) // that is what it was sent: perhaps it was not ready
			}
		}
		return result, err
	}
	result, err, refusal := c.firstAnswer(ctx, discover, func(err error) request {
		version := Version20251125
		if err != nil {
			version = c.legacyVersion(err)
		}
		if version == "" {
			return nil
		}
		return func(ctx context.Context) (json.RawMessage, error) { return c.askInitialize(ctx, version) }
	})
	switch {
	case result == nil && refusal != nil:
		return "", refusal
	case result == nil:
		return "", err
	case isDiscovery(result):
		c.opened(Modern, Version20260728, result)
		return DialectModern, nil
	}
	return DialectLegacy, c.initialized(ctx, result)
}

// isDiscovery tells the answer to server/discover from that to initialize.
func isDiscovery(result json.RawMessage) bool {
	_, ok := Member(result, "supportedVersions")
	return ok
}

// answerGrace is how much later than the next an answer may arrive that was sent
// before it.
const answerGrace = 50 * time.Millisecond

// request asks a server for what it says of itself.
type request = func(context.Context) (json.RawMessage, error)

// firstAnswer asks a server on a stream in one era and, if it refuses or is silent
// for a while, in the other, of which next says how: err is the refusal, nil if it
// was silent, and there may be no other way. One that is only slow to start may
// answer both: the first answer counts that tells of an era. Otherwise result is
// nil, and the errors are those of the two.
func (c *Client) firstAnswer(ctx context.Context, first request, next func(err error) request) (result json.RawMessage, firstErr, secondErr error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	var asking sync.WaitGroup
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer asking.Wait()
	defer stop()
	ask := func(r request) <-chan answer {
		done := make(chan answer, 1)
		asking.Go(func() {
			result, err := r(ctx)
			done <- answer{result, err}
		})
		return done
	}
	one, two := ask(first), (<-chan answer)(nil)
	probe := time.NewTimer(c.options.ProbeTimeout)
	defer probe.Stop()
	silence := probe.C
	for {
		select {
		case a := <-one:
			if a.err == nil {
				return a.result, nil, nil
			}
			other := next(a.err)
			if other == nil || outer.Err() != nil {
				return nil, a.err, nil
			}
			one, firstErr = nil, a.err
			switch {
			case secondErr != nil:
				return nil, firstErr, secondErr
			case two == nil:
				two, silence = ask(other), nil
			}
		case a := <-two:
			if a.err == nil && one == nil {
				return a.result, nil, nil
			}
			if a.err == nil {
				// One that was slow to start has answered what it was asked first just before.
				grace := time.NewTimer(answerGrace)
				defer grace.Stop()
				select {
				case b := <-one:
					if b.err == nil {
						a = b
					}
				case <-grace.C:
				}
				return a.result, nil, nil
			}
			if two, secondErr = nil, a.err; one == nil || outer.Err() != nil {
				return nil, firstErr, secondErr
			}
		case <-silence:
			two, silence = ask(next(nil)), nil
		}
	}
}

// legacyFirstHTTP is legacyFirst over HTTP, where one session is spoken one way
// at a time. A server that gives no session id has no way to ask outside of the
// stream of a request, and was written for the modern era if it speaks it.
func (c *Client) legacyFirstHTTP(ctx context.Context, h *HTTPClient) (Dialect, error) {
	probed := func(ask func(context.Context) error) error {
		probe, stop := context.WithTimeoutCause(ctx, c.options.ProbeTimeout, errProbe)
		defer stop()
		return ask(probe)
	}
	err := probed(func(ctx context.Context) error { return c.initialize(ctx, Version20251125) })
	opening, session := c.opening.Load(), h.session.Load()
	switch {
	case err == nil && session.id != nil:
		return "", nil
	case ctx.Err() != nil || err != nil && !refusesLegacy(err):
		return "", err
	case probed(c.discover) == nil:
		return DialectModern, nil
	case err == nil:
		h.session.Store(session)
		c.opening.Store(opening)
		return "", nil
	case errors.Is(err, errProbe):
		return "", c.initialize(ctx, Version20251125) // it is only slow
	}
	return "", err
}

// refusesLegacy reports whether the answer to an initialize is that of a server
// that may yet speak the modern era.
func refusesLegacy(err error) bool {
	if e, ok := errors.AsType[*HTTPError](err); ok {
		switch e.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
			return true
		}
		return false
	}
	_, spoke := errors.AsType[*Error](err)
	return spoke || errors.Is(err, errNoCommonVer) || errors.Is(err, errProbe)
}
