package mcptest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lifelines tells a test when scripted servers are up and when they are gone,
// whoever started them: each that is given an Arg dials here when it starts, and
// its connection ends when its process does.
type Lifelines struct {
	t        testing.TB
	listener net.Listener
	news     chan struct{} // room for one: somebody has dialled

	mu   sync.Mutex
	open bool
	new  []*Lifeline // not yet returned by Next
	seen []*Lifeline
}

// A Lifeline is one running server.
type Lifeline struct {
	Name string
	PID  int

	conn net.Conn
	gone chan struct{}
}

// patience is how long a test waits for what must happen. It is no measure of
// anything: only a test that fails waits that long.
const patience = 30 * time.Second

// NewLifelines listens until the end of the test, which fails if a server is
// still there when all that was begun later has been cleaned up.
func NewLifelines(t testing.TB) *Lifelines {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Lifelines{t: t, listener: listener, news: make(chan struct{}, 1)}
	var accepting sync.WaitGroup
	accepting.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
		for _, line := range append(l.seen, l.new...) {
			line.WaitGone(t)
		}
	})
	return l
}

func (l *Lifelines) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		r := bufio.NewReader(conn)
		hello, err := r.ReadString('\n')
		if err != nil {
			conn.Close()
			continue
		}
		pid, name, _ := strings.Cut(strings.TrimSpace(hello), " ")
		line := &Lifeline{Name: name, conn: conn, gone: make(chan struct{})}
		line.PID, _ = strconv.Atoi(pid)
		go func() {
			defer close(line.gone)
			_, _ = io.Copy(io.Discard, r)
			conn.Close()
		}()
		l.mu.Lock()
		l.new = append(l.new, line)
		if l.open {
			line.Release()
		}
		l.mu.Unlock()
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// Arg is the argument that makes a server dial here, under a name.
func (l *Lifelines) Arg(name string) string {
	return "-line=" + l.listener.Addr().String() + "/" + name
}

// Next waits for a server of that name to start.
func (l *Lifelines) Next(name string) *Lifeline {
	l.t.Helper()
	timeout := time.After(patience)
	for {
		if line := l.take(name); line != nil {
			return line
		}
		select {
		case <-l.news:
		case <-timeout:
			l.t.Fatalf("no server %q has started", name)
		}
	}
}

func (l *Lifelines) take(name string) *Lifeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.new, func(line *Lifeline) bool { return line.Name == name })
	if i < 0 {
		return nil
	}
	line := l.new[i]
	l.new, l.seen = slices.Delete(l.new, i, i+1), append(l.seen, line)
	return line
}

// Running counts the servers of that name that are up.
func (l *Lifelines) Running(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range slices.Concat(l.seen, l.new) {
		select {
		case <-line.gone:
		default:
			if line.Name == name {
				n++
			}
		}
	}
	return n
}

// Gates opens all gates, of servers that run and of those to come, or closes
// them for those to come.
func (l *Lifelines) Gates(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	for _, line := range slices.Concat(l.seen, l.new) {
		if open {
			line.Release()
		}
	}
}

// Release lets a server go on that waits at its gate.
func (l *Lifeline) Release() { _, _ = io.WriteString(l.conn, "go\n") }

// Gone is closed when the process has ended.
func (l *Lifeline) Gone() <-chan struct{} { return l.gone }

// WaitGone waits for the end of the process.
func (l *Lifeline) WaitGone(t testing.TB) {
	t.Helper()
	select {
	case <-l.gone:
	case <-time.After(patience):
		t.Errorf("server %q, process %d, is still there", l.Name, l.PID)
		l.conn.Close()
	}
}

// line is the server's end of a Lifeline.
type line struct{ conn net.Conn }

// dialLine opens a lifeline; there is none if the address is empty.
func dialLine(address string) (line, error) {
	if address == "" {
		return line{}, nil
	}
	address, name, _ := strings.Cut(address, "/")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return line{}, err
	}
	_, err = fmt.Fprintf(conn, "%d %s\n", os.Getpid(), name)
	return line{conn}, err
}

var errNoLine = errors.New("there is no -line on which somebody could open the gate")

// wait waits for Release.
func (l line) wait() error {
	if l.conn == nil {
		return errNoLine
	}
	_, err := bufio.NewReader(l.conn).ReadString('\n')
	return err
}
