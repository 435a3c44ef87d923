package observe

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/patchbay-mcp/patchbay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every call is a line of the log, which says what the audit log does.
func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	b := New(Options{Logger: slog.New(slog.NewTextHandler(&out, nil)), AuditDir: dir})
	denied, listed := tracedRecord(), someRecord("codex")
	denied.Decision, denied.Outcome = patchbay.Deny, "denied"
	listed.Method, listed.Tool, listed.Decision = "tools/list", "", ""
	for _, r := range []patchbay.CallRecord{someRecord("claude"), denied, listed} {
		b.observe(r)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	const at = "time=2026-11-15T04:00:00.001Z "
	want := at + "level=INFO msg=call session=claude server=files tool=read decision=allow outcome=ok took=1.5ms in=10 out=20\n" +
		at + "level=WARN msg=call session=claude server=files tool=read decision=deny outcome=denied took=1.5ms in=10 out=20 trace=0af7651916cd43dd8448eb211c80319c\n" +
		at + "level=INFO msg=call session=codex method=tools/list server=files outcome=ok took=1.5ms in=10 out=20\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if lines := auditLines(t, dir); len(lines) != 3 || !strings.Contains(lines[1], `"outcome":"denied"`) {
		t.Errorf("audited %q", lines)
	}
}
