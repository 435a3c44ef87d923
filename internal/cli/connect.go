package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// lookAround is how long a command that looks at all servers at once waits,
// unless told otherwise: whoever is late is shown as connecting.
const lookAround = 30 * time.Second

// withServers runs the work of a command that may connect to servers. When it
// returns their processes are gone.
func (a *app) withServers(ctx context.Context, work func(*control.Client) error) error {
	c, closeHost, err := a.open(ctx, a.env.Guard)
	if err != nil {
		return err
	}
	defer closeHost()
	return work(c)
}

// with chooses between withServers and withClient.
func (a *app) with(connects bool) func(context.Context, func(*control.Client) error) error {
	if connects {
		return a.withServers
	}
	return a.withClient
}

// within bounds a wait for servers, if there is a limit. It counts in place of
// those of their entries and of the settings.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return patchbay.WithTimeout(ctx, limit)
}

// timeoutFlag lets a command that uses one server be given a limit.
func timeoutFlag(cmd *cobra.Command, limit *time.Duration) {
	cmd.Flags().DurationVar(limit, "timeout", 0, "give up after this `duration`, such as 10s, and not before (default: the limits of the server's entry)")
}

// withLonger adds to the error of a command that ran out of time how to give it
// more.
func withLonger(cmd *cobra.Command, err error) error {
	if err == nil || cmd.Flags().Lookup("timeout") == nil || kindOf(err) != patchbay.KindTimeout {
		return err
	}
	e, ok := errors.AsType[*patchbay.Error](err)
	if !ok {
		e = asError(err)
		err = e
	}
	e.Hint = strings.TrimSpace(e.Hint + " With --timeout it gets longer, this once.")
	return err
}

// connectFlags let a command that shows all servers connect to them first.
func connectFlags(cmd *cobra.Command, connect *bool, limit *time.Duration) {
	cmd.Flags().BoolVar(connect, "connect", false, "connect to the servers first")
	cmd.Flags().DurationVar(limit, "timeout", 0, "with --connect: wait this `duration` at most (default: 30s; for one server the limits of its entry)")
}

// usable reports whether a server may be connected.
func usable(s patchbay.ServerStatus) bool {
	return s.InForce && s.Skip == "" && s.State != config.Disabled && s.State != config.NeedsApproval && !invalid(s)
}

func invalid(s patchbay.ServerStatus) bool {
	for _, p := range s.Problems {
		if p.Severity == config.SeverityError {
			return true
		}
	}
	return false
}

// failures are why servers could not be connected, by name.
type failures map[string]*patchbay.Error

// connectAll connects every server that may be, all at the same time.
func connectAll(ctx context.Context, c *control.Client, limit time.Duration) (failures, error) {
	ctx, stop := within(ctx, limit)
	defer stop()
	if limit <= 0 {
		ctx, stop = context.WithTimeout(ctx, lookAround)
		defer stop()
	}
	snap, err := c.Snapshot(ctx, false)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := failures{}
	for _, s := range snap.Servers {
		if !usable(s) {
			continue
		}
		wg.Go(func() {
			if err := c.Connect(ctx, s.Name); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[s.Name] = asError(err)
			}
		})
	}
	wg.Wait()
	return failed, interrupted(ctx)
}

// unlisted is the error of a server that is connected and does not say what it
// offers: of the list that a method reads, or of any if that is empty. nil if it
// does.
func unlisted(s patchbay.ServerStatus, method string) error {
	for _, u := range s.Unlisted {
		if method == "" || u.Method == method {
			return &patchbay.Error{
				Kind: u.Kind, Message: fmt.Sprintf("%q is connected, but %s failed: %s", s.Name, u.Method, u.Reason),
				Hint: "What it wrote may say why: patchbay logs " + shellName(s.Name),
			}
		}
	}
	return nil
}

// interrupted tells the end of a context that a person brought about from that
// of its time, which is no reason not to show what there is.
func interrupted(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errInterrupted
	}
	return nil
}

// asError returns an error in the form in which it is printed.
func asError(err error) *patchbay.Error {
	if e, ok := errors.AsType[*patchbay.Error](err); ok {
		return e
	}
	e := &patchbay.Error{Message: err.Error()}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Kind = patchbay.KindTimeout
	}
	return e
}

func kindOf(err error) patchbay.Kind { return asError(err).Kind }

// lookUp returns an error if a tool is not known, or denied. To callers the two
// are the same; the person at the keyboard is told which it is.
func lookUp(ctx context.Context, c *control.Client, tool string) error {
	known, err := c.Why(ctx, tool)
	if err == nil && known.Decision.Effect == patchbay.Deny && !known.Tool.Changed { // it may have changed back
		return &patchbay.Error{Kind: patchbay.KindDenied, Message: fmt.Sprintf("%s is denied: %s", known.Tool.Name, known.Decision.Reason)}
	}
	return err
}

// serverOf returns the server that a tool's name begins with, in any of the
// forms a name has; the longest if there are several.
func serverOf(tool string, servers []patchbay.ServerStatus) string {
	best := ""
	for _, s := range servers {
		plain := plainName(s.Name)
		for _, prefix := range []string{s.Name + ".", s.Name + "/", plain + "__", "mcp__" + plain + "__", "mcp_" + plain + "_"} {
			if strings.HasPrefix(tool, prefix) && len(s.Name) > len(best) {
				best = s.Name
			}
		}
	}
	return best
}

// plainName is a server's name as it is written into names of tools.
func plainName(server string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, server)
}
