package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// handlerFuncs is a Handler made of functions; nil ones refuse and ignore.
type handlerFuncs struct {
	request      func(context.Context, *Request) (json.RawMessage, error)
	notification func(context.Context, *Notification)
}

func (h handlerFuncs) HandleRequest(ctx context.Context, r *Request) (json.RawMessage, error) {
	if h.request == nil {
		return nil, MethodNotFound(r.Method)
	}
	return h.request(ctx, r)
}

func (h handlerFuncs) HandleNotification(ctx context.Context, n *Notification) {
	if h.notification != nil {
		h.notification(ctx, n)
	}
}

// script plays the other side of a peer by hand.
type script struct {
	t *testing.T
	Conn
}

// scripted starts a peer whose other side the test plays.
func scripted(t *testing.T, h Handler, opts *PeerOptions) (*Peer, script) {
	a, b := Pipe()
	p := NewPeer(a, h, opts)
	t.Cleanup(func() {
		p.Close()
		b.Close()
	})
	return p, script{t, b}
}

func (s script) next() Message {
	s.t.Helper()
	m, err := s.Read()
	if err != nil {
		s.t.Fatalf("the peer sent nothing more: %v", err)
	}
	return m
}

// expect checks the text of the next message.
func (s script) expect(want string) {
	s.t.Helper()
	if got := string(s.next().AppendTo(nil)); got != `{"jsonrpc":"2.0",`+want+`}` {
		s.t.Errorf("the peer sent %s\nwant the rest to be %s", got, want)
	}
}

// send sends a message, given as the text after the version.
func (s script) send(format string, args ...any) {
	s.t.Helper()
	m, err := Parse([]byte(`{"jsonrpc":"2.0",`+fmt.Sprintf(format, args...)+`}`), Limits{})
	if err == nil {
		err = s.Write(context.Background(), m)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// background runs a call and returns where its outcome will be.
func background(ctx context.Context, p *Peer, c Call) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := p.Call(ctx, c)
		done <- outcome{result, err, nil}
	}()
	return done
}

func TestCall(t *testing.T) {
	p, other := scripted(t, nil, nil)
	first := background(t.Context(), p, Call{Method: "tools/call", Params: json.RawMessage(`{"b":1.0,"a":2}`)})
	other.expect(`"id":1,"method":"tools/call","params":{"b":1.0,"a":2}`)
	second := background(t.Context(), p, Call{Method: "ping"})
	other.expect(`"id":2,"method":"ping"`)
	third := background(t.Context(), p, Call{Method: "x"})
	other.expect(`"id":3,"method":"x"`)
	other.send(`"id":2.0,"result":{"z":1,"big":12345678901234567890}`)
	other.send(`"id":3,"error":{"code":-7,"message":"no","data":[1]}`)
	other.send(`"id":1,"result":{}`)
	if o := <-second; string(o.result) != `{"z":1,"big":12345678901234567890}` || o.err != nil {
		t.Errorf("second: %s, %v", o.result, o.err)
	}
	o := <-third
	if e, ok := errors.AsType[*Error](o.err); !ok || e.Code != -7 || e.Message != "no" || string(e.Data) != "[1]" {
		t.Errorf("third: %v", o.err)
	}
	if o := <-first; string(o.result) != `{}` || o.err != nil {
		t.Errorf("first: %s, %v", o.result, o.err)
	}
	if err := p.Notify(t.Context(), "n", json.RawMessage(`{"a":1}`)); err != nil {
		t.Error(err)
	}
	other.expect(`"method":"n","params":{"a":1}`)
}

