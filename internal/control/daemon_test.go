package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A bench is a daemon with its home and two projects.
type bench struct {
	t       *testing.T
	opts    patchbay.Options
	servers map[string]patchbay.LocalServer
	attach  func(wire.Conn) error // in place of echo
	check   func(string) error
	socket  string
	self    control.Identity
	views   *control.Views
	opened  atomic.Int32
	stop    context.CancelFunc
	stopped chan error
}

// newBench returns a home without a daemon.
func newBench(t *testing.T) *bench {
	t.Helper()
	// Paths of sockets are short, names of tests are not.
	home, err := os.MkdirTemp("", "pb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	for _, name := range []string{"one", "two"} {
		if err := os.MkdirAll(filepath.Join(home, name, ".git"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, opts: patchbay.Options{Home: home, Environ: []string{}, SystemRoot: filepath.Join(home, "system"), Lazy: true}}
	b.opts.Dir = b.dir("one")
	b.servers = map[string]patchbay.LocalServer{"notes": patchbay.FromSDK(notes())}
	if b.self, err = control.Identify("v1", b.opts); err != nil {
		t.Fatal(err)
	}
	b.socket = control.SocketPath(b.self.Directories)
	return b
}

func (b *bench) dir(name string) string { return filepath.Join(b.opts.Home, name) }

// open is a view whose MCP clients are served by echo.
func (b *bench) open(ctx context.Context, c control.Caller, beside *patchbay.Host) (*control.View, error) {
	b.opened.Add(1)
	o := b.opts
	o.Dir, o.UI, o.Beside = c.Dir, control.UI(false), beside
	o.InProcess = b.servers
	if c.Environ != nil {
		o.Environ = c.Environ
	}
	h, err := patchbay.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	s := newEcho(b.t, c.Dir)
	return &control.View{
		Host:  h,
		Check: b.check,
		Attach: func(ctx context.Context, c wire.Conn, endpoint string) error {
			if b.attach != nil {
				return b.attach(c)
			}
			return s.Serve(ctx, c)
		},
		Close: func() error {
			return errors.Join(s.Shutdown(context.WithoutCancel(ctx)), h.Close())
		},
	}, nil
}

// start makes this process the daemon, until the end of the test.
func (b *bench) start() {
	b.t.Helper()
	socket, err := control.Own(b.socket)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.views, b.stop, b.stopped = control.NewViews(b.open), stop, make(chan error, 2)
	d := control.Daemon{Identity: b.self, Views: b.views}
	go func() {
		release, err := d.Serve(ctx, socket)
		b.views.Close()
		release()
		b.stopped <- err
	}()
	b.t.Cleanup(func() {
		stop()
		if err := <-b.stopped; err != nil {
			b.t.Errorf("the daemon: %v", err)
		}
		b.stopped <- nil
	})
}

func (b *bench) dial(project string) *control.Client {
	b.t.Helper()
	c, err := control.Dial(b.t.Context(), b.socket, control.Caller{Dir: b.dir(project)}, b.self)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// echo answers every request with its own params and where it was served.
type echo struct{ dir string }

func newEcho(t *testing.T, dir string) *wire.Server {
	s, err := wire.NewServer(wire.ServerOptions{
		Info:         json.RawMessage(`{"name":"echo","version":"1"}`),
		Capabilities: json.RawMessage(`{"tools":{"listChanged":true}}`),
		Handler:      echo{dir},
	})
	if err != nil {
		t.Error(err)
	}
	return s
}

func (e echo) HandleRequest(_ context.Context, r *wire.Request) (json.RawMessage, error) {
	return wire.SetMember(r.Params, wire.AppendString(nil, e.dir), "served")
}

func (echo) HandleNotification(context.Context, *wire.Notification) {}

func TestDaemonServesAViewForEachDirectory(t *testing.T) {
	b := newBench(t)
	if _, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one")}, b.self); !errors.Is(err, control.ErrNoDaemon) {
		t.Fatalf("without a daemon: %v", err)
	}
	b.start()
	for _, project := range []string{"one", "two", "one"} {
		snap, err := b.dial(project).Snapshot(t.Context(), false)
		if err != nil || snap.Dir != b.dir(project) {
			t.Errorf("%s: %q, %v", project, snap.Dir, err)
		}
	}
	if n := b.opened.Load(); n != 2 {
		t.Errorf("%d views were opened, want 2", n)
	}
	c := b.dial("one")
	if d, ok := c.Daemon(); !ok || d.PID != os.Getpid() {
		t.Errorf("the daemon is %+v", d)
	}
	if err := c.Connect(t.Context(), "notes"); err != nil {
		t.Fatal(err)
	}
	r, err := c.Call(t.Context(), patchbay.Call{Tool: "notes.ping"}, control.CallOptions{Model: true})
	if err != nil || r.Model.Text != "pong" || string(r.Model.Content) != `[{"type":"text","text":"pong"}]` {
		t.Errorf("Call: %+v, %v", r, err)
	}
	_, err = c.Call(t.Context(), patchbay.Call{Tool: "notes.pong"}, control.CallOptions{})
	if kindOf(err) != patchbay.KindToolNotFound {
		t.Errorf("Call: %v", err)
	}
	for _, dir := range []string{"", "one", b.dir("none"), b.socket} {
		c, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: dir}, b.self)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Snapshot(t.Context(), false); kindOf(err) != patchbay.KindConfigInvalid {
			t.Errorf("in %q: %v", dir, err)
		}
		c.Close()
	}
}

