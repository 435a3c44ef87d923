package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// Starter starts the daemon as a process of its own: in a session of its own and
// the root directory, with no descriptor of this process, and its log in a file.
type Starter struct {
	Socket  string
	Program string   // file to execute
	Args    []string // of the process, its name first
	Environ []string
	Log     string // absolute path

	// Timeout is how long a daemon may take until it serves its socket; 0 means
	// 5 s.
	Timeout time.Duration
}

const (
	startTimeout = 5 * time.Second

	// startTries is how many daemons may end before they serve it.
	startTries = 3

	reachPause = 20 * time.Millisecond
)

// StartError is why a daemon does not serve.
type StartError struct {
	Reason string
	Log    string
	ended  bool // it has, and another might do better
}

func (e *StartError) Error() string {
	return fmt.Sprintf("the daemon does not start: %s (its log is %s)", e.Reason, e.Log)
}

// Reach calls try until that finds a daemon, or fails for another reason than
// that there is none: then one is started.
func (s *Starter) Reach(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(3 * s.timeout()) // whoever starts one
	for tries := 0; ; {
		err := try()
		if !errors.Is(err, ErrNoDaemon) {
			return err
		}
		if time.Now().After(deadline) {
			return &StartError{Reason: "no daemon answers", Log: s.Log}
		}
		if err := s.start(ctx); err != nil {
			failed, ok := errors.AsType[*StartError](err)
			if tries++; !ok || !failed.ended || tries == startTries {
				return err
			}
		}
		if err := sleep(ctx, reachPause); err != nil {
			return err
		}
	}
}

func (s *Starter) timeout() time.Duration { return cmp.Or(s.Timeout, startTimeout) }

func sleep(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start starts a daemon and waits until it serves its socket. It returns at once
// if another process is about to start one.
func (s *Starter) start(ctx context.Context) error {
	dir, err := privateDir(s.Socket)
	if err != nil {
		return err
	}
	lock, err := atomicfile.Hold(filepath.Join(dir, "start.lock"))
	if err != nil || lock == nil {
		return err
	}
	defer lock.Release()
	if s.served(ctx) {
		return nil
	}
	log, err := openLog(s.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.Program)
	cmd.Args, cmd.Env, cmd.Dir = s.Args, s.Environ, string(filepath.Separator)
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return &StartError{Reason: err.Error(), Log: s.Log}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // for as long as this process is there
	limit := time.NewTimer(s.timeout())
	defer limit.Stop()
	look := time.NewTicker(reachPause / 4)
	defer look.Stop()
	for !s.served(ctx) {
		select {
		case <-look.C:
		case err := <-ended:
			return &StartError{Reason: lastWord(s.Log, begin, err), Log: s.Log, ended: true}
		case <-limit.C:
			_ = cmd.Process.Kill() // it would come when nobody waits for it any more
			return &StartError{Reason: fmt.Sprintf("it did not answer within %v", s.timeout()), Log: s.Log}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// served reports whether somebody serves the socket.
func (s *Starter) served(ctx context.Context) bool {
	c, err := dial(ctx, s.Socket)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// maxLog is how long the log of a daemon may become before what is in it is put
// aside, into the place of what was put aside before.
const maxLog = 1 << 20

// openLog opens a log for appending.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
}

// Log is the log of a daemon. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLog opens the log at path.
func OpenLog(path string) (*Log, error) {
	f, err := openLog(path)
	return &Log{file: f}, err
}

// Write implements io.Writer. A log that is long enough is copied and begun anew:
// whoever else has it open, the standard error of this process above all, goes
// on at its end.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(p)) > maxLog {
		if old, err := os.ReadFile(l.file.Name()); err == nil && os.WriteFile(l.file.Name()+".1", old, 0o600) == nil {
			_ = l.file.Truncate(0) // or it grows
		}
	}
	return l.file.Write(p)
}

// lastWord is what a daemon that ended wrote last, or how it ended.
func lastWord(path string, begin int64, err error) string {
	const most = 16 << 10
	reason := "it ended at once"
	if err != nil {
		reason = "it ended with " + err.Error()
	}
	f, err := os.Open(path)
	if err != nil {
		return reason
	}
	defer f.Close()
	text, _ := io.ReadAll(io.NewSectionReader(f, begin, most)) // as far as it can be read
	said := false
	for line := range bytes.Lines(text) {
		line := strings.TrimSpace(string(line))
		tells := strings.HasPrefix(line, "patchbay: ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		if line != "" && (tells || !said) { // what follows those is about them
			reason, said = strings.TrimPrefix(line, "patchbay: "), said || tells
		}
	}
	return reason
}
