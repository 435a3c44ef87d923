//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Budgets of a relay, which is what every agent has.
const (
	relayTime   = 20 * time.Millisecond // until initialize is answered, beside a daemon that runs
	relayMemory = 6 << 20               // that no file backs, in bytes
)

// measureRelays prints what a `serve --stdio` costs beside a daemon that runs.
func measureRelays(ctx context.Context, dir string, rounds int) (missed int, err error) {
	program := filepath.Join(dir, "patchbay")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/patchbay")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("go build, in the module's root: %w", err)
	}
	home := filepath.Join(dir, "relays")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, err
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env, cmd.Stderr = home, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, os.Stderr
		return cmd
	}
	if err := command("daemon", "start").Run(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, command("daemon", "stop").Run()) }()
	var took []time.Duration
	var memory []int64
	for range rounds + 1 { // the first opens the project
		t, m, err := relay(command("serve", "--stdio"))
		if err != nil {
			return 0, err
		}
		took, memory = append(took, t), append(memory, m)
	}
	took, memory = took[1:], memory[1:]
	slices.Sort(took)
	slices.Sort(memory)
	mark := func(good bool) string {
		if good {
			return "✓"
		}
		missed++
		return "✗"
	}
	t, m := took[len(took)/2], memory[len(memory)/2]
	fmt.Printf("\n| an agent beside a daemon that runs | | budget | |\n|---|--:|---|---|\n")
	fmt.Printf("| its `serve --stdio` is ready after | %v | ≤ %v | %s |\n", t.Round(100*time.Microsecond), relayTime, mark(t <= relayTime))
	if m > 0 { // only Linux tells
		fmt.Printf("| its memory that no file backs | %.1f MB | ≤ %d MB | %s |\n", float64(m)/(1<<20), relayMemory>>20, mark(m <= relayMemory))
	}
	return missed, nil
}

// relay starts one, and returns how long it took until it answered and what it
// has in memory then.
func relay(cmd *exec.Cmd) (took time.Duration, memory int64, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	took = time.Since(begin)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // only Linux has it
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel wrote it
			memory = kib << 10
		}
	}
	return took, memory, errors.Join(err, in.Close(), cmd.Wait())
}
