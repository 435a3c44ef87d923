package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// tasksExtension is the name of tasks in the modern era.
const tasksExtension = "io.modelcontextprotocol/tasks"

// metaRelatedTask is where the result of a task names it.
const metaRelatedTask = "io.modelcontextprotocol/related-task"

// taskRef is a task as its server knows it.
type taskRef struct{ server, id string }

// taskOwners knows whose each task is. A server that many people reach with one
// credential cannot tell them apart, so the gateway does: a task belongs to the
// principal whose call made it, over whichever session and endpoint, and to nobody
// else there is no such task.
type taskOwners struct {
	mu  sync.Mutex
	all map[string]*ownTasks // by principal
}

// ownTasks are those of one principal.
type ownTasks struct {
	names map[taskRef]string // by which clients of several servers know it
	refs  map[string]taskRef // the other way round
	order []taskRef          // oldest first
}

// Bounds of what is remembered.
const (
	maxTasks      = 4096 // of one principal
	maxTaskOwners = 1024
	maxTaskID     = 1 << 10
)

// note remembers a task of a principal, and returns the name by which clients of
// several servers know it: its id, unless another server has one of the same.
func (o *taskOwners) note(principal string, ref taskRef) string {
	if len(ref.id) > maxTaskID {
		return ref.id
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.all[principal]
	if own == nil {
		if o.all == nil {
			o.all = map[string]*ownTasks{}
		}
		for other := range o.all { // any: there are far too many people
			if len(o.all) < maxTaskOwners {
				break
			}
			delete(o.all, other)
		}
		own = &ownTasks{names: map[taskRef]string{}, refs: map[string]taskRef{}}
		o.all[principal] = own
	}
	if name, ok := own.names[ref]; ok {
		return name
	}
	name := ref.id
	for {
		if _, taken := own.refs[name]; !taken {
			break
		}
		name = ref.server + "/" + name
	}
	own.names[ref], own.refs[name] = name, ref
	own.order = append(own.order, ref)
	if len(own.order) > maxTasks {
		delete(own.refs, own.names[own.order[0]])
		delete(own.names, own.order[0])
		own.order = own.order[1:]
	}
	return name
}

// named returns the task that clients of several servers know by a name.
func (o *taskOwners) named(principal, name string) (taskRef, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.all[principal]; own != nil {
		ref, ok := own.refs[name]
		return ref, ok
	}
	return taskRef{}, false
}

// owns reports whether a task is a principal's. What nobody is known to have made,
// as after a restart, belongs to whoever runs the gateway, who has the empty name.
func (o *taskOwners) owns(principal string, ref taskRef) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.all[principal]; own != nil && own.names[ref] != "" {
		return true
	}
	if principal != "" {
		return false
	}
	for _, other := range o.all {
		if other.names[ref] != "" {
			return false
		}
	}
	return true
}

// mayBeTask reports whether the result of a request may be a task.
func mayBeTask(r *wire.Request) bool {
	if r.Session.Era == wire.Modern {
		return r.Session.Supports("extensions", tasksExtension)
	}
	_, asked := wire.Member(r.Params, "task")
	return asked
}

