//go:build linux

// Command gateway measures what it costs to have a gateway between a client and
// a server: for Patchbay, for a proxy that only moves bytes, for one that is
// written with the official Go SDK, and without any, in one run.
//
//	go run ./bench/gateway          # everything, in about two minutes
//	go run ./bench/gateway -check   # the same; fails if a budget is missed
//	go run ./bench/gateway -run 'calls, 16'
//	go run ./bench/gateway -before older/patchbay   # and what has changed since
//
// Every contestant is a process of its own with its own copy of the same server
// behind it. Clients speak Streamable HTTP, the servers stdio. The contestants
// take turns, round by round, and a ratio is the median of the ratios of the
// rounds, because on a shared machine only what was measured side by side can be
// compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		if err := play(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "gateway:", os.Args[1]+":", err)
			os.Exit(1)
		}
		return
	}
	check := flag.Bool("check", false, "exit with status 1 if a budget is missed")
	only := flag.String("run", "", "measure only what matches this regular `expression`, as in 'calls, 16 × 2026'")
	binary := flag.String("patchbay", "", "measure this `program` instead of building one")
	before := flag.String("before", "", "measure this `program`, an earlier Patchbay, too")
	rounds := flag.Int("rounds", 9, "measurements of each contestant")
	slice := flag.Duration("slice", 500*time.Millisecond, "how long a contestant is called in one round")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway: -run:", err)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := measure(ctx, &bench{patchbay: *binary, before: *before, only: pattern, rounds: *rounds, slice: *slice})
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	case missed > 0 && *check:
		fmt.Fprintf(os.Stderr, "gateway: %d budgets missed\n", missed)
		os.Exit(1)
	}
}

// A bench is what all measurements share.
type bench struct {
	dir      string // everything is in it
	self     string // the program that is the upstream
	patchbay string
	before   string // an earlier one, or nothing
	only     *regexp.Regexp
	rounds   int
	slice    time.Duration
	missed   int
}

func measure(ctx context.Context, b *bench) (missed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if b.dir, err = os.MkdirTemp("", "bench-gateway-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(b.dir)
	if b.self, err = os.Executable(); err != nil {
		return 0, err
	}
	if b.patchbay == "" {
		b.patchbay = filepath.Join(b.dir, "patchbay")
		build := exec.CommandContext(ctx, "go", "build", "-o", b.patchbay, "github.com/patchbay-mcp/patchbay/cmd/patchbay")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return 0, fmt.Errorf("building patchbay: %w", err)
		}
	}
	fmt.Printf("%s, %s/%s, %d cores, SDK %s, %d rounds of %v\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), sdkVersion(), b.rounds, b.slice)
	for _, part := range []func(context.Context) error{b.calls, b.starts, b.idle, b.large} {
		if err := part(ctx); err != nil {
			return b.missed, err
		}
	}
	return b.missed, nil
}

// sdkVersion is the version of the SDK in this program.
func sdkVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/modelcontextprotocol/go-sdk" {
				return dep.Version
			}
		}
	}
	return "of unknown version"
}

// verdict is the mark of a budget that is kept, or not.
func (b *bench) verdict(kept bool) string {
	if kept {
		return "✓"
	}
	b.missed++
	return "✗"
}

func median[T int | float64 | time.Duration](values []T) T {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}
