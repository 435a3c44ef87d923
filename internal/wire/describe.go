package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// Description is how a server presents itself. It does not change: whoever
// presents something else makes another one.
type Description struct {
	info     json.RawMessage
	told     []byte // the members capabilities and instructions of initialize and server/discover
	identity []byte // the _meta member that names the server in results, with a comma
	offered  Filter // what the capabilities allow to subscribe to
}

// NewDescription returns a Description after checking it. Info is the
// implementation object; nil capabilities mean none.
func NewDescription(info, capabilities json.RawMessage, instructions string) (*Description, error) {
	if len(capabilities) == 0 {
		capabilities = json.RawMessage("{}")
	}
	for _, part := range []struct {
		name string
		text json.RawMessage
	}{{"info", info}, {"capabilities", capabilities}} {
		if err := Valid(part.text, Limits{}); err != nil {
			return nil, fmt.Errorf("description: %s: %w", part.name, err)
		}
		if !IsObject(part.text) {
			return nil, fmt.Errorf("description: %s: %w", part.name, errNotObject)
		}
	}
	d := &Description{info: info, offered: filterOffered(capabilities)}
	d.told = append([]byte(`"capabilities":`), capabilities...)
	if instructions != "" {
		d.told = append(d.told, `,"instructions":`...)
		d.told = AppendString(d.told, instructions)
	}
	d.identity = append(append([]byte(`"_meta":{"`+MetaServerInfo+`":`), info...), "},"...)
	return d, nil
}

// announces reports whether a notification that a list has changed may go to a
// legacy client that was told d. Other notifications are not d's to decide on.
func (d *Description) announces(method string) bool {
	switch method {
	case "notifications/tools/list_changed":
		return d.offered.ToolsListChanged
	case "notifications/prompts/list_changed":
		return d.offered.PromptsListChanged
	case "notifications/resources/list_changed":
		return d.offered.ResourcesListChanged
	}
	return true
}

// AnswerAs makes d name the server in the result of this request, which the
// modern era has in every result that does not name one itself. Otherwise it is
// the server's own Info.
func (r *Request) AnswerAs(d *Description) {
	if r.Session.Era == Modern {
		r.Session.described.Store(d)
	}
}

// description is what the client of the session was told, or is to be told in
// the results of this request.
func (s *Session) description() *Description {
	if d := s.described.Load(); d != nil {
		return d
	}
	return s.server.description
}

// describe finds out how the server presents itself to a client, and notes it
// in the session.
func (s *Server) describe(ctx context.Context, sess *Session) (*Description, *Error) {
	d := s.description
	if s.opts.Describe != nil {
		if !s.enter() {
			return nil, errShuttingDown()
		}
		defer s.leave()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer sess.atEnd(func() { cancel(ErrClosed) })()
		var err error
		if d, err = s.askDescription(ctx, sess); err != nil {
			return nil, s.publicError("describe", err)
		}
	}
	sess.described.Store(d)
	return d, nil
}

func (s *Server) askDescription(ctx context.Context, sess *Session) (d *Description, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("describe panicked: %v\n%s", v, debug.Stack())
		}
	}()
	if d, err = s.opts.Describe(ctx, sess); err == nil && d == nil {
		err = errors.New("describe returned nothing")
	}
	return d, err
}

// atEnd has f called, in a goroutine of its own, when the session has ended,
// unless stop is called before.
func (s *Session) atEnd(f func()) (stop func() bool) {
	if s.life == nil {
		return context.AfterFunc(s.server.ctx, f)
	}
	return context.AfterFunc(s.life.ctx, f)
}

// discover answers server/discover.
func (s *Server) discover(ctx context.Context, sess *Session) (json.RawMessage, *Error) {
	d, err := s.describe(ctx, sess)
	if err != nil {
		return nil, err
	}
	result := append([]byte(`{"supportedVersions":`), s.supported...)
	result = append(append(result, ','), d.told...)
	return s.dressAs(d, "server/discover", append(result, '}')), nil
}

// initializeResult is the answer to initialize.
func (d *Description) initializeResult(version string) json.RawMessage {
	result := append([]byte(`{"protocolVersion":"`+version+`",`), d.told...)
	result = append(result, `,"serverInfo":`...)
	return append(append(result, d.info...), '}')
}
