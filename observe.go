package patchbay

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// CallRecord is what there is to say about one request of a session once it is
// over: who asked for what, what was decided about it and how it ended. What was
// sent and answered is not part of it.
type CallRecord struct {
	Time    time.Time `json:"time"`             // when it began
	Session string    `json:"session"`          // who: the name of the session
	Method  string    `json:"method"`           // such as tools/call
	Server  string    `json:"server,omitempty"` // empty for Patchbay's own tools
	Tool    string    `json:"tool,omitempty"`   // of a tools/call: as its server calls it, or as the caller did if there is none

	Decision Effect `json:"decision,omitempty"` // of a tools/call; ask and another outcome than denied means that the answer was yes
	Rule     string `json:"rule,omitempty"`     // the pattern of the rule that decided, if one did
	Source   string `json:"source,omitempty"`   // where that rule is from; hook if a hook decided, pins if the tool changed

	Outcome  string        `json:"outcome"`           // ok, tool_error, cancelled, or the kind of the error
	Duration time.Duration `json:"durationNs"`        //
	BytesIn  int           `json:"bytesIn"`           // of the request's params
	BytesOut int           `json:"bytesOut"`          // of the result
	TraceID  string        `json:"traceId,omitempty"` // of W3C trace context

	// SpanID is the request's own span, if Options.Traces is set and the caller's
	// trace, if it has one, is recorded. ParentID is the caller's.
	SpanID   string `json:"spanId,omitempty"`
	ParentID string `json:"parentId,omitempty"`
}

// Outcomes of requests, besides the kinds of errors.
const (
	OutcomeOK        = "ok"
	OutcomeToolError = "tool_error" // the tool itself says that it failed
	OutcomeCancelled = "cancelled"  // the caller did not wait for the answer
	OutcomeError     = "error"      // of no kind
)

// maxRecorded is how much of a name is recorded. Methods and names of tools are
// whatever clients send, and records are kept.
const maxRecorded = 128

func recorded(name string) string {
	if len(name) <= maxRecorded {
		return name
	}
	return strings.ToValidUTF8(strings.Clone(name[:maxRecorded]), "") // and nothing of the rest stays in memory
}

// begin starts the record of a request, and returns the params to send: those of
// the caller, unless the server is to be told of a span.
func (s *Session) begin(method, server string, params, meta json.RawMessage) (CallRecord, json.RawMessage) {
	r := CallRecord{Time: s.host.opts.Now().UTC(), Session: s.opts.Name, Method: method, Server: server, BytesIn: len(params)}
	parent, _ := wire.StringMember(meta, "traceparent")
	trace, span, sampled := parseTraceparent(parent)
	r.TraceID, r.ParentID = trace, span
	if !s.host.opts.Traces || trace != "" && !sampled {
		return r, params
	}
	if trace == "" {
		trace = randomHex(16)
	}
	own := randomHex(8)
	traced, err := wire.SetMember(params, wire.AppendString(nil, "00-"+trace+"-"+own+"-01"), "_meta", "traceparent")
	if err != nil { // _meta is something else, which is for the server to say
		return r, params
	}
	r.TraceID, r.SpanID = trace, own
	return r, traced
}

// decided adds what was decided about a call of a tool.
func (r *CallRecord) decided(t *offered) {
	r.Tool, r.Decision = t.Tool.Tool, t.decision.Effect
	if t.decision.Rule != nil {
		r.Rule, r.Source = t.decision.Rule.Pattern, t.decision.Rule.Source
	}
	if t.Changed && r.Decision != Deny {
		r.Decision, r.Rule, r.Source = Deny, "", "pins"
	}
}

// end completes a record and hands it over.
func (s *Session) end(ctx context.Context, r CallRecord, raw json.RawMessage, err error) {
	r.Method, r.Server, r.Tool = recorded(r.Method), recorded(r.Server), recorded(r.Tool)
	r.Duration = s.host.opts.Now().Sub(r.Time)
	r.BytesOut = len(raw)
	r.Outcome = outcomeOf(ctx, raw, err)
	defer func() {
		if v := recover(); v != nil {
			s.host.opts.Logger.Error("panic", "in", "Options.Observe", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	s.host.opts.Observe(r)
}

// unknown records a call of a tool that is not there, or not for this session.
func (s *Session) unknown(ctx context.Context, server, tool string, err error) {
	if s.host.opts.Observe == nil {
		return
	}
	s.end(ctx, CallRecord{Time: s.host.opts.Now().UTC(), Session: s.opts.Name, Method: "tools/call", Server: server, Tool: tool}, nil, err)
}

func outcomeOf(ctx context.Context, raw json.RawMessage, err error) string {
	if err == nil {
		// Most results do not have the member, and large ones are searched faster
		// than parsed.
		if bytes.Contains(raw, []byte(`"isError"`)) && (&Result{Raw: raw}).IsError() {
			return OutcomeToolError
		}
		return OutcomeOK
	}
	ours, isOurs := errors.AsType[*Error](err)
	_, isAnswer := errors.AsType[*RPCError](err)
	switch {
	case isOurs && ours.Kind == KindDenied:
		return string(KindDenied)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return string(KindTimeout)
	case ctx.Err() != nil:
		return OutcomeCancelled
	case isOurs:
		return string(ours.Kind)
	case isAnswer:
		return string(KindServer)
	}
	return OutcomeError
}

// parseTraceparent reads the W3C header: its trace, the caller's span, and
// whether they are recorded. Both are empty if it is malformed.
func parseTraceparent(text string) (trace, span string, sampled bool) {
	const form = "00-00000000000000000000000000000000-0000000000000000-00"
	if len(text) < len(form) || len(text) > len(form) && (text[:2] == "00" || text[len(form)] != '-') || text[:2] == "ff" {
		return "", "", false
	}
	for i, c := range []byte(text[:len(form)]) {
		hexDigit := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
		if dash := form[i] == '-'; dash && c != '-' || !dash && !hexDigit {
			return "", "", false
		}
	}
	trace, span = text[3:35], text[36:52]
	if strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return "", "", false
	}
	return trace, span, strings.IndexByte("13579bdf", text[54]) >= 0
}

// randomHex returns the hexadecimal form of 8 or 16 random bytes, which are not
// all zero.
func randomHex(size int) string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], rand.Uint64()|1)
	binary.NativeEndian.PutUint64(b[8:], rand.Uint64())
	return hex.EncodeToString(b[:size])
}

// Sessions returns how many sessions are open.
func (h *Host) Sessions() int {
	h.sessionsMu.Lock()
	defer h.sessionsMu.Unlock()
	return len(h.sessions)
}
