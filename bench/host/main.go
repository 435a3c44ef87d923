//go:build unix

// Command host measures how long it takes until the tools of many stdio servers
// can be listed: through the library, with empty and with filled caches, and by
// starting and asking the same servers directly, in one run. Then it measures
// what each further agent costs beside a daemon that runs, see relay.go.
//
//	go run ./bench/host          # in about ten seconds, from the module's root
//	go run ./bench/host -check   # the same; fails if a budget is missed
//	go run ./bench/host -check -rewrites 1m   # see rewrites.go
//
// Each contestant is a process of its own, started anew for every round; they
// take turns, and a ratio is the median of the ratios of the rounds. The servers
// are this program too, see server.go.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == serverRole {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "host: server:", err)
			os.Exit(1)
		}
		return
	}
	check := flag.Bool("check", false, "exit with status 1 if a budget is missed")
	servers := flag.Int("servers", 50, "how many servers there are")
	rounds := flag.Int("rounds", 9, "measurements of each contestant")
	play := flag.String("play", "", "be a contestant, in a directory prepared for it")
	dir := flag.String("dir", "", "that directory")
	rewrites := flag.Duration("rewrites", 0, "measure for this long what a file costs that is written all the time, and nothing else; Linux")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var err error
	missed := 0
	switch {
	case *play != "":
		err = contest(ctx, *play, *dir, *servers)
	case *rewrites > 0:
		missed, err = inTemp(func(dir string) (int, error) { return measureRewrites(ctx, dir, *rewrites) })
	default:
		missed, err = inTemp(func(dir string) (int, error) { return run(ctx, dir, *servers, *rounds) })
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	case missed > 0 && *check:
		fmt.Fprintf(os.Stderr, "host: %d budgets missed\n", missed)
		os.Exit(1)
	}
}

// inTemp measures in a directory that is removed afterwards.
func inTemp(measure func(dir string) (missed int, err error)) (int, error) {
	dir, err := os.MkdirTemp("", "bench-host-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return measure(dir)
}

// The contestants.
const (
	direct = "direct" // starts all servers at once and asks each for its tools
	cold   = "cold"   // opens a host that knows nothing of them
	warm   = "warm"   // opens one that has seen them before
)

// budgets are times in relation to direct.
var budgets = []struct {
	contestant string
	limit      float64
}{{cold, 2}, {warm, 0.2}}

// report is what a contestant measured.
type report struct {
	Took time.Duration // until the last tool was listed
	CPU  time.Duration // of its own process until then, user and system
}

// run measures all contestants and prints the table.
func run(ctx context.Context, dir string, servers, rounds int) (missed int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	// The servers are a copy: a host does not start itself.
	program := filepath.Join(dir, "server")
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, data, 0o700)
	}
	if err != nil {
		return 0, err
	}

	results := map[string][]report{}
	for round := range rounds {
		home := filepath.Join(dir, fmt.Sprint(round)) // which begins without caches
		if err := prepare(home, program, servers); err != nil {
			return 0, err
		}
		for _, contestant := range []string{direct, cold, warm} {
			cmd := exec.CommandContext(ctx, self, "-play="+contestant, "-dir="+home, fmt.Sprintf("-servers=%d", servers))
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it can end its servers
			cmd.WaitDelay = 10 * time.Second
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return 0, fmt.Errorf("%s: %w", contestant, err)
			}
			var r report
			if err := json.Unmarshal(out, &r); err != nil {
				return 0, fmt.Errorf("%s: %w", contestant, err)
			}
			results[contestant] = append(results[contestant], r)
		}
	}

	fmt.Printf("%s, %s/%s, %d cores, %d servers, %d rounds\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), servers, rounds)
	fmt.Println("| | time | its own CPU | time ÷ direct | budget | |")
	fmt.Println("|---|--:|--:|--:|---|---|")
	fmt.Printf("| %s | %v | %v | 1.00 | | |\n", direct, middle(results[direct], report.took), middle(results[direct], report.cpu))
	for _, b := range budgets {
		var ratios []float64
		for i, r := range results[b.contestant] {
			ratios = append(ratios, float64(r.Took)/float64(results[direct][i].Took))
		}
		slices.Sort(ratios)
		ratio, mark := ratios[len(ratios)/2], "✓"
		if ratio > b.limit {
			missed++
			mark = "✗"
		}
		fmt.Printf("| %s | %v | %v | %.2f | ≤ %v | %s |\n",
			b.contestant, middle(results[b.contestant], report.took), middle(results[b.contestant], report.cpu), ratio, b.limit, mark)
	}
	relays, err := measureRelays(ctx, dir, rounds)
	return missed + relays, err
}

func (r report) took() time.Duration { return r.Took }
func (r report) cpu() time.Duration  { return r.CPU }

// middle is the median of something, for people.
func middle(reports []report, of func(report) time.Duration) time.Duration {
	var values []time.Duration
	for _, r := range reports {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2].Round(100 * time.Microsecond)
}
