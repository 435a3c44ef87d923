package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRequestHeader(t *testing.T) {
	h := newTestHandler()
	h.tools["header"] = func(_ context.Context, r *Request) (json.RawMessage, error) {
		header := r.Header()
		if header == nil {
			return textResult("none"), nil
		}
		return textResult("seen " + header.Get("X-Trace")), nil
	}
	server := newTestServer(t, func(o *ServerOptions) { o.Handler = h })
	s := newSite(t, server, HTTPOptions{})
	p, _ := serveConn(t, server, nil)
	modern := s.modern(1, "tools/call", `{"name":"header"}`, "{}", "X-Trace", "m")
	legacy := s.post(toolCall(1, "header"), headerSession, s.initialize(Version20250618, "{}"), "X-Trace", "l")
	conn, err := p.Call(t.Context(), Call{Method: "tools/call", Params: json.RawMessage(`{"name":"header"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{modern.body: `"seen m"`, legacy.body: `"seen l"`, string(conn): `"none"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s, want %s", body, want)
		}
	}
}

// What is said about a request after its answer comes too late, and does not
// turn the answer, which may not be written yet, into a stream that never ends.
func TestNotifyAfterTheAnswer(t *testing.T) {
	var ex exchange
	ex.init(1, accepted{json: true, stream: true})
	ex.attach()
	ex.finish(Message{Result: textResult("done")})
	err := ex.Notify(t.Context(), "notifications/progress", nil)
	if complete, opened := ex.state(); !errors.Is(err, errGone) || !complete || opened {
		t.Errorf("%v, complete %v, stream %v", err, complete, opened)
	}

	s := newTestServer(t)
	j := &job{server: s}
	j.own.Era, j.own.server = Modern, s
	s.enter()
	j.begin(t.Context(), Message{ID: NumberID(1), Method: "tools/list"})
	j.run()
	if err := j.Notify(t.Context(), "notifications/progress", nil); !errors.Is(err, errGone) {
		t.Errorf("after the handler has returned: %v", err)
	}
}
