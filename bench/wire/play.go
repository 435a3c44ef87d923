//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

// A contestant is one implementation at work.
type contestant struct {
	process *process
	loader  loader // nil for a client, which makes its own calls
}

// A sample is what one call cost, on average over a round.
type sample struct{ cpu, allocs, bytes float64 } // cpu in microseconds

// play measures every trial of a match that has a matching name.
func (m match) play(ctx context.Context, only *regexp.Regexp, slice time.Duration) (rows []row, err error) {
	var field [2]*contestant // ours and the SDK's, started when they are needed
	defer func() {
		for _, c := range field {
			if c != nil {
				c.stop()
			}
		}
	}()
	url := ""
	for _, t := range m.trials {
		r := row{match: m, trial: t}
		if !only.MatchString(r.name()) {
			continue
		}
		if url == "" && m.side == client && m.transport.HTTP {
			peer, err := start(ctx, spec{Transport: m.transport})
			if err != nil {
				return rows, err
			}
			defer peer.stop()
			url = peer.first.URL
		}
		for range t.load.rounds {
			var round [2]sample
			for i, who := range []maker{ours, sdk} {
				if round[i], err = m.measure(ctx, &field[i], who, url, t, slice); err != nil {
					return rows, fmt.Errorf("%s, %s: %w", who, t.load.Name, err)
				}
			}
			r.rounds = append(r.rounds, round)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// tries is how often a round is measured before the run is given up. The SDK's
// servers have been seen to stand still for a minute.
const tries = 3

// measure measures one contestant for one round, and repeats that with a new
// process if the process does not do its part.
func (m match) measure(ctx context.Context, c **contestant, who maker, url string, t trial, slice time.Duration) (s sample, err error) {
	for range tries {
		if *c == nil {
			if *c, err = m.enter(ctx, who, url); err != nil {
				return s, err
			}
		}
		if s, err = (*c).round(ctx, t, slice); err == nil {
			return s, nil
		}
		(*c).stop()
		*c = nil
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		fmt.Fprintf(os.Stderr, "%s, %s: %v; once more with a new process\n", m.name(), who, err)
	}
	return s, err
}

// enter starts a contestant.
func (m match) enter(ctx context.Context, who maker, url string) (*contestant, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, err := start(ctx, spec{Side: m.side, Maker: who, Transport: m.transport, Tools: m.tools, URL: url})
	if err != nil {
		return nil, err
	}
	c := &contestant{process: p}
	switch {
	case m.side == client:
		return c, nil
	case m.transport.HTTP:
		c.loader = newHTTPLoader(p.first.URL, m.transport)
	default:
		c.loader = newLineLoader(p, m.transport)
	}
	defer p.watch(ctx)()
	if err := c.loader.open(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *contestant) stop() { c.process.stop() }

// round has a contestant work for a slice of time.
func (c *contestant) round(ctx context.Context, t trial, slice time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, slice+patience+time.Second, errStoodStill)
	defer cancel()
	defer c.process.watch(ctx)()
	used, calls, err := c.work(ctx, t, slice)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	n := float64(calls)
	return sample{float64(used.CPU.Nanoseconds()) / 1e3 / n, float64(used.Allocs) / n, float64(used.Bytes) / n}, err
}

var errStoodStill = errors.New("it stood still")

// work returns what the contestant used up, and for how many calls.
func (c *contestant) work(ctx context.Context, t trial, slice time.Duration) (used usage, calls int, err error) {
	if c.loader == nil {
		r, err := c.process.ask(order{t.load, t.callers, slice})
		return r.Used, r.Calls, err
	}
	if err := c.loader.once(ctx, t.load); err != nil {
		return usage{}, 0, err
	}
	before, err := c.process.ask(order{})
	if err != nil {
		return usage{}, 0, err
	}
	if calls, err = c.loader.run(ctx, t.load, t.callers, slice); err != nil {
		return usage{}, 0, err
	}
	after, err := c.process.ask(order{})
	return after.Used.since(before.Used), calls, err
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
