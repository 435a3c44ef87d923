package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
)

// serveHTTP serves clients over HTTP: a daemon that runs listens, and if there is
// none this process is the daemon. When the daemon that listens ends, the next one
// serves the address; it is started if no agent does so.
func (a *app) serveHTTP(ctx context.Context, f serveFlags, log *slog.Logger) error {
	ownProcess := f.metrics != "" || f.memory != "" || f.logs
	for next := false; !a.alone() && !ownProcess; next = true {
		var c *control.Client
		if !next {
			c = a.attach(ctx)
		} else if reached, _, err := a.reachDaemon(ctx); err == nil {
			c = reached
		} else if ctx.Err() != nil {
			return nil // it was to end anyway
		} else {
			a.say("%v; this process goes on with servers of its own", err)
		}
		if c == nil {
			break
		}
		err := a.serveOver(ctx, c, &f, next)
		c.Close()
		if !errors.Is(err, control.ErrNoDaemon) {
			return err
		}
	}
	s, err := a.newServing(f, log)
	if err != nil {
		return err
	}
	defer s.close()
	return s.overHTTP(ctx)
}

// serveOver has the daemon listen until ctx ends. The address that it got is that
// of the flags from then on.
func (a *app) serveOver(ctx context.Context, c *control.Client, f *serveFlags, next bool) error {
	here := func(path string) string { // the daemon would look for it elsewhere
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(a.env.Dir, path)
	}
	l, err := c.Listen(ctx, control.ListenOptions{
		Address: f.http, CertFile: here(f.tlsCert), KeyFile: here(f.tlsKey), Insecure: f.insecureBind, NoAuth: f.noAuth,
	})
	if err != nil {
		return a.whoServes(ctx, cmp.Or(f.http, a.settingsListen()), err)
	}
	if f.http != "" {
		_, f.http, _ = strings.Cut(l.URL, "://")
	}
	d, _ := c.Daemon()
	told, enough := context.WithCancel(ctx)
	var reports sync.WaitGroup
	if next {
		a.say("the daemon has ended; the next one listens (process %d)", d.PID)
	} else {
		if f.noAuth {
			a.sayNoAuth()
		}
		reports.Go(func() { a.greet(told, c, greeting{url: l.URL, auth: !f.noAuth, daemon: d.PID}) })
	}
	err = l.Wait(ctx)
	enough()
	reports.Wait()
	return err
}

// settingsListen is the address that is served if none is given.
func (a *app) settingsListen() string {
	s, _ := a.options().UserSettings() // else the daemon has said why it cannot read them
	return cmp.Or(s.Gateway.Listen, config.DefaultListen)
}

// listenFor serves clients over HTTP on behalf of a `serve`, with a gateway that
// ends with it: the clients of others are not its concern.
func (s *serving) listenFor(ctx context.Context, h *patchbay.Host, o control.ListenOptions, ready func(url string) error) error {
	settings := h.Settings().Gateway
	l, err := gateway.Listen(ctx, gateway.ListenOptions{
		Address: cmp.Or(o.Address, settings.Listen), CertFile: o.CertFile, KeyFile: o.KeyFile, Insecure: o.Insecure, NoAuth: o.NoAuth,
	})
	if err != nil {
		return err
	}
	defer l.Close()
	g := gateway.New(h, gateway.Options{Version: readBuildFacts().Version, Logger: s.log, Memory: s.memory(settings)})
	site, err := s.site(ctx, h, g, l, o.NoAuth)
	if err != nil {
		return err
	}
	s.serves(ctx, l.URL+"/mcp", true)
	defer s.serves(context.WithoutCancel(ctx), l.URL+"/mcp", false)
	if err := ready(l.URL); err != nil {
		return err
	}
	return site.Serve(ctx, l)
}

// serves has all hosts know of a URL that is served from now on, or no longer:
// what leads there leads back to them.
func (s *serving) serves(ctx context.Context, url string, here bool) {
	s.mu.Lock()
	if at := slices.Index(s.served, url); here {
		s.served = append(slices.Clone(s.served), url)
	} else if at >= 0 {
		s.served = slices.Delete(slices.Clone(s.served), at, at+1)
	}
	served := s.served
	var hosts []*patchbay.Host
	for h := range s.gateways {
		hosts = append(hosts, h)
	}
	s.mu.Unlock()
	for _, h := range hosts {
		if err := h.SetServed(ctx, served); err != nil {
			s.log.Warn("the servers were not read again", "error", err)
		}
	}
}