func TestAttach(t *testing.T) {
	b := newBench(t)
	b.start()
	for _, project := range []string{"one", "two"} {
		conn, err := b.dial(project).Attach(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.Write(t.Context(), wire.Message{ID: wire.NumberID(7), Method: "x", Params: json.RawMessage(`{"a":1e400}`)}); err != nil {
			t.Fatal(err)
		}
		m, err := conn.Read()
		if err != nil || m.ID != wire.NumberID(7) {
			t.Fatalf("got %+v, %v", m, err)
		}
		if want := `{"a":1e400,"served":"` + b.dir(project) + `"}`; string(m.Result) != want {
			t.Errorf("got %s, want %s", m.Result, want)
		}
	}
	b.stop()
	if err := <-b.stopped; err != nil {
		t.Error(err)
	}
	b.stopped <- nil
	if _, err := os.Lstat(b.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A daemon tells who is attached, and ends when it is asked to; whoever asked
// knows when it has.
func TestStatusAndStop(t *testing.T) {
	b := newBench(t)
	b.start()
	c := b.dial("one")
	conn, err := c.Attach(t.Context(), "@some")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Write(t.Context(), wire.Message{ID: wire.NumberID(1), Method: "initialize", Params: json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"7"}}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(); err != nil {
		t.Fatal(err)
	}
	s, err := c.Status(t.Context())
	if err != nil || s.PID != os.Getpid() || len(s.Clients) != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	if got := s.Clients[0]; got.PID != os.Getpid() || got.Name != "agent" || got.Version != "7" || got.Dir != b.dir("one") || got.Endpoint != "@some" {
		t.Errorf("the client is %+v", got)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	select { // whoever waited was let go after the views were closed
	case err := <-b.stopped:
		b.stopped <- err
	case <-time.After(time.Minute):
		t.Error("the daemon has not ended")
	}
	if _, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one")}, b.self); !errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("after that: %v", err)
	}
}

// What a person started, nobody else ends.
func TestForegroundIsNotStopped(t *testing.T) {
	b := newBench(t)
	b.self.Foreground = true
	b.start()
	if err := b.dial("one").Stop(t.Context()); kindOf(err) != patchbay.KindDenied {
		t.Errorf("got %v", err)
	}
	b.dial("one")
}

// A client that comes while the daemon begins to end is sent to the next one,
// whatever it is that has ended already.
func TestAttachToAnEndingDaemon(t *testing.T) {
	b := newBench(t)
	b.check = func(string) error {
		b.stop()
		return errors.New("the gateway is shut down")
	}
	b.start()
	if _, err := b.dial("one").Attach(t.Context(), ""); !errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("got %v", err)
	}
}

// Who is another user, has other files or is another build does not attach.
func TestUnlike(t *testing.T) {
	b := newBench(t)
	b.start()
	for name, change := range map[string]func(*control.Identity){
		"version v1, and this is v2": func(i *control.Identity) { i.Version = "v2" },
		"its configuration is in":    func(i *control.Identity) { i.Config = "/elsewhere" },
		"state in /elsewhere":        func(i *control.Identity) { i.State = "/elsewhere" },
		"and yours /elsewhere":       func(i *control.Identity) { i.Home = "/elsewhere" },
		"it belongs to user":         func(i *control.Identity) { i.UID++ },
	} {
		other := b.self
		change(&other)
		_, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one")}, other)
		if err == nil || errors.Is(err, control.ErrNoDaemon) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneOwner(t *testing.T) {
	b := newBench(t)
	first, err := control.Own(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Own(b.socket); !errors.Is(err, control.ErrOwned) {
		t.Errorf("a second owner: %v", err)
	}
	info, err := os.Lstat(b.socket)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if info, err := os.Lstat(filepath.Dir(b.socket)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// A daemon that was killed leaves its socket behind.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := os.Chmod(b.socket, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Own(b.socket); !errors.Is(err, control.ErrOwned) {
		t.Errorf("owner of a socket that is being served: %v", err)
	}
	left.Close()
	if _, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one")}, b.self); !errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("a socket that nobody serves: %v", err)
	}
	second, err := control.Own(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// What somebody else could have put there, or could get at, is not used.
func TestPlantedSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // rights are not in the mode there
	}
	b := newBench(t)
	b.start()
	dir := filepath.Dir(b.socket)
	refused := func(what string) {
		t.Helper()
		_, err := control.Dial(t.Context(), b.socket, control.Caller{Dir: b.dir("one")}, b.self)
		if err == nil || errors.Is(err, control.ErrNoDaemon) {
			t.Errorf("%s: %v", what, err)
		}
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(dir, 0o755)
	refused("an open directory")
	chmod(dir, 0o700)
	chmod(b.socket, 0o666)
	refused("an open socket")
	chmod(b.socket, 0o600)
	b.dial("one")

	other := newBench(t)
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(other.socket)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Dir(other.socket)); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Dial(t.Context(), other.socket, control.Caller{Dir: b.dir("one")}, b.self); err == nil || errors.Is(err, control.ErrNoDaemon) {
		t.Errorf("a link to a directory: %v", err)
	}
	if _, err := control.Own(other.socket); err == nil || errors.Is(err, control.ErrOwned) {
		t.Errorf("owner through a link: %v", err)
	}
}

func TestSocketPath(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // its paths look different
	}
	dirs := patchbay.Directories{State: "/home/u/.local/state/patchbay"}
	if got := control.SocketPath(dirs); got != dirs.State+"/run/control.sock" {
		t.Errorf("got %s", got)
	}
	t.Setenv("TMPDIR", t.TempDir())
	dirs.State = "/" + strings.Repeat("deep/", 30) + "patchbay"
	if got := control.SocketPath(dirs); len(got) > 100 || !strings.HasPrefix(got, "/tmp/patchbay-") {
		t.Errorf("of a long path: %s", got)
	}
}

// Nothing but our own client is answered.
func TestStrangersAreRefused(t *testing.T) {
	b := newBench(t)
	b.start()
	for want, request := range map[int]string{
		http.StatusForbidden:          "GET /v1/hello HTTP/1.1\r\nHost: patchbay\r\nOrigin: http://127.0.0.1\r\n\r\n",
		http.StatusMisdirectedRequest: "GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
		http.StatusUpgradeRequired:    "POST /v1/attach HTTP/1.1\r\nHost: patchbay\r\n\r\n",
	} {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("HTTP/1.1 403"))
		if _, err := io.ReadFull(conn, line); err != nil || string(line[9:]) != strconv.Itoa(want) {
			t.Errorf("%q: %q, %v", request, line, err)
		}
		conn.Close()
	}
}

// A daemon that drops its clients at once is given up after a few attempts.
func TestStdioGivesUpADaemonThatDropsIt(t *testing.T) {
	b := newBench(t)
	var dropped atomic.Int32
	b.attach = func(c wire.Conn) error {
		dropped.Add(1)
		return c.Close()
	}
	b.start()
	alone := control.NewViews(func(ctx context.Context, _ control.Caller, _ *patchbay.Host) (*control.View, error) {
		s := newEcho(t, "alone")
		return &control.View{
			Attach: func(ctx context.Context, c wire.Conn, _ string) error { return s.Serve(ctx, c) },
			Close:  func() error { return s.Shutdown(context.WithoutCancel(ctx)) },
		}, nil
	})
	defer alone.Close()
	in, typed := io.Pipe()
	printed, out := io.Pipe()
	ended := make(chan error, 1)
	var said atomic.Int32
	s := &control.Stdio{
		In: in, Out: out, Caller: control.Caller{Dir: b.dir("one")}, Self: b.self, Daemon: &control.Starter{Socket: b.socket},
		Views: func() (*control.Views, error) { return alone, nil },
		Say:   func(string, ...any) { said.Add(1) },
	}
	go func() { ended <- s.Serve(t.Context()) }()
	client := end{t, wire.NewStreamConn(printed, typed, nil)}
	client.say(`{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{}}`)
	client.hear(`{"jsonrpc":"2.0","id":1,"result":{"served":"alone"}}`)
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := dropped.Load(); n != 3 || said.Load() != 3 {
		t.Errorf("dropped %d times, and said so %d times", n, said.Load())
	}
}
