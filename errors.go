package patchbay

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/config"
)

// Kind sorts errors by what a caller can do about them.
type Kind string

const (
	KindConfigInvalid   Kind = "config_invalid"   // the configuration, or the change asked for, is not valid
	KindNotFound        Kind = "not_found"        // no server of that name
	KindDenied          Kind = "denied"           // not approved, or forbidden by a rule
	KindToolNotFound    Kind = "tool_not_found"   // no tool of that name
	KindAuthUnavailable Kind = "auth_unavailable" // a login is needed first
	KindNeedsInput      Kind = "needs_input"      // somebody has to be asked first: GiveInputs
	KindTransport       Kind = "transport_error"  // the server cannot be reached
	KindTimeout         Kind = "timeout"          // it took too long
	KindServer          Kind = "server_error"     // the server answered with an error
)

// Error is an error of Patchbay's own, in one clear sentence.
type Error struct {
	Kind     Kind             `json:"kind"`
	Message  string           `json:"message"`
	Hint     string           `json:"hint,omitempty"`     // what to do about it
	Problems []config.Problem `json:"problems,omitempty"` // what is wrong in detail, with places

	// RetrySafe tells of a call that got no answer that it may be made again: it
	// did not reach the server, or does no harm twice.
	RetrySafe bool `json:"retrySafe,omitempty"`

	cause error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns what brought the error about, such as the end of a context.
func (e *Error) Unwrap() error { return e.cause }

func errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// hint adds what to do about the error.
func (e *Error) hint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}
