package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandleRequest(t *testing.T) {
	var log bytes.Buffer
	p, other := scripted(t, handlerFuncs{request: func(_ context.Context, r *Request) (json.RawMessage, error) {
		switch r.Method {
		case "echo":
			return r.Params, nil
		case "empty":
			return nil, nil
		case "refuse":
			return nil, fmt.Errorf("wrapped: %w", &Error{Code: -5, Message: "no", Data: json.RawMessage(`{"why":1.0}`)})
		case "fail":
			return nil, errors.New("the password is 12345")
		case "panic":
			panic("the password is 54321")
		}
		return nil, MethodNotFound(r.Method)
	}}, &PeerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, c := range []struct{ request, answer string }{
		{`"id":1,"method":"echo","params":{"b":1.0,"a":"\u0061"}`, `"id":1,"result":{"b":1.0,"a":"\u0061"}`},
		{`"id":"\u0061","method":"empty"`, `"id":"\u0061","result":{}`},
		{`"id":1.50,"method":"refuse"`, `"id":1.50,"error":{"code":-5,"message":"no","data":{"why":1.0}}`},
		{`"id":12345678901234567890,"method":"other"`, `"id":12345678901234567890,"error":{"code":-32601,"message":"method not found: other"}`},
	} {
		other.send("%s", c.request)
		other.expect(c.answer)
	}
	// Row 43: a panic is answered, and told to the log alone; so is an error.
	for _, method := range []string{"fail", "panic"} {
		other.send(`"id":1,"method":"%s"`, method)
		m := other.next()
		match := regexp.MustCompile(`^internal error \(ref ([a-z2-7]{10})\)$`).FindStringSubmatch(m.Error.Message)
		if m.Error.Code != CodeInternal || match == nil {
			t.Fatalf("%s: %+v", method, m.Error)
		}
		other.send(`"id":2,"method":"empty"`) // the log is complete when this is answered
		other.expect(`"id":2,"result":{}`)
		if text := log.String(); !strings.Contains(text, "ref="+match[1]) || !strings.Contains(text, "password") {
			t.Errorf("%s: the log says %s", method, text)
		}
	}
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

// A request that was given up fails without an alarm.
func TestGivenUpRequestIsNotLogged(t *testing.T) {
	for _, givenUp := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log bytes.Buffer
		m := respond(ctx, handlerFuncs{request: func(context.Context, *Request) (json.RawMessage, error) {
			if givenUp {
				cancel()
			}
			return nil, errors.New("not finished")
		}}, &Request{ID: NumberID(1), Method: "m"}, slog.New(slog.NewTextHandler(&log, nil)))
		if m.Error == nil || m.Error.Code != CodeInternal || (log.Len() == 0) != givenUp {
			t.Errorf("given up: %v: answer %+v, log %q", givenUp, m.Error, log.String())
		}
	}
}

func TestNoHandler(t *testing.T) {
	_, other := scripted(t, nil, nil)
	other.send(`"method":"n"`)
	other.send(`"id":1,"method":"m"`)
	other.expect(`"id":1,"error":{"code":-32601,"message":"method not found: m"}`)
}

func TestRequestCancelledByCaller(t *testing.T) {
	started, ended := make(chan string, 10), make(chan error, 10)
	_, other := scripted(t, handlerFuncs{request: func(ctx context.Context, r *Request) (json.RawMessage, error) {
		if r.Method == "ping" {
			return nil, nil
		}
		started <- r.Method
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}}, nil)
	other.send(`"id":"\u0061","method":"hang"`)
	<-started
	for _, params := range []string{`{}`, `{"requestId":"b"}`, `{"requestId":{}}`, `{"requestId":"a","reason":"x"}`, `{"requestId":"a"}`} {
		other.send(`"method":"notifications/cancelled","params":%s`, params)
	}
	if err := <-ended; err != errCancelled {
		t.Error(err)
	}
	other.send(`"id":2,"method":"ping"`)
	other.expect(`"id":2,"result":{}`) // and no answer to the first
}

func TestHandlerLimits(t *testing.T) {
	release, started := make(chan struct{}), make(chan string, 10)
	p, other := scripted(t, handlerFuncs{request: func(ctx context.Context, r *Request) (json.RawMessage, error) {
		started <- r.Method
		<-release
		return json.RawMessage(`"` + r.Method + `"`), nil
	}}, &PeerOptions{MaxHandlers: 2, MaxBacklog: 2})
	for i := range 4 {
		other.send(`"id":%d,"method":"m%d"`, i, i)
	}
	<-started
	<-started
	other.send(`"id":1,"method":"twin"`)
	other.expect(`"id":1,"error":{"code":-32600,"message":"a request with this id is already being handled"}`)
	other.send(`"id":4,"method":"m4"`)
	other.expect(`"id":4,"error":{"code":-32000,"message":"overloaded: too many requests"}`)
	other.send(`"method":"notifications/cancelled","params":{"requestId":2}`)
	other.send(`"id":5,"method":"m5"`) // tells that the cancellation has been seen
	other.expect(`"id":5,"error":{"code":-32000,"message":"overloaded: too many requests"}`)
	close(release)
	got := map[string]bool{}
	for range 3 {
		got[string(other.next().Result)] = true
	}
	if !got[`"m0"`] || !got[`"m1"`] || !got[`"m3"`] {
		t.Errorf("answered: %v", got)
	}
	if m := <-started; m != "m3" {
		t.Errorf("%s was started after it was cancelled", m)
	}
	if stats := p.Stats(); stats.Refused != 3 {
		t.Errorf("%+v", stats)
	}
}

// Row 42: a flood of requests is answered with errors beyond 50 a second.
func TestRequestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, other := scripted(t, handlerFuncs{request: func(context.Context, *Request) (json.RawMessage, error) { return nil, nil }}, &PeerOptions{RequestsPerSecond: 50})
		flood := func(n int) (served int) {
			for i := range n {
				other.send(`"id":%d,"method":"m"`, i)
				if other.next().Error == nil {
					served++
				}
			}
			return served
		}
		if n := flood(200); n != 50 {
			t.Errorf("%d served at once", n)
		}
		time.Sleep(500 * time.Millisecond)
		if n := flood(200); n != 25 {
			t.Errorf("%d served after half a second", n)
		}
		time.Sleep(time.Hour)
		if n := flood(200); n != 50 {
			t.Errorf("%d served after an hour", n)
		}
	})
}

