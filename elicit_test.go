//go:build unix

package patchbay_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// formParams asks for a name, and for more that has defaults.
const formParams = `{"message":"Who?","requestedSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","minLength":2},"age":{"type":"integer","minimum":0,"default":7},"mail":{"type":"string","format":"email"},` +
	`"color":{"type":"string","enum":["red","green"],"default":"green"}},"required":["name"]}}`

// elicited has a server ask and returns the answer that it got.
func elicited(t *testing.T, s *patchbay.Session, server, params string) string {
	t.Helper()
	arguments, err := json.Marshal(map[string]string{"text": params})
	if err != nil {
		t.Fatal(err)
	}
	return say(t, s, server+".elicit", string(arguments))
}

// answers is a UI that gives one answer.
func answers(action, content string) *patchbay.UI {
	return &patchbay.UI{Elicit: func(context.Context, patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
		return patchbay.ElicitResult{Action: action, Content: json.RawMessage(content)}, nil
	}}
}

// Answers of people are completed, and passed on only if they fit the question.
func TestFormAnswers(t *testing.T) {
	leavesNothing(t)
	var ui atomic.Pointer[patchbay.UI]
	log := newLogged()
	h := withServers(t, bothEras(), func(o *patchbay.Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.UI = &patchbay.UI{Elicit: func(ctx context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			if r.Mode != patchbay.ModeForm || r.Message != "Who?" || !strings.HasPrefix(string(r.Schema), `{"type":"object"`) || r.Session != "bob" || string(r.Params) != formParams {
				t.Errorf("asked %+v", r)
			}
			return ui.Load().Elicit(ctx, r)
		}}
	})
	s := session(t, h, patchbay.SessionOptions{Name: "bob", Default: patchbay.Allow})
	const cancel = `{"action":"cancel"}`
	for name := range bothEras() {
		awaitState(t, h, name, config.Connected)
		for _, tt := range []struct{ action, content, want string }{
			{"accept", `{"name":"Ann"}`, `{"action":"accept","content":{"name":"Ann","age":7,"color":"green"}}`},
			{"accept", `{"name":"Ann","age":40,"color":"red","mail":"ann@example.com"}`, `{"action":"accept","content":{"name":"Ann","age":40,"color":"red","mail":"ann@example.com"}}`},
			{"accept", `{"name":"A"}`, cancel},
			{"accept", `{"name":"hunter2","age":-1}`, cancel},
			{"accept", `{"name":"Ann","age":1.5}`, cancel},
			{"accept", `{"name":"Ann","mail":"nowhere"}`, cancel},
			{"accept", `{"name":"Ann","color":"blue"}`, cancel},
			{"accept", ``, cancel},
			{"accept", `["Ann"]`, cancel},
			{"accept", `{"name":`, cancel},
			{"decline", `{"name":"Ann"}`, `{"action":"decline"}`},
			{"cancel", ``, cancel},
			{"maybe", ``, cancel},
			{"", ``, cancel},
		} {
			ui.Store(answers(tt.action, tt.content))
			if got := elicited(t, s, name, formParams); got != tt.want {
				t.Errorf("%s: %s %s: got %s", name, tt.action, tt.content, got)
			}
		}
	}
	log.await(t, "does not fit the schema: /age")
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has an answer:\n%s", log)
	}
}

// A question that makes no sense is the server's mistake, and it is told; nothing
// outside of the question is read to understand it.
func TestQuestionsThatMakeNoSense(t *testing.T) {
	h := withServers(t, bothEras(), func(o *patchbay.Options) { o.UI = answers("accept", "{}") })
	awaitState(t, h, "older", config.Connected)
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, params := range []string{
		`{"message":"?","requestedSchema":7}`,
		`{"message":"?","requestedSchema":{"type":"string"}}`,
		`{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"strong"}}}}`,
		`{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"$ref":"file://` + file + `"}}}}`,
		`{"message":"?","mode":"voice"}`,
		`{"message":"?","mode":"url"}`,
		`{"message":"?","mode":"url","url":"javascript:alert(1)"}`,
		`{"message":"?","mode":"url","url":"file:///etc/passwd"}`,
		`{"message":"?","mode":"url","url":"/relative"}`,
		`{"message":"?","mode":"url","url":"https://bank.example@evil.example/"}`,
		`{"message":"?","mode":"url","url":"https://bаnk.example/"}`,
	} {
		if got := elicited(t, anyone(t, h), "older", params); got != "error -32602" {
			t.Errorf("%s: %s", params, got)
		}
	}
}

