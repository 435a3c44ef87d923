package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

// attacked is a site whose memory is nearly as small as can be, and one client
// that wants to be served there.
type attacked struct {
	*site
	t     *testing.T
	limit int
	most  atomic.Int64 // that was ever in use
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	h := newTestHandler()
	h.tools["large"] = func(context.Context, *Request) (json.RawMessage, error) {
		return textResult(strings.Repeat("x", 5<<20)), nil // more than sockets hold
	}
	h.tools["chatty"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		for i := range 20 {
			params := fmt.Appendf(nil, `{"progressToken":1,"progress":%d,"message":%q}`, i, strings.Repeat("x", 10<<10))
			if err := r.Link.Notify(ctx, "notifications/progress", params); err != nil {
				return nil, err
			}
		}
		return textResult("done"), nil
	}
	const limit = 16 << 20
	a := &attacked{t: t, limit: limit}
	a.site = newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{Budget: NewBudget(limit), MaxCalls: 1000, MaxQueued: 1000, MaxSessions: 1000, MaxOwn: 1000})
	watched, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for watched.Err() == nil {
			if n := a.used(); n > a.most.Load() {
				a.most.Store(n)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		if most := a.most.Load(); most > limit+limit/4 {
			t.Errorf("%d bytes were in use, of %d", most, limit)
		}
	})
	return a
}

func (a *attacked) used() int64 {
	b := a.handler.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// send opens a connection, writes to it and leaves it at that.
func (a *attacked) send(text string) net.Conn {
	a.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(c, text); err != nil {
		a.t.Fatal(err)
	}
	return c
}

// served has the client served. How soon, the attacks of `make long` measure.
func (a *attacked) served(when string) {
	a.t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, _ := http.NewRequest(http.MethodPost, a.url, strings.NewReader(callText(true, "hello")))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, headerVersion: {Version20260728}, headerMethod: {"tools/call"}, headerName: {"echo"}}
	resp, err := client.Do(r)
	if err != nil {
		a.t.Fatalf("%s: %v", when, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "hello") {
		a.t.Errorf("%s: %s %.200s", when, resp.Status, body)
	}
}

// makesRoom has a call with a large answer served, for which slow clients have
// to make room. That may be refused once: they are not slow yet.
func (a *attacked) makesRoom(text, tool string, size int64) {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(stallTime) {
		resp := a.post(a.t, text, headerVersion, Version20260728, headerMethod, "tools/call", headerName, tool)
		n, err := io.Copy(io.Discard, resp.Body)
		switch {
		case resp.StatusCode == http.StatusServiceUnavailable && time.Now().Before(end):
			continue
		case resp.StatusCode != http.StatusOK || n < size || err != nil:
			a.t.Errorf("a large call: %s, %d bytes, %v", resp.Status, n, err)
		}
		return
	}
}

// modernCall is a call of a tool as bytes on a connection.
func modernCall(tool string, size int) string {
	text := strings.ReplaceAll(callText(true, strings.Repeat("x", size)), `"echo"`, `"`+tool+`"`)
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"%s: %s\r\n%s: tools/call\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", headerVersion, Version20260728, headerMethod, headerName, tool, len(text), text)
}

// Clients that call for large answers and do not read them cost no more than
// there is, and nobody else waits for them.
func TestUnderAttackBySlowReaders(t *testing.T) {
	a := newAttacked(t)
	for i := range 40 {
		a.send(modernCall("large", 1))
		if i%10 == 9 {
			a.served(fmt.Sprint(i, " slow readers"))
		}
	}
	a.served("slow readers")
	a.makesRoom(strings.ReplaceAll(callText(true, "x"), `"echo"`, `"large"`), "large", 5<<20)
}

// Nor do clients that announce much and send little.
func TestUnderAttackBySlowSenders(t *testing.T) {
	a := newAttacked(t)
	whole := modernCall("echo", 3<<20)
	for i := range 40 {
		a.send(whole[:1<<20])
		if i%10 == 9 {
			a.served(fmt.Sprint(i, " slow senders"))
		}
	}
	a.served("slow senders")
	a.makesRoom(callText(true, strings.Repeat("x", 2<<20)), "echo", 2<<20)
}

