//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A home is where one Patchbay lives: its directories, and files that declare
// the servers and what may be called.
type home struct {
	program string // this Patchbay
	dir     string
	servers int
}

func (h home) config(name string) string {
	return filepath.Join(h.dir, ".config", "patchbay", name)
}

func (h home) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir,
		"XDG_RUNTIME_DIR=" + filepath.Join(h.dir, "run"),
	}
}

// settings are rules, so that there is something to decide for every call:
// what is not allowed here is refused, because nobody is there to be asked.
type settings struct {
	Permissions struct {
		Allow   []string `json:"allow"`
		Ask     []string `json:"ask"`
		Deny    []string `json:"deny"`
		Default string   `json:"default"`
	} `json:"permissions"`
}

// prepare writes what a home needs, unless it is there.
func (b *bench) prepare(h home) error {
	type entry struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Pin     string   `json:"pin"` // a tool is called only as it was first seen
	}
	var file struct {
		Servers map[string]entry `json:"mcpServers"`
	}
	file.Servers = map[string]entry{}
	var s settings
	s.Permissions.Ask = []string{"mcp__*__tool_*"}
	s.Permissions.Deny = []string{"mcp__*__delete_*"}
	s.Permissions.Default = "ask"
	for i := range h.servers {
		name := fmt.Sprintf("up%02d", i)
		s.Permissions.Allow = append(s.Permissions.Allow, "mcp__"+name)
		file.Servers[name] = entry{b.self, []string{roleStdio, fmt.Sprint(i)}, "strict"}
	}
	servers, err := json.Marshal(file)
	if err != nil {
		return err
	}
	rules, err := json.Marshal(s)
	if err != nil {
		return err
	}
	for _, dir := range []string{h.config(""), filepath.Join(h.dir, "run"), filepath.Join(h.dir, "project")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(h.config("settings.json"), rules, 0o600); err != nil {
		return err
	}
	return os.WriteFile(h.config("mcp.json"), servers, 0o600)
}

// serve starts the gateway and waits until it takes connections.
func (b *bench) serve(ctx context.Context, h home) (*process, error) {
	if err := b.prepare(h); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(h.program, "serve", "--http", address)
	cmd.Dir, cmd.Env = filepath.Join(h.dir, "project"), h.env()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		return nil, err
	}
	p.base = "http://" + address
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return p, nil
		}
		if ctx.Err() != nil || p.alive() != nil {
			p.stop()
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("patchbay serve: %v: %s", p.cmd.ProcessState, text)
		}
		time.Sleep(500 * time.Microsecond)
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// token is what the gateway wants to be shown.
func (b *bench) token(ctx context.Context, h home) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, "token")
	cmd.Dir, cmd.Env = filepath.Join(h.dir, "project"), h.env()
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("patchbay token: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}
