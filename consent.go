package patchbay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// consent asks whether a call may go ahead: the session's user, as servers do,
// or else the person whom the UI reaches. It returns nil if it may.
func (s *Session) consent(ctx context.Context, t Tool, d Decision, arguments json.RawMessage) error {
	ui, client := s.host.opts.UI, s.opts.Client
	var ask func(ctx context.Context) (bool, error)
	confirm := func(name string, asked func(context.Context, ConfirmRequest) (bool, error)) func(context.Context) (bool, error) {
		return func(ctx context.Context) (ok bool, err error) {
			err = s.host.protect(name, func() (err error) {
				ok, err = asked(ctx, ConfirmRequest{Tool: t, Arguments: arguments, Decision: d})
				return err
			})
			return ok, err
		}
	}
	switch {
	case client != nil && client.Confirm != nil:
		ask = confirm("Client.Confirm", client.Confirm)
	case client.elicitModes().form:
		ask = func(ctx context.Context) (ok bool, err error) {
			err = s.host.protect("Client.Elicit", func() error {
				answer, err := client.Elicit(ctx, "", consentQuestion(t, d, arguments))
				choice, _ := wire.StringMember(answer, "content", consentField)
				ok = accepts(answer) && choice == allowOnce
				return err
			})
			if refusal, is := errors.AsType[*RPCError](err); is { // which is no answer of the tool's server
				err = errorf(KindDenied, "%s was not permitted: %v", t.Name, refusal)
			}
			return ok, err
		}
	case ui != nil && ui.Confirm != nil:
		ask = confirm("UI.Confirm", ui.Confirm)
	default:
		return errorf(KindDenied, "MCPTool requires permission.").hint("%s: %s", t.Name, d.Reason)
	}
	limited, stop := context.WithTimeout(ctx, elicitPatience)
	defer stop()
	ok, err := ask(limited)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return errorf(KindDenied, "%s was not permitted: nobody answered in time.", t.Name)
	case err != nil:
		return err
	case !ok:
		return errorf(KindDenied, "%s was not permitted.", t.Name)
	}
	return nil
}

// The form that asks for consent.
const (
	consentField = "decision"
	allowOnce    = "allow once"
	consentForm  = `{"type":"object","properties":{"` + consentField + `":{"type":"string","title":"Decision","enum":["` + allowOnce + `","deny"]}},"required":["` + consentField + `"]}`
)

// consentQuestion is the params of an elicitation that asks for consent.
func consentQuestion(t Tool, d Decision, arguments json.RawMessage) json.RawMessage {
	var b strings.Builder
	fmt.Fprintf(&b, "May the tool %s be called?", config.Escape(t.Name))
	if t.Server != "" {
		fmt.Fprintf(&b, " It is %s of the server %s.", config.Escape(t.Tool), config.Escape(t.Server))
	}
	fmt.Fprintf(&b, "\nArguments: %s\nWhy you are asked: %s", excerpt(arguments), config.Escape(d.Reason))
	params := wire.AppendString([]byte(`{"message":`), b.String())
	return append(params, `,"requestedSchema":`+consentForm+`}`...)
}

// What a person is shown of arguments, in bytes: their beginning and their end.
const (
	excerptHead = 1500
	excerptTail = 500
)

// excerpt is arguments as a person is shown them: what cannot be seen is made
// visible, and what is too long is shortened.
func excerpt(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		return "none"
	}
	if len(arguments) <= excerptHead+excerptTail {
		return config.Escape(string(arguments))
	}
	head, tail := excerptHead, len(arguments)-excerptTail
	for head > 0 && !utf8.RuneStart(arguments[head]) {
		head--
	}
	for tail < len(arguments) && !utf8.RuneStart(arguments[tail]) {
		tail++
	}
	return fmt.Sprintf("%s … %d bytes left out … %s", config.Escape(string(arguments[:head])), tail-head, config.Escape(string(arguments[tail:])))
}
