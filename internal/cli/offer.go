package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// The commands that list what servers offer are the same but for what they list.

// offer is what such a list is about, and what it cannot tell. It is a part of
// what the commands print as JSON.
type offer struct {
	Failed   failures         `json:"failed,omitempty"`   // servers that could not be connected
	Problems []config.Problem `json:"problems,omitempty"` // of files as a whole

	server  string // the one it is about; empty means all
	servers []patchbay.ServerStatus
}

// offering completes a command that lists what servers offer, which they tell when
// a method is called. Its list returns what is printed as JSON, and what prints it
// for people.
func (a *app) offering(cmd *cobra.Command, method string, list func(context.Context, *control.Client, offer) (any, func(*printer), error)) *cobra.Command {
	var connect bool
	var limit time.Duration
	cmd.Use += " [server]"
	cmd.Args = atMostOne()
	cmd.ValidArgsFunction = a.usableServer()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.with(connect || len(args) > 0)(cmd.Context(), func(c *control.Client) error {
			of, err := gather(cmd.Context(), c, args, method, connect, limit)
			if err != nil {
				return err
			}
			value, show, err := list(cmd.Context(), c, of)
			if err != nil {
				return err
			}
			return a.print(value, func(p *printer) {
				show(p)
				p.unknown(of, cmd.CommandPath()+" --connect")
				p.wrong(of.Problems)
			})
		})
	}
	connectFlags(cmd, &connect, &limit)
	return cmd
}

// gather connects the servers that a list is about, if any are to be: the one
// that is named, or all. It returns how they stand.
func gather(ctx context.Context, c *control.Client, names []string, method string, connect bool, limit time.Duration) (of offer, err error) {
	if len(names) > 0 {
		bound, stop := within(ctx, limit)
		defer stop()
		if err := c.Connect(bound, names[0]); err != nil {
			return of, err
		}
	} else if connect {
		if of.Failed, err = connectAll(ctx, c, limit); err != nil {
			return of, err
		}
	}
	snap, err := c.Snapshot(ctx, false)
	if err != nil {
		return of, err
	}
	of.Problems = wrongFiles(snap)
	if len(names) == 0 {
		for _, s := range snap.Servers {
			if err := unlisted(s, method); err != nil && s.InForce && connect {
				of.Failed[s.Name] = asError(err)
			}
		}
		of.servers = slices.DeleteFunc(snap.Servers, func(s patchbay.ServerStatus) bool { return !usable(s) })
		return of, nil
	}
	s, err := c.Server(ctx, names[0], false)
	of.server, of.servers = s.Name, []patchbay.ServerStatus{s}
	if err == nil {
		err = unlisted(s, method)
	}
	return of, err
}

// unknown says of which servers a list cannot tell.
func (p *printer) unknown(of offer, command string) {
	var never []string
	for _, s := range of.servers {
		if s.Counts == nil && of.Failed[s.Name] == nil {
			never = append(never, s.Name)
		}
	}
	if len(never)+len(of.Failed) > 0 {
		p.line("")
	}
	if len(never) > 0 {
		p.line("%s never been connected: %s", count(len(never), "server has", "servers have"), command)
	}
	for _, name := range slices.Sorted(maps.Keys(of.Failed)) {
		p.line(p.paint("%s", red), of.Failed[name].Message)
	}
}
