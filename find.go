package patchbay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/bridge"
)

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
	refused, err := s.await(ctx, named)
	if err != nil {
		return nil, err
	}
	set := s.toolset()
	if t, err = set.find(name); err == nil {
		return t, nil
	}
	if ambiguous, ok := errors.AsType[*bridge.AmbiguousError](err); ok && len(ambiguous.Silent) > 0 {
		return nil, cmp.Or(refused[ambiguous.Silent[0]], err)
	}
	return nil, set.unknown(name, named, err)
}

// unknown is the error of a name that means no tool and begins with those of
// servers. A tool of another server is something else, whatever it is called, and
// who asks for what is hidden is not led to what is beside it.
func (set *toolSet) unknown(name string, named []string, err error) error {
	unknown, ok := errors.AsType[*bridge.UnknownError](err)
	if !ok || len(named) == 0 {
		return err
	}
	text := &bridge.UnknownError{Name: name}
	if unknown.Hidden == (bridge.Ref{}) {
		text.Suggestions = set.names.Suggest(name, func(server string) bool { return slices.Contains(named, server) })
	}
	return errorf(KindToolNotFound, "%v", text)
}

// unknownTool is the error of a name that means no tool, without connecting
// anybody.
func (s *Session) unknownTool(set *toolSet, name string, err error) error {
	named := s.named(name)
	var refused error
	for _, server := range named {
		_, why := s.reach(server, s.profile())
		if why == nil {
			return set.unknown(name, named, err)
		}
		refused = cmp.Or(refused, why)
	}
	return cmp.Or(refused, err)
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
func (s *Session) Await(ctx context.Context, name string) error {
	_, err := s.await(ctx, s.named(name))
	return err
}

// await returns, by server, why each cannot be used, and an error if none can.
func (s *Session) await(ctx context.Context, servers []string) (refused map[string]error, err error) {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, name := range servers {
		wg.Go(func() { errs[i] = s.awaitServer(ctx, name) })
	}
	wg.Wait()
	refused = map[string]error{}
	for i, name := range servers {
		refused[name] = errs[i]
	}
	if slices.Contains(errs, nil) {
		return refused, nil // that one says what it has
	}
	return refused, cmp.Or(errs...)
}

// Describe returns what a server says of itself to clients like the session's
// user: now, or at an earlier time. One of which that is not known is connected
// first.
func (s *Session) Describe(ctx context.Context, server string) (info, capabilities json.RawMessage, err error) {
	sv, err := s.reach(server, s.profile())
	if err != nil {
		return nil, nil, err
	}
	if !sv.Open() {
		if _, err = sv.Client(ctx); err == nil {
			err = sv.Wait(ctx)
		}
		if err != nil {
			return nil, nil, callError(sv.Name(), err)
		}
	}
	c := sv.Catalog()
	if c == nil {
		return nil, nil, errorf(KindTransport, "Server %q did not say what it has.", sv.Name())
	}
	return c.ServerInfo, c.Capabilities, nil
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

// AwaitLists waits for the servers of which it is not known yet what they offer to
// sessions like this one, and that are being connected for the first time, for as
// long as each has been given in all: what takes longer is told of when it is
// there.
func (s *Session) AwaitLists(ctx context.Context, patience time.Duration) error {
	set := s.toolset()
	var wg sync.WaitGroup
	for _, st := range set.inputs.servers {
		if set.denied[st.Name] != nil {
			continue
		}
		sv, ok := s.host.manager.Server(st.Name, s.profile())
		if !ok || sv.Open() {
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
