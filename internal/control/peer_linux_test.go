package control_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchbay-mcp/patchbay/internal/control"
)

// asNobody runs a function as another user, on a thread that ends with it.
func asNobody(t *testing.T, work func()) {
	t.Helper()
	const nobody, same = 65534, ^uintptr(0)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock it: nobody else must get it
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, nobody, same); errno != 0 {
			done <- errno
			return
		}
		work()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Another user is refused on both sides, even where the files would let one in.
// Only root can be another user for a while.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	b := newBench(t)
	b.start()
	open := func(path, home string) {
		t.Helper()
		for at := path; len(at) >= len(home); at = filepath.Dir(at) {
			if err := os.Chmod(at, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	open(b.socket, b.opts.Home)
	asNobody(t, func() {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Errorf("the socket is not open to others: %v", err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /v1/hello HTTP/1.1\r\nHost: patchbay\r\n\r\n") // it may be closed already
		if n, err := conn.Read(make([]byte, 1)); n != 0 {
			t.Errorf("another user was answered: %v", err)
		}
	})

	other := newBench(t)
	dir := filepath.Dir(other.socket)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	open(dir, other.opts.Home)
	var planted net.Listener
	asNobody(t, func() {
		var err error
		if planted, err = net.Listen("unix", other.socket); err != nil {
			t.Error(err)
		}
	})
	if planted == nil {
		return
	}
	defer planted.Close()
	for _, path := range []string{dir, other.socket} { // all that the modes could tell
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if _, err := control.Dial(t.Context(), other.socket, control.Caller{Dir: other.dir("one")}, other.self); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a socket of another user")
	if err := os.Chown(other.socket, 0, 0); err != nil { // all that the owner could tell
		t.Fatal(err)
	}
	refused("a process of another user behind a socket of one's own")
	if _, err := control.Own(other.socket); err == nil {
		t.Error("a socket that is being served was replaced")
	}
}
