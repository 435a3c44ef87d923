//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Budgets of memory.
const (
	budgetIdle = 30e6 // bytes, with 50 servers connected
	budgetPeak = 3    // × the size of a large result, over what it needs when idle
)

const (
	idleServers = 50
	idleTime    = 5 * time.Second // until memory is looked at
	largeResult = 20e6
)

// idle measures what a gateway needs when nothing happens.
func (b *bench) idle(ctx context.Context) error {
	if !b.only.MatchString("idle") {
		return nil
	}
	fmt.Println("\n| memory that no file backs | | budget | |")
	fmt.Println("|---|--:|---|---|")
	for _, name := range b.patchbays() {
		idle, err := b.idleOf(ctx, b.home(name, "idle", idleServers))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		mark := ""
		if name == patchbay {
			mark = b.verdict(idle <= budgetIdle)
		}
		fmt.Printf("| %s, idle, %d servers connected | %s | ≤ %s | %s |\n", name, idleServers, megabytes(idle), megabytes(budgetIdle), mark)
	}
	return nil
}

func (b *bench) idleOf(ctx context.Context, h home) (int, error) {
	if err := b.prepare(h); err != nil {
		return 0, err
	}
	token, err := b.token(ctx, h)
	if err != nil {
		return 0, err
	}
	p, err := b.serve(ctx, h)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if _, err := b.listAll(ctx, p, token, h, false); err != nil {
		return 0, err
	}
	return p.settled()
}

// settled is the memory of a process after a time in which nothing happens.
func (p *process) settled() (int, error) {
	time.Sleep(idleTime)
	return p.anonymous()
}

func megabytes(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// large passes a large result through every contestant.
func (b *bench) large(ctx context.Context) error {
	if !b.only.MatchString("large") {
		return nil
	}
	fmt.Printf("\n| a result of %s | time | ÷ no proxy | peak memory over idle | ÷ its size | budget | |\n", megabytes(largeResult))
	fmt.Println("|---|--:|--:|--:|--:|---|---|")
	took, peaks := map[string][]time.Duration{}, map[string]int{}
	field := map[string]*contestant{}
	idle := map[string]int{}
	for _, name := range b.contestants() {
		c, err := b.enter(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer c.stop()
		field[name] = c
	}
	time.Sleep(idleTime)
	failed := map[string]error{}
	for range 5 {
		for _, name := range b.contestants() {
			if failed[name] != nil {
				continue
			}
			c := field[name]
			if idle[name] == 0 {
				var err error
				if idle[name], err = c.anonymous(); err != nil {
					return err
				}
			}
			t, peak, err := c.large(ctx)
			if err != nil {
				failed[name] = err
				continue
			}
			took[name] = append(took[name], t)
			peaks[name] = max(peaks[name], peak-idle[name])
		}
	}
	for _, name := range b.contestants() {
		if err := failed[name]; err != nil {
			if name != sdk { // which takes lines of 16 MiB at most
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintln(os.Stderr, name+":", err)
			fmt.Printf("| %s | fails | | | | | |\n", name)
			continue
		}
		var ratios []float64
		for i, t := range took[name] {
			ratios = append(ratios, float64(t)/float64(took[direct][i]))
		}
		share := float64(peaks[name]) / largeResult
		budget, mark := "", ""
		if name == patchbay {
			budget, mark = fmt.Sprintf("≤ %d × its size", budgetPeak), b.verdict(share <= budgetPeak)
		}
		fmt.Printf("| %s | %s | %.2f | %s | %.2f | %s | %s |\n", name, millis(median(took[name])), median(ratios), megabytes(peaks[name]), share, budget, mark)
	}
	return nil
}

// large makes one call with a large result.
func (c *contestant) large(ctx context.Context) (took time.Duration, peak int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := c.clients[versionLegacy][0]
	r, err := client.request("big", fmt.Sprintf(`{"bytes":%d}`, int(largeResult)))
	if err != nil {
		return 0, 0, err
	}
	stop := c.watchMemory()
	start := time.Now()
	resp, err := client.send(ctx, r.header, r.body(nil, 1))
	if err != nil {
		stop()
		return 0, 0, err
	}
	head := make([]byte, 400)
	n, err := io.ReadFull(resp.Body, head)
	rest, restErr := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	took = time.Since(start)
	peak = stop()
	if int64(n)+rest < largeResult {
		return 0, 0, fmt.Errorf("it answers %s", head[:n])
	}
	return took, peak, errors.Join(err, restErr)
}
