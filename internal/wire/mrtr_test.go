package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// withMeta adds to params what a modern request needs.
func withMeta(params, capabilities string) json.RawMessage {
	if params == "" {
		params = "{}"
	}
	full := []byte(params)
	for name, value := range map[string]string{MetaProtocolVersion: `"` + Version20260728 + `"`, MetaClientCapabilities: capabilities} {
		full, _ = SetMember(full, []byte(value), "_meta", name)
	}
	return full
}

// askAndState makes a call that asks its client, and returns the requestState.
func (s *site) askAndState(headers ...string) string {
	s.t.Helper()
	r := s.modern(1, "tools/call", `{"name":"ask","arguments":{"a":1,"b":"x"}}`, `{"elicitation":{}}`, headers...)
	state, ok := StringMember([]byte(r.body), "result", "requestState")
	kind, _ := StringMember([]byte(r.body), "result", "resultType")
	method, _ := StringMember([]byte(r.body), "result", "inputRequests", "1", "method")
	if !ok || r.status != 200 || kind != ResultInputRequired || method != "elicitation/create" {
		s.t.Fatalf("no question: %d %s", r.status, r.body)
	}
	return state
}

func TestMRTRClauses(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }})
	retry := func(arguments, responses, state string, headers ...string) reply {
		params := fmt.Sprintf(`{"name":"ask","arguments":%s,"inputResponses":%s,"requestState":%q}`, arguments, responses, state)
		return s.modern(2, "tools/call", params, `{"elicitation":{}}`, headers...)
	}
	const args, answer = `{"a":1,"b":"x"}`, `{"1":{"action":"accept"}}`
	resumed := func(t *testing.T, r reply) {
		t.Helper()
		if action, _ := StringMember([]byte(r.body), "result", "action"); r.status != 200 || action != "accept" {
			t.Errorf("not resumed: %d %s", r.status, r.body)
		}
	}
	refused := func(t *testing.T, r reply) {
		t.Helper()
		if want := errBadState().Message; r.status != 400 || r.code(t) != CodeInvalidParams || !strings.Contains(r.body, want) {
			t.Errorf("not refused: %d %s", r.status, r.body)
		}
	}
	t.Run("the retry resumes the call", func(t *testing.T) {
		resumed(t, retry(args, answer, s.askAndState()))
	})
	t.Run("a client may write its params anew", func(t *testing.T) {
		resumed(t, retry(`{ "b": "\u0078", "a": 1 }`, answer, s.askAndState()))
	})
	t.Run("unknown answers are ignored", func(t *testing.T) {
		resumed(t, retry(args, `{"x":{},"1":{"action":"accept"}}`, s.askAndState()))
	})
	t.Run("a missing answer is asked for again", func(t *testing.T) {
		r := retry(args, `{}`, s.askAndState())
		state, ok := StringMember([]byte(r.body), "result", "requestState")
		if !ok {
			t.Fatalf("%d %s", r.status, r.body)
		}
		resumed(t, retry(args, answer, state))
	})
	t.Run("an answer of the wrong type can be put right", func(t *testing.T) {
		state := s.askAndState()
		for _, bad := range []string{`{"1":3}`, `[]`, `3`} {
			if r := retry(args, bad, state); r.status != 400 || r.code(t) != CodeInvalidParams {
				t.Errorf("%s: %d %s", bad, r.status, r.body)
			}
		}
		resumed(t, retry(args, answer, state))
	})
	t.Run("a state is used once", func(t *testing.T) {
		state := s.askAndState()
		resumed(t, retry(args, answer, state))
		refused(t, retry(args, answer, state))
	})
	t.Run("an altered state", func(t *testing.T) {
		state := s.askAndState()
		refused(t, retry(args, answer, state+"A"))
		refused(t, retry(args, answer, state[:len(state)-2]))
		refused(t, retry(args, answer, sealPrefix))
		resumed(t, retry(args, answer, state))
	})
	t.Run("another request", func(t *testing.T) {
		state := s.askAndState()
		refused(t, retry(`{"a":2,"b":"x"}`, answer, state))
		resumed(t, retry(args, answer, state))
	})
	t.Run("another principal", func(t *testing.T) {
		state := s.askAndState("X-User", "ada")
		refused(t, retry(args, answer, state, "X-User", "bob"))
		refused(t, retry(args, answer, state))
		resumed(t, retry(args, answer, state, "X-User", "ada"))
	})
	t.Run("the state of another server", func(t *testing.T) {
		other := newSite(t, newTestServer(t), HTTPOptions{})
		refused(t, retry(args, answer, other.askAndState()))
	})
	t.Run("the end of a legacy session does not concern it", func(t *testing.T) {
		state := s.askAndState()
		session := s.initialize(Version20250618, "{}")
		closed := onlySession(t, s.server).Done()
		s.do(s.request("DELETE", "", headerSession, session))
		<-closed
		for sess := range s.server.Sessions() {
			<-sess.life.over
		}
		resumed(t, retry(args, answer, state))
	})
	t.Run("a state of the handler's own is the handler's", func(t *testing.T) {
		r := s.modern(2, "tools/call", `{"name":"echo","arguments":{"text":"hi"},"inputResponses":{},"requestState":"mine"}`, "{}")
		if r.status != 200 || !strings.Contains(r.body, `"text":"hi"`) {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

// Questions that come together go together.
func TestMRTRTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		askTools(h)
		p, _ := serveConn(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), nil)
		call := func(params string) json.RawMessage {
			t.Helper()
			result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(params, `{"elicitation":{},"sampling":{},"roots":{}}`)})
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		question := call(`{"name":"all"}`)
		requests, _ := Member(question, "inputRequests")
		state, _ := StringMember(question, "requestState")
		answers := []byte("{}")
		for key, request := range Members(requests) {
			method, _ := StringMember(request, "method")
			answer := map[string]string{
				"elicitation/create":     `{"action":"accept","content":{"name":"Ada"}}`,
				"sampling/createMessage": `{"content":{"type":"text","text":"s"}}`,
				"roots/list":             `{"roots":[{"uri":"file:///r"}]}`,
			}[method]
			answers, _ = SetMember(answers, []byte(answer), key)
		}
		result := call(fmt.Sprintf(`{"name":"all","inputResponses":%s,"requestState":%q}`, answers, state))
		if !strings.Contains(string(result), "Ada,s,file:///r") {
			t.Errorf("%s after %s", result, requests)
		}
	})
}

