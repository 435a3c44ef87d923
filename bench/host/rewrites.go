//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Agents of Claude Code write what was typed into one file, over and over: the
// daemon reads its servers there for each of the projects that agents work in.
const (
	rewriteViews  = 8
	rewriteSize   = 20 << 20
	rewriteBudget = 0.05 // of the time, for the daemon's own process
)

// measureRewrites prints what a daemon pays for a long file that is written anew
// every second.
func measureRewrites(ctx context.Context, dir string, length time.Duration) (missed int, err error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return 0, errors.New("only Linux tells what another process has used")
	}
	program := filepath.Join(dir, "patchbay")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/patchbay")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("go build, in the module's root: %w", err)
	}
	home := filepath.Join(dir, "home")
	command := func(project string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir, cmd.Env, cmd.Stderr = project, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, os.Stderr
		return cmd
	}
	history := strings.Repeat(`        {"display": "what was \"typed\" in some project or other", "pastedContents": {}},`+"\n", rewriteSize/100)
	rewrite := func(n int) error {
		file := filepath.Join(home, ".claude.json")
		text := fmt.Sprintf("{\n  \"numStartups\": %d,\n  \"projects\": {\n    \"/p\": {\n      \"history\": [%s\n%s      ],\n      \"mcpServers\": {\"tool\": {\"command\": \"true\"}}\n    }\n  },\n  \"mcpServers\": {}\n}\n", n, strings.Repeat("\n", n), history)
		if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
			return err
		}
		return os.Rename(file+".tmp", file)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, err
	}
	if err := rewrite(0); err != nil {
		return 0, err
	}
	if err := command(home, "daemon", "start").Run(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, command(home, "daemon", "stop").Run()) }()
	for i := range rewriteViews {
		project := filepath.Join(home, fmt.Sprint("project", i))
		if err := os.MkdirAll(filepath.Join(project, ".git"), 0o700); err != nil {
			return 0, err
		}
		end, err := agent(command(project, "serve", "--stdio"))
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	out, err := command(home, "daemon", "status", "--json").Output()
	var daemon struct{ PID int }
	if err == nil {
		err = json.Unmarshal(out, &daemon)
	}
	if err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Second) // what has just been opened settles
	before, err := cpuTime(daemon.PID)
	if err != nil {
		return 0, err
	}
	begin, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; time.Since(begin) < length; n++ {
		if err := rewrite(n); err != nil {
			return 0, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	after, err := cpuTime(daemon.PID)
	if err != nil {
		return 0, err
	}
	share, mark := float64(after-before)/float64(time.Since(begin)), "✓"
	if share > rewriteBudget {
		missed, mark = 1, "✗"
	}
	fmt.Printf("\n| a daemon with %d projects, and a `.claude.json` of %d MiB written every second | | budget | |\n|---|--:|---|---|\n", rewriteViews, rewriteSize>>20)
	fmt.Printf("| its CPU time of %v | %.1f %% | ≤ %.0f %% | %s |\n", length, 100*share, 100*rewriteBudget, mark)
	return missed, nil
}

// agent starts a relay that stays until end is called.
func agent(cmd *exec.Cmd) (end func() error, err error) {
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
	if _, err = fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`); err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// cpuTime is what a process has used, user and system, without its children.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const tick = time.Second / 100 // as Linux counts for programs
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var sum time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(string(field))
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
