//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// childSpec, in the environment, makes this program a contestant or a peer.
const childSpec = "BENCH_WIRE_CHILD"

// A spec says what a child is.
type spec struct {
	Side      side // "" is a peer for clients
	Maker     maker
	Transport transport
	Tools     int
	URL       string // of the peer, for a client over HTTP
}

// An order is what the parent writes to a child, a line of JSON on descriptor 3.
// A client makes calls; a server says only how much it has used so far.
type order struct {
	Load    load
	Callers int
	Slice   time.Duration
}

// A report is what a child answers, on descriptor 4, and what it says first.
type report struct {
	URL   string // of a server over HTTP, in its first report
	Calls int    // of a client
	Used  usage
	Error string
}

// usage is what a process has used up.
type usage struct {
	CPU    time.Duration // user and system
	Allocs uint64
	Bytes  uint64
}

func (u usage) since(before usage) usage {
	return usage{u.CPU - before.CPU, u.Allocs - before.Allocs, u.Bytes - before.Bytes}
}

// used is what this process has used so far.
func used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it has no reason to fail
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), m.Mallocs, m.TotalAlloc}
}

// command is a child that has not been started.
func (s spec) command() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	env, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childSpec+"="+string(env))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// A process is a child seen from its parent.
type process struct {
	cmd     *exec.Cmd
	orders  *os.File
	reports *os.File
	decoder *json.Decoder // of reports
	first   report
	ended   chan struct{}

	stdin  io.WriteCloser // of a server on stdio
	stdout io.Reader
}

// start starts a child and waits for its first report as long as ctx allows.
func start(ctx context.Context, s spec) (*process, error) {
	cmd, err := s.command()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if s.Side == server && !s.Transport.HTTP {
		if p.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
		if p.stdout, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	var theirs [2]*os.File
	if theirs[0], p.orders, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.reports, theirs[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.ExtraFiles = theirs[:]
	err = cmd.Start()
	theirs[0].Close()
	theirs[1].Close()
	if err != nil {
		return nil, err
	}
	p.decoder = json.NewDecoder(p.reports)
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	defer p.watch(ctx)()
	if p.first, err = p.next(); err != nil {
		p.stop()
		return nil, fmt.Errorf("starting %s %s: %w", s.Maker, s.Side, err)
	}
	return p, nil
}

// watch kills the process when ctx ends before the returned function is called:
// whoever waits for it then gets an error. So a child that stands still, which
// the SDK's servers sometimes do for a minute, costs a round and not the run.
func (p *process) watch(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })
}

// ask gives an order and returns the report.
func (p *process) ask(o order) (report, error) {
	if err := json.NewEncoder(p.orders).Encode(o); err != nil {
		return report{}, err
	}
	return p.next()
}

func (p *process) next() (report, error) {
	var r report
	if err := p.decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("no report: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// stop ends the process: with the end of its orders, or else by force.
func (p *process) stop() {
	p.orders.Close()
	if p.stdin != nil {
		p.stdin.Close()
	}
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		p.cmd.Process.Kill()
		<-p.ended
	}
	p.reports.Close()
}

func isChild() bool { return os.Getenv(childSpec) != "" }

// child is the whole life of a child.
func child() {
	var s spec
	if err := json.Unmarshal([]byte(os.Getenv(childSpec)), &s); err != nil {
		fmt.Fprintln(os.Stderr, "wire: child:", err)
		os.Exit(1)
	}
	os.Unsetenv(childSpec)
	if s.Side == "" && !s.Transport.HTTP {
		answerLines(os.Stdin, os.Stdout) // a peer on stdio has no other parent than the contestant
		return
	}
	err := s.serveParent()
	if err != nil {
		fmt.Fprintf(os.Stderr, "wire: %s %s: %v\n", s.Maker, s.Side, err)
		os.Exit(1)
	}
}

// serveParent takes orders until there are no more.
func (s spec) serveParent() error {
	// Read with the poller, so that waiting for orders holds no thread.
	if err := syscall.SetNonblock(3, true); err != nil {
		return err
	}
	orders := json.NewDecoder(bufio.NewReader(os.NewFile(3, "orders")))
	reports := json.NewEncoder(os.NewFile(4, "reports"))
	var first report
	obey := func(order) report { return report{Used: used()} }
	switch s.Side {
	case client:
		c, err := s.connect()
		if err != nil {
			return reports.Encode(report{Error: err.Error()})
		}
		defer c.close()
		obey = func(o order) report { return drive(c, o) }
	case server:
		url, err := s.serve()
		if err != nil {
			return reports.Encode(report{Error: err.Error()})
		}
		first.URL = url
	default:
		url, err := serveHTTP(peerHandler(s.Transport))
		if err != nil {
			return reports.Encode(report{Error: err.Error()})
		}
		first.URL = url
	}
	if err := reports.Encode(first); err != nil {
		return err
	}
	for {
		var o order
		if err := orders.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := reports.Encode(obey(o)); err != nil {
			return err
		}
	}
}
