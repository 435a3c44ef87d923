package discover

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchbay-mcp/patchbay/config"
)

// TestWhatIsNoFile puts everything but a readable file of bearable size where a
// configuration file is expected. Each is a warning of its own; the rest of the
// scan goes on, and nothing waits.
func TestWhatIsNoFile(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		lay        func(t *testing.T, file string)
	}{
		{"pipe", "not a regular file", func(t *testing.T, file string) {
			if err := syscall.Mkfifo(file, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"link to a pipe", "not a regular file", func(t *testing.T, file string) {
			if err := syscall.Mkfifo(file+".pipe", 0o644); err != nil {
				t.Fatal(err)
			}
			link(t, file+".pipe", file)
		}},
		{"device", "not a regular file", func(t *testing.T, file string) { link(t, "/dev/zero", file) }},
		{"directory", "a directory, not a file", func(t *testing.T, file string) {
			if err := os.Mkdir(file, 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"link to itself", "too many levels of symbolic links", func(t *testing.T, file string) { link(t, file, file) }},
		{"link to nowhere", "a symbolic link that leads nowhere", func(t *testing.T, file string) { link(t, file+".gone", file) }},
		{"too large", "larger than 4 MiB", func(t *testing.T, file string) {
			if err := os.WriteFile(file, []byte("{"+strings.Repeat(" ", 5<<20)+"}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"endless", "larger than 4 MiB", func(t *testing.T, file string) {
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(1 << 40); err != nil {
				t.Fatal(err)
			}
		}},
		{"unreadable", "permission denied", func(t *testing.T, file string) {
			if err := os.WriteFile(file, []byte(oneServer), 0); err != nil {
				t.Fatal(err)
			}
			obeyPermissions(t)
		}},
		{"binary", "invalid character '\\u0000'", func(t *testing.T, file string) {
			if err := os.WriteFile(file, []byte{0, 1, 2, 3}, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.write("home/.codeium/windsurf/mcp_config.json", oneServer)
			file := m.write("home/.cursor/mcp.json", "")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			tt.lay(t, file)
			r := Scan(t.Context(), m.env)
			if got := strings.Join(names(r), " "); got != "windsurf/x" {
				t.Errorf("found %q", got)
			}
			if len(r.Problems) != 1 || r.Problems[0].File != file || !strings.Contains(r.Problems[0].Message, tt.want) {
				t.Fatalf("problems: %v", r.Problems)
			}
			if status := r.Files[0].Status; status != Unreadable && tt.name != "binary" {
				t.Errorf("status %s", status)
			}
		})
	}
}

// obeyPermissions takes root's power to ignore permissions from the thread of
// the test, for as long as the test runs.
func obeyPermissions(t *testing.T) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	fewer := all
	fewer[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &fewer[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Capset(&header, &all[0]); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// TestClosedDirectory reports a directory that cannot be searched once, however
// many files might be in it.
func TestClosedDirectory(t *testing.T) {
	m := newMachine(t)
	m.write("home/.config/Code/User/mcp.json", `{"servers": {}}`)
	m.write("home/.cursor/mcp.json", oneServer)
	closed := filepath.Join(m.env.Home, ".config")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o755) })
	obeyPermissions(t)
	r := Scan(t.Context(), m.env)
	if got := strings.Join(names(r), " "); got != "cursor/x" {
		t.Errorf("found %q", got)
	}
	if len(r.Problems) != 1 || r.Problems[0].String() != closed+": permission denied: no file in it can be found" {
		t.Errorf("problems: %v", r.Problems)
	}
}

// TestReadFileDoesNotWait opens what became a pipe after it was looked at.
func TestReadFileDoesNotWait(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readContent(pipe, wholeFile); err == nil || err.Error() != "not a regular file" {
		t.Errorf("got %v", err)
	}
	if got := dirNames(pipe); got != nil {
		t.Errorf("a pipe has names: %v", got)
	}
}

func TestReadFileWithoutSize(t *testing.T) {
	// Files of /proc say they are empty.
	c, err := readContent("/proc/self/status", scriptFile)
	if err != nil || !strings.HasPrefix(string(c.text), "Name:") {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestCancelledScan(t *testing.T) {
	m := newMachine(t)
	m.write("home/.cursor/mcp.json", oneServer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Scan(ctx, m.env)
	if len(r.Entries) != 0 || len(r.Problems) != 1 || r.Problems[0].Severity != config.SeverityError {
		t.Errorf("got %v, %v", names(r), r.Problems)
	}
}
