package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// jobs is a server of tasks that numbers them, whoever asks, and lists one on
// each page.
type jobs struct {
	name   string
	server *wire.Server

	mu     sync.Mutex
	made   int
	asked  []string      // methods, with the id
	listen chan []string // the tasks that a subscription is to
}

func newJobs(t *testing.T, name string, versions ...string) *jobs {
	t.Helper()
	j := &jobs{name: name, listen: make(chan []string, 10)}
	var err error
	j.server, err = wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"` + name + `","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`),
		Handler:      j, Versions: versions,
		Listen: func(_ context.Context, _ *wire.Session, want wire.Filter) (wire.Filter, error) {
			if want.TaskIDs != nil {
				j.listen <- want.TaskIDs
			}
			return want, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *jobs) url(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(wire.NewHTTPHandler(j.server, wire.HTTPOptions{}))
	t.Cleanup(func() {
		ctx, stop := context.WithCancel(context.Background())
		stop()
		_ = j.server.Shutdown(ctx)
		srv.Close()
	})
	return srv.URL
}

func (j *jobs) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch r.Method {
	case "tools/list":
		return json.RawMessage(`{"tools":[{"name":"start","inputSchema":{"type":"object"}}]}`), nil
	case "tools/call":
		j.made++
		if r.Session.Era == wire.Modern {
			return json.RawMessage(fmt.Sprintf(`{"resultType":"task","taskId":"%d","status":"working","ttlMs":null}`, j.made)), nil
		}
		return json.RawMessage(fmt.Sprintf(`{"task":{"taskId":"%d","status":"working"}}`, j.made)), nil
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		id, _ := wire.StringMember(r.Params, "taskId")
		j.asked = append(j.asked, r.Method+" "+id)
		return json.RawMessage(fmt.Sprintf(`{"taskId":%q,"status":"working","at":%q,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}}`, id, j.name, id)), nil
	case "tasks/list":
		at := 1
		if cursor, ok := wire.StringMember(r.Params, "cursor"); ok {
			at, _ = strconv.Atoi(cursor)
		}
		if at > j.made {
			return json.RawMessage(`{"tasks":[]}`), nil
		}
		next := ""
		if at < j.made {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, at+1)
		}
		return json.RawMessage(fmt.Sprintf(`{"tasks":[{"taskId":"%d","at":%q}]%s}`, at, j.name, next)), nil
	}
	return nil, wire.MethodNotFound(r.Method)
}

func (j *jobs) HandleNotification(context.Context, *wire.Notification) {}

const tasksAble = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// person connects an agent of somebody.
func person(t *testing.T, url, who, version, capabilities string) *agent {
	t.Helper()
	a := &agent{heard: make(chan heard, 100), roots: `{"roots":[]}`}
	var err error
	a.Client, err = wire.Connect(t.Context(), wire.HTTP(url, &wire.HTTPClientOptions{Header: func(context.Context) (http.Header, error) { return http.Header{"Who": {who}}, nil }}), &wire.ClientOptions{
		Info: json.RawMessage(`{"name":"agent","version":"1"}`), Capabilities: json.RawMessage(capabilities), Handler: a, ProtocolVersion: version,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func (a *agent) ask(t *testing.T, method, params string) (string, error) {
	t.Helper()
	raw, err := a.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)})
	return string(raw), err
}

func wantCode(t *testing.T, what string, err error, code int64) {
	t.Helper()
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != code {
		t.Errorf("%s: %v, want code %d", what, err, code)
	}
}

