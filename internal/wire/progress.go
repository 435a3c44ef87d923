package wire

import (
	"encoding/json"
	"strconv"
)

// Progress finds its call by the token, which on the wire is always the id of
// the call. A token that the caller has put into its params is replaced on the
// way out and put back on the way in, so that two callers that use the same one
// do not get each other's progress.

// maxProgress is how many progress notifications wait for a slow receiver. As
// progress only grows, it is the oldest that are dropped then.
const maxProgress = 256

// outgoingParams returns the params with what belongs into their _meta: a
// progress token of our own in the place of the caller's, if there is one or
// progress is wanted, and what every request of the modern era has, if there was
// no _meta.
func (p *Peer) outgoingParams(k *call) json.RawMessage {
	params := k.Params
	if isNull(params) && (k.Progress != nil || k.meta != nil) {
		params = json.RawMessage("{}")
	}
	c := newCursor(params)
	if !c.open {
		return params
	}
	if !c.find("_meta") {
		return k.insertMeta(params, c)
	}
	meta := newCursor(c.value())
	has := meta.find(MetaProgressToken)
	if !has && k.Progress == nil || !meta.open && !isNull(meta.text) {
		return params // the other side may say what is wrong with _meta
	}
	if !meta.open {
		params, _ = SetMember(params, k.appendID(nil), "_meta", MetaProgressToken) // null counts as an object
		return params
	}
	start, end := c.valueStart+meta.pos, c.valueStart+meta.pos
	if has {
		start, end = c.valueStart+meta.valueStart, c.valueStart+meta.valueEnd
		p.mu.Lock()
		k.token = meta.value()
		p.mu.Unlock()
	}
	out := append(make([]byte, 0, len(params)+40), params[:start]...)
	if !has && meta.valueEnd > 0 { // it is not the first
		out = append(out, ',')
	}
	if !has {
		out = append(out, tokenName...)
	}
	return append(k.appendID(out), params[end:]...)
}

const tokenName = `"` + MetaProgressToken + `":`

func (k *call) appendID(dst []byte) []byte { return strconv.AppendInt(dst, k.id, 10) }

// insertMeta gives params that have no _meta one with what is wanted in it, in
// one go, as nearly every call needs it. c is at their end.
func (k *call) insertMeta(params json.RawMessage, c cursor) json.RawMessage {
	if k.meta == nil && k.Progress == nil {
		return params
	}
	var members []byte
	if k.meta != nil {
		members = k.meta.whole[1 : len(k.meta.whole)-1]
	}
	out := make([]byte, 0, len(params)+len(members)+48)
	out = append(out, params[:c.pos]...)
	if c.valueEnd > 0 { // it is not the first
		out = append(out, ',')
	}
	out = append(append(out, `"_meta":{`...), members...)
	if k.Progress != nil {
		if members != nil {
			out = append(out, ',')
		}
		out = k.appendID(append(out, tokenName...))
	}
	return append(append(out, '}'), params[c.pos:]...)
}

// progressed passes a progress notification to its call. It reports false if
// the token is none of ours.
func (p *Peer) progressed(params json.RawMessage) bool {
	token, _ := Member(params, "progressToken")
	if len(token) == 0 || !isID(token) {
		return false
	}
	n, ok := parseID(token).integer()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok || n <= 0 || n > p.lastID {
		return false
	}
	k := p.calls[n]
	if k == nil {
		if of := p.tasks.find(n); of != nil {
			p.note(&Notification{Method: "notifications/progress", Params: withToken(params, of.token), Link: p, Tag: of.tag})
		} else {
			p.stats.LateAnswers++
		}
		return true
	}
	if k.Progress == nil {
		p.note(&Notification{Method: "notifications/progress", Params: withToken(params, k.token), Link: p, Tag: k.Tag})
	} else {
		if len(k.progress) == maxProgress {
			k.progress = append(k.progress[:0], k.progress[1:]...)
			p.stats.Dropped++
		}
		k.progress = append(k.progress, params)
	}
	select {
	case k.signal <- struct{}{}:
	default:
	}
	return true
}

// handOver calls Progress with what has come.
func (p *Peer) handOver(k *call) {
	if k.Progress == nil {
		return
	}
	p.mu.Lock()
	progress := k.progress
	k.progress = nil
	p.mu.Unlock()
	k.report(progress)
}

func (k *call) report(progress []json.RawMessage) {
	for _, params := range progress {
		k.Progress(withToken(params, k.token))
	}
}

// withToken puts the caller's token, if it had one, back into the params of a
// progress notification.
func withToken(params, token json.RawMessage) json.RawMessage {
	if token == nil {
		return params
	}
	own, err := SetMember(params, token, "progressToken")
	if err != nil {
		return params
	}
	return own
}

// taskTokens remembers the progress tokens of calls that were answered with a
// task (revision 2025-11-25): its progress goes on under the same token. As
// nobody says when a task has ended, the oldest are forgotten.
type taskTokens struct {
	latest []taskToken
}

type taskToken struct {
	id    int64
	token json.RawMessage
	tag   any
}

const maxTaskTokens = 256

// isTask reports whether a result announces another one instead of being it.
// One of that kind is small.
func isTask(result json.RawMessage) bool {
	if len(result) > 16<<10 {
		return false
	}
	_, ok := Member(result, "task")
	return ok
}

// add takes note of a call with a token that was answered with a task.
func (t *taskTokens) add(of taskToken) {
	if len(t.latest) == maxTaskTokens {
		t.latest = append(t.latest[:0], t.latest[1:]...)
	}
	t.latest = append(t.latest, of)
}

func (t *taskTokens) find(id int64) *taskToken {
	for i := range t.latest {
		if t.latest[i].id == id {
			return &t.latest[i]
		}
	}
	return nil
}
