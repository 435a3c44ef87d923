package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// bothEras declares a server of each era: the older one sends its questions as
// requests, the newer one answers with them.
func bothEras() map[string]config.Server {
	return map[string]config.Server{"older": scripted("-discover=unknown"), "newer": scripted()}
}

// Row 41: each question of a server is answered once, by the person of the
// session whose call it belongs to.
func TestQuestions(t *testing.T) {
	leavesNothing(t)
	var asked atomic.Int32
	h := withServers(t, bothEras(), func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			switch asked.Add(1) % 3 {
			case 1:
				return patchbay.ElicitResult{Action: "accept", Content: json.RawMessage(`{}`)}, nil
			case 2:
				return patchbay.ElicitResult{}, errors.New("the window was closed")
			}
			panic("no such window")
		}}
	})
	for name := range bothEras() {
		awaitState(t, h, name, config.Connected)
		if got := say(t, anyone(t, h), name+".ask", `{"count":3}`); got != "accept cancel cancel" {
			t.Errorf("%s: %q", name, got)
		}
		own := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
			Elicit: func(_ context.Context, server string, _ json.RawMessage) (json.RawMessage, error) {
				if server != name {
					t.Errorf("the question of %s is said to be of %s", name, server)
				}
				return json.RawMessage(`{"action":"decline"}`), nil
			},
		}})
		if got := say(t, own, name+".ask", `{"count":1}`); got != "decline" {
			t.Errorf("%s, asked of the session: %q", name, got)
		}
	}
}

// growing is a server each process of which learns a tool of its own.
type growing struct{}

func (growing) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "growing", Version: "1"}, nil)
	says := func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "grown"}}}, nil, nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(s, &mcp.Tool{Name: "grown"}, says)
		return &mcp.CallToolResult{}, nil, nil
	})
	return patchbay.FromSDK(s).Serve(ctx, rw)
}

// A session sees what its own process of a server offers, also if another stands
// for the server.
func TestListsOfASession(t *testing.T) {
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"plant": growing{}}
	h := c.open()
	call := func(s *patchbay.Session, tool string) error {
		_, err := s.Call(t.Context(), patchbay.Call{Tool: tool})
		return err
	}
	if err := h.Connect(t.Context(), "plant"); err != nil {
		t.Fatal(err)
	}
	first := anyone(t, h)
	changed := make(chan patchbay.Lists, 10)
	other := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Capabilities: json.RawMessage(`{"roots":{}}`),
		Changed:      func(l patchbay.Lists) { changed <- l },
	}})
	if err := call(other, "plant.grow"); err != nil {
		t.Fatal(err)
	}
	for l := range changed {
		if l.Tools {
			break
		}
	}
	if err := call(other, "plant.grown"); err != nil {
		t.Errorf("where it grew: %v", err)
	}
	if err := call(first, "plant.grown"); kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("elsewhere: %v", err)
	}
}

