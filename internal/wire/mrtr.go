package wire

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Multi round-trip requests: how a modern server asks its client. The call is
// answered at once with what is asked and a requestState, and waits, parked,
// for the client to send the same request again with the answers (parking.go).

const (
	askGrace = 10 * time.Millisecond // for what is asked together to come together
	maxAsks  = 64                    // open in one call
)

// MayAskBack reports whether a modern request may be answered with questions.
func MayAskBack(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// mayAsk reports whether the job may have something to ask: only then it needs a
// goroutine of its own.
func (j *job) mayAsk(method string) bool {
	return MayAskBack(method) &&
		(j.own.Supports("elicitation") || j.own.Supports("sampling") || j.own.Supports("roots"))
}

// An ask is one question to the client.
type ask struct {
	key    string
	method string
	params json.RawMessage
	answer chan json.RawMessage // capacity 1; closed if nobody can answer
}

// ask waits for the client's answer to one question.
func (j *job) ask(ctx context.Context, q Call) (json.RawMessage, error) {
	if !MayAskBack(j.req.Method) {
		return nil, Errorf(CodeInternal, "%s cannot ask the client in this protocol revision", j.req.Method)
	}
	switch q.Method {
	case "elicitation/create", "sampling/createMessage", "roots/list":
	default:
		return nil, Errorf(CodeInternal, "%s cannot be asked in this protocol revision", q.Method)
	}
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	j.mu.Lock()
	if len(j.asks) >= maxAsks {
		j.mu.Unlock()
		return nil, Errorf(CodeOverloaded, "more than %d questions at once", maxAsks)
	}
	a := &ask{key: j.newKey(ctx), method: q.Method, params: q.Params, answer: make(chan json.RawMessage, 1)}
	j.asks = append(j.asks, a)
	wake := j.wake
	j.mu.Unlock()
	wake.wake()
	select {
	case answer, ok := <-a.answer:
		if !ok {
			return nil, Errorf(CodeOverloaded, "too many calls wait for their client")
		}
		return answer, nil
	case <-ctx.Done():
		j.withdraw(a)
		return nil, context.Cause(ctx)
	case <-j.ctx.Done():
		return nil, context.Cause(j.ctx)
	}
}

// newKey names a question: as the server does for whom it is asked, if that can
// be told and no open one is named so. j.mu is held.
func (j *job) newKey(ctx context.Context) string {
	key, _ := ctx.Value(inputKey{}).(string)
	for key == "" || slices.ContainsFunc(j.asks, func(a *ask) bool { return a.key == key }) {
		j.asked++
		key = strconv.Itoa(j.asked)
	}
	return key
}

func (j *job) withdraw(a *ask) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.asks, a); i >= 0 {
		j.asks = slices.Delete(j.asks, i, i+1)
	}
}

// asksClient reports whether there is something to ask.
func (j *job) asksClient() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.asks) > 0 && !j.finished
}

// inputRequired is the answer that asks. A call that has nothing to ask, any
// more, gets one without questions: the client then just comes back.
func (j *job) inputRequired(state string) json.RawMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []byte(`{"resultType":"` + ResultInputRequired + `",`)
	for i, a := range j.asks {
		if i == 0 {
			out = append(out, `"inputRequests":{`...)
		} else {
			out = append(out, ',')
		}
		out = append(AppendString(out, a.key), `:{"method":`...)
		out = AppendString(out, a.method)
		out = append(out, `,"params":`...)
		if a.params == nil {
			out = append(out, "{}"...)
		}
		out = append(append(out, a.params...), '}')
		if i == len(j.asks)-1 {
			out = append(out, "},"...)
		}
	}
	out = append(out, `"requestState":`...)
	return append(AppendString(out, state), '}')
}

// check reports what is wrong with the answers of a client, before anybody gets
// them.
func (j *job) check(responses json.RawMessage) *Error {
	if responses == nil {
		return nil
	}
	if !IsObject(responses) {
		return Errorf(CodeInvalidParams, "inputResponses is not an object")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		if answer, ok := Member(responses, a.key); ok && !IsObject(answer) {
			return Errorf(CodeInvalidParams, "inputResponses member %q is not an object", a.key)
		}
	}
	return nil
}

// take gives the answers of a client to those who asked. Keys that nobody asked
// for are ignored, and what is not answered stays asked.
func (j *job) take(responses json.RawMessage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := j.asks[:0:0]
	for _, a := range j.asks {
		if answer, ok := Member(responses, a.key); ok {
			a.answer <- answer
		} else {
			open = append(open, a)
		}
	}
	j.asks = open
}

// refuseAsks tells those who asked that nobody will answer.
func (j *job) refuseAsks() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		close(a.answer)
	}
	j.asks = nil
}
