package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The audit log is audit.log in the state directory, one record in JSON on each
// line, private to its user. A file that has grown enough, or is of an earlier
// day, gets the time into its name, and the oldest of those are removed. Several
// processes may write to it at once: each appends whole batches and notices when
// another has put the file aside, which one at a time does.
const (
	auditName    = "audit.log"
	auditLock    = ".audit.log.lock"
	auditOldName = "audit-%s.log"
	auditOldTime = "20060102T150405.000000000Z"
	maxAuditFile = 10 << 20
	maxAuditKept = 100 << 20 // of all files that are put aside
)

// auditLog is the file. One goroutine uses it.
type auditLog struct {
	log     *slog.Logger
	path    string // of its directory
	maxFile int64
	maxKept int64
	now     func() time.Time

	dir     *os.Root
	file    *os.File
	buffer  []byte
	torn    bool // the last write ended within a line
	failing bool // which was said
}

// write appends records, and a line that says how many were dropped before them.
// It returns how many could not be written.
func (a *auditLog) write(records []patchbay.CallRecord, dropped int) (lost int) {
	a.buffer = a.buffer[:0]
	if a.torn {
		a.buffer = append(a.buffer, '\n')
	}
	for i := range records {
		a.buffer = append(appendRecord(a.buffer, &records[i]), '\n')
	}
	if dropped > 0 {
		a.buffer = fmt.Appendf(a.buffer, "{\"time\":%q,\"dropped\":%d}\n", a.now().UTC().Format(time.RFC3339Nano), dropped)
	}
	err := a.ready()
	if err == nil {
		var n int
		n, err = a.file.Write(a.buffer)
		a.torn = a.torn && n == 0 || err != nil && n > 0 && a.buffer[n-1] != '\n'
	}
	if err != nil {
		lost = len(records)
		_ = a.close() // perhaps another time, from the beginning
	}
	if failing := err != nil; failing != a.failing {
		a.failing = failing
		if failing {
			a.log.Error("the audit log cannot be written; calls go on without it", "error", err)
		} else {
			a.log.Info("the audit log is written again")
		}
	}
	return lost
}

// appendRecord writes a record the way encoding/json does, in a fraction of the
// time: it is most of what keeping books costs.
func appendRecord(dst []byte, r *patchbay.CallRecord) []byte {
	dst = append(dst, `{"time":"`...)
	dst = append(r.Time.AppendFormat(dst, time.RFC3339Nano), '"')
	text := func(name, value string, always bool) {
		if always || value != "" {
			dst = append(append(append(dst, `,"`...), name...), `":`...)
			dst = wire.AppendString(dst, value)
		}
	}
	number := func(name string, value int64) {
		dst = append(append(append(dst, `,"`...), name...), `":`...)
		dst = strconv.AppendInt(dst, value, 10)
	}
	text("session", r.Session, true)
	text("method", r.Method, true)
	text("server", r.Server, false)
	text("tool", r.Tool, false)
	text("decision", string(r.Decision), false)
	text("rule", r.Rule, false)
	text("source", r.Source, false)
	text("outcome", r.Outcome, true)
	number("durationNs", int64(r.Duration))
	number("bytesIn", int64(r.BytesIn))
	number("bytesOut", int64(r.BytesOut))
	text("traceId", r.TraceID, false)
	text("spanId", r.SpanID, false)
	text("parentId", r.ParentID, false)
	return append(dst, '}')
}

// ready opens the file, another one if there is no room in it for what is to be
// written or it is of another day.
func (a *auditLog) ready() error {
	if a.file != nil && !a.current() { // another process has put it aside
		_ = a.file.Close()
		a.file = nil
	}
	if err := a.open(); err != nil {
		return err
	}
	info, err := a.file.Stat()
	if err != nil || info.Size() == 0 || info.Size()+int64(len(a.buffer)) <= a.maxFile && day(info.ModTime()) == day(a.now()) {
		return err
	}
	if err := a.putAside(); err != nil {
		return err
	}
	return a.open()
}

// current reports whether the open file is the one that has the name.
func (a *auditLog) current() bool {
	here, err := a.dir.Lstat(auditName)
	ours, ourErr := a.file.Stat()
	return err == nil && ourErr == nil && os.SameFile(here, ours)
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// open opens the file, unless it is open.
func (a *auditLog) open() (err error) {
	if a.file != nil {
		return nil
	}
	if a.dir == nil {
		if err := os.MkdirAll(a.path, 0o700); err != nil {
			return err
		}
		if a.dir, err = os.OpenRoot(a.path); err != nil {
			return err
		}
	}
	info, err := a.dir.Lstat(auditName)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", filepath.Join(a.path, auditName))
	}
	a.file, err = a.dir.OpenFile(auditName, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return err
}

// putAside gives the file another name, and removes the oldest of those. While
// another process does it the file may grow a little.
func (a *auditLog) putAside() error {
	lock, err := atomicfile.Hold(filepath.Join(a.path, auditLock))
	if err != nil || lock == nil {
		return err
	}
	defer lock.Release()
	current := a.current() // or else it was done since we looked
	if current {
		_ = a.file.Sync() // what is put aside is complete, whatever happens next
	}
	_ = a.file.Close()
	a.file = nil
	if !current {
		return nil
	}
	kept, err := a.kept()
	if err != nil {
		return err
	}
	name := fmt.Sprintf(auditOldName, a.now().UTC().Format(auditOldTime))
	if len(kept) > 0 && name <= kept[len(kept)-1].Name() { // the clock was set back
		name = after(kept[len(kept)-1].Name())
	}
	if err := a.dir.Rename(auditName, name); err != nil {
		return err
	}
	info, err := a.dir.Lstat(name)
	if err != nil {
		return err
	}
	size := info.Size()
	for _, old := range slices.Backward(kept) {
		if size += old.Size(); size <= a.maxKept {
			continue
		}
		if err := a.dir.Remove(old.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// kept are the files that were put aside, the oldest first.
func (a *auditLog) kept() ([]fs.FileInfo, error) {
	listing, err := a.dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer listing.Close()
	names, err := listing.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var kept []fs.FileInfo
	for _, name := range names {
		if _, ok := putAsideAt(name); !ok {
			continue
		}
		if info, err := a.dir.Lstat(name); err == nil { // or it has just been removed
			kept = append(kept, info)
		}
	}
	return kept, nil
}

// putAsideAt is the time that the name of a file that was put aside has in it.
func putAsideAt(name string) (time.Time, bool) {
	prefix, suffix, _ := strings.Cut(auditOldName, "%s")
	stamp, isOld := strings.CutPrefix(name, prefix)
	stamp, hasEnd := strings.CutSuffix(stamp, suffix)
	at, err := time.Parse(auditOldTime, stamp)
	return at, isOld && hasEnd && err == nil
}

// after is the name that follows another in time.
func after(name string) string {
	at, _ := putAsideAt(name)
	return fmt.Sprintf(auditOldName, at.Add(1).Format(auditOldTime))
}

func (a *auditLog) close() error {
	var err error
	if a.file != nil {
		err = errors.Join(a.file.Sync(), a.file.Close())
	}
	if a.dir != nil {
		err = errors.Join(err, a.dir.Close())
	}
	a.file, a.dir = nil, nil
	return err
}
