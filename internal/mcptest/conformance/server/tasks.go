package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The tasks extension. wire passes it through, so all of it is here: a tool that
// takes its time is answered with a task, and the client comes back to ask how
// it is.

const tasksExtension = "io.modelcontextprotocol/tasks"

// A taskTool runs as a task if the client knows tasks.
type taskTool struct {
	required bool // it cannot run otherwise
	asks     bool // it asks its client before the task begins
	run      func(ctx context.Context, c *call, ask asker) (json.RawMessage, error)
}

// taskTools are those the suite names.
var taskTools = []tool{
	{name: "greet", description: "Never a task", schema: nameSchema, call: func(_ context.Context, c *call) (json.RawMessage, error) {
		return content(text("Hello, " + c.argument("name") + "!")), nil
	}},
	{name: "slow_compute", description: "Takes its time", task: &taskTool{run: slowCompute},
		schema: `{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}`},
	{name: "failing_job", description: "Ends with an error of the tool", task: &taskTool{
		required: true,
		run: func(context.Context, *call, asker) (json.RawMessage, error) {
			return toolError("the job has failed"), nil
		}}},
	{name: "protocol_error_job", description: "Ends with an error of the protocol", task: &taskTool{
		run: func(context.Context, *call, asker) (json.RawMessage, error) {
			return nil, wire.Errorf(wire.CodeInternal, "the job could not be run")
		}}},
	{name: "confirm_delete", description: "Asks before it acts", task: &taskTool{run: confirmDelete},
		schema: `{"type":"object","properties":{"filename":{"type":"string"}}}`},
	{name: "multi_input", description: "Asks two things at once", task: &taskTool{run: askTwoAtOnce}},
	{name: "test_tool_with_task", description: "Asks first and becomes a task then", task: &taskTool{required: true, asks: true, run: greetInTime}},
}

func slowCompute(ctx context.Context, c *call, _ asker) (json.RawMessage, error) {
	var arguments struct{ Seconds float64 }
	if err := json.Unmarshal(c.arguments, &arguments); err != nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "arguments: %v", err)
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Duration(arguments.Seconds * float64(time.Second))):
		return content(text("computed " + c.argument("label"))), nil
	}
}

func confirmDelete(ctx context.Context, c *call, ask asker) (json.RawMessage, error) {
	const schema = `{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`
	answer, err := ask(ctx, "elicitation/create", elicitation("Delete "+c.argument("filename")+"?", schema))
	if err != nil {
		return nil, err
	}
	if yes, _ := accepted(answer, "confirm"); string(yes) != "true" {
		return content(text("kept " + c.argument("filename"))), nil
	}
	return content(text("deleted " + c.argument("filename"))), nil
}

func askTwoAtOnce(ctx context.Context, _ *call, ask asker) (json.RawMessage, error) {
	var group sync.WaitGroup
	var names [2]string
	var errs [2]error
	for i := range names {
		group.Go(func() {
			var answer json.RawMessage
			answer, errs[i] = ask(ctx, "elicitation/create", elicitation(fmt.Sprintf("Name %d?", i+1), nameSchema))
			names[i], _ = acceptedString(answer, "name")
		})
	}
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return content(text(names[0] + " and " + names[1])), nil
}

// greetInTime asks within its call. What it returns is run as a task.
func greetInTime(ctx context.Context, c *call, ask asker) (json.RawMessage, error) {
	answer, err := ask(ctx, "elicitation/create", elicitation("What is your name?", nameSchema))
	if err != nil {
		return nil, err
	}
	name, _ := acceptedString(answer, "name")
	return content(text("Hello, " + name + "!")), nil
}

// callTaskTool runs a tool, in a task if it may be one.
func (f *fixture) callTaskTool(ctx context.Context, c *call, t *taskTool) (json.RawMessage, error) {
	if !c.Session.Supports("extensions", tasksExtension) {
		if t.required {
			return nil, missingCapability(`{"extensions":{"` + tasksExtension + `":{}}}`)
		}
		return t.run(ctx, c, c.ask)
	}
	run := func(ctx context.Context, ask asker) (json.RawMessage, error) { return t.run(ctx, c, ask) }
	if t.asks {
		result, err := t.run(ctx, c, c.ask)
		run = func(context.Context, asker) (json.RawMessage, error) { return result, err }
	}
	task, err := f.tasks.start(f, run)
	if err != nil {
		return nil, err
	}
	return task.created(), nil
}

// handleTask answers tasks/get, tasks/update and tasks/cancel.
func (f *fixture) handleTask(r *wire.Request) (json.RawMessage, error) {
	if !r.Session.Supports("extensions", tasksExtension) {
		return nil, missingCapability(`{"extensions":{"` + tasksExtension + `":{}}}`)
	}
	id, _ := wire.StringMember(r.Params, "taskId")
	t := f.tasks.find(id)
	if t == nil {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown task %q", id)
	}
	switch r.Method {
	case "tasks/update":
		responses, _ := wire.Member(r.Params, "inputResponses")
		t.update(responses)
	case "tasks/cancel":
		t.cancel()
	default:
		return t.detailed(), nil
	}
	return json.RawMessage(`{}`), nil
}

