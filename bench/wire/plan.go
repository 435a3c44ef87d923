//go:build unix

package main

import "github.com/patchbay-mcp/patchbay/internal/wire"

// A side is what is measured: the one that asks or the one that answers.
type side string

const (
	client side = "client"
	server side = "server"
)

// A maker is whose implementation is measured.
type maker string

const (
	ours maker = "wire"
	sdk  maker = "sdk"
)

// A transport is one way to carry calls.
type transport struct {
	Name    string
	HTTP    bool
	SSE     bool // answers are event streams
	Version string
}

func transports() []transport {
	return []transport{
		{Name: "stdio 2025-11-25", Version: wire.Version20251125},
		{Name: "stdio 2026-07-28", Version: wire.Version20260728},
		{Name: "HTTP JSON 2025-11-25", HTTP: true, Version: wire.Version20251125},
		{Name: "HTTP SSE 2025-11-25", HTTP: true, SSE: true, Version: wire.Version20251125},
		{Name: "HTTP JSON 2026-07-28", HTTP: true, Version: wire.Version20260728},
	}
}

func (t transport) modern() bool { return t.Version == wire.Version20260728 }

// A load is a kind of call: how much goes in and how much comes out. The name
// of the tool decides about the latter.
type load struct {
	Name     string
	Tool     string // "" means tools/list
	Argument int    // bytes of text
	Result   int    // bytes of text; about that many for a list
	rounds   int    // what differs more from round to round needs more of them
}

const mebibyte = 1 << 20

// toolTexts are the tools of the servers, and how much text they return.
func toolTexts() map[string]int { return map[string]int{"short": 100, "long": mebibyte} }

const (
	listedTools = 1000
	schemaSize  = 500 // bytes, about
)

// A match is a series of measurements of one pair of contestants.
type match struct {
	side      side
	transport transport
	tools     int // how many the servers have
	trials    []trial
}

// A trial is one row of the table.
type trial struct {
	load    load
	callers int
	budget  budget
}

// matches is everything that is measured.
func matches() []match {
	small := load{Name: "100 B both ways", Tool: "short", Argument: 100, Result: 100, rounds: 7}
	send := load{Name: "1 MiB argument", Tool: "short", Argument: mebibyte, Result: 100, rounds: 3}
	receive := load{Name: "1 MiB result", Tool: "long", Argument: 100, Result: mebibyte, rounds: 3}
	list := load{Name: "list of 1000 tools", Result: listedTools * schemaSize, rounds: 3}

	var all []match
	for _, t := range transports() {
		for _, s := range []side{client, server} {
			cpu := budget{}
			if s == client && !t.HTTP || s == server && t.HTTP {
				cpu = budget{cpu: 0.3}
			}
			m := match{side: s, transport: t}
			for _, callers := range []int{1, 16} {
				m.trials = append(m.trials,
					trial{small, callers, cpu},
					trial{send, callers, budget{bytes: 1.5, of: send.Argument}},
					trial{receive, callers, budget{bytes: 1.5, of: receive.Result}},
				)
			}
			all = append(all, m)
		}
	}
	for _, t := range transports() {
		if !t.SSE {
			// A list that is sent as it was prepared costs next to no memory.
			once := trial{list, 1, budget{bytes: 0.05, of: list.Result}}
			all = append(all, match{side: server, transport: t, tools: listedTools, trials: []trial{once}})
		}
	}
	return all
}

func (m match) name() string { return m.transport.Name + " " + string(m.side) }
