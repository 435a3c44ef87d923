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
	result, err := c.firstAnswer(ctx)
	if err != nil {
		return "", err
	}
	if _, modern := Member(result, "supportedVersions"); modern {
		c.opened(Modern, Version20260728, result)
		return DialectModern, nil
	}
	return "", c.initialized(ctx, result)
}

// firstAnswer asks a server on a stream in the legacy era and, if it refuses or
// is silent for a while, in the modern one. One that is only slow to start may
// answer both: the first answer counts that tells of an era.
func (c *Client) firstAnswer(ctx context.Context) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	var asking sync.WaitGroup
	ask := func(request func() (json.RawMessage, error)) <-chan answer {
		done := make(chan answer, 1)
		asking.Go(func() {
			result, err := request()
			done <- answer{result, err}
		})
		return done
	}
	ctx, stop := context.WithCancel(ctx)
	defer asking.Wait()
	defer stop()
	legacy := ask(func() (json.RawMessage, error) { return c.askInitialize(ctx, Version20251125) })
	var modern <-chan answer
	discover := func() { modern = ask(func() (json.RawMessage, error) { return c.askDiscover(ctx) }) }
	probe := time.NewTimer(c.options.ProbeTimeout)
	defer probe.Stop()
	silence := probe.C
	var refusal error // of the legacy era
	for {
		select {
		case a := <-legacy:
			if a.err == nil || ctx.Err() != nil || !refusesLegacy(a.err) {
				return a.result, a.err
			}
			legacy, refusal, silence = nil, a.err, nil
			if modern == nil {
				discover()
			}
		case a := <-modern:
			if a.err == nil {
				return a.result, nil
			}
			if legacy == nil {
				return nil, refusal // the error of who was asked first tells more
			}
			modern = nil // it is slow, and speaks the legacy era alone
		case <-silence:
			silence = nil
			discover()
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
