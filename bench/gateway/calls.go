//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// The contestants.
const (
	direct   = "no proxy"
	raw      = "raw bytes"
	sdk      = "Go SDK"
	patchbay = "Patchbay"
	before   = "Patchbay before" // with -before
)

func (b *bench) contestants() []string {
	all := []string{direct, raw, sdk, patchbay}
	if b.before != "" {
		all = append(all, before)
	}
	return all
}

// patchbays are the programs to measure where only Patchbay is, by the names of
// their rows.
func (b *bench) patchbays() []string { return b.contestants()[3:] }

// home is where one of them lives.
func (b *bench) home(name, dir string, servers int) home {
	if name == before {
		return home{b.before, filepath.Join(b.dir, "before-"+dir), servers}
	}
	return home{b.patchbay, filepath.Join(b.dir, dir), servers}
}

// modernPath is where the SDK's proxy serves the modern era.
const modernPath = "/modern"

// Budgets, at 16 clients of either era.
const (
	budgetRaw = 1.3
	budgetSDK = 0.25
)

// A contestant is a process with the clients that call it.
type contestant struct {
	*process
	clients map[string][]*client // by protocol revision
}

// maxClients is how many clients there are at most.
const maxClients = 64

func (b *bench) enter(ctx context.Context, name string) (*contestant, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var p *process
	var err error
	token, modern := "", "/mcp"
	switch name {
	case direct:
		p, err = startSelf(ctx, roleDirect)
	case raw:
		p, err = startSelf(ctx, roleRaw, b.self, roleStdio)
	case sdk:
		modern = modernPath
		p, err = startSelf(ctx, roleSDK, b.self, roleStdio)
	case patchbay, before:
		h := b.home(name, "calls", 1)
		if p, err = b.serve(ctx, h); err == nil {
			token, err = b.token(ctx, h)
		}
	}
	if err != nil {
		return nil, err
	}
	c := &contestant{p, map[string][]*client{}}
	defer p.killWhen(ctx)()
	for version, path := range map[string]string{versionLegacy: "/mcp", versionModern: modern} {
		f := newFront(p.base+path, token, version)
		for range maxClients {
			client, err := f.connect(ctx)
			if err == nil {
				err = client.check(ctx)
			}
			if err != nil {
				p.stop()
				return nil, fmt.Errorf("%s: %w", version, err)
			}
			c.clients[version] = append(c.clients[version], client)
		}
	}
	return c, nil
}

// A sample is what one round showed of one contestant.
type sample struct {
	cpu    float64 // microseconds per call, of the contestant's own process
	rate   float64 // calls per second
	median time.Duration
}

func (c *contestant) round(ctx context.Context, version string, clients int, slice time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, slice+10*time.Second)
	defer cancel()
	defer c.killWhen(ctx)()
	before, err := c.cpu()
	if err != nil {
		return sample{}, err
	}
	r, err := drive(ctx, c.clients[version][:clients], slice)
	if err != nil {
		return sample{}, err
	}
	after, err := c.cpu()
	return sample{
		cpu:    float64((after - before).Microseconds()) / float64(r.calls),
		rate:   float64(r.calls) / r.took.Seconds(),
		median: r.median(),
	}, err
}

// calls measures small calls.
func (b *bench) calls(ctx context.Context) error {
	type trial struct {
		version string
		clients int
	}
	trials := []trial{{versionLegacy, 1}, {versionLegacy, 16}, {versionLegacy, maxClients}, {versionModern, 16}}
	trials = slices.DeleteFunc(trials, func(t trial) bool {
		return !b.only.MatchString(fmt.Sprintf("calls, %d × %s", t.clients, t.version))
	})
	if len(trials) == 0 {
		return nil
	}
	field := map[string]*contestant{}
	for _, name := range b.contestants() {
		c, err := b.enter(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer c.stop()
		field[name] = c
	}
	fmt.Println("\n| clients | | CPU per call | ÷ raw bytes | ÷ Go SDK | calls/s ÷ no proxy | median time | budget | |")
	fmt.Println("|---|---|--:|--:|--:|--:|--:|---|---|")
	for _, t := range trials {
		samples := map[string][]sample{}
		for round := range b.rounds + 1 {
			for i := range b.contestants() {
				name := b.contestants()[(i+round)%len(field)] // each begins in its turn
				s, err := field[name].round(ctx, t.version, t.clients, b.slice)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if round > 0 { // the first warms up
					samples[name] = append(samples[name], s)
				}
			}
		}
		b.print(t.version, t.clients, samples)
	}
	return nil
}

func (b *bench) print(version string, clients int, samples map[string][]sample) {
	ratio := func(name, of string, value func(sample) float64) float64 {
		var ratios []float64
		for i, s := range samples[name] {
			ratios = append(ratios, value(s)/value(samples[of][i]))
		}
		return median(ratios)
	}
	cpu := func(s sample) float64 { return s.cpu }
	rate := func(s sample) float64 { return s.rate }
	for _, name := range b.contestants() {
		var costs []float64
		var times []time.Duration
		for _, s := range samples[name] {
			costs, times = append(costs, s.cpu), append(times, s.median)
		}
		toRaw, toSDK := ratio(name, raw, cpu), ratio(name, sdk, cpu)
		budget, mark := "", ""
		if name == patchbay && clients == 16 {
			budget = fmt.Sprintf("≤ %v × raw bytes, ≤ %v × Go SDK", budgetRaw, budgetSDK)
			mark = b.verdict(toRaw <= budgetRaw) + ", " + b.verdict(toSDK <= budgetSDK)
		}
		fmt.Printf("| %d × %s | %s | %.0f µs | %.2f | %.2f | %.2f | %.2f ms | %s | %s |\n", clients, version, name, median(costs), toRaw, toSDK,
			ratio(name, direct, rate), float64(median(times).Microseconds())/1e3, budget, mark)
	}
	if b.before != "" {
		fmt.Printf("| %d × %s | Patchbay ÷ before | %.2f | | | %.2f | | | |\n", clients, version, ratio(patchbay, before, cpu), ratio(patchbay, before, rate))
	}
}
