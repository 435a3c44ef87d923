//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// configFile is the file of a home that declares the servers.
func configFile(home string) string {
	return filepath.Join(home, ".config", "patchbay", "mcp.json")
}

// entry is a server as the file has it. The number tells one from another.
type entry struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

type declarations struct {
	Servers map[string]entry `json:"mcpServers"`
}

// prepare makes a home in which the servers are declared.
func prepare(home, program string, servers int) error {
	d := declarations{map[string]entry{}}
	for i := range servers {
		d.Servers[fmt.Sprintf("server%02d", i)] = entry{program, []string{serverRole, fmt.Sprint(i)}}
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(configFile(home)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(configFile(home), data, 0o600)
}

// contest lets one contestant list all tools and prints what that took.
func contest(ctx context.Context, name, home string, servers int) error {
	list := map[string]func(context.Context, string) (int, func() error, error){direct: listDirectly, cold: listCold, warm: listWarm}[name]
	if list == nil {
		return fmt.Errorf("no contestant %q", name)
	}
	start, before := time.Now(), cpu()
	tools, end, err := list(ctx, home)
	r := report{Took: time.Since(start), CPU: cpu() - before}
	if end != nil {
		err = errors.Join(err, end())
	}
	if err == nil && tools != servers*toolsEach {
		err = fmt.Errorf("%d tools instead of %d", tools, servers*toolsEach)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it has no reason to fail
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// listCold opens a host and waits for every server.
func listCold(ctx context.Context, home string) (tools int, end func() error, err error) {
	h, s, err := open(ctx, home)
	if err != nil {
		return 0, nil, err
	}
	list, failed := s.Load(ctx)
	for _, f := range failed {
		err = errors.Join(err, f)
	}
	return len(list), h.Close, err
}

// listWarm opens a host and waits for nothing.
func listWarm(ctx context.Context, home string) (tools int, end func() error, err error) {
	h, s, err := open(ctx, home)
	if err != nil {
		return 0, nil, err
	}
	return len(s.Tools()), h.Close, nil
}

func open(ctx context.Context, home string) (*patchbay.Host, *patchbay.Session, error) {
	h, err := patchbay.Open(ctx, patchbay.Options{Home: home, Dir: home, Environ: []string{"PATH=/usr/bin:/bin", "HOME=" + home}})
	if err != nil {
		return nil, nil, err
	}
	s, err := h.NewSession(patchbay.SessionOptions{})
	if err != nil {
		return nil, nil, errors.Join(err, h.Close())
	}
	return h, s, nil
}

// listDirectly starts every server at once and asks it for its tools with the
// fewest messages that the protocol allows.
func listDirectly(ctx context.Context, home string) (tools int, end func() error, err error) {
	data, err := os.ReadFile(configFile(home))
	if err != nil {
		return 0, nil, err
	}
	var d declarations
	if err := json.Unmarshal(data, &d); err != nil {
		return 0, nil, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ends []func() error
	for _, e := range d.Servers {
		wg.Go(func() {
			n, end, failure := ask(ctx, e)
			mu.Lock()
			defer mu.Unlock()
			tools += n
			err = errors.Join(err, failure)
			if end != nil {
				ends = append(ends, end)
			}
		})
	}
	wg.Wait()
	return tools, func() error {
		var err error
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}, err
}

// ask starts one server and returns how many tools it has.
func ask(ctx context.Context, e entry) (tools int, end func() error, err error) {
	cmd := exec.CommandContext(ctx, e.Command, e.Args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	end = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	lines := bufio.NewReader(out)
	send := func(text string) error {
		_, err := in.Write([]byte(text + "\n"))
		return err
	}
	err = send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	if err == nil {
		_, err = lines.ReadBytes('\n')
	}
	if err == nil {
		err = send(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	var answer []byte
	if err == nil {
		answer, err = lines.ReadBytes('\n')
	}
	var list struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err == nil {
		err = json.Unmarshal(answer, &list)
	}
	return len(list.Result.Tools), end, err
}
