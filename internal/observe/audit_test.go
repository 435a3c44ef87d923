package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay"
)

func someRecord(session string) patchbay.CallRecord {
	return patchbay.CallRecord{
		Time: time.Date(2026, 11, 15, 4, 0, 0, 0, time.UTC), Session: session, Method: "tools/call", Server: "files", Tool: "read",
		Decision: patchbay.Allow, Rule: "mcp__files__*", Source: "/home/u/settings.json", Outcome: "ok", Duration: 1500 * time.Microsecond, BytesIn: 10, BytesOut: 20,
	}
}

// auditLines returns every line of every file, the oldest first.
func auditLines(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var lines []string
	for _, file := range append(files, filepath.Join(dir, auditName)) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return lines
}

func TestAuditLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a := newAudit(dir, maxAuditFile)
	if lost := a.write([]patchbay.CallRecord{someRecord("claude")}, 3); lost != 0 {
		t.Errorf("%d lost", lost)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	lines := auditLines(t, dir)
	const want = `{"time":"2026-11-15T04:00:00Z","session":"claude","method":"tools/call","server":"files","tool":"read",` +
		`"decision":"allow","rule":"mcp__files__*","source":"/home/u/settings.json","outcome":"ok","durationNs":1500000,"bytesIn":10,"bytesOut":20}`
	if len(lines) != 2 || lines[0] != want {
		t.Errorf("got  %s\nwant %s", lines[0], want)
	}
	var gap struct{ Dropped int }
	if err := json.Unmarshal([]byte(lines[1]), &gap); err != nil || gap.Dropped != 3 {
		t.Errorf("%s: %v", lines[1], err)
	}
}