// A call that sends something before it asks answers with a stream, and what it
// sends after that goes to the request that resumed it, under its token.
func TestMRTRStreams(t *testing.T) {
	s := newSite(t, newTestServer(t), HTTPOptions{})
	s.server.opts.Handler.(*testHandler).tools["chatty"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
		token, _ := Member(r.Params, "_meta", MetaProgressToken)
		progress := func(n int) error {
			return r.Link.Notify(ctx, "notifications/progress", fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, n))
		}
		err := progress(1)
		_, askErr := r.Ask(ctx, "roots/list", nil)
		return textResult("done"), errors.Join(err, askErr, progress(2))
	}
	first := s.open(s.modernRequest(1, "tools/call", `{"name":"chatty","_meta":{"progressToken":"one"}}`, `{"roots":{}}`))
	if m := first.must(); string(m.Params) != `{"progressToken":"one","progress":1}` {
		t.Errorf("progress: %s", m.Params)
	}
	question := first.must()
	state, _ := StringMember(question.Result, "requestState")
	if _, more := first.next(); more || question.ID != NumberID(1) {
		t.Errorf("after %v", question)
	}
	second := s.open(s.modernRequest(2, "tools/call", fmt.Sprintf(`{"name":"chatty","_meta":{"progressToken":"two"},"inputResponses":{"1":{"roots":[]}},"requestState":%q}`, state), `{"roots":{}}`))
	if m := second.must(); string(m.Params) != `{"progressToken":"two","progress":2}` {
		t.Errorf("progress: %s", m.Params)
	}
	if m := second.must(); m.ID != NumberID(2) || !strings.Contains(string(m.Result), `"text":"done"`) {
		t.Errorf("result: %v %s", m.ID, m.Result)
	}
}

// A client that never comes back, and one that comes too late.
func TestMRTRExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		gaveUp := make(chan error, 1)
		h.tools["ask"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
			_, err := r.Ask(ctx, "roots/list", nil)
			gaveUp <- err
			return nil, err
		}
		p, _ := serveConn(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), nil)
		call := func(params string) (json.RawMessage, error) {
			return p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(params, `{"roots":{}}`)})
		}
		result, err := call(`{"name":"ask"}`)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(parkTime + time.Second)
		if err := <-gaveUp; !errors.Is(err, errGone) {
			t.Errorf("the handler got %v", err)
		}
		state, _ := StringMember(result, "requestState")
		_, err = call(fmt.Sprintf(`{"name":"ask","inputResponses":{"1":{"roots":[]}},"requestState":%q}`, state))
		if e, ok := errors.AsType[*Error](err); !ok || e.Message != errBadState().Message {
			t.Errorf("too late: %v", err)
		}
	})
}

// Parked calls are bounded in number for one owner; the next one is told.
func TestMRTRBounded(t *testing.T) {
	s := newTestServer(t)
	p, hangUp := serveConn(t, s, nil)
	call := func() (json.RawMessage, error) {
		return p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(`{"name":"ask"}`, `{"elicitation":{}}`)})
	}
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			if _, err := call(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	_, err := call()
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeOverloaded {
		t.Errorf("one too many: %v", err)
	}
	hangUp()
	if n := len(s.parked.jobs); n > 0 {
		t.Errorf("%d calls are parked for a client that has gone", n)
	}
}