// taskStore holds the tasks until their time is up.
type taskStore struct {
	mu    sync.Mutex
	tasks map[string]*task
}

const (
	maxTasks = 1000
	taskTTL  = 5 * time.Minute
	taskPoll = 200 * time.Millisecond
)

func newTaskStore() *taskStore { return &taskStore{tasks: map[string]*task{}} }

func (s *taskStore) find(id string) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[id]
}

// start runs something as a task. When it returns, the task can be found.
func (s *taskStore) start(f *fixture, run func(context.Context, asker) (json.RawMessage, error)) (*task, error) {
	now := time.Now()
	t := &task{id: rand.Text(), begun: now, changed: now, status: "working", notify: func(state json.RawMessage) {
		f.broadcast("notifications/tasks", string(state))
	}}
	ctx, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) >= maxTasks {
		cancel()
		return nil, wire.Errorf(wire.CodeOverloaded, "too many tasks")
	}
	s.tasks[t.id] = t
	time.AfterFunc(taskTTL, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tasks, t.id)
	})
	go func() {
		result, err := run(ctx, t.ask)
		t.finish(result, err)
	}()
	return t, nil
}

// A task is a tool call under way, or its outcome.
type task struct {
	id     string
	begun  time.Time
	stop   context.CancelFunc
	notify func(state json.RawMessage)

	mu      sync.Mutex
	changed time.Time
	status  string // working, input_required, completed, failed, cancelled
	result  json.RawMessage
	err     *wire.Error
	asked   int
	asks    []taskAsk // not yet answered
}

type taskAsk struct {
	key            string
	method, params string
	answer         chan json.RawMessage // room for one
}

// ask has the client find a question when it looks at the task.
func (t *task) ask(ctx context.Context, method, params string) (json.RawMessage, error) {
	a := taskAsk{method: method, params: params, answer: make(chan json.RawMessage, 1)}
	t.change(func() {
		t.asked++
		a.key = "input-" + strconv.Itoa(t.asked)
		t.asks = append(t.asks, a)
		t.status = "input_required"
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case answer := <-a.answer:
		return answer, nil
	}
}

// update takes the client's answers. Those to nothing are ignored.
func (t *task) update(responses json.RawMessage) {
	t.change(func() {
		t.asks = slices.DeleteFunc(t.asks, func(a taskAsk) bool {
			answer, ok := wire.Member(responses, a.key)
			if ok {
				a.answer <- answer
			}
			return ok
		})
		if len(t.asks) == 0 {
			t.status = "working"
		}
	})
}

func (t *task) cancel() {
	t.change(func() { t.status = "cancelled" })
	t.stop()
}

func (t *task) finish(result json.RawMessage, err error) {
	t.change(func() {
		if err == nil {
			t.status, t.result = "completed", result
			return
		}
		t.status = "failed"
		var ok bool
		if t.err, ok = errors.AsType[*wire.Error](err); !ok {
			t.err = wire.Errorf(wire.CodeInternal, "%v", err)
		}
	})
	t.stop()
}

// change does something to a task that is not over, and tells who listens.
func (t *task) change(do func()) {
	t.mu.Lock()
	switch t.status {
	case "completed", "failed", "cancelled":
		t.mu.Unlock()
		return
	}
	do()
	t.changed = time.Now()
	t.mu.Unlock()
	t.notify(t.detailed())
}

// created is the answer to the call that became the task.
func (t *task) created() json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(t.appendTo([]byte(`{"resultType":"task",`)), '}')
}

// detailed is the task with what has come of it.
func (t *task) detailed() json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.appendTo([]byte(`{`))
	switch {
	case t.status == "completed":
		out = append(append(out, `,"result":`...), t.result...)
	case t.status == "failed":
		out = t.err.AppendTo(append(out, `,"error":`...))
	case t.status == "input_required":
		for i, a := range t.asks {
			if i == 0 {
				out = append(out, `,"inputRequests":{`...)
			} else {
				out = append(out, ',')
			}
			out = append(out, inputRequest(a.key, a.method, a.params)...)
		}
		out = append(out, '}')
	}
	return append(out, '}')
}

func (t *task) appendTo(out []byte) []byte {
	return fmt.Appendf(out, `"taskId":%q,"status":%q,"createdAt":%q,"lastUpdatedAt":%q,"ttlMs":%d,"pollIntervalMs":%d`,
		t.id, t.status, t.begun.UTC().Format(time.RFC3339Nano), t.changed.UTC().Format(time.RFC3339Nano), taskTTL.Milliseconds(), taskPoll.Milliseconds())
}
