package observe

import (
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/patchbay-mcp/patchbay"
)

// scrape returns the page, line by line, once it was found to be in order: each
// metric is declared, in one piece, and no series is there twice.
func scrape(t *testing.T, b *Books) []string {
	t.Helper()
	w := httptest.NewRecorder()
	b.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %s", got)
	}
	sample := regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\[\\n"])*",?)*\})? (\S+)$`)
	lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
	current, seen := "", map[string]bool{}
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			current, _, _ = strings.Cut(rest, " ")
			if seen[line] {
				t.Errorf("declared twice: %s", line)
			}
			seen[line] = true
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not in the format: %s", line)
			continue
		}
		if name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_sum"), "_count"); name != current {
			t.Errorf("%s is not declared", m[1])
		}
		if seen[m[1]+m[2]] {
			t.Errorf("twice: %s", line)
		}
		seen[m[1]+m[2]] = true
		if _, err := strconv.ParseFloat(m[3], 64); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	return lines
}

// with returns the lines that hold all of the texts.
func with(lines []string, texts ...string) (found []string) {
	for _, line := range lines {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all && !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	count := func(change func(*patchbay.CallRecord)) {
		r := someRecord("a")
		change(&r)
		b.observe(r)
	}
	count(func(*patchbay.CallRecord) {})
	count(func(r *patchbay.CallRecord) { r.Duration = time.Hour })
	count(func(r *patchbay.CallRecord) { r.Outcome, r.Duration = "denied", time.Millisecond })
	count(func(r *patchbay.CallRecord) { r.Tool = "a\"b\\c\nd" })
	count(func(r *patchbay.CallRecord) { r.Tool, r.Outcome = "made up", "tool_not_found" })
	count(func(r *patchbay.CallRecord) { r.Method, r.Tool, r.Outcome = "made/up", "", "of a new kind" })
	lines := scrape(t, b)
	const read = `{method="tools/call",server="files",tool="read"`
	want := []string{
		`patchbay_calls_total` + read + `,outcome="ok"} 2`,
		`patchbay_calls_total` + read + `,outcome="denied"} 1`,
	}
	if d := cmp.Diff(want, with(lines, "calls_total", read)); d != "" {
		t.Error(d)
	}
	for _, line := range []string{
		`patchbay_calls_total{method="tools/call",server="files",tool="a\"b\\c\nd",outcome="ok"} 1`,
		`patchbay_calls_total{method="tools/call",server="",tool="",outcome="tool_not_found"} 1`,
		`patchbay_calls_total{method="other",server="files",tool="",outcome="error"} 1`,
		`patchbay_call_duration_seconds_bucket` + read + `,le="0.001"} 1`,
		`patchbay_call_duration_seconds_bucket` + read + `,le="0.0025"} 2`,
		`patchbay_call_duration_seconds_bucket` + read + `,le="60"} 2`,
		`patchbay_call_duration_seconds_bucket` + read + `,le="+Inf"} 3`,
		`patchbay_call_duration_seconds_sum` + read + `} 3600.0025`,
		`patchbay_call_duration_seconds_count` + read + `} 3`,
		`patchbay_call_bytes_total` + read + `,direction="in"} 30`,
		`patchbay_call_bytes_total` + read + `,direction="out"} 60`,
		`patchbay_audit_dropped_total 0`,
	} {
		if len(with(lines, line)) != 1 {
			t.Errorf("missing: %s", line)
		}
	}
	w := httptest.NewRecorder()
	b.Metrics().ServeHTTP(w, httptest.NewRequest("POST", "/metrics", nil))
	if w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// However many tools there are, the page stays of one size and nothing is lost.
func TestMetricsAreBounded(t *testing.T) {
	var m metrics
	for i := range maxSeries + 500 {
		r := someRecord("a")
		r.Tool = fmt.Sprint("tool", i)
		m.count(&r)
	}
	var p page
	m.render(&p)
	lines := with(strings.Split(p.String(), "\n"), "patchbay_calls_total")
	if want := `patchbay_calls_total{method="other",server="",tool="_other",outcome="ok"} 500`; len(lines) != maxSeries+1 || lines[0] != want {
		t.Errorf("%d lines, the first %s", len(lines), lines[0])
	}
}

// A call pays for counters, not for memory.
func TestCountingAllocatesNothing(t *testing.T) {
	var m metrics
	r := someRecord("a")
	if n := testing.AllocsPerRun(100, func() { m.count(&r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a call pays for itself, and what the writer pays for it later.
func BenchmarkBooks(bench *testing.B) {
	r := someRecord("a")
	bench.Run("call", func(bench *testing.B) {
		b := New(Options{})
		defer b.Close()
		bench.ReportAllocs()
		for bench.Loop() {
			b.observe(r)
		}
	})
	bench.Run("audit", func(bench *testing.B) {
		b := New(Options{AuditDir: bench.TempDir()})
		defer b.Close()
		batch := make([]patchbay.CallRecord, 1000)
		for i := range batch {
			batch[i] = r
		}
		bench.ReportAllocs()
		for bench.Loop() {
			b.write(batch, 0)
		}
		bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N*len(batch)), "ns/record")
	})
}

// What hosts know is part of the page, while they are followed.
func TestMetricsOfHosts(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	home := t.TempDir()
	o := patchbay.Options{Home: home, Dir: home, SystemRoot: home, Environ: []string{}, Lazy: true}
	o.InProcess = map[string]patchbay.LocalServer{"files": patchbay.FromSDK(mcp.NewServer(&mcp.Implementation{Name: "files"}, nil))}
	b.Attach(&o)
	h, err := patchbay.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	forget := b.Follow(h)
	if _, err := h.NewSession(patchbay.SessionOptions{}); err != nil {
		t.Fatal(err)
	}
	lines := scrape(t, b)
	dir := label("dir", home)
	for _, line := range []string{
		`patchbay_sessions{` + dir + `} 1`,
		`patchbay_server_state{` + dir + `,server="files",state="pending"} 1`,
		`patchbay_server_state{` + dir + `,server="files",state="connected"} 0`,
		`patchbay_server_restarts_total{` + dir + `,server="files"} 0`,
	} {
		if len(with(lines, line)) != 1 {
			t.Errorf("missing: %s", line)
		}
	}
	forget()
	if found := with(scrape(t, b), "dir="); len(found) != 0 {
		t.Errorf("still there: %v", found)
	}
}