// What the user of a session answers reaches the server as it is.
func TestAnswersOfAClientPassUnchanged(t *testing.T) {
	leavesNothing(t)
	var answer atomic.Value
	h := withServers(t, bothEras(), nil)
	client := &patchbay.Client{Elicit: func(_ context.Context, server string, params json.RawMessage) (json.RawMessage, error) {
		if string(params) != formParams {
			t.Errorf("asked %s", params)
		}
		return json.RawMessage(answer.Load().(string)), nil
	}}
	s := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: client})
	for name := range bothEras() {
		awaitState(t, h, name, config.Connected)
		for _, text := range []string{
			`{ "content": { "name":"Ann", "big": 12345678901234567890 } , "action":"accept", "_meta": {"x":1} }`,
			`{"action":"accept","content":{"name":"A"}}`, // which is for the server to judge
			`{"action":"decline"}`,
		} {
			answer.Store(text)
			if got := elicited(t, s, name, formParams); got != text {
				t.Errorf("%s: got %s, want %s", name, got, text)
			}
		}
		answer.Store(`7`)
		if got := elicited(t, s, name, formParams); got != `{"action":"cancel"}` {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// Hooks answer in place of a person, and have the last word on what a person
// answers.
func TestElicitationHooks(t *testing.T) {
	never := "a person is asked"
	for name, tt := range map[string]struct {
		before, after string // commands
		person        string // content of what a person answers; never if nobody is asked
		want          string
	}{
		"passes":           {"cat >asked.json", "", `{"name":"Ann"}`, `{"action":"accept","content":{"name":"Ann","age":7,"color":"green"}}`},
		"accepts":          {specific(`"action":"accept","content":{"name":"Bot"}`), "", never, `{"action":"accept","content":{"name":"Bot","age":7,"color":"green"}}`},
		"declines":         {specific(`"action":"decline"`), "", never, `{"action":"decline"}`},
		"cancels":          {specific(`"action":"cancel"`), "", never, `{"action":"cancel"}`},
		"blocks":           {"exit 2", "", never, `{"action":"decline"}`},
		"does not fit":     {specific(`"action":"accept","content":{"name":"B"}`), "", never, `{"action":"cancel"}`},
		"is broken":        {"./none", "", never, `{"action":"decline"}`},
		"of another":       {"", "", `{"name":"Ann"}`, `{"action":"accept","content":{"name":"Ann","age":7,"color":"green"}}`},
		"result passes":    {"", "cat >result.json", `{"name":"Ann"}`, `{"action":"accept","content":{"name":"Ann","age":7,"color":"green"}}`},
		"result rewritten": {"", specific(`"action":"accept","content":{"name":"Eve","age":1}`), `{"name":"Ann"}`, `{"action":"accept","content":{"name":"Eve","age":1,"color":"green"}}`},
		"result declined":  {"", specific(`"action":"decline"`), `{"name":"Ann"}`, `{"action":"decline"}`},
		"result blocked":   {"", "exit 2", `{"name":"Ann"}`, `{"action":"decline"}`},
		"result unfit":     {"", specific(`"action":"accept","content":{}`), `{"name":"Ann"}`, `{"action":"cancel"}`},
		"both":             {specific(`"action":"accept","content":{"name":"Bot"}`), specific(`"action":"accept","content":{"name":"Eve"}`), never, `{"action":"accept","content":{"name":"Eve","age":7,"color":"green"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hooks := map[string]any{}
			for event, command := range map[string]string{"Elicitation": tt.before, "ElicitationResult": tt.after} {
				if command != "" {
					hooks[event] = []any{
						map[string]any{"matcher": "another", "hooks": []any{map[string]any{"type": "command", "command": "exit 2"}}},
						map[string]any{"matcher": "older|newer", "hooks": []any{map[string]any{"type": "command", "command": command}}},
					}
				}
			}
			settings, err := json.Marshal(map[string]any{"hooks": hooks})
			if err != nil {
				t.Fatal(err)
			}
			c := newComputer(t)
			c.userSettings(string(settings))
			c.opts.Environ = []string{"PATH=/bin:/usr/bin"}
			c.opts.UI = &patchbay.UI{Elicit: func(context.Context, patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				if tt.person == never {
					t.Error("the person was asked")
				}
				return patchbay.ElicitResult{Action: "accept", Content: json.RawMessage(tt.person)}, nil
			}}
			c.declare(bothEras())
			h := c.open()
			for _, name := range []string{"older", "newer"} {
				if err := h.Connect(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				if got := elicited(t, session(t, h, patchbay.SessionOptions{Name: "bob", Default: patchbay.Allow}), name, formParams); got != tt.want {
					t.Errorf("%s: got %s, want %s", name, got, tt.want)
				}
			}
			for file, want := range map[string]string{
				"asked.json":  `"hook_event_name":"Elicitation","mcp_server":{"name":"newer","source":"user"},"mcp_server_name":"newer","message":"Who?","mode":"form","requested_schema":{"type":"object"`,
				"result.json": `"hook_event_name":"ElicitationResult","mcp_server":{"name":"newer","source":"user"},"mcp_server_name":"newer","mode":"form","action":"accept","content":{"name":"Ann","age":7,"color":"green"}}`,
			} {
				data, err := os.ReadFile(filepath.Join(c.project, file))
				if err == nil && !strings.Contains(string(data), want) {
					t.Errorf("%s is %s", file, data)
				}
				if asked := file == "asked.json" && name == "passes" || file == "result.json" && name == "result passes"; asked && err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Where there is nobody else, hooks are reason enough to say that questions can
// be answered; what they pass on is cancelled.
func TestHooksAloneAnswer(t *testing.T) {
	c := newComputer(t)
	c.opts.Environ = []string{"PATH=/bin:/usr/bin"}
	c.userSettings(hookSettings("Elicitation", "", `grep -q '"message":"Who?"' && `+specific(`"action":"accept","content":{"name":"Bot"}`)+` || true`, 0))
	c.declare(bothEras())
	h := c.open()
	s := anyone(t, h)
	for name := range bothEras() {
		if err := h.Connect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if got := elicited(t, s, name, formParams); got != `{"action":"accept","content":{"name":"Bot","age":7,"color":"green"}}` {
			t.Errorf("%s: %s", name, got)
		}
		if got := say(t, s, name+".ask", `{"count":1}`); got != "cancel" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// asking is a local server with a tool that asks, if its client says that it can
// be asked.
type asking struct{ version string }

func (a asking) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return mcptest.ServeLocal(ctx, rw, a, a.version)
}

func (asking) HandleRequest(ctx context.Context, r *wire.Request) (json.RawMessage, error) {
	if r.Method == "tools/list" {
		return json.RawMessage(`{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`), nil
	}
	answer, err := r.Ask(ctx, "elicitation/create", json.RawMessage(formParams))
	if err != nil {
		answer = json.RawMessage(`"refused"`)
	}
	text, _ := json.Marshal(string(answer))
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`), nil
}

func (asking) HandleNotification(context.Context, *wire.Notification) {}

// Servers learn of a hook that can answer them when it comes, and when it goes,
// whoever is there already.
func TestHooksComeAndGo(t *testing.T) {
	c := newComputer(t)
	c.opts.Environ = []string{"PATH=/bin:/usr/bin"}
	c.opts.InProcess = map[string]patchbay.LocalServer{"old": asking{wire.Version20251125}, "new": asking{wire.Version20260728}}
	h := c.open()
	for name := range c.opts.InProcess {
		if err := h.Connect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	rooted, err := h.NewSession(patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{Roots: func(context.Context) (json.RawMessage, error) {
		return json.RawMessage(`{"roots":[]}`), nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	sessions := []*patchbay.Session{anyone(t, h), rooted}
	const accepted = `{"action":"accept","content":{"name":"Bot","age":7,"color":"green"}}`
	for i, want := range []string{`"refused"`, accepted, `"refused"`} {
		if i > 0 {
			text := `{}`
			if want == accepted {
				text = hookSettings("Elicitation", "", specific(`"action":"accept","content":{"name":"Bot"}`), 0)
			}
			c.userSettings(text)
			if err := h.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range append(sessions, anyone(t, h)) {
			for name := range c.opts.InProcess {
				if got := say(t, s, name+".ask", ""); got != want {
					t.Errorf("%d: %s: %s instead of %s", i, name, got, want)
				}
			}
		}
	}
}

const urlParams = `{"mode":"url","elicitationId":"e1","url":"https://login.example.com:8443/start?x=1","message":"Please log in"}`

// Who is sent to a URL sees where that is, and hears when it is done, as do the
// hooks; nobody else does.
func TestURLQuestions(t *testing.T) {
	leavesNothing(t)
	type done struct{ who, server, id string }
	heard := make(chan done, 10)
	h := withServers(t, bothEras(), func(o *patchbay.Options) {
		o.UI = &patchbay.UI{
			Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
				if r.Mode != patchbay.ModeURL || r.URL != "https://login.example.com:8443/start?x=1" || r.Host != "login.example.com:8443" || r.ElicitationID != "e1" || r.Message != "Please log in" {
					t.Errorf("asked %+v", r)
				}
				return patchbay.ElicitResult{Action: "accept", Content: json.RawMessage(`{"ignored":true}`)}, nil
			},
			ElicitComplete: func(server, id string) { heard <- done{"ui", server, id} },
		}
		o.Hooks = &patchbay.Hooks{Notification: func(_ context.Context, n patchbay.HookNotification) {
			heard <- done{"hook of " + n.Session + " " + n.Type, n.Server, n.ElicitationID}
		}}
	})
	awaitState(t, h, "older", config.Connected)
	awaitState(t, h, "newer", config.Connected)
	client := func(who string) *patchbay.Client {
		return &patchbay.Client{
			Elicit: func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
				if string(params) != urlParams {
					t.Errorf("asked %s", params)
				}
				return json.RawMessage(`{"action":"accept"}`), nil
			},
			Notified: func(_ context.Context, server, method string, params json.RawMessage) {
				if string(params) != `{"elicitationId":"e1"}` {
					t.Errorf("told %s", params)
				}
				heard <- done{who + " " + method, server, "e1"}
			},
		}
	}
	plain := session(t, h, patchbay.SessionOptions{Name: "plain", Default: patchbay.Allow})
	alice := session(t, h, patchbay.SessionOptions{Name: "alice", Default: patchbay.Allow, Client: client("alice")})
	bystander := session(t, h, patchbay.SessionOptions{Name: "bystander", Default: patchbay.Allow, Client: client("bystander")})
	for s, want := range map[*patchbay.Session]done{
		plain: {"ui", "older", "e1"},
		alice: {"alice notifications/elicitation/complete", "older", "e1"},
	} {
		if got := elicited(t, s, "older", urlParams); got != `{"action":"accept"}` {
			t.Errorf("got %s", got)
		}
		say(t, bystander, "older.visited", `{"text":"unknown"}`)
		say(t, s, "older.visited", `{"text":"e1"}`)
		all := map[done]bool{<-heard: true, <-heard: true}
		if !all[want] || len(all) != 2 {
			t.Errorf("heard %v, want %v and a hook", all, want)
		}
		say(t, s, "older.visited", `{"text":"e1"}`) // which is done already
	}
	if got := elicited(t, plain, "newer", urlParams); got != `{"action":"accept"}` {
		t.Errorf("got %s", got)
	}
	h.Close() // after which nobody is told anything
	select {
	case more := <-heard:
		t.Errorf("heard %v too", more)
	default:
	}
}

// The notification reaches the hooks of settings.
func TestNotificationHook(t *testing.T) {
	leavesNothing(t)
	c := newComputer(t)
	c.opts.Environ = []string{"PATH=/bin:/usr/bin"}
	c.opts.UI = answers("accept", "")
	c.declare(map[string]config.Server{"older": scripted("-discover=unknown")})
	fifo := makeFIFO(t, c.project, "told")
	c.userSettings(hookSettings("Notification", "elicitation_complete", "cat >told", 0))
	h := c.open()
	if err := h.Connect(t.Context(), "older"); err != nil {
		t.Fatal(err)
	}
	s := session(t, h, patchbay.SessionOptions{Name: "bob", Default: patchbay.Allow})
	elicited(t, s, "older", urlParams)
	say(t, s, "older.visited", `{"text":"e1"}`)
	data, err := os.ReadFile(fifo)
	for _, want := range []string{`"session_id":"bob"`, `"hook_event_name":"Notification"`, `"notification_type":"elicitation_complete"`, `"mcp_server_name":"older"`, `"elicitation_id":"e1"`} {
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("told %s, %v, without %s", data, err, want)
		}
	}
}

// A UI that can show no URL is not asked to, and servers are told what can be
// answered.
func TestFormsOnly(t *testing.T) {
	h := withServers(t, map[string]config.Server{"older": scripted("-discover=unknown")}, func(o *patchbay.Options) {
		o.UI = answers("accept", `{"name":"Ann"}`)
		o.UI.ElicitFormsOnly = true
	})
	awaitState(t, h, "older", config.Connected)
	if got := elicited(t, anyone(t, h), "older", urlParams); got != "error -32602" {
		t.Errorf("got %s", got)
	}
	if got := elicited(t, anyone(t, h), "older", formParams); !strings.HasPrefix(got, `{"action":"accept"`) {
		t.Errorf("got %s", got)
	}
}

// A server that wants a URL visited before a call gets its visit, and the call is
// made again once it is done. The server is connected all the while.
func TestURLBeforeACall(t *testing.T) {
	leavesNothing(t)
	asked := make(chan patchbay.ElicitRequest, 10)
	var action atomic.Value
	action.Store("accept")
	h := withServers(t, map[string]config.Server{"older": scripted("-discover=unknown")}, func(o *patchbay.Options) {
		o.UI = &patchbay.UI{Elicit: func(_ context.Context, r patchbay.ElicitRequest) (patchbay.ElicitResult, error) {
			asked <- r
			return patchbay.ElicitResult{Action: action.Load().(string)}, nil
		}}
	})
	awaitState(t, h, "older", config.Connected)
	s := anyone(t, h)
	call := func(s *patchbay.Session, id string) (string, error) {
		r, err := s.Call(t.Context(), patchbay.Call{Tool: "older.gated", Arguments: json.RawMessage(`{"text":"` + id + `"}`)})
		if err != nil {
			return "", err
		}
		return modelText(t, r, nil), nil
	}
	refused := func(err error) bool {
		e, ok := errors.AsType[*patchbay.RPCError](err)
		return ok && e.Code == -32042 && e.Message == "a visit is needed" && len(e.Data) > 0
	}
	type outcome struct {
		text string
		err  error
	}
	done := make(chan outcome)
	go func() {
		text, err := call(s, "a")
		done <- outcome{text, err}
	}()
	if r := <-asked; r.Host != "example.com" || r.ElicitationID != "a" || r.Server != "older" {
		t.Errorf("asked %+v", r)
	}
	if st, _ := h.Server("older"); st.State != config.Connected {
		t.Errorf("the server is %s", st.State)
	}
	say(t, s, "older.visited", `{"text":"a"}`)
	if o := <-done; o.text != "open" || o.err != nil {
		t.Errorf("got %+v", o)
	}

	action.Store("decline")
	if _, err := call(s, "b"); !refused(err) {
		t.Errorf("declined: %v", err)
	}
	<-asked

	// One who does so itself is given the error, and told of the end.
	told := make(chan string, 1)
	own := session(t, h, patchbay.SessionOptions{Default: patchbay.Allow, Client: &patchbay.Client{
		HandlesURLErrors: true,
		Elicit: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			t.Error("asked although it gets the error")
			return nil, errors.New("no")
		},
		Notified: func(_ context.Context, _, method string, params json.RawMessage) { told <- method + string(params) },
	}})
	if _, err := call(own, "c"); !refused(err) {
		t.Errorf("passed on: %v", err)
	}
	say(t, own, "older.visited", `{"text":"c"}`)
	if got := <-told; got != `notifications/elicitation/complete{"elicitationId":"c"}` {
		t.Errorf("told %s", got)
	}
	if text, err := call(own, "c"); text != "open" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}

	// One who cannot be sent anywhere gets the error.
	plain := withServers(t, map[string]config.Server{"older": scripted("-discover=unknown")}, nil)
	awaitState(t, plain, "older", config.Connected)
	if _, err := call(anyone(t, plain), "d"); !refused(err) {
		t.Errorf("nobody to ask: %v", err)
	}
}

// Consent to a call is asked of the session's user where there is no other way.
func TestConsentByElicitation(t *testing.T) {
	leavesNothing(t)
	var answer atomic.Value
	var message atomic.Value
	c := notesComputer(t)
	h := c.openConnected()
	s := session(t, h, patchbay.SessionOptions{Client: &patchbay.Client{
		Elicit: func(_ context.Context, server string, params json.RawMessage) (json.RawMessage, error) {
			var p struct{ Message string }
			if err := json.Unmarshal(params, &p); err != nil || server != "" {
				t.Errorf("asked %s of %q", params, server)
			}
			message.Store(p.Message)
			text := answer.Load().(string)
			if text == "" {
				return nil, &patchbay.RPCError{Code: -32601, Message: "no such method"}
			}
			return json.RawMessage(text), nil
		},
	}})
	for text, want := range map[string]string{
		`{"action":"accept","content":{"decision":"allow once"}}`: "hi",
		`{"action":"accept","content":{"decision":"deny"}}`:       "mcp__notes__echo was not permitted.",
		`{"action":"accept","content":{}}`:                        "mcp__notes__echo was not permitted.",
		`{"action":"decline"}`:                                    "mcp__notes__echo was not permitted.",
		`{"action":"cancel","content":{"decision":"allow once"}}`: "mcp__notes__echo was not permitted.",
		``: "mcp__notes__echo was not permitted: ",
	} {
		answer.Store(text)
		if got := outcome(t, s); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	answer.Store(`{"action":"decline"}`)
	long := `{"text":"` + strings.Repeat("ü", 3000) + "\u202e" + `"}`
	if _, err := s.Call(t.Context(), patchbay.Call{Tool: "notes.echo", Arguments: json.RawMessage(long)}); kindOf(err) != patchbay.KindDenied {
		t.Error(err)
	}
	got := message.Load().(string)
	for _, want := range []string{"May the tool mcp__notes__echo be called? It is echo of the server notes.", `Arguments: {"text":"üü`, "bytes left out", `<U+202E>"}`, "Why you are asked: no rule is about it"} {
		if !strings.Contains(got, want) {
			t.Errorf("asked %q, without %q", got, want)
		}
	}
	if len(got) > 3000 {
		t.Errorf("%d bytes", len(got))
	}
	// The session's user comes before the UI of the host.
	c.opts.UI = &patchbay.UI{Confirm: func(context.Context, patchbay.ConfirmRequest) (bool, error) {
		t.Error("the host's user was asked")
		return false, nil
	}}
	s = session(t, c.openConnected(), patchbay.SessionOptions{Client: &patchbay.Client{Elicit: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"action":"accept","content":{"decision":"allow once"}}`), nil
	}}})
	if got := outcome(t, s); got != "hi" {
		t.Errorf("got %q", got)
	}
}