func TestNotificationsAreOrdered(t *testing.T) {
	got := make(chan string, 1000)
	p, other := scripted(t, handlerFuncs{notification: func(_ context.Context, n *Notification) {
		if string(n.Params) == `{"i":3}` {
			panic("three")
		}
		got <- string(n.Params)
	}}, nil)
	for i := range 500 {
		other.send(`"method":"n","params":{"i":%d}`, i)
	}
	for i := range 500 {
		if i == 3 {
			continue
		}
		if params := <-got; params != fmt.Sprintf(`{"i":%d}`, i) {
			t.Fatalf("got %s, want %d", params, i)
		}
	}
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

// A handler of notifications that hangs holds up no answer, and what waits for
// it is bounded.
func TestSlowNotificationHandler(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	handled := 0
	p, other := scripted(t, handlerFuncs{notification: func(context.Context, *Notification) {
		if handled++; handled == 1 {
			close(begun)
			<-release
		}
	}}, nil)
	other.send(`"method":"n"`)
	<-begun
	for range mailboxItems + 7 {
		other.send(`"method":"n"`)
	}
	call := background(t.Context(), p, Call{Method: "m"})
	other.next()
	other.send(`"id":1,"result":{}`)
	if o := <-call; o.err != nil {
		t.Error(o.err)
	}
	if stats := p.Stats(); stats.Dropped != 7 {
		t.Errorf("%+v", stats)
	}
	close(release)
	p.Close()
	if handled != 1+mailboxItems {
		t.Errorf("%d handled", handled)
	}
}

func TestCloseEndsHandlers(t *testing.T) {
	ended := make(chan error, 2)
	started := make(chan struct{}, 2)
	p, other := scripted(t, handlerFuncs{request: func(ctx context.Context, _ *Request) (json.RawMessage, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}}, &PeerOptions{MaxHandlers: 1})
	other.send(`"id":1,"method":"m"`)
	other.send(`"id":2,"method":"m"`)
	<-started
	p.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if len(started) > 0 {
		t.Error("the second was started after Close")
	}
}

func TestDrain(t *testing.T) {
	for _, c := range []struct {
		drain, work time.Duration
		answered    bool
		took        time.Duration
	}{
		{0, time.Second, false, 0},
		{2 * time.Second, time.Second, true, time.Second},
		{2 * time.Second, time.Hour, false, 2 * time.Second},
		{2 * time.Second, 0, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pipe()
			p := NewPeer(&halfClosed{Conn: a}, handlerFuncs{request: func(ctx context.Context, _ *Request) (json.RawMessage, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(c.work):
					return nil, nil
				}
			}}, &PeerOptions{Drain: c.drain, MaxHandlers: 1})
			defer p.Close()
			start := time.Now()
			<-p.Done()
			_, err := b.Read()
			if took := time.Since(start); took != c.took || (err == nil) != c.answered {
				t.Errorf("drain %v, work %v: took %v, answer %v", c.drain, c.work, took, err)
			}
			b.Close()
		})
	}
}

// halfClosed is a conn whose other side asks one thing and then ends its half.
type halfClosed struct {
	Conn
	asked bool
}

func (c *halfClosed) Read() (Message, error) {
	if c.asked {
		return Message{}, io.EOF
	}
	c.asked = true
	return Message{ID: NumberID(1), Method: "m"}, nil
}
