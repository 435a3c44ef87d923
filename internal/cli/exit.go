package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay"
)

// The exit codes of every command.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3   // server, tool, resource, prompt
	exitAuth        = 4   // authentication or input required
	exitDenied      = 5   // denied, or pending approval
	exitUnreachable = 6   // the server cannot be reached
	exitToolError   = 7   // the tool itself returned an error
	exitTimeout     = 124 // as timeout(1) has it
)

// exitCode is the one place where an error becomes a code.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if e, ok := errors.AsType[*patchbay.Error](err); ok {
		switch e.Kind {
		case patchbay.KindNotFound, patchbay.KindToolNotFound:
			return exitNotFound
		case patchbay.KindAuthUnavailable, patchbay.KindNeedsInput:
			return exitAuth
		case patchbay.KindDenied:
			return exitDenied
		case patchbay.KindTransport:
			return exitUnreachable
		case patchbay.KindServer:
			return exitToolError
		case patchbay.KindTimeout:
			return exitTimeout
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return exitTimeout
	}
	return exitError
}

// usageError is a command line that does not say what to do.
type usageError struct {
	message string
	command string // the command whose help explains it
	meant   string // a guess at what was; may be empty
}

func (e *usageError) Error() string { return e.message }

func usagef(command, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), command: command}
}

// errReported ends a command whose output already says what is wrong.
var errReported = errors.New("problems were reported")

// reported ends a command whose output already has the error; only its exit code
// is left to give.
func reported(err error) error { return fmt.Errorf("%w: %w", errReported, err) }
