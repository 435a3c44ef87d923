//go:build unix

// Command wire measures what a call costs with this project's MCP client and
// server, and what the same call costs with those of the official Go SDK, in
// one run.
//
//	go run ./bench/wire          # everything, in less than two minutes
//	go run ./bench/wire -check   # the same; fails if a budget is missed
//
// Each contestant is a process of its own, which counts its own processor time
// and allocations. Both have the same other side, which sends prepared bytes:
// clients talk to the server in peer.go, servers are asked by the client in
// load.go. The contestants take turns, round by round, and a ratio is the median
// of the ratios of the rounds, because on a shared machine only what was measured
// side by side can be compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	if isChild() {
		child()
		return
	}
	check := flag.Bool("check", false, "exit with status 1 if a budget is missed")
	only := flag.String("run", "", "measure only the rows that match this regular expression")
	slice := flag.Duration("slice", 100*time.Millisecond, "how long a contestant is measured in one round")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "wire: -run:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := run(ctx, pattern, *slice)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
	if missed > 0 && *check {
		fmt.Fprintf(os.Stderr, "wire: %d budgets missed\n", missed)
		os.Exit(1)
	}
}

// run measures every pair of contestants and prints the table.
func run(ctx context.Context, only *regexp.Regexp, slice time.Duration) (missed int, err error) {
	fmt.Printf("%s, %s/%s, %d cores, SDK %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), sdkVersion())
	printHeader()
	for _, m := range matches() {
		rows, err := m.play(ctx, only, slice)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", m.name(), err)
		}
		for _, r := range rows {
			if !r.print() {
				missed++
			}
		}
	}
	return missed, nil
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
