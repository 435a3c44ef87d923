//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// Budgets of the start with the most servers.
const (
	budgetCold = 2 // × asking the servers directly
	budgetWarm = 100 * time.Millisecond
)

// starts measures how long it takes from the start of a gateway until a client
// has all tools, without and with what earlier runs have left in the cache, and
// how long it takes to start and ask the same servers directly.
func (b *bench) starts(ctx context.Context) error {
	if !b.only.MatchString("start") {
		return nil
	}
	fmt.Println("\n| servers | asked directly | | first run | ÷ directly | later: first list | budget | |")
	fmt.Println("|--:|--:|---|--:|--:|--:|---|---|")
	for _, servers := range []int{1, 10, 50} {
		var directly []time.Duration
		cold, warm, ratios := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]float64{}
		for round := range max(b.rounds/2, 3) {
			took, err := b.askAll(ctx, servers)
			if err != nil {
				return fmt.Errorf("%d servers directly: %w", servers, err)
			}
			directly = append(directly, took)
			for _, name := range b.patchbays() {
				h := b.home(name, fmt.Sprintf("start-%d-%d", servers, round), servers)
				first, err := b.firstList(ctx, h, false)
				if err != nil {
					return fmt.Errorf("%s, %d servers: %w", name, servers, err)
				}
				later, err := b.firstList(ctx, h, true)
				if err != nil {
					return fmt.Errorf("%s, %d servers: %w", name, servers, err)
				}
				cold[name], warm[name] = append(cold[name], first), append(warm[name], later)
				ratios[name] = append(ratios[name], float64(first)/float64(took))
			}
		}
		for _, name := range b.patchbays() {
			budget, mark := "", ""
			if name == patchbay && servers == 50 {
				budget = fmt.Sprintf("≤ %d × directly; later ≤ %v", budgetCold, budgetWarm)
				mark = b.verdict(median(ratios[name]) <= budgetCold) + ", " + b.verdict(median(warm[name]) <= budgetWarm)
			}
			fmt.Printf("| %d | %s | %s | %s | %.2f | %s | %s | %s |\n", servers, millis(median(directly)), name, millis(median(cold[name])), median(ratios[name]), millis(median(warm[name])), budget, mark)
		}
	}
	return nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1e3) }

// firstList starts a gateway and lists its tools until all are there. If it has
// a cache, they must be there at once.
func (b *bench) firstList(ctx context.Context, h home, cached bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.prepare(h); err != nil {
		return 0, err
	}
	token, err := b.token(ctx, h)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	p, err := b.serve(ctx, h)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	c, err := b.listAll(ctx, p, token, h, cached)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	return took, c.check(ctx)
}

// listAll lists the tools of a gateway until all are there.
func (b *bench) listAll(ctx context.Context, p *process, token string, h home, atOnce bool) (*client, error) {
	c, err := newFront(p.base+"/mcp", token, versionLegacy).connect(ctx)
	for err == nil && c.listed < h.servers*toolsEach {
		if atOnce {
			return nil, fmt.Errorf("the first list has only %d tools", c.listed)
		}
		time.Sleep(time.Millisecond)
		err = c.list(ctx)
	}
	return c, err
}

// askAll starts every server at once and asks it for its tools with the fewest
// messages that the protocol allows.
func (b *bench) askAll(ctx context.Context, servers int) (time.Duration, error) {
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ends []func() error
	var err error
	for i := range servers {
		wg.Go(func() {
			end, failure := b.ask(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failure)
			if end != nil {
				ends = append(ends, end)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, end := range ends {
		err = errors.Join(err, end())
	}
	return took, err
}

// ask starts one server and reads its list of tools.
func (b *bench) ask(ctx context.Context, number int) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, b.self, roleStdio, fmt.Sprint(number))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	lines := bufio.NewReader(out)
	if _, err := fmt.Fprintln(in, initialize); err != nil {
		return end, err
	}
	if _, err := lines.ReadBytes('\n'); err != nil {
		return end, err
	}
	if _, err := fmt.Fprintln(in, initialized+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); err != nil {
		return end, err
	}
	answer, err := lines.ReadBytes('\n')
	if err != nil {
		return end, err
	}
	var list struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return end, err
	}
	if n := len(list.Result.Tools); n != toolsEach {
		return end, fmt.Errorf("%d tools instead of %d", n, toolsEach)
	}
	return end, nil
}
