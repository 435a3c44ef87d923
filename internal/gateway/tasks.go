package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// tasks is which server each task of a client is at: ids are the servers' own.
type tasks struct {
	mu     sync.Mutex
	server map[string]string // by task id
	order  []string          // oldest first
}

// maxTasks bounds the tasks that are remembered of one client.
const maxTasks = 4096

// tasksExtension is the name of tasks in the modern era.
const tasksExtension = "io.modelcontextprotocol/tasks"

// mayBeTask reports whether the result of a request may be a task.
func mayBeTask(r *wire.Request) bool {
	if r.Session.Era == wire.Modern {
		return r.Session.Supports("extensions", tasksExtension)
	}
	_, asked := wire.Member(r.Params, "task")
	return asked
}

// note remembers the task that a result stands for, if it does: in the legacy
// era it is in its member task, in the modern one it is the result.
func (ts *tasks) note(server string, result json.RawMessage) {
	id, ok := wire.StringMember(result, "task", "taskId")
	if !ok {
		if kind, _ := wire.StringMember(result, "resultType"); kind != "task" {
			return
		}
		if id, ok = wire.StringMember(result, "taskId"); !ok {
			return
		}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.server == nil {
		ts.server = map[string]string{}
	}
	if _, known := ts.server[id]; !known {
		ts.order = append(ts.order, id)
	}
	ts.server[id] = server
	if len(ts.order) > maxTasks {
		delete(ts.server, ts.order[0])
		ts.order = ts.order[1:]
	}
}

// of reports whether the task of a notification is the client's, at a server.
func (ts *tasks) of(params json.RawMessage, server string) bool {
	id, _ := wire.StringMember(params, "taskId")
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.server[id] == server
}

// taskServer returns the server that a task is at.
func (c *client) taskServer(id string) (string, error) {
	c.tasks.mu.Lock()
	server, ok := c.tasks.server[id]
	c.tasks.mu.Unlock()
	if ok {
		return server, nil
	}
	if able := c.taskServers(); len(able) == 1 {
		return able[0], nil
	}
	return "", wire.Errorf(wire.CodeInvalidParams, "no task %q", id)
}

// taskServers are the servers of the endpoint that have tasks.
func (c *client) taskServers() []string {
	var able []string
	servers := c.ep.servers()
	for _, st := range c.ep.gateway.host.Servers() {
		_, older := wire.Member(st.Capabilities, "tasks")
		_, newer := wire.Member(st.Capabilities, "extensions", tasksExtension)
		if st.InForce && (older || newer) && (servers == nil || slices.Contains(servers, st.Name)) {
			able = append(able, st.Name)
		}
	}
	return able
}

// listPatience is how long one server may take to list its tasks.
const listPatience = 3 * time.Second

// listTasks lists the tasks of all servers that answer in time.
func (c *client) listTasks(ctx context.Context, s *patchbay.Session) (json.RawMessage, error) {
	able := c.taskServers()
	lists := make([]json.RawMessage, len(able))
	ctx, stop := context.WithTimeout(ctx, listPatience)
	defer stop()
	var wg sync.WaitGroup
	for i, server := range able {
		wg.Go(func() {
			raw, err := s.Forward(ctx, server, "tasks/list", nil)
			if err != nil {
				c.ep.gateway.log.Info("tasks not listed", "server", server, "error", err)
				return
			}
			lists[i], _ = wire.Member(raw, "tasks")
		})
	}
	wg.Wait()
	out := []byte(`{"tasks":[`)
	for i, list := range lists {
		for task := range wire.Elements(list) {
			c.tasks.note(able[i], append(append([]byte(`{"task":`), task...), '}'))
			if out[len(out)-1] != '[' {
				out = append(out, ',')
			}
			out = append(out, task...)
		}
	}
	return append(out, "]}"...), nil
}