// A line is what encoding/json makes of the record, whatever is in it.
func FuzzRecord(f *testing.F) {
	f.Add("claude", "files", "read", "mcp__*", int64(1500), 3)
	f.Add("", "", "", "", int64(0), 0)
	f.Add("a\"b\\", "\u2028\x00", "\xff", "<é>", int64(-1), -1)
	f.Fuzz(func(t *testing.T, session, server, tool, rule string, took int64, size int) {
		r := patchbay.CallRecord{
			Time: time.Unix(0, took).UTC(), Session: session, Method: tool, Server: server, Tool: tool, Decision: patchbay.Effect(rule), Rule: rule, Source: server,
			Outcome: session, Duration: time.Duration(took), BytesIn: size, BytesOut: -size, TraceID: tool, SpanID: server, ParentID: rule,
		}
		standard, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		line := appendRecord(nil, &r)
		if err := json.Unmarshal(line, &got); err != nil || bytes.ContainsRune(line, 0x0a) {
			t.Fatalf("%s: %v", line, err)
		}
		if err := json.Unmarshal(standard, &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// Several writers share the log, as processes do: every line arrives whole, once
// and in its writer's order, files stay small, and old ones go.
func TestAuditRotation(t *testing.T) {
	const writers, each = 3, 40
	dir := t.TempDir()
	size := func() int {
		line, _ := json.Marshal(someRecord("writer 0, 00"))
		return len(line) + 1
	}()
	var wg sync.WaitGroup
	for w := range writers {
		a := newAudit(dir, 64*size)
		wg.Go(func() {
			for i := range each {
				if lost := a.write([]patchbay.CallRecord{someRecord(fmt.Sprintf("writer %d, %02d", w, i))}, 0); lost != 0 {
					t.Errorf("%d lost", lost)
				}
			}
			if err := a.close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string][]string{}
	for _, line := range auditLines(t, dir) {
		var r patchbay.CallRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		writer, number, _ := strings.Cut(r.Session, ", ")
		seen[writer] = append(seen[writer], number)
	}
	var want []string
	for i := range each {
		want = append(want, fmt.Sprintf("%02d", i))
	}
	for w := range writers {
		if d := cmp.Diff(want, seen[fmt.Sprintf("writer %d", w)]); d != "" {
			t.Errorf("writer %d (-want +got):\n%s", w, d)
		}
	}

	a := newAudit(dir, size)
	a.maxKept = int64(5 * size)
	for i := range 10 {
		a.write([]patchbay.CallRecord{someRecord(fmt.Sprint("last ", i))}, 0)
	}
	a.close()
	files, _ := filepath.Glob(filepath.Join(dir, "audit*.log"))
	if lines := auditLines(t, dir); len(files) != 6 || !strings.Contains(lines[len(lines)-1], "last 9") {
		t.Errorf("%d files, the last line is %s", len(files), lines[len(lines)-1])
	}
}

// Two processes that both find the file full put one file aside, not a new one
// behind it.
func TestAuditPutAsideOnce(t *testing.T) {
	dir := t.TempDir()
	line := len(appendRecord(nil, new(someRecord("a")))) + 1
	first, second := newAudit(dir, 2*line), newAudit(dir, 2*line)
	for _, a := range []*auditLog{first, first} {
		a.write([]patchbay.CallRecord{someRecord("a")}, 0)
	}
	if err := second.open(); err != nil { // and has found it full
		t.Fatal(err)
	}
	first.write([]patchbay.CallRecord{someRecord("a")}, 0)
	if err := second.putAside(); err != nil {
		t.Fatal(err)
	}
	first.close()
	second.close()
	if kept, _ := filepath.Glob(filepath.Join(dir, "audit-*.log")); len(kept) != 1 || len(auditLines(t, dir)) != 3 {
		t.Errorf("put aside: %q", kept)
	}
}

// Names go on in order when the clock goes back, and a file ends with its day.
func TestAuditDays(t *testing.T) {
	dir := t.TempDir()
	a := newAudit(dir, maxAuditFile)
	start := time.Now().UTC()
	for i, later := range []time.Duration{0, 0, 24 * time.Hour, -24 * time.Hour} {
		a.now = func() time.Time { return start.Add(later) }
		a.write([]patchbay.CallRecord{someRecord(fmt.Sprint(i))}, 0)
	}
	a.close()
	if kept, _ := filepath.Glob(filepath.Join(dir, "audit-*.log")); len(kept) != 2 {
		t.Errorf("put aside: %q, want 2", kept)
	}
	for i, line := range auditLines(t, dir) {
		if !strings.Contains(line, fmt.Sprintf(`"session":"%d"`, i)) {
			t.Errorf("line %d is %s", i, line)
		}
	}
}

func newAudit(dir string, maxFile int) *auditLog {
	return &auditLog{path: dir, log: slog.New(slog.DiscardHandler), maxFile: int64(maxFile), maxKept: maxAuditKept, now: time.Now}
}

// A log that cannot be written is said once and taken up again when it can.
func TestAuditFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var said bytes.Buffer
	a := &auditLog{path: dir, log: slog.New(slog.NewTextHandler(&said, nil)), maxFile: maxAuditFile, maxKept: maxAuditKept, now: time.Now}
	write := func(lost int) {
		t.Helper()
		if got := a.write([]patchbay.CallRecord{someRecord("a"), someRecord("b")}, 0); got != lost {
			t.Errorf("%d lost, want %d", got, lost)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "target")
	for _, obstacle := range []func() error{
		func() error { return os.WriteFile(dir, nil, 0o600) },
		func() error { return os.MkdirAll(filepath.Join(dir, auditName), 0o700) },
		func() error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return os.Symlink(elsewhere, filepath.Join(dir, auditName))
		},
	} {
		said.Reset()
		if err := obstacle(); err != nil {
			t.Fatal(err)
		}
		write(2)
		write(2)
		if n := strings.Count(said.String(), "cannot be written"); n != 1 {
			t.Errorf("said %d times: %s", n, said.String())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		write(0)
		if !strings.Contains(said.String(), "written again") || len(auditLines(t, dir)) != 2 {
			t.Errorf("afterwards: %s", said.String())
		}
		a.close()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a link was followed")
	}
	write(0)
	a.torn = true // as a full disk leaves it
	write(0)
	if lines := auditLines(t, dir); len(lines) != 5 || lines[2] != "" {
		t.Errorf("after a line that was cut: %q", lines)
	}
	a.close()
}