// Rows 7 and 39 of the fault matrix: a call that is given up is cancelled once,
// its answer is dropped, its id not used again, and the link lives on.
func TestCancelledCall(t *testing.T) {
	p, other := scripted(t, nil, nil)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	call := background(ctx, p, Call{Method: "slow"})
	other.expect(`"id":1,"method":"slow"`)
	cancel(why)
	if o := <-call; o.err != why {
		t.Errorf("got %v", o.err)
	}
	other.expect(`"method":"notifications/cancelled","params":{"requestId":1,"reason":"cancelled by the caller"}`)
	if _, err := p.Call(ctx, Call{Method: "never sent"}); err != why {
		t.Errorf("got %v", err)
	}
	other.send(`"id":1,"result":"late"`)
	call = background(t.Context(), p, Call{Method: "next"})
	other.expect(`"id":2,"method":"next"`)
	other.send(`"id":2,"result":"right"`)
	if o := <-call; string(o.result) != `"right"` {
		t.Errorf("got %s, %v", o.result, o.err)
	}
	if stats := p.Stats(); stats.LateAnswers != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestInitializeIsNotCancelled(t *testing.T) {
	p, other := scripted(t, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	call := background(ctx, p, Call{Method: "initialize"})
	other.expect(`"id":1,"method":"initialize"`)
	cancel()
	if o := <-call; o.err != context.Canceled {
		t.Errorf("got %v", o.err)
	}
	if err := p.Notify(t.Context(), "n", nil); err != nil {
		t.Error(err)
	}
	other.expect(`"method":"n"`)
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := scripted(t, nil, nil)
		start := time.Now()
		call := background(t.Context(), p, Call{Method: "silent", Timeout: 30 * time.Second})
		other.expect(`"id":1,"method":"silent"`)
		o := <-call
		timeout, ok := errors.AsType[*TimeoutError](o.err)
		if !ok || timeout.After != 30*time.Second || !errors.Is(o.err, context.DeadlineExceeded) || time.Since(start) != 30*time.Second {
			t.Errorf("%v after %v", o.err, time.Since(start))
		}
		other.expect(`"method":"notifications/cancelled","params":{"requestId":1,"reason":"timeout"}`)
		if o.err.Error() != "no answer to silent within 30s" {
			t.Error(o.err)
		}
	})
}

func TestProgressRenewsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := scripted(t, nil, nil)
		for _, c := range []Call{
			{Method: "busy", Timeout: 30 * time.Second, MaxTimeout: 100 * time.Second, Progress: func(json.RawMessage) {}},
			{Method: "busy", Timeout: 30 * time.Second, MaxTimeout: 100 * time.Second, Params: json.RawMessage(`{"_meta":{"progressToken":"t"}}`)},
			{Method: "busy", MaxTimeout: 100 * time.Second},
			{Method: "busy", Timeout: 100 * time.Second, Progress: func(json.RawMessage) {}},
		} {
			start := time.Now()
			call := background(t.Context(), p, c)
			id := other.next().ID
			for range 6 {
				time.Sleep(19 * time.Second)
				other.send(`"method":"notifications/progress","params":{"progressToken":%s,"progress":1}`, id)
			}
			o := <-call
			want := 100 * time.Second
			if c.MaxTimeout == 0 {
				want = 6*19*time.Second + c.Timeout
			}
			if timeout, ok := errors.AsType[*TimeoutError](o.err); !ok || timeout.After != 100*time.Second || time.Since(start) != max(want, 6*19*time.Second) {
				t.Errorf("%v after %v", o.err, time.Since(start))
			}
			other.next() // the cancellation
		}
	})
}

func TestDefaultMaxTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := scripted(t, nil, nil)
		start := time.Now()
		call := background(t.Context(), p, Call{Method: "endless", Timeout: 30 * time.Second, Progress: func(json.RawMessage) {}})
		other.next()
		tick := time.NewTicker(20 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				other.send(`"method":"notifications/progress","params":{"progressToken":1,"progress":1}`)
				continue
			case o := <-call:
				if !errors.Is(o.err, context.DeadlineExceeded) || time.Since(start) != 10*time.Minute {
					t.Errorf("%v after %v", o.err, time.Since(start))
				}
			}
			return
		}
	})
}

func TestProgress(t *testing.T) {
	p, other := scripted(t, nil, nil)
	var got []string
	call := background(t.Context(), p, Call{
		Method:   "tools/call",
		Params:   json.RawMessage(`{"name":"x", "_meta":{"k":1,"progressToken":"\u0061bc"}}`),
		Progress: func(params json.RawMessage) { got = append(got, string(params)) },
	})
	other.expect(`"id":1,"method":"tools/call","params":{"name":"x", "_meta":{"k":1,"progressToken":1}}`)
	for i := range 3 {
		other.send(`"method":"notifications/progress","params":{"progress":%d,"progressToken":1,"x":1.0}`, i)
	}
	other.send(`"id":1,"result":{}`)
	if o := <-call; o.err != nil {
		t.Fatal(o.err)
	}
	want := `{"progress":0,"progressToken":"\u0061bc","x":1.0} {"progress":1,"progressToken":"\u0061bc","x":1.0} {"progress":2,"progressToken":"\u0061bc","x":1.0}`
	if strings.Join(got, " ") != want {
		t.Errorf("got %s", got)
	}

	call = background(t.Context(), p, Call{Method: "m", Progress: func(params json.RawMessage) { got = append(got, string(params)) }})
	other.expect(`"id":2,"method":"m","params":{"_meta":{"progressToken":2}}`)
	other.send(`"method":"notifications/progress","params":{"progressToken":1}`)
	other.send(`"id":2,"result":{}`)
	if o := <-call; o.err != nil || len(got) != 3 {
		t.Errorf("%v, %q", o.err, got)
	}
	if stats := p.Stats(); stats.LateAnswers != 1 {
		t.Errorf("%+v", stats)
	}
}

