package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A call is a conversation: the client sends the call and, as long as there is a
// person, the answers to what the host asks; the host sends progress, questions
// and in the end the result. Each is a JSON value of its own.

// CallOptions say what a caller wants to know, and to be asked, besides the
// result.
type CallOptions struct {
	Model bool // the form of the result for a model

	// Confirm and Elicit ask the person who calls; nil means that there is
	// nobody. They are called from several goroutines, and must return when ctx
	// ends: nobody waits for the answer any more.
	Confirm func(ctx context.Context, r patchbay.ConfirmRequest) (bool, error)
	Elicit  func(ctx context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error)
}

// CallResult is the answer of a tool.
type CallResult struct {
	Tool  patchbay.Tool        `json:"tool"`
	Raw   json.RawMessage      `json:"raw,omitempty"`
	Model patchbay.ModelResult `json:"model,omitzero"` // if it was asked for
}

// IsError reports whether the tool itself says that it failed.
func (r CallResult) IsError() bool {
	v, _ := wire.Member(r.Raw, "isError")
	return string(v) == "true"
}

// callRequest is the first thing a client sends.
type callRequest struct {
	patchbay.Call
	Model    bool `json:"model,omitempty"`
	Progress bool `json:"progress,omitempty"` // is wanted
	Confirm  bool `json:"confirm,omitempty"`  // there is somebody to ask
	Elicit   bool `json:"elicit,omitempty"`
}

// reply is the answer to a question.
type reply struct {
	Question  int64                 `json:"question"`
	Confirmed bool                  `json:"confirmed,omitempty"`
	Elicited  patchbay.ElicitResult `json:"elicited,omitzero"`
	Error     string                `json:"error,omitempty"`
}

// event is one of the things a host sends. The last has an error, or a result
// without its raw form, which follows on a new line as it is.
type event struct {
	Progress  json.RawMessage          `json:"progress,omitempty"`
	Question  int64                    `json:"question,omitempty"` // its number; what follows is the question
	Confirm   *patchbay.ConfirmRequest `json:"confirm,omitempty"`
	Elicit    *patchbay.ElicitRequest  `json:"elicit,omitempty"`
	Withdrawn int64                    `json:"withdrawn,omitempty"` // the question that needs no answer any more
	Error     *patchbay.Error          `json:"error,omitempty"`
	Result    *CallResult              `json:"result,omitempty"`
	Size      int                      `json:"size,omitempty"` // of the raw form
}

// Call calls a tool. Progress goes to the call's own function, if it has one.
func (c *Client) Call(ctx context.Context, call patchbay.Call, opts CallOptions) (CallResult, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	body, w := io.Pipe()
	t := &talk{opts: opts, w: w, asked: map[int64]context.CancelFunc{}}
	defer t.end()
	req, err := newRequest(ctx, "POST", "/v1/call", body)
	if err != nil {
		return CallResult{}, err
	}
	first := callRequest{
		Call: call, Model: opts.Model, Progress: call.Progress != nil, Confirm: opts.Confirm != nil, Elicit: opts.Elicit != nil,
	}
	t.work.Go(func() {
		t.send(first)
		if !first.Confirm && !first.Elicit {
			w.Close()
		}
	})
	resp, err := c.send(req)
	if err != nil {
		return CallResult{}, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(io.LimitReader(resp.Body, maxResponse)); ; {
		var e event
		if err := dec.Decode(&e); err != nil {
			return CallResult{}, lost(ctx, err)
		}
		switch {
		case e.Error != nil:
			return CallResult{}, e.Error
		case e.Result != nil:
			err := e.Result.complete(io.MultiReader(dec.Buffered(), resp.Body), e.Size)
			if ctx.Err() != nil { // what came after the caller gave up may be due to that
				err = context.Cause(ctx)
			}
			return *e.Result, lost(ctx, err)
		case e.Question != 0:
			t.ask(ctx, e)
		case e.Withdrawn != 0:
			t.withdraw(e.Withdrawn)
		case call.Progress != nil:
			call.Progress(e.Progress)
		}
	}
}

// lost is the error of a call whose result never came.
func lost(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &patchbay.Error{
		Kind: patchbay.KindTransport, Message: "The daemon ended before it answered: " + err.Error() + ".",
		Hint: "The call may have been carried out; look before trying again.",
	}
}

// complete adds the raw form of a result, and to the form for a model what is in
// both and was sent once.
func (r *CallResult) complete(rest io.Reader, size int) error {
	if size < 0 || size > maxResponse {
		return errors.New("the result is too long")
	}
	raw := make([]byte, len("\n")+size)
	if _, err := io.ReadFull(rest, raw); err != nil {
		return err
	}
	r.Raw = raw[len("\n"):]
	if r.Model.Tool != "" {
		r.Model.Content, _ = wire.Member(r.Raw, "content")
		r.Model.Structured, _ = wire.Member(r.Raw, "structuredContent")
	}
	return nil
}

// talk is the caller's side of a conversation.
type talk struct {
	opts CallOptions
	work sync.WaitGroup

	sending sync.Mutex
	w       *io.PipeWriter

	mu    sync.Mutex
	asked map[int64]context.CancelFunc
}

// send sends a value. If nobody takes it, the answer to the call says why.
func (t *talk) send(v any) {
	t.sending.Lock()
	defer t.sending.Unlock()
	_ = json.NewEncoder(t.w).Encode(v)
}

// ask asks the person, while the conversation goes on.
func (t *talk) ask(ctx context.Context, e event) {
	ctx, stop := context.WithCancel(ctx)
	t.mu.Lock()
	t.asked[e.Question] = stop
	t.mu.Unlock()
	t.work.Go(func() {
		defer t.withdraw(e.Question)
		r := reply{Question: e.Question}
		err := errors.New("nobody can answer that")
		switch {
		case e.Confirm != nil && t.opts.Confirm != nil:
			r.Confirmed, err = t.opts.Confirm(ctx, *e.Confirm)
		case e.Elicit != nil && t.opts.Elicit != nil:
			r.Elicited, err = t.opts.Elicit(ctx, *e.Elicit)
		}
		if err != nil {
			r.Error = err.Error()
		}
		t.send(r)
	})
}

// withdraw ends the asking of a question.
func (t *talk) withdraw(question int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stop := t.asked[question]; stop != nil {
		stop()
		delete(t.asked, question)
	}
}

// end ends the conversation and waits for everything that belongs to it.
func (t *talk) end() {
	t.mu.Lock()
	for _, stop := range t.asked {
		stop()
	}
	t.mu.Unlock()
	t.w.Close()
	t.work.Wait()
}