// What a modern client cannot be asked.
func TestAskRefused(t *testing.T) {
	h := newTestHandler()
	for name, q := range map[string]struct{ method, params string }{
		"url":   {"elicitation/create", `{"mode":"url","url":"https://x"}`},
		"form":  {"elicitation/create", `{}`},
		"tools": {"sampling/createMessage", `{"tools":[]}`},
		"plain": {"sampling/createMessage", `{}`},
		"roots": {"roots/list", ``},
		"ping":  {"ping", ``},
	} {
		h.tools[name] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
			return r.Ask(ctx, q.method, json.RawMessage(q.params))
		}
	}
	s := newSite(t, newTestServer(t, func(o *ServerOptions) { o.Handler = h }), HTTPOptions{})
	for _, c := range []struct{ tool, capabilities, want string }{
		{"url", `{"elicitation":{}}`, `{"elicitation":{"url":{}}}`},
		{"url", `{"elicitation":{"form":{}}}`, `{"elicitation":{"url":{}}}`},
		{"form", `{"elicitation":{"url":{}}}`, `{"elicitation":{"form":{}}}`},
		{"form", `{"elicitation":null}`, `{"elicitation":{"form":{}}}`},
		{"tools", `{"sampling":{}}`, `{"sampling":{"tools":{}}}`},
		{"plain", `{}`, `{"sampling":{}}`},
		{"roots", `{}`, `{"roots":{}}`},
	} {
		r := s.modern(1, "tools/call", `{"name":"`+c.tool+`"}`, c.capabilities)
		required, _ := Member([]byte(r.body), "error", "data", "requiredCapabilities")
		if r.status != 400 || r.code(t) != CodeMissingClientCapability || string(required) != c.want {
			t.Errorf("%s with %s: %d %s", c.tool, c.capabilities, r.status, r.body)
		}
	}
	if r := s.modern(1, "tools/call", `{"name":"ping"}`, `{"roots":{}}`); r.code(t) != CodeInternal {
		t.Errorf("ping: %s", r.body)
	}
	// The legacy era refuses for the same reasons.
	session := s.initialize(Version20251125, `{"elicitation":{}}`)
	r := s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"url"}}`, headerSession, session)
	if r.code(t) != CodeMissingClientCapability {
		t.Errorf("legacy: %s", r.body)
	}
}

// What a server asks together, a proxy's client is asked together, under the
// same names.
func TestMRTRPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := newTestHandler()
		origin.tools["both"] = func(_ context.Context, r *Request) (json.RawMessage, error) {
			if given, ok := Member(r.Params, "inputResponses"); ok {
				return textResult(string(given)), nil
			}
			return json.RawMessage(`{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"m"}},"where":{"method":"roots/list"}}}`), nil
		}
		asking := make(chan *Request, 1) // the request at the proxy
		near, far := Pipe()
		served := make(chan error, 1)
		server := newTestServer(t, func(o *ServerOptions) { o.Handler = origin })
		go func() { served <- server.Serve(t.Context(), far) }()
		toOrigin, err := Connect(t.Context(), Stream(near, nil), &ClientOptions{
			Capabilities: json.RawMessage(`{"elicitation":{},"roots":{}}`),
			Handler: handlerFuncs{request: func(ctx context.Context, q *Request) (json.RawMessage, error) {
				r := <-asking
				asking <- r
				return r.Ask(ctx, q.Method, q.Params)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		proxy := newTestHandler()
		proxy.tools["both"] = func(ctx context.Context, r *Request) (json.RawMessage, error) {
			asking <- r
			return toOrigin.Call(ctx, Call{Method: "tools/call", Params: json.RawMessage(`{"name":"both"}`), AskTogether: true})
		}
		p, _ := serveConn(t, newTestServer(t, func(o *ServerOptions) { o.Handler = proxy }), nil)
		call := func(params string) json.RawMessage {
			t.Helper()
			result, err := p.Call(t.Context(), Call{Method: "tools/call", Params: withMeta(params, `{"elicitation":{},"roots":{}}`)})
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		question := call(`{"name":"both"}`)
		who, _ := StringMember(question, "inputRequests", "who", "method")
		where, _ := StringMember(question, "inputRequests", "where", "method")
		if who != "elicitation/create" || where != "roots/list" {
			t.Fatalf("asked %s", question)
		}
		state, _ := StringMember(question, "requestState")
		const answers = `{"who":{"action":"cancel"},"where":{"roots":[]}}`
		result := call(fmt.Sprintf(`{"name":"both","inputResponses":%s,"requestState":%q}`, answers, state))
		if text, _ := Member(result, "content"); !strings.Contains(string(text), string(AppendString(nil, answers))) {
			t.Errorf("the origin got %s, want %s", text, answers)
		}
		if err := toOrigin.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
