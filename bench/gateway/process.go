//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The roles of this program, its first argument.
const (
	roleStdio  = "upstream"
	roleDirect = "direct"
	roleRaw    = "raw"
	roleSDK    = "sdk"
)

// play is the whole life of this program in a role.
func play(role string, args []string) error {
	switch role {
	case roleStdio:
		return serveStdio()
	case roleDirect:
		return serveDirect()
	case roleRaw:
		return serveRaw(args[0], args[1:])
	case roleSDK:
		return serveSDK(args[0], args[1:])
	}
	return fmt.Errorf("no role %q", role)
}

// serveHTTP serves until the process is told to end, and says where on standard
// output. The limits of time are those of the gateway, as no server should be
// without.
func serveHTTP(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return wire.NewHTTPServer(context.Background(), h).Serve(l)
}

// A process is a contestant at work.
type process struct {
	cmd   *exec.Cmd
	base  string // URL without a path
	ended chan struct{}
}

// startSelf starts this program in a role that serves HTTP.
func startSelf(ctx context.Context, role string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{role}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := launch(cmd)
	if err != nil {
		return nil, err
	}
	defer p.killWhen(ctx)()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	p.base = strings.TrimSpace(line)
	go io.Copy(io.Discard, out)
	return p, nil
}

// launch starts a process in a group of its own, so that whatever it starts can
// be ended with it.
func launch(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// killWhen kills the process when ctx ends before the returned function is
// called: whoever waits for it then gets an error.
func (p *process) killWhen(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, func() { p.kill(syscall.SIGKILL) })
}

func (p *process) kill(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }

func (p *process) stop() {
	p.kill(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.kill(syscall.SIGKILL)
		<-p.ended
	}
}

// alive reports an error if the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("it has ended: %v", p.cmd.ProcessState)
	default:
		return nil
	}
}

// tick is the unit of processor time in /proc: USER_HZ, which is 100 everywhere.
const tick = 10 * time.Millisecond

// cpu is the processor time, user and system, that the process itself has used,
// without its children.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name, in parentheses; utime and stime are the
	// 14th and the 15th.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/pid/stat is of another form")
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// anonymous is the memory of the process that no file backs, in bytes.
func (p *process) anonymous() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return n << 10, err
		}
	}
	return 0, errors.New("/proc/pid/status has no RssAnon")
}

// watchMemory looks at the memory of the process again and again until the
// returned function is called, which returns the most it has seen.
func (p *process) watchMemory() (stop func() int) {
	var wg sync.WaitGroup
	end, most := make(chan struct{}), 0
	wg.Go(func() {
		for {
			if n, err := p.anonymous(); err == nil {
				most = max(most, n)
			}
			select {
			case <-end:
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
	})
	return func() int {
		close(end)
		wg.Wait()
		return most
	}
}