// What is kept for clients that may come back goes when there is no room for it,
// and who comes back is told.
func TestUnderAttackByKeptStreams(t *testing.T) {
	a := newAttacked(t)
	var first, last string
	for i := range 150 { // of 200 KiB each
		resp := a.post(t, initializeText)
		session := resp.Header.Get(headerSession)
		text := strings.ReplaceAll(callText(false, "x"), `"echo"`, `"chatty"`)
		resp = a.post(t, text, headerSession, session, headerVersion, Version20251125, "Accept", "text/event-stream")
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "done") {
			t.Fatalf("session %d: %.200s %v", i, body, err)
		}
		resp.Body.Close()
		if i == 0 {
			first = session
		}
		last = session
	}
	a.served("kept streams")
	come := func(session string) (int, string) {
		r, _ := http.NewRequest(http.MethodGet, a.url, nil)
		r.Header = http.Header{"Accept": {"text/event-stream"}, headerSession: {session}, headerVersion: {Version20251125}, headerLastEventID: {"1-15"}}
		resp, err := a.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		line, _ := bufio.NewReader(resp.Body).ReadString('\n')
		return resp.StatusCode, line
	}
	if status, text := come(first); status != http.StatusBadRequest || !strings.Contains(text, "nothing is kept") {
		t.Errorf("who comes back for what was dropped gets %d %s", status, text)
	}
	if status, text := come(last); status != http.StatusOK || !strings.HasPrefix(text, "id: 1-16") {
		t.Errorf("who comes back for what is kept gets %d %s", status, text)
	}
}

// A stream that is kept has nothing in memory but what it counts.
func TestKeptStreamLetsGo(t *testing.T) {
	var ex exchange
	ex.resumable = true
	ex.init(1, accepted{stream: true})
	r := ex.attach()
	ex.start()
	result := new([2 * maxUnsent]byte)
	copy(result[:], `{"content":[]}`+strings.Repeat(" ", len(result)))
	there := weak.Make(result)
	ex.finish(Message{ID: NumberID(1), Result: result[:]})
	if batch, state, _ := ex.take(r, nil); state != streamEnded || len(batch) == 0 {
		t.Fatalf("%d events, state %d", len(batch), state)
	}
	runtime.GC()
	if kept, _ := ex.remains(); there.Value() != nil {
		t.Errorf("the stream says that it keeps %d bytes, and has a result of %d", kept, len(result))
	}
	runtime.KeepAlive(&ex)
}

// What was counted in is counted out.
func TestBudgetIsGivenBack(t *testing.T) {
	a := newAttacked(t)
	conns := []net.Conn{a.send(modernCall("large", 1)), a.send(modernCall("echo", 1<<20)[:100<<10]), a.send(modernCall("chatty", 1))}
	a.served("others")
	resp := a.post(t, initializeText)
	session := resp.Header.Get(headerSession)
	resp = a.post(t, strings.ReplaceAll(callText(false, "x"), `"echo"`, `"chatty"`), headerSession, session, headerVersion, Version20251125, "Accept", "text/event-stream")
	_, _ = io.Copy(io.Discard, resp.Body)
	if a.used() == 0 {
		t.Error("nothing is in use")
	}
	for _, c := range conns {
		c.Close()
	}
	r, _ := http.NewRequest(http.MethodDelete, a.url, nil)
	r.Header = http.Header{headerSession: {session}, headerVersion: {Version20251125}}
	if _, err := a.client.Do(r); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); a.used() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are in use for nobody", a.used())
		}
	}
}

// post sends a message of the legacy era; header are names and values by turns.
func (a *attacked) post(t *testing.T, text string, header ...string) *http.Response {
	t.Helper()
	r, _ := http.NewRequest(http.MethodPost, a.url, strings.NewReader(text))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := a.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}