// Two callers use the same token; the handler learns whose progress it is.
func TestProgressTokensDoNotCollide(t *testing.T) {
	notes := make(chan *Notification, 10)
	p, other := scripted(t, handlerFuncs{notification: func(_ context.Context, n *Notification) { notes <- n }}, nil)
	params := json.RawMessage(`{"_meta":{"progressToken":7}}`)
	a := background(t.Context(), p, Call{Method: "m", Params: params, Tag: "a"})
	other.expect(`"id":1,"method":"m","params":{"_meta":{"progressToken":1}}`)
	b := background(t.Context(), p, Call{Method: "m", Params: params, Tag: "b"})
	other.expect(`"id":2,"method":"m","params":{"_meta":{"progressToken":2}}`)
	other.send(`"method":"notifications/progress","params":{"progressToken":2,"progress":1}`)
	other.send(`"method":"notifications/progress","params":{"progressToken":1,"progress":2}`)
	other.send(`"method":"notifications/progress","params":{"progressToken":"whose?"}`)
	for _, want := range []string{`b {"progressToken":7,"progress":1}`, `a {"progressToken":7,"progress":2}`, `<nil> {"progressToken":"whose?"}`} {
		if n := <-notes; fmt.Sprintf("%v %s", n.Tag, n.Params) != want || n.Link != p {
			t.Errorf("got %v %s, want %s", n.Tag, n.Params, want)
		}
	}
	other.send(`"id":1,"result":{}`)
	other.send(`"id":2,"result":{}`)
	<-a
	<-b
}

// A receiver of progress that hangs holds up its own call only, and what waits
// for it is bounded.
func TestSlowProgress(t *testing.T) {
	p, other := scripted(t, nil, nil)
	begun, release := make(chan struct{}), make(chan struct{})
	var got []string
	slow := background(t.Context(), p, Call{Method: "slow", Progress: func(params json.RawMessage) {
		if len(got) == 0 {
			close(begun)
			<-release
		}
		progress, _ := Member(params, "progress")
		got = append(got, string(progress))
	}})
	other.next()
	other.send(`"method":"notifications/progress","params":{"progressToken":1,"progress":-1}`)
	<-begun
	for i := range maxProgress + 10 {
		other.send(`"method":"notifications/progress","params":{"progressToken":1,"progress":%d}`, i)
	}
	other.send(`"id":1,"result":{}`)
	quick := background(t.Context(), p, Call{Method: "quick"})
	other.next()
	other.send(`"id":2,"result":{}`)
	if o := <-quick; o.err != nil {
		t.Error(o.err)
	}
	close(release)
	if o := <-slow; o.err != nil {
		t.Error(o.err)
	}
	if len(got) != maxProgress+1 || got[0] != "-1" || got[1] != "10" || got[len(got)-1] != fmt.Sprint(maxProgress+9) {
		t.Errorf("%d: %q", len(got), got)
	}
}

func TestInFlightLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := scripted(t, nil, &PeerOptions{MaxInFlight: 2, MaxQueued: 3})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := make([]<-chan outcome, 5)
		for i := range calls {
			c := Call{Method: fmt.Sprint("m", i)}
			if i == 3 {
				c.Timeout = time.Second
			}
			calls[i] = background(ctx, p, c)
			synctest.Wait() // so that they queue in this order
		}
		if _, err := p.Call(ctx, Call{Method: "one too many"}); !errors.Is(err, ErrOverloaded) {
			t.Errorf("got %v", err)
		}
		if o := <-calls[3]; !errors.Is(o.err, context.DeadlineExceeded) {
			t.Errorf("a call that waited for too long: %v", o.err)
		}
		other.expect(`"id":1,"method":"m0"`)
		other.expect(`"id":2,"method":"m1"`)
		other.send(`"id":2,"result":{}`)
		other.expect(`"id":3,"method":"m2"`)
		other.send(`"id":1,"result":{}`)
		other.expect(`"id":4,"method":"m4"`)
		cancel()
		for i, want := range []error{nil, nil, context.Canceled, nil, context.Canceled} {
			if i != 3 {
				if o := <-calls[i]; o.err != want {
					t.Errorf("call %d: %v", i, o.err)
				}
			}
		}
		other.next() // the cancellations
		other.next()
		if _, err := p.Call(ctx, Call{}); err != context.Canceled {
			t.Error(err)
		}
		if p.inFlight != 0 || p.queue.size != 0 || len(p.calls) != 0 {
			t.Errorf("%d in flight, %d queued, %d pending", p.inFlight, p.queue.size, len(p.calls))
		}
	})
}