// What a connection arranges for itself is none of a session's business.
func TestOwnSubscriptionIsNotTold(t *testing.T) {
	r, h := newRecorder(t, nil)
	heard := make(chan string, 10)
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		Capabilities: json.RawMessage(`{"roots":{}}`), // for which there is no connection yet
		Roots:        func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"roots":[]}`), nil },
		Notified:     func(_ context.Context, _, method string, _ json.RawMessage) { heard <- method },
	}})
	for range 2 { // what came before the second answer has been heard
		if _, err := s.Call(t.Context(), patchbay.Call{Tool: "srv.show"}); err != nil {
			t.Fatal(err)
		}
		<-r.params
		<-r.records
	}
	s.Close()
	close(heard)
	for method := range heard {
		t.Errorf("the session was told %s", method)
	}
}

// Row 41: a question that nobody answers ends with the call, and nobody hangs.
func TestQuestionWithoutAnswer(t *testing.T) {
	leavesNothing(t)
	asked, gaveUp := make(chan struct{}, 1), make(chan struct{}, 1)
	h := withServers(t, bothEras(), func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Elicit: func(ctx context.Context, _ patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			asked <- struct{}{}
			<-ctx.Done()
			gaveUp <- struct{}{}
			return patchbay.ElicitResult{}, ctx.Err()
		}}
	})
	s := anyone(t, h)
	for name := range bothEras() {
		awaitState(t, h, name, config.Connected)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.Call(ctx, patchbay.Call{Tool: name + ".ask", Arguments: json.RawMessage(`{"count":1}`)})
			done <- err
		}()
		<-asked
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		<-gaveUp
		if got := say(t, s, name+".echo", `{"text":"hi"}`); got != "hi" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A function that never returns holds up neither a server nor the end of the
// host.
func TestFunctionThatNeverReturns(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	h := withServers(t, map[string]config.Server{"srv": scripted("-discover=unknown")}, func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Elicit: func(context.Context, patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			asked <- struct{}{}
			<-release
			return patchbay.ElicitResult{Action: "accept"}, nil
		}}
	})
	s := anyone(t, h)
	awaitState(t, h, "srv", config.Connected)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.Call(ctx, patchbay.Call{Tool: "srv.ask", Arguments: json.RawMessage(`{"count":1}`)})
			done <- err
		}()
		<-asked
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if got := say(t, s, "srv.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("got %q", got)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// Row 41: a server that asks although nobody has said that it may gets an answer
// and does not hang.
func TestQuestionNobodyOffered(t *testing.T) {
	leavesNothing(t)
	h := withServers(t, bothEras(), nil)
	s := anyone(t, h)
	awaitState(t, h, "older", config.Connected)
	awaitState(t, h, "newer", config.Connected)
	if got := say(t, s, "older.ask", `{"count":1}`); got != "cancel" {
		t.Errorf("got %q", got)
	}
	_, err := s.Call(t.Context(), patchbay.Call{Tool: "newer.ask", Arguments: json.RawMessage(`{"count":1}`)})
	if err == nil || !strings.Contains(err.Error(), "elicitation/create, which this client does not offer") {
		t.Errorf("got %v", err)
	}
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // has room for one
}

func newLogged() *logged { return &logged{more: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// await waits until a text has been logged.
func (l *logged) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatalf("%q was never logged", text)
		}
	}
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Row 43: a panic in any function that the embedding program brings fails what
// it was called for, goes to the log with its stack, and nothing else happens.
func TestPanics(t *testing.T) {
	leavesNothing(t)
	log := newLogged()
	var where atomic.Value
	where.Store("")
	blow := func(place string) {
		if where.Load() == place {
			panic("boom in " + place)
		}
	}
	server := notes()
	mcp.AddTool(server, &mcp.Tool{Name: "act"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		blow("tool")
		_ = r.Session.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(server)}
	c.opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	c.opts.UI = &patchbay.UI{Confirm: func(context.Context, patchbay.ConfirmRequest) (bool, error) { blow("confirm"); return true, nil }}
	c.opts.Hooks = &patchbay.Hooks{
		BeforeCall: func(context.Context, *patchbay.HookCall) error { blow("before"); return nil },
		AfterCall: func(_ context.Context, _ *patchbay.HookCall, r *patchbay.Result) (*patchbay.Result, error) {
			blow("after")
			if where.Load() == "nothing" {
				return nil, nil
			}
			return r, nil
		},
	}
	h := c.open()
	s := session(t, h, patchbay.SessionOptions{Client: &patchbay.Client{Changed: func(patchbay.Lists) { blow("changed") }}})
	if err := h.Connect(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	call := func() (*patchbay.Result, error) {
		out := s.Batch(t.Context(), []patchbay.Call{{Tool: "notes.act", Progress: func(json.RawMessage) { blow("progress") }}})
		return out[0].Result, out[0].Err
	}
	for place, want := range map[string]string{
		"confirm": "UI.Confirm panicked",
		"before":  "mcp__notes__act was refused: Hooks.BeforeCall panicked",
		"after":   "The result of mcp__notes__act was refused: Hooks.AfterCall panicked",
		"nothing": "The result of mcp__notes__act was refused: the hook returned nothing",
		"tool":    "the handler panicked",
	} {
		where.Store(place)
		if _, err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", place, err)
		}
	}
	where.Store("progress")
	if r, err := call(); modelText(t, r, err) != "done" {
		t.Error("a panic of Progress fails the call")
	}
	where.Store("changed")
	if err := h.Apply(t.Context(), map[string]config.Server{"other": scripted()}); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "other"); err != nil { // so that it has tools
		t.Fatal(err)
	}
	log.await(t, "boom in changed")
	where.Store("")
	if r, err := call(); modelText(t, r, err) != "done" {
		t.Error("the session does not go on")
	}
	for _, place := range []string{"confirm", "before", "after", "tool", "progress", "changed"} {
		if !strings.Contains(log.String(), "boom in "+place) {
			t.Errorf("the log has nothing of %s", place)
		}
	}
	if !strings.Contains(log.String(), "ask_test.go") {
		t.Error("the log has no stack")
	}
}

// Who is told of a change may look at what changed, and a change that takes its
// time holds up no call.
func TestChangesHoldUpNobody(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.InProcess = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
	c.write(filepath.Join(c.project, ".mcp.json"), projectServer)
	var slow atomic.Bool
	entered, leave := make(chan struct{}), make(chan struct{})
	c.opts.Now = func() time.Time {
		if slow.Load() {
			entered <- struct{}{}
			<-leave
		}
		return time.Now()
	}
	h := c.open()
	tools := make(chan int, 100)
	var s *patchbay.Session
	ready := make(chan struct{})
	s = session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{Changed: func(patchbay.Lists) {
		<-ready
		tools <- len(s.Tools())
	}}})
	close(ready)
	if err := h.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Connect(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	for n := range tools {
		if n > 0 {
			break
		}
	}

	request, err := h.Approval("tool")
	if err != nil {
		t.Fatal(err)
	}
	approved := make(chan error)
	slow.Store(true)
	go func() {
		_, err := h.Approve(t.Context(), "tool", request.Hash)
		approved <- err
	}()
	<-entered
	slow.Store(false)
	if got := say(t, s, "notes.echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("got %q", got)
	}
	if st, err := h.Server("tool"); err != nil || st.State != config.NeedsApproval {
		t.Errorf("%s, %v", st.State, err)
	}
	close(leave)
	if err := <-approved; err != nil {
		t.Error(err)
	}
}
