package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The rows of the fault matrix that concern a stream. Their numbers are those
// of the matrix.

// onStream starts a peer on a stream whose other end the test has.
func onStream(t *testing.T, h Handler, opts *PeerOptions, stream *StreamOptions) (*Peer, duplex) {
	a, b := streams()
	p := NewPeer(NewStreamConn(a, a, stream), h, opts)
	t.Cleanup(func() {
		b.Close()
		p.Close()
	})
	return p, b
}

// Row 8: noise between messages is skipped and reported; too much of it ends
// the link with a reason that says so.
func TestFaultNoise(t *testing.T) {
	var seen []string
	p, other := onStream(t, nil, &PeerOptions{OnGarbage: func(g *Garbage) { seen = append(seen, string(g.Text)) }}, nil)
	call := background(t.Context(), p, Call{Method: "m"})
	fmt.Fprintf(other, "Starting up\n\x1b[32mINFO\x1b[0m ready\n{\"jsonrpc\":\"2.0\",\n")
	io.ReadFull(other, make([]byte, 1)) // the call is on its way
	go io.Copy(io.Discard, other.r)
	fmt.Fprintf(other, "progress: 10%%\n"+`{"jsonrpc":"2.0","id":1,"result":"clean"}`+"\n")
	if o := <-call; string(o.result) != `"clean"` || o.err != nil {
		t.Errorf("%s, %v", o.result, o.err)
	}
	if want := []string{"Starting up", "\x1b[32mINFO\x1b[0m ready", `{"jsonrpc":"2.0",`, "progress: 10%"}; strings.Join(seen, "|") != strings.Join(want, "|") {
		t.Errorf("reported: %q", seen)
	}
	call = background(t.Context(), p, Call{Method: "m"})
	go io.Copy(other, strings.NewReader(strings.Repeat("noise\n", 2*maxNoiseLines)))
	if o := <-call; !errors.Is(o.err, ErrNoise) || !errors.Is(o.err, ErrClosed) {
		t.Errorf("got %v", o.err)
	}
	<-p.Done()
	if stats := p.Stats(); stats.Garbage != 4+maxNoiseLines {
		t.Errorf("%+v", stats)
	}
}

// A quiet server may print a line now and then for ever.
func TestFaultNoiseOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := onStream(t, nil, nil, nil)
		fmt.Fprintln(other, `{"jsonrpc":"2.0","method":"notifications/hello"}`)
		const lines = 10 * maxNoiseLines
		for range lines {
			time.Sleep(noiseWindow / (maxNoiseLines - 10))
			fmt.Fprintln(other, "tick")
		}
		synctest.Wait()
		if stats := p.Stats(); stats.Garbage != lines || p.Err() != nil {
			t.Errorf("%+v, %v", stats, p.Err())
		}
	})
}