// Row 38: ten thousand callers at once.
func TestTenThousandCalls(t *testing.T) {
	var running, most atomic.Int64
	a, b := Pipe()
	server := NewPeer(b, handlerFuncs{request: func(_ context.Context, r *Request) (json.RawMessage, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				return r.Params, nil
			}
		}
	}}, nil)
	defer server.Close()
	client := NewPeer(a, nil, nil)
	defer client.Close()
	var callers sync.WaitGroup
	for i := range 10_000 {
		callers.Go(func() {
			params := fmt.Sprintf(`{"i":%d}`, i)
			result, err := client.Call(t.Context(), Call{Method: "echo", Params: json.RawMessage(params), Timeout: time.Minute})
			if err != nil || string(result) != params {
				t.Errorf("%s: %s, %v", params, result, err)
			}
		})
	}
	callers.Wait()
	if n := most.Load(); n > 64 {
		t.Errorf("%d at the same time", n)
	}
}

// Row 39: a thousand cancelled calls leave nothing behind.
func TestThousandCancelledCalls(t *testing.T) {
	a, b := Pipe()
	server := NewPeer(b, handlerFuncs{request: func(ctx context.Context, r *Request) (json.RawMessage, error) {
		if r.Method == "ping" {
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}, nil)
	defer server.Close()
	client := NewPeer(a, nil, nil)
	defer client.Close()
	var callers sync.WaitGroup
	for range 1000 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := client.Call(ctx, Call{Method: "hang"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if _, err := client.Call(t.Context(), Call{Method: "ping"}); err != nil {
		t.Error(err)
	}
	if client.inFlight != 0 || client.queue.size != 0 || len(client.calls) != 0 {
		t.Errorf("%d in flight, %d queued, %d pending", client.inFlight, client.queue.size, len(client.calls))
	}
}

// Row 10: answers that are to nothing we asked.
func TestBadAnswers(t *testing.T) {
	p, other := scripted(t, nil, nil)
	call := background(t.Context(), p, Call{Method: "m"})
	other.next()
	for _, text := range []string{
		`"id":2,"result":{}`, `"id":0,"result":{}`, `"id":-1,"result":{}`, `"id":"x","result":{}`, `"id":1.5,"result":{}`, `"id":1e300,"result":{}`,
		`"id":null,"error":{"code":-32700,"message":"?"}`, `"error":{"code":-32700,"message":"?"}`,
	} {
		other.send("%s", text)
	}
	other.send(`"id":1,"result":"the answer"`)
	other.send(`"id":1,"result":"again"`)
	if o := <-call; string(o.result) != `"the answer"` {
		t.Errorf("%s, %v", o.result, o.err)
	}
	call = background(t.Context(), p, Call{Method: "m"})
	other.next()
	other.send(`"id":"2","result":{}`) // the SDKs take that for the same
	<-call
	if stats := p.Stats(); stats.BadAnswers != 8 || stats.LateAnswers != 1 {
		t.Errorf("%+v", stats)
	}
}

// A call that its caller gives up makes room at once, whether or not the other
// side says anything to that.
func TestGivenUpCallMakesRoom(t *testing.T) {
	p, other := scripted(t, nil, &PeerOptions{MaxInFlight: 1})
	ctx, giveUp := context.WithCancel(t.Context())
	hung := background(ctx, p, Call{Method: "hung"})
	other.expect(`"id":1,"method":"hung"`)
	waits := background(t.Context(), p, Call{Method: "waits"})
	giveUp()
	<-hung
	for method := ""; method != "waits"; { // beside the cancellation
		method = other.next().Method
	}
	other.send(`"id":2,"result":{}`)
	if o := <-waits; o.err != nil {
		t.Error(o.err)
	}
}

func TestCloseFailsCalls(t *testing.T) {
	p, other := scripted(t, nil, &PeerOptions{MaxInFlight: 1})
	sent := background(t.Context(), p, Call{Method: "sent"})
	other.next()
	queued := background(t.Context(), p, Call{Method: "queued", Timeout: time.Hour})
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if o := <-sent; !errors.Is(o.err, ErrClosed) || errors.Is(o.err, ErrNotSent) {
		t.Errorf("got %v", o.err)
	}
	if o := <-queued; !errors.Is(o.err, ErrClosed) || !errors.Is(o.err, ErrNotSent) {
		t.Errorf("got %v", o.err)
	}
	<-p.Done()
	if _, err := p.Call(t.Context(), Call{Method: "m"}); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) || !errors.Is(p.Err(), ErrClosed) {
		t.Errorf("got %v, %v", err, p.Err())
	}
	if err := p.Notify(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := other.Read(); err != io.EOF {
		t.Errorf("the other side sees %v", err)
	}
}

func TestOtherSideCloses(t *testing.T) {
	p, other := scripted(t, nil, nil)
	call := background(t.Context(), p, Call{Method: "m"})
	other.next()
	other.send(`"id":1,"result":"last words"`)
	other.Close()
	if o := <-call; string(o.result) != `"last words"` {
		t.Errorf("%s, %v", o.result, o.err)
	}
	<-p.Done()
	if err := p.Err(); !errors.Is(err, ErrClosed) || err.Error() != "connection closed by the other side" {
		t.Error(err)
	}
	if _, err := p.Call(t.Context(), Call{Method: "m"}); !errors.Is(err, p.Err()) {
		t.Error(err)
	}
}

// The progress of a task goes on after the call that created it was answered.
func TestTaskProgress(t *testing.T) {
	notes := make(chan *Notification, 10)
	p, other := scripted(t, handlerFuncs{notification: func(_ context.Context, n *Notification) { notes <- n }}, nil)
	for i := range maxTaskTokens + 1 {
		call := background(t.Context(), p, Call{Method: "m", Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`), Tag: i})
		id := other.next().ID
		other.send(`"id":%s,"result":{"task":{"taskId":"t"}}`, id)
		if o := <-call; o.err != nil {
			t.Fatal(o.err)
		}
	}
	for id := range 3 {
		other.send(`"method":"notifications/progress","params":{"progressToken":%d,"progress":1}`, id+1)
	}
	for _, tag := range []int{1, 2} { // the first is forgotten
		if n := <-notes; n.Tag != tag || string(n.Params) != `{"progressToken":"mine","progress":1}` {
			t.Errorf("%v: %s", n.Tag, n.Params)
		}
	}
	if stats := p.Stats(); stats.LateAnswers != 1 {
		t.Errorf("%+v", stats)
	}
}

// FuzzPeer feeds a peer with anything: it must not panic, answer only what was
// asked, and fail the pending call when the input ends.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n"))
	f.Add([]byte("noise\n\r\n[]\n{}\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		a, b := streams()
		p := NewPeer(NewStreamConn(a, a, &StreamOptions{MaxMessage: 1000, MaxBatch: 3}), echo{}, &PeerOptions{ReplyInvalid: true})
		call := background(t.Context(), p, Call{Method: "m", Progress: func(json.RawMessage) {}})
		sent := newLineReader(b.r, 1<<20)
		sent.next()
		go func() {
			b.Write(input)
			b.w.Close()
		}()
		for { // whatever it says is a message
			line, _, err := sent.next()
			if err != nil {
				break
			}
			if _, err := Parse(line, Limits{}); err != nil {
				t.Errorf("the peer sent %q: %v", line, err)
			}
		}
		if o := <-call; o.err == nil && Valid(o.result, Limits{}) != nil {
			t.Errorf("the result is %q", o.result)
		}
		p.Close()
		b.Close()
	})
}

// keepingConn keeps the contexts it was written with, as transports of net/http
// do for a while after the request.
type keepingConn struct {
	Conn
	kept []context.Context
}

func (c *keepingConn) Write(ctx context.Context, m Message) error {
	c.kept = append(c.kept, ctx)
	_ = ctx.Done() // as whoever derives another from it
	return c.Conn.Write(ctx, m)
}

// TestSendContextIsItsOwn: what a send was made with is over after it, and says
// nothing of later ones.
func TestSendContextIsItsOwn(t *testing.T) {
	a, b := Pipe()
	conn := &keepingConn{Conn: a}
	p := NewPeer(conn, nil, nil)
	other := NewPeer(b, handlerFuncs{request: func(context.Context, *Request) (json.RawMessage, error) {
		return json.RawMessage(`{}`), nil
	}}, nil)
	defer other.Close()
	defer p.Close()
	type key struct{}
	for i := range 3 {
		ctx := context.WithValue(t.Context(), key{}, i)
		if _, err := p.Call(ctx, Call{Method: "x", Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	for i, ctx := range conn.kept {
		if ctx.Err() == nil || ctx.Value(key{}) != i {
			t.Errorf("send %d: the context has the value %v and the error %v", i, ctx.Value(key{}), ctx.Err())
		}
	}
}