// needsTasks refuses what is about tasks to a modern client that has not declared
// the extension in the request.
func needsTasks(sess *wire.Session) error {
	if sess.Era != wire.Modern || sess.Supports("extensions", tasksExtension) {
		return nil
	}
	return &wire.Error{
		Code: wire.CodeMissingClientCapability, Message: "the client does not declare " + tasksExtension,
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

func noTask(id string) error { return wire.Errorf(wire.CodeInvalidParams, "no task %q", id) }

// noteTask remembers the task that a result stands for, if it does, and puts the
// name of this endpoint in place of its id: in the legacy era it is in the member
// task, in the modern one it is the result.
func (c *client) noteTask(server string, result json.RawMessage) json.RawMessage {
	path := []string{"task", "taskId"}
	id, ok := wire.StringMember(result, path...)
	if !ok {
		path = path[1:]
		if kind, _ := wire.StringMember(result, "resultType"); kind != "task" {
			return result
		}
		if id, ok = wire.StringMember(result, path...); !ok {
			return result
		}
	}
	ref := taskRef{server, id}
	name := c.ep.gateway.tasks.note(c.identity, ref)
	c.hears(ref)
	return c.renamed(result, ref, name, path...)
}

// renamed puts the name of a task at this endpoint in place of its id.
func (c *client) renamed(raw json.RawMessage, ref taskRef, name string, path ...string) json.RawMessage {
	if c.ep.single != "" || name == ref.id {
		return raw
	}
	if id, ok := wire.StringMember(raw, path...); !ok || id != ref.id {
		return raw
	}
	raw, _ = wire.SetMember(raw, wire.AppendString(nil, name), path...) // it has one
	return raw
}

// hears makes the client hear of a task.
func (c *client) hears(ref taskRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil || len(c.tasks) >= maxTasks {
		c.tasks = map[taskRef]bool{}
	}
	c.tasks[ref] = true
}

// task returns the task that the client knows by a name, if it is the client's.
func (c *client) task(name string) (taskRef, error) {
	owners := &c.ep.gateway.tasks
	if c.ep.single != "" {
		ref := taskRef{c.ep.single, name}
		if !owners.owns(c.identity, ref) {
			return ref, noTask(name)
		}
		return ref, nil
	}
	if ref, ok := owners.named(c.identity, name); ok {
		return ref, nil
	}
	able := c.taskServers()
	if len(able) != 1 || !owners.owns(c.identity, taskRef{able[0], name}) {
		return taskRef{}, noTask(name)
	}
	return taskRef{able[0], name}, nil
}

// forwardTask passes on a request about one task.
func (c *client) forwardTask(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	if err := needsTasks(r.Session); err != nil {
		return nil, err
	}
	name := member(r.Params, "taskId")
	ref, err := c.task(name)
	if err != nil {
		return nil, err
	}
	c.hears(ref)
	raw, err := forward(ctx, s, ref.server, r, ref.id, "taskId")
	if err != nil {
		return nil, err
	}
	raw = c.renamed(raw, ref, name, "taskId")
	return c.renamed(raw, ref, name, "_meta", metaRelatedTask, "taskId"), nil
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

// ownTasks leaves of a server's list of tasks those of the client, under their
// names at this endpoint.
func (c *client) ownTasks(server string, tasks json.RawMessage) (kept []json.RawMessage, all bool) {
	owners := &c.ep.gateway.tasks
	all = true
	for task := range wire.Elements(tasks) {
		id, _ := wire.StringMember(task, "taskId")
		ref := taskRef{server, id}
		if !owners.owns(c.identity, ref) {
			all = false
			continue
		}
		kept = append(kept, c.renamed(task, ref, owners.note(c.identity, ref), "taskId"))
	}
	return kept, all
}

// listOwnTasks is tasks/list of the one server of an endpoint, with the tasks of
// the client.
func (c *client) listOwnTasks(ctx context.Context, s *patchbay.Session, r *wire.Request) (json.RawMessage, error) {
	raw, err := s.Forward(ctx, c.ep.single, r.Method, r.Params)
	if err != nil {
		return nil, refusal(err)
	}
	tasks, _ := wire.Member(raw, "tasks")
	kept, all := c.ownTasks(c.ep.single, tasks)
	if all {
		return raw, nil
	}
	return wire.SetMember(raw, appendArray(nil, kept), "tasks")
}

func appendArray(dst []byte, items []json.RawMessage) []byte {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item...)
	}
	return append(dst, ']')
}

const (
	// listPatience is how long one server may take to list its tasks.
	listPatience = 3 * time.Second

	maxTaskCursor = 4 << 10 // of one server
)

// listTasks lists the tasks of all servers that answer in time. Its cursor has
// those of the servers that have more.
func (c *client) listTasks(ctx context.Context, s *patchbay.Session, params json.RawMessage) (json.RawMessage, error) {
	able := c.taskServers()
	cursors := map[string]string{}
	if cursor := member(params, "cursor"); cursor != "" {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(text, &cursors) != nil {
			return nil, wire.Errorf(wire.CodeInvalidParams, "the cursor is not valid")
		}
		able = slices.DeleteFunc(able, func(server string) bool { _, more := cursors[server]; return !more })
	}
	lists := make([]json.RawMessage, len(able))
	ctx, stop := context.WithTimeout(ctx, listPatience)
	defer stop()
	var wg sync.WaitGroup
	for i, server := range able {
		var params json.RawMessage
		if cursor, ok := cursors[server]; ok {
			params = append(wire.AppendString([]byte(`{"cursor":`), cursor), '}')
		}
		wg.Go(func() {
			var err error
			if lists[i], err = s.Forward(ctx, server, "tasks/list", params); err != nil {
				c.ep.gateway.log.Info("tasks not listed", "server", server, "error", err)
			}
		})
	}
	wg.Wait()
	var tasks []json.RawMessage
	clear(cursors)
	for i, list := range lists {
		of, _ := wire.Member(list, "tasks")
		kept, _ := c.ownTasks(able[i], of)
		tasks = append(tasks, kept...)
		if next, _ := wire.StringMember(list, "nextCursor"); next != "" && len(next) <= maxTaskCursor {
			cursors[able[i]] = next
		}
	}
	out := appendArray([]byte(`{"tasks":`), tasks)
	if len(cursors) > 0 {
		text, _ := json.Marshal(cursors) // texts always marshal
		out = wire.AppendString(append(out, `,"nextCursor":`...), base64.RawURLEncoding.EncodeToString(text))
	}
	return append(out, '}'), nil
}

// taskNotified passes on what a server says of a task to a client that has it.
func (c *client) taskNotified(ctx context.Context, server, method string, params json.RawMessage) {
	id, _ := wire.StringMember(params, "taskId")
	ref := taskRef{server, id}
	c.mu.Lock()
	hears := c.tasks[ref]
	c.mu.Unlock()
	owners := &c.ep.gateway.tasks
	if !hears || !owners.owns(c.identity, ref) {
		return // another client's
	}
	c.passOn(ctx, method, c.renamed(params, ref, owners.note(c.identity, ref), "taskId"))
}

// acknowledgedKey is under which the context of a subscription to tasks has what
// takes the server's acknowledgement.
type acknowledgedKey struct{}

// acknowledgePatience is how long a server may take to say which tasks it will
// tell of. One that says nothing and does not refuse is taken to mean all.
const acknowledgePatience = 500 * time.Millisecond

// listenForTasks asks servers to tell of tasks, as long as ctx lasts, and returns
// the names of those that they will tell of. What is no task of the client is not
// asked for.
func (c *client) listenForTasks(ctx context.Context, names []string) []string {
	byServer := map[string]map[string]string{} // names by id
	for _, name := range names {
		ref, err := c.task(name)
		if err != nil {
			continue
		}
		c.hears(ref)
		if byServer[ref.server] == nil {
			byServer[ref.server] = map[string]string{}
		}
		byServer[ref.server][ref.id] = name
	}
	told := make(chan []string, len(byServer))
	for server, tasks := range byServer {
		go func() { told <- c.listenAt(ctx, server, tasks) }()
	}
	honoured := []string{}
	for range byServer {
		honoured = append(honoured, <-told...)
	}
	slices.Sort(honoured)
	return honoured
}

// listenAt asks one server.
func (c *client) listenAt(ctx context.Context, server string, tasks map[string]string) (honoured []string) {
	ids := slices.Sorted(maps.Keys(tasks))
	params, _ := json.Marshal(map[string]any{"notifications": map[string]any{"taskIds": ids}}) // texts always marshal
	said := make(chan []string, 1)
	ended := make(chan struct{})
	c.ep.gateway.listening.Go(func() {
		defer close(ended)
		ctx := context.WithValue(ctx, acknowledgedKey{}, said)
		if _, err := c.session.Forward(ctx, server, "subscriptions/listen", params); err != nil && ctx.Err() == nil {
			c.ep.gateway.log.Info("tasks are not announced", "server", server, "error", err)
		}
	})
	patience := time.NewTimer(acknowledgePatience)
	defer patience.Stop()
	select {
	case ids = <-said:
	case <-patience.C:
	case <-ended:
		return nil
	}
	for _, id := range ids {
		if name, ok := tasks[id]; ok {
			honoured = append(honoured, name)
		}
	}
	return honoured
}

// acknowledged takes a server's acknowledgement of a subscription to tasks, and
// reports whether it was one.
func acknowledged(ctx context.Context, method string, params json.RawMessage) bool {
	said, ok := ctx.Value(acknowledgedKey{}).(chan []string)
	if !ok || method != "notifications/subscriptions/acknowledged" {
		return false
	}
	ids := []string{}
	list, _ := wire.Member(params, "notifications", "taskIds")
	for raw := range wire.Elements(list) {
		if id, ok := wire.Unquote(raw); ok {
			ids = append(ids, id)
		}
	}
	select {
	case said <- ids:
	default: // it was said before
	}
	return true
}

// isTask reports whether a notification is about a task.
func isTask(method string) bool {
	return method == "notifications/tasks" || strings.HasPrefix(method, "notifications/tasks/")
}
