package cli

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// follower prints a line for each server whose state changes while it is served,
// and each problem of a file once.
type follower struct {
	app   *app
	told  map[string]string // what was last said of a server
	wrong []config.Problem  // those that were told
}

// follow goes on from what was told of the servers when they were greeted.
func (a *app) follow(ctx context.Context, c *control.Client, servers []patchbay.ServerStatus, wrong []config.Problem) {
	f := follower{app: a, told: map[string]string{}, wrong: wrong}
	for _, st := range servers {
		if standing(st) {
			f.told[st.Name] = lineOf(st)
		} else {
			f.told[st.Name] = string(st.State)
		}
	}
	for snap, err := range c.Watch(ctx) {
		if err != nil || ctx.Err() != nil {
			return // what ended is told elsewhere
		}
		f.look(snap)
	}
}

// look prints what has changed.
func (f *follower) look(snap patchbay.Snapshot) {
	p := f.app.printer()
	now := f.app.env.Now().Format(time.TimeOnly)
	there := map[string]bool{}
	for _, st := range snap.Servers {
		if !st.InForce || st.Skip != "" {
			continue
		}
		there[st.Name] = true
		if !standing(st) {
			if _, known := f.told[st.Name]; !known {
				f.told[st.Name] = string(st.State)
			}
			continue
		}
		line := lineOf(st)
		if f.told[st.Name] == line {
			continue
		}
		f.told[st.Name] = line
		c := p.stateSymbol(st)
		p.line("%s  "+p.paint("%s", c.style)+"%s", now, c.text, line)
	}
	for name := range f.told {
		if !there[name] {
			delete(f.told, name)
			p.line("%s  %s is not configured any more", now, shellName(name))
		}
	}
	for _, pr := range wrongFiles(snap) {
		if !slices.Contains(f.wrong, pr) {
			p.line("%s  %s: %s", now, string(pr.Severity), p.problem(pr))
		}
	}
	f.wrong = wrongFiles(snap)
	_, _ = io.WriteString(f.app.env.Stdout, p.String()) // nobody reads it, then
}

// standing reports whether a server is in a state in which it stays until
// something happens. What is between two of them is not told: a server that is
// tried again and again is told of once.
func standing(st patchbay.ServerStatus) bool {
	return st.State != config.Pending && st.State != config.Connecting
}

// lineOf says how a server stands, and what to do about it if there is something
// to do.
func lineOf(st patchbay.ServerStatus) string {
	if need, ok := needOf(st); ok {
		return need
	}
	name := shellName(st.Name)
	switch {
	case st.State == config.Disabled:
		return name + " is disabled"
	case st.Restarts > 0:
		return name + " is connected again: " + offers(st) + " (" + count(st.Restarts, "restart", "restarts") + ")"
	}
	return name + " is connected: " + offers(st)
}