// peopleAndJobs is a gateway that many people use, in front of servers of tasks
// that it reaches with one credential.
func peopleAndJobs(t *testing.T, names ...string) (url string, servers map[string]*jobs) {
	t.Helper()
	servers = map[string]*jobs{}
	entries := map[string]config.Server{}
	for _, name := range names {
		servers[name] = newJobs(t, name, wire.Version20251125)
		entries[name] = config.Server{Type: config.HTTP, URL: servers[name].url(t)}
	}
	w := newWorld(t, nil, entries, nil)
	for _, name := range names {
		if err := w.host.Connect(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return serveHTTP(t, w.gateway.HTTP(wire.HTTPOptions{Principal: func(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }})), servers
}

// To anybody but its owner there is no such task, on any endpoint in any era.
func TestTasksBelongToTheirOwner(t *testing.T) {
	for _, endpoint := range []string{"/mcp", "/mcp/jobs"} {
		t.Run(endpoint, func(t *testing.T) {
			url, servers := peopleAndJobs(t, "jobs")
			start := `{"name":"jobs__start","arguments":{},"task":{"ttl":1000}}`
			if endpoint == "/mcp/jobs" {
				start = strings.ReplaceAll(start, "jobs__", "")
			}
			ann := person(t, url+endpoint, "ann", wire.Version20251125, `{}`)
			made, err := ann.ask(t, "tools/call", start)
			if err != nil || !strings.Contains(made, `"taskId":"1"`) {
				t.Fatalf("%s, %v", made, err)
			}
			for _, version := range []string{wire.Version20251125, wire.Version20260728} {
				bob := person(t, url+endpoint, "bob", version, tasksAble)
				methods := []string{"tasks/get", "tasks/cancel", "tasks/result"}
				if version == wire.Version20260728 {
					methods = []string{"tasks/get", "tasks/cancel", "tasks/update"}
				}
				for _, method := range methods {
					_, err := bob.ask(t, method, `{"taskId":"1"}`)
					wantCode(t, version+" "+method, err, wire.CodeInvalidParams)
					_, unknown := bob.ask(t, method, `{"taskId":"7"}`)
					if err == nil || unknown == nil || err.Error() != strings.ReplaceAll(unknown.Error(), `"7"`, `"1"`) {
						t.Errorf("%s %s: %v, but of a task that nobody has %v", version, method, err, unknown)
					}
				}
			}
			bob := person(t, url+endpoint, "bob", wire.Version20251125, `{}`)
			if list, err := bob.ask(t, "tasks/list", `{}`); err != nil || !strings.Contains(list, `"tasks":[]`) {
				t.Errorf("another one's list: %s, %v", list, err)
			}
			if asked := servers["jobs"].asked; len(asked) > 0 {
				t.Errorf("the server was asked %q", asked)
			}
			later := person(t, url+"/mcp", "ann", wire.Version20260728, tasksAble) // another session and endpoint
			if got, err := later.ask(t, "tasks/get", `{"taskId":"1"}`); err != nil || !strings.Contains(got, `"at":"jobs"`) {
				t.Errorf("the owner gets %s, %v", got, err)
			}
			if list, err := ann.ask(t, "tasks/list", `{}`); err != nil || !strings.Contains(list, `"taskId":"1"`) {
				t.Errorf("the owner's list: %s, %v", list, err)
			}
		})
	}
}

// Two servers may number their tasks alike, and list them in pages.
func TestTasksOfTwoServers(t *testing.T) {
	url, servers := peopleAndJobs(t, "one", "two")
	a := person(t, url+"/mcp", "", wire.Version20251125, `{}`)
	ids := map[string]string{}
	for _, server := range []string{"one", "two", "one", "two"} {
		raw, err := a.Call(t.Context(), wire.Call{Method: "tools/call", Params: json.RawMessage(`{"name":"` + server + `__start","arguments":{},"task":{"ttl":1000}}`)})
		id, _ := wire.StringMember(raw, "task", "taskId")
		if err != nil || ids[id] != "" {
			t.Fatalf("%s, %v: %q is there already", raw, err, id)
		}
		ids[id] = server
	}
	for id, server := range ids {
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			raw, err := a.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(`{"taskId":"` + id + `"}`)})
			at, _ := wire.StringMember(raw, "at")
			named, _ := wire.StringMember(raw, "taskId")
			related, _ := wire.StringMember(raw, "_meta", "io.modelcontextprotocol/related-task", "taskId")
			if err != nil || at != server || named != id || related != id {
				t.Errorf("%s of %q: %s, %v", method, id, raw, err)
			}
		}
	}
	listed := map[string]string{}
	params := `{}`
	for range 5 {
		raw, err := a.Call(t.Context(), wire.Call{Method: "tasks/list", Params: json.RawMessage(params)})
		if err != nil {
			t.Fatal(err)
		}
		tasks, _ := wire.Member(raw, "tasks")
		for task := range wire.Elements(tasks) {
			id, _ := wire.StringMember(task, "taskId")
			listed[id], _ = wire.StringMember(task, "at")
		}
		cursor, more := wire.StringMember(raw, "nextCursor")
		if !more {
			break
		}
		params = fmt.Sprintf(`{"cursor":%q}`, cursor)
	}
	if fmt.Sprint(listed) != fmt.Sprint(ids) {
		t.Errorf("listed %v, made %v", listed, ids)
	}
	_, err := a.ask(t, "tasks/list", `{"cursor":"!"}`)
	wantCode(t, "a cursor that is none", err, wire.CodeInvalidParams)
	for name, server := range servers {
		if asked := server.asked; len(asked) != 6 || !strings.HasSuffix(asked[0], " 1") && !strings.HasSuffix(asked[0], " 2") {
			t.Errorf("%s was asked %q", name, asked)
		}
	}
}