// One that answers may print as much as it likes beside that, all at once.
func TestFaultNoisePaid(t *testing.T) {
	p, other := onStream(t, nil, nil, nil)
	sent := newLineReader(other.r, 1000)
	for i := range 10 {
		call := background(t.Context(), p, Call{Method: "m"})
		sent.next()
		if i > 0 {
			io.WriteString(other, strings.Repeat("handling a request\n", maxNoiseLines))
		}
		fmt.Fprintf(other, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", i+1)
		if o := <-call; o.err != nil {
			t.Fatal(i, o.err)
		}
	}
}

// Row 9, by our own decision: a line of 100 MB is thrown away in bounded memory,
// the call it answers fails, and the session goes on.
func TestFaultHugeLine(t *testing.T) {
	var garbage *Garbage
	p, other := onStream(t, nil, &PeerOptions{OnGarbage: func(g *Garbage) { garbage = g }}, &StreamOptions{MaxMessage: 8 << 20})
	sent := newLineReader(other.r, 1000)
	call := background(t.Context(), p, Call{Method: "m"})
	sent.next()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	io.WriteString(other, `{"jsonrpc":"2.0","id":1,"result":"`)
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		if _, err := other.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	io.WriteString(other, "\"}\n")
	if o := <-call; !errors.Is(o.err, ErrTooLong) {
		t.Errorf("%.100s, %v", o.result, o.err)
	}
	call = background(t.Context(), p, Call{Method: "m"})
	sent.next()
	io.WriteString(other, `{"jsonrpc":"2.0","id":2,"result":"small"}`+"\n")
	if o := <-call; string(o.result) != `"small"` {
		t.Errorf("%.100s, %v", o.result, o.err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
	if garbage == nil || garbage.Err != ErrTooLong || garbage.Size < 100<<20 || len(garbage.Text) != garbageShown || !bytes.HasPrefix(garbage.Text, []byte(`{"jsonrpc"`)) {
		t.Errorf("reported: %.100v", garbage)
	}
}

// Row 10: an answer of the wrong form fails the call it was meant for, and no
// other.
func TestFaultMalformedAnswer(t *testing.T) {
	p, other := onStream(t, nil, nil, nil)
	sent := newLineReader(other.r, 1<<20)
	bystander := background(t.Context(), p, Call{Method: "bystander"})
	sent.next()
	for i, form := range []string{
		`{"jsonrpc":"2.0","id":%d,"result":{},"error":{"code":1,"message":"both"}}`,
		`{"jsonrpc":"2.0","id":%d,"error":"boom"}`,
		`{"jsonrpc":"2.0","id":%d,"error":{"code":"x","message":"y"}}`,
		`{"id":%d,"result":{}}`,
		`{"jsonrpc":"2.0","id":%d}`,
		`{"jsonrpc":"2.0","id":"%d"}`,
		`{"jsonrpc":"2.0","id":%d,"result":`,
		`{"jsonrpc":"2.0","id":%d,"result":{"text":"a`,
		`{"jsonrpc":"2.0","id":%d,"result":{"n":NaN}}`,
		`{"jsonrpc":"2.0","result":NaN,"id":%d}`,
		`{"result":{"a":[}}, "id":%d, "jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","result":{"a":"\x"},"\u0069d": %d}`,
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":\"\xff\"}",
		`{"jsonrpc":"2.0","id":%d,"result":{"_meta":{},"_meta":{}}}`,
		`{"jsonrpc":"2.0","id":%d,"result":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		`{"jsonrpc":"2.0","id":%d,"result":{"n":NaN,"pad":"` + strings.Repeat("x", 2*maxNoiseBytes) + `"}}`,
		`{"jsonrpc":"2.0","result":{"n":NaN,"pad":"` + strings.Repeat("x", 2*maxNoiseBytes) + `"},"id":%d}`,
	} {
		id := i + 2
		call := background(t.Context(), p, Call{Method: "m"})
		sent.next()
		// A request of theirs with the same id has nothing to do with it, except
		// that they hear that it is none.
		fmt.Fprintf(other, `{"jsonrpc":"2.0","id":%d,"method":7,"params":"before"}`+"\n", id)
		if line, _, err := sent.next(); err != nil || !strings.Contains(string(line), fmt.Sprintf(`"id":%d,"error"`, id)) {
			t.Errorf("%s, %v", line, err)
		}
		fmt.Fprintf(other, `{"id":%d,"level":"info"}`+"\n", id) // a log line
		fmt.Fprintf(other, form+"\n", id)
		o := <-call
		if _, ok := errors.AsType[*ParseError](o.err); !ok {
			t.Errorf("%s: %s, %v", form, o.result, o.err)
		}
	}
	fmt.Fprintln(other, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if o := <-bystander; o.err != nil {
		t.Error(o.err)
	}
	if stats := p.Stats(); stats.Garbage != 51 || stats.BadAnswers+stats.LateAnswers != 0 {
		t.Errorf("%+v", stats)
	}
}

// Row 12: a server that does not read costs its callers their deadline and
// nobody anything else.
func TestFaultDeafServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes := make(chan string, 1)
		p, other := onStream(t, handlerFuncs{notification: func(_ context.Context, n *Notification) { notes <- n.Method }}, nil, nil)
		params := json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				if _, err := p.Call(t.Context(), Call{Method: "m", Params: params, Timeout: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		call := background(ctx, p, Call{Method: "m", Params: params})
		synctest.Wait()
		cancel()
		if o := <-call; o.err != context.Canceled {
			t.Error(o.err)
		}
		fmt.Fprintln(other, note("still heard"))
		if method := <-notes; method != "still heard" {
			t.Error(method)
		}
		callers.Wait()
		if p.Err() != nil {
			t.Error(p.Err())
		}
	})
}

func TestFaultDeafChild(t *testing.T) {
	heard := make(chan struct{}, 1)
	p := NewPeer(startChild(t, "deaf"), nil, &PeerOptions{OnGarbage: func(*Garbage) { heard <- struct{}{} }})
	defer p.Close()
	<-heard
	params := json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			if _, err := p.Call(t.Context(), Call{Method: "m", Params: params, Timeout: 50 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	callers.Wait()
}

// Row 13: a child that closes its output fails the pending calls at once,
// though it lives.
func TestFaultChildClosesStdout(t *testing.T) {
	p := NewPeer(startChild(t, "closes stdout"), nil, nil)
	defer p.Close()
	if _, err := p.Call(t.Context(), Call{Method: "m"}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-p.Done()
}

// Row 14: a child that closes its input fails the call that cannot be written.
func TestFaultChildClosesStdin(t *testing.T) {
	heard := make(chan struct{}, 1)
	p := NewPeer(startChild(t, "closes stdin"), nil, &PeerOptions{OnGarbage: func(*Garbage) { heard <- struct{}{} }})
	defer p.Close()
	<-heard
	if _, err := p.Call(t.Context(), Call{Method: "m"}); !errors.Is(err, ErrClosed) || !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	<-p.Done()
}

// A server answers what it cannot read, if it wants to.
func TestReplyInvalid(t *testing.T) {
	_, other := onStream(t, echo{}, &PeerOptions{ReplyInvalid: true}, &StreamOptions{MaxMessage: 1000})
	answers := newLineReader(other.r, 1000)
	for _, c := range []struct{ sent, answer string }{
		{"nonsense", `"id":null,"error":{"code":-32700,"message":"not valid JSON: not a JSON value at byte 0"}`},
		{`{"jsonrpc":"2.0","id":7,"method":1}`, `"id":7,"error":{"code":-32600,"message":"not a valid message: method is not a name"}`},
		{strings.Repeat("x", 1001), `"id":null,"error":{"code":-32600,"message":"not a valid message: message is over the size limit"}`},
		{`{"jsonrpc":"2.0","id":8,"method":"m","params":{"a":1}}`, `"id":8,"result":{"a":1}`},
	} {
		fmt.Fprintln(other, c.sent)
		line, _, err := answers.next()
		if want := `{"jsonrpc":"2.0",` + c.answer + `}`; err != nil || string(line) != want {
			t.Errorf("got %s, %v\nwant %s", line, err, want)
		}
	}
}

func TestChildOfOurOwn(t *testing.T) {
	p := NewPeer(startChild(t, "wire"), nil, nil)
	defer p.Close()
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for j := range 50 {
				params := fmt.Sprintf(`{"i":%d,"s":"%s"}`, i, strings.Repeat("y", j*j*10))
				result, err := p.Call(t.Context(), Call{Method: "echo", Params: json.RawMessage(params)})
				if err != nil || string(result) != params {
					t.Errorf("%.50s, %v", result, err)
				}
			}
		})
	}
	callers.Wait()
}
