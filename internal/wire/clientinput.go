package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Multi round-trip requests, the client's part: a modern server that needs
// something answers input_required, and the client sends the request again with
// what the server asked for.

const (
	maxInputRounds = 10 // requests that one call may take
	maxLoadSheds   = 3  // of them, those for which the server asked nothing but patience
	loadShedPause  = 100 * time.Millisecond
)

// callWithInput makes a call and provides the input that the server asks for.
func (c *Client) callWithInput(ctx context.Context, call Call) (json.RawMessage, error) {
	original := call.Params
	sheds := 0
	for range maxInputRounds {
		result, err := c.callModern(ctx, call)
		if err != nil {
			return nil, err
		}
		if kind, _ := Member(result, "resultType"); !isString(kind, ResultInputRequired) {
			return result, nil
		}
		if err := Valid(result, Limits{Size: len(result)}); err != nil { // what is asked is judged
			return nil, fmt.Errorf("what the server asks for is invalid: %w", err)
		}
		requests, asked := Member(result, "inputRequests")
		state, hasState := Member(result, "requestState")
		if !asked && !hasState {
			return nil, fmt.Errorf("%s: the server needs input and does not say which", call.Method)
		}
		var responses json.RawMessage
		if asked {
			if responses, err = c.provideInput(ctx, call, requests); err != nil {
				return nil, fmt.Errorf("%s: %w", call.Method, err)
			}
		} else {
			if sheds++; sheds > maxLoadSheds {
				return nil, fmt.Errorf("%s: the server put the call off more than %d times", call.Method, maxLoadSheds)
			}
			if !pause(ctx, backoff(loadShedPause, sheds)) {
				return nil, context.Cause(ctx)
			}
		}
		if call.Params, err = retryParams(original, responses, state); err != nil {
			return nil, fmt.Errorf("params of %s: %w", call.Method, err)
		}
	}
	return nil, fmt.Errorf("%s: the server asked for input more than %d times", call.Method, maxInputRounds)
}

// retryParams are the original params with the answers, and with exactly the
// state that the server gave out, if any.
func retryParams(params, responses, state json.RawMessage) (json.RawMessage, error) {
	params, err := setOrDelete(params, responses, "inputResponses")
	if err != nil {
		return nil, err
	}
	return setOrDelete(params, state, "requestState")
}

// setOrDelete gives a member of params a value, or removes it if there is none.
func setOrDelete(params, value json.RawMessage, name string) (json.RawMessage, error) {
	if value == nil {
		return DeleteMember(params, name), nil
	}
	return SetMember(params, value, name)
}

var errNotOffered = errors.New("which this client does not offer")

// provideInput has the Handler answer all that the server asks. The first that
// cannot be answered ends the others.
func (c *Client) provideInput(ctx context.Context, call Call, requests json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg      sync.WaitGroup
		answers []*inputAnswer
	)
	for key, request := range Members(requests) {
		method, _ := StringMember(request, "method")
		if !c.offers(method) {
			cancel(fmt.Errorf("the server asks for %s, %w", printable(method), errNotOffered))
		}
		if len(answers) == maxAsks {
			cancel(fmt.Errorf("the server asks for more than %d things at once", maxAsks))
		}
		if ctx.Err() != nil {
			break
		}
		params, _ := Member(request, "params")
		r := &Request{ID: StringID(key), Method: method, Params: params, Link: c, Tag: call.Tag}
		a := &inputAnswer{key: key}
		answers = append(answers, a)
		wg.Go(func() {
			answer := respond(context.WithValue(ctx, inputKey{}, key), c.options.Handler, r, c.options.Logger)
			if answer.Error != nil {
				cancel(fmt.Errorf("%s: %w", method, answer.Error))
			}
			a.result = answer.Result
		})
		if !call.AskTogether {
			wg.Wait()
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	responses := json.RawMessage(`{`)
	for i, a := range answers {
		if i > 0 {
			responses = append(responses, ',')
		}
		responses = append(AppendString(responses, a.key), ':')
		responses = append(responses, a.result...)
	}
	return append(responses, '}'), nil
}

type inputAnswer struct {
	key    string
	result json.RawMessage
}

// inputKey is under which the context of a question has its name in the
// server's inputRequests: passed on to a modern client, it keeps that name.
type inputKey struct{}

// offers reports whether the client has declared what the server asks for.
func (c *Client) offers(method string) bool {
	var capability string
	switch method {
	case "elicitation/create":
		capability = "elicitation"
	case "sampling/createMessage":
		capability = "sampling"
	case "roots/list":
		capability = "roots"
	default:
		return false
	}
	value, ok := Member(c.options.Capabilities, capability)
	return ok && !isNull(value)
}