// A subscription to tasks is one at their server, to those of the client; and
// nothing of tasks is for a client that does not declare them.
func TestTaskSubscriptions(t *testing.T) {
	for _, over := range []string{"http", "stdio"} {
		t.Run(over, func(t *testing.T) {
			j := newJobs(t, "jobs", wire.Version20260728)
			var w *world
			if over == "http" {
				w = newWorld(t, nil, map[string]config.Server{"jobs": {Type: config.HTTP, URL: j.url(t)}}, nil)
			} else {
				w = newWorld(t, map[string]patchbay.LocalServer{"jobs": localJobs{j}}, nil, nil)
			}
			if err := w.host.Connect(t.Context(), "jobs"); err != nil {
				t.Fatal(err)
			}
			a := w.connect(t, "http", wire.Version20260728, "", tasksAble)
			if _, err := a.ask(t, "tools/call", `{"name":"jobs__start","arguments":{}}`); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := a.Call(ctx, wire.Call{Method: "subscriptions/listen", Params: json.RawMessage(`{"notifications":{"taskIds":["1"]}}`)})
				ended <- err
			}()
			select {
			case got := <-j.listen:
				if len(got) != 1 || got[0] != "1" {
					t.Errorf("the server is asked for %q", got)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the server is never asked")
			}
			if got := a.await(t, "notifications/subscriptions/acknowledged"); !strings.Contains(got, `"taskIds":["1"]`) {
				t.Errorf("acknowledged: %s", got)
			}
			for s := range j.server.Sessions() {
				_ = s.Notify(t.Context(), "notifications/tasks", json.RawMessage(`{"taskId":"1","status":"completed"}`))
			}
			if got := a.await(t, "notifications/tasks"); !strings.Contains(got, `"completed"`) {
				t.Errorf("told %s", got)
			}
			stop()
			<-ended

			plain := w.connect(t, "http", wire.Version20260728, "", `{}`)
			for method, params := range map[string]string{
				"tasks/get": `{"taskId":"1"}`, "tasks/update": `{"taskId":"1","inputResponses":{}}`, "tasks/cancel": `{"taskId":"1"}`,
				"subscriptions/listen": `{"notifications":{"taskIds":["1"]}}`,
			} {
				_, err := plain.ask(t, method, params)
				wantCode(t, method+" of a client without the extension", err, wire.CodeMissingClientCapability)
			}
		})
	}
}

// localJobs are jobs in this process.
type localJobs struct{ *jobs }

func (j localJobs) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	return j.server.Serve(ctx, wire.NewStreamConn(rw, rw, nil))
}
