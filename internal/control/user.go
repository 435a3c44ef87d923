package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay"
)

// user is the person on whose behalf a host is called here.
type user struct{ host *patchbay.Host }

// session opens a session of the person's, for one request: one that stayed open
// would claim connections that agents could have. It uses whichever there are. If the person can be asked
// during it, servers are told so. It allows what no rule is about: who asks here
// is the user, and has decided.
func (u user) session(present bool) (*patchbay.Session, error) {
	o := patchbay.SessionOptions{Name: "control", Default: patchbay.Allow, AnyConnection: true}
	if present {
		o.Name, o.Client = "terminal", &patchbay.Client{Elicit: elicitRaw, Confirm: confirm}
	}
	return u.host.NewSession(o)
}

// UI is how a host that is used through this package reaches a person: whoever
// makes the call. Elicit declares to all servers that a person can be asked; a
// host that has other users too leaves it out, and such calls use connections of
// their own.
func UI(elicits bool) *patchbay.UI {
	ui := &patchbay.UI{Confirm: confirm}
	if elicits {
		ui.Elicit = elicit
	}
	return ui
}

// confirm asks the person who makes a call whether it may go ahead.
func confirm(ctx context.Context, r patchbay.ConfirmRequest) (bool, error) {
	a, ok := ctx.Value(askerKey{}).(*asker)
	if !ok || !a.confirms {
		return false, &patchbay.Error{Kind: patchbay.KindDenied, Message: "MCPTool requires permission.", Hint: r.Tool.Name + ": " + r.Decision.Reason}
	}
	answer, err := a.ask(ctx, event{Confirm: &r})
	return answer.Confirmed, err
}

// elicit asks the person whose call made a server ask.
func elicit(ctx context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
	a, ok := ctx.Value(askerKey{}).(*asker)
	if !ok || !a.elicits {
		return patchbay.ElicitResult{Action: patchbay.ElicitCancel}, nil
	}
	answer, err := a.ask(ctx, event{Elicit: &r})
	return answer.Elicited, err
}

// elicitRaw is elicit with the params and the result of the protocol.
func elicitRaw(ctx context.Context, server string, params json.RawMessage) (json.RawMessage, error) {
	r, err := patchbay.NewElicitRequest(server, params)
	if err != nil {
		return nil, err
	}
	result, err := elicit(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// callTool answers a call, with everything that comes before its result.
func (u user) callTool(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	if err := out.EnableFullDuplex(); err != nil {
		answer(w, nil, err)
		return
	}
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	var req callRequest
	if err := in.Decode(&req); err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/json-seq")
	w.Header().Set("Cache-Control", "no-store")
	ctx, hangUp := context.WithCancelCause(r.Context())
	defer hangUp(nil)
	a := &asker{
		events: events{w: w, flush: out.Flush}, confirms: req.Confirm, elicits: req.Elicit,
		waiting: map[int64]chan reply{},
	}
	var listening sync.WaitGroup
	defer listening.Wait() // for the client to end its side, which it does when it has the result
	listening.Go(func() {
		if err := a.listen(in); err != nil {
			hangUp(err)
		}
	})
	a.events.finish(u.call(context.WithValue(ctx, askerKey{}, a), req, a))
}

func (u user) call(ctx context.Context, req callRequest, a *asker) (CallResult, error) {
	s, err := u.session(req.Elicit)
	if err != nil {
		return CallResult{}, err
	}
	defer s.Close()
	if req.Progress {
		req.Call.Progress = func(params json.RawMessage) { a.events.send(event{Progress: params}) }
	}
	result, err := s.Call(ctx, req.Call)
	if err != nil {
		return CallResult{}, err
	}
	out := CallResult{Tool: result.Tool, Raw: result.Raw}
	if req.Model {
		if out.Model, err = result.ForModel(); err != nil {
			return CallResult{}, err
		}
		out.Model.Content, out.Model.Structured = nil, nil // they are in Raw; see complete
	}
	return out, nil
}

// events writes what a client is sent.
type events struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	flush func() error
}

// send sends one event. A client that has gone ends the call.
func (e *events) send(v event) {
	data, err := encode(v)
	if err == nil {
		e.write(data, []byte("\n"))
	}
}

func (e *events) write(pieces ...[]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range pieces {
		if _, err := e.w.Write(p); err != nil {
			return
		}
	}
	_ = e.flush() // the next write will say
}

// finish sends the last event. The result of the tool, which may be long, comes
// after it as it is: nobody has to read it as JSON on the way.
func (e *events) finish(r CallResult, err error) {
	raw := r.Raw
	r.Raw = nil
	last := event{Result: &r, Size: len(raw)}
	if err != nil {
		last = event{Error: asError(err)}
	}
	data, err := encode(last)
	if err != nil {
		return // which ends the stream without an end
	}
	e.write(data, []byte("\n"), raw)
}

// encode is json.Marshal that leaves raw JSON as it is.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

type askerKey struct{}

// asker asks the person at the other end of a call.
type asker struct {
	events            events
	confirms, elicits bool

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan reply
}

var errNoAnswer = errors.New("the question was not answered")

// ask sends a question and waits for its answer.
func (a *asker) ask(ctx context.Context, q event) (reply, error) {
	answer := make(chan reply, 1)
	a.mu.Lock()
	a.last++
	q.Question = a.last
	a.waiting[q.Question] = answer
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, q.Question)
		a.mu.Unlock()
	}()
	a.events.send(q)
	select {
	case r := <-answer:
		if r.Error != "" {
			return reply{}, errors.New(r.Error)
		}
		return r, nil
	case <-ctx.Done():
		a.events.send(event{Withdrawn: q.Question})
		return reply{}, errNoAnswer
	}
}

// listen takes answers until the client ends its side. An error means that the
// client has gone.
func (a *asker) listen(in *json.Decoder) error {
	for {
		var r reply
		if err := in.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		a.mu.Lock()
		if answer := a.waiting[r.Question]; answer != nil {
			delete(a.waiting, r.Question)
			answer <- r
		}
		a.mu.Unlock()
	}
}
