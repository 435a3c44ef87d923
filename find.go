package patchbay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// prefixedLength is how long a name may be before which an agent puts its prefix:
// with that it is as long as every model API takes.
const prefixedLength = 64 - len("mcp__"+discover.SelfName+"__")

// naming is how the session's tools and prompts are named.
func (s *Session) naming(r *reading) bridge.Naming {
	if s.opts.Prefixed {
		return prefixedNaming(r.settings)
	}
	return s.host.ownNaming(r.settings)
}

// ownNaming is how names are made for those who add nothing to them.
func (h *Host) ownNaming(s config.Settings) bridge.Naming {
	n := cmp.Or(h.opts.Naming, s.Naming)
	return bridge.Naming{Style: n.Style, MaxLength: n.MaxLength, LastWins: n.Collision == config.CollisionLastWins}
}

// prefixedNaming is how they are made for those who put a prefix before them.
func prefixedNaming(s config.Settings) bridge.Naming {
	n := s.Gateway.Naming
	return bridge.Naming{
		Style: cmp.Or(n.Style, config.NamingPlain), MaxLength: cmp.Or(n.MaxLength, prefixedLength),
		LastWins: n.Collision == config.CollisionLastWins,
	}
}

// silent are the servers of which it is not known what they have: nobody has
// listed them yet, or they are switched off. Those of a project that may not be
// used do not count: a file that nobody approved must not change a name.
func (in toolInputs) silent() (servers []bridge.Silent) {
	for i, st := range in.servers {
		if in.catalogs[i] == nil {
			servers = append(servers, bridge.Silent{Server: st.Name, Project: st.Origin.Project != ""})
		}
	}
	for _, st := range in.off {
		servers = append(servers, bridge.Silent{Server: st.Name})
	}
	return servers
}

// allNames are the names of the tools and of the prompts; nil of no set.
func (set *toolSet) allNames() (tools, prompts *bridge.Names) {
	if set == nil {
		return nil, nil
	}
	_, prompts = set.prompts()
	return set.names, prompts
}

// find returns the tool that a caller means. If it is not known, the servers that
// the name begins with are connected first: they may have it.
func (s *Session) find(ctx context.Context, name string) (*offered, error) {
	t, err := s.toolset().find(name)
	if err == nil {
		return t, nil
	}
	named := s.named(name)
	if len(named) == 0 {
		return nil, err
	}
	if err := s.await(ctx, named); err != nil {
		return nil, err
	}
	set := s.toolset()
	if t, err = set.find(name); err == nil {
		return t, nil
	}
	if unknown, ok := errors.AsType[*bridge.UnknownError](err); ok {
		// A tool of another server is something else, whatever it is called, and
		// who asks for what is hidden is not led to what is beside it.
		text := &bridge.UnknownError{Name: name}
		if unknown.Hidden == (bridge.Ref{}) {
			text.Suggestions = set.names.Suggest(name, func(server string) bool { return slices.Contains(named, server) })
		}
		err = errorf(KindToolNotFound, "%v", text)
	}
	return nil, err
}

// named are the servers that a name of a tool or a prompt begins with, or whose
// entry has the name, whether or not they are there.
func (s *Session) named(name string) (servers []string) {
	all := s.host.reading.Load().snap.Servers
	for i := range all {
		st := &all[i]
		exposed := slices.ContainsFunc(st.Server.Tools, func(r config.ToolRule) bool { return r.ExposedName == name })
		if st.InForce && st.Skip == "" && (exposed || bridge.Begins(name, st.Name)) {
			servers = append(servers, st.Name)
		}
	}
	return servers
}

// Await connects the servers that the name of a tool or a prompt begins with, if
// they are not, and waits until they have listed what they have. The error says
// why none of them can be used; that there is no such server is none.
func (s *Session) Await(ctx context.Context, name string) error { return s.await(ctx, s.named(name)) }

func (s *Session) await(ctx context.Context, servers []string) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, name := range servers {
		wg.Go(func() { errs[i] = s.awaitServer(ctx, name) })
	}
	wg.Wait()
	if slices.Contains(errs, nil) {
		return nil // that one says what it has
	}
	return cmp.Or(errs...)
}

func (s *Session) awaitServer(ctx context.Context, name string) error {
	if !s.has(name) {
		return nil // and says nothing here
	}
	sv, err := s.reach(name, s.profile())
	if err != nil || sv.Status().State == config.Connected {
		return err
	}
	if _, err = sv.Client(ctx); err == nil {
		err = sv.Wait(ctx)
	}
	return callError(name, err)
}

// AwaitLists waits for the servers of which nothing is known yet and that are being
// connected for the first time, for as long as each has been given in all: what
// takes longer is told of when it is there.
func (s *Session) AwaitLists(ctx context.Context, patience time.Duration) error {
	set := s.toolset()
	var wg sync.WaitGroup
	for i, st := range set.inputs.servers {
		if set.inputs.catalogs[i] != nil || set.denied[st.Name] != nil {
			continue
		}
		sv, ok := s.host.manager.Server(st.Name, conn.Profile{})
		if !ok {
			continue
		}
		status := sv.Status()
		left := patience - time.Since(status.Since)
		if first := status.State == config.Pending || status.State == config.Connecting; !first || status.Attempt > 0 || left <= 0 {
			continue
		}
		wg.Go(func() {
			ctx, stop := context.WithTimeout(ctx, min(left, patience))
			defer stop()
			_ = sv.Wait(ctx) // why it is not there is for the snapshot to say
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
