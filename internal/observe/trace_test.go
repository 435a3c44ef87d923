package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

func tracedRecord() patchbay.CallRecord {
	r := someRecord("claude")
	r.TraceID, r.SpanID, r.ParentID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7", "b7ad6b7169203331"
	return r
}

// A collector gets each span once, in the form of OTLP.
func TestSpans(t *testing.T) {
	type request struct {
		path, contentType, key string
		body                   []byte
	}
	requests := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- request{r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("X-Key"), body}
	}))
	defer server.Close()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL + "/", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b", "OTEL_RESOURCE_ATTRIBUTES": "zone=1"}
	to, err := CollectorFromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Traces: to})
	var o patchbay.Options
	if b.Attach(&o); !o.Traces {
		t.Error("no spans are begun")
	}
	failed, untraced := tracedRecord(), someRecord("claude")
	failed.Outcome, failed.ParentID = "tool_error", ""
	for _, r := range []patchbay.CallRecord{tracedRecord(), untraced, failed} {
		o.Observe(r)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	got := <-requests
	if got.path != "/v1/traces" || got.contentType != "application/json" || got.key != "a b" {
		t.Errorf("%s, %s, key %q", got.path, got.contentType, got.key)
	}
	const span = `"name": "tools/call read", "kind": 3, "startTimeUnixNano": "1794715200000000000", "endTimeUnixNano": "1794715200001500000",
		"attributes": [
			{"key": "mcp.method.name", "value": {"stringValue": "tools/call"}}, {"key": "patchbay.server", "value": {"stringValue": "files"}},
			{"key": "patchbay.session", "value": {"stringValue": "claude"}}, {"key": "patchbay.bytes.in", "value": {"intValue": "10"}},
			{"key": "patchbay.bytes.out", "value": {"intValue": "20"}}, {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
			{"key": "gen_ai.tool.name", "value": {"stringValue": "read"}}, {"key": "patchbay.decision", "value": {"stringValue": "allow"}}`
	const ids = `"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7", `
	const want = `{"resourceSpans": [{
		"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "patchbay"}}, {"key": "zone", "value": {"stringValue": "1"}}]},
		"scopeSpans": [{"scope": {"name": "patchbay"}, "spans": [
			{` + ids + `"parentSpanId": "b7ad6b7169203331", ` + span + `]},
			{` + ids + span + `, {"key": "error.type", "value": {"stringValue": "tool_error"}}], "status": {"code": 2}}
		]}]
	}]}`
	var gotBody, wantBody any
	if err := json.Unmarshal(got.body, &gotBody); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wantBody); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantBody, gotBody); d != "" {
		t.Error(d)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A collector that is overloaded is asked again; one that is not there costs
// spans, a line of the log, and nobody's time.
func TestCollectorInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var attempts []time.Duration
		start := time.Now()
		answer := func() (int, error) { return http.StatusOK, nil }
		b := New(Options{Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})), Traces: &Collector{
			URL: "http://collector.example/v1/traces", Headers: map[string]config.Secret{"Authorization": config.NewSecret("hunter2")},
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				attempts = append(attempts, time.Since(start))
				status, err := answer()
				if err != nil {
					return nil, err
				}
				if status == 0 { // it hangs
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody}, nil
			}),
		}})
		batch := func(when string, respond func() (int, error), want ...time.Duration) {
			t.Helper()
			start, attempts, answer = time.Now(), nil, respond
			b.observe(tracedRecord())
			time.Sleep(time.Minute)
			synctest.Wait()
			for i := range want {
				want[i] += gathering
			}
			if d := cmp.Diff(want, attempts); d != "" {
				t.Errorf("%s:\n%s", when, d)
			}
		}
		busy := 0
		batch("overloaded", func() (int, error) {
			if busy++; busy < 3 {
				return http.StatusServiceUnavailable, nil
			}
			return http.StatusOK, nil
		}, 0, time.Second, 3*time.Second)
		if said.Len() > 0 {
			t.Errorf("said %s", said.String())
		}
		for range 2 {
			batch("refuses", func() (int, error) { return http.StatusUnauthorized, nil }, 0)
			batch("is not there", func() (int, error) { return 0, errors.New("connection refused") }, 0, time.Second, 3*time.Second)
			batch("hangs", func() (int, error) { return 0, nil }, 0, exportTimeout+time.Second, 2*exportTimeout+3*time.Second)
		}
		if text := said.String(); strings.Count(text, "takes no traces") != 1 || strings.Contains(text, "hunter2") {
			t.Errorf("said %s", text)
		}
		b.observe(tracedRecord())
		start = time.Now()
		if err := b.Close(); err != nil || time.Since(start) > lastExport+gathering {
			t.Errorf("closed after %v, %v", time.Since(start), err)
		}
	})
}

func TestCollectorFromEnv(t *testing.T) {
	for _, tt := range []struct{ env, url, problem string }{
		{"", "", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a/base/", "http://a/base/v1/traces", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://b/t", "https://b/t", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_SDK_DISABLED=TRUE", "", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_TRACES_EXPORTER=none", "", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "http://a/v1/traces", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317", "", "not an http"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "", "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_TIMEOUT=soon", "", "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_HEADERS=a=b,hunter2", "", "element 2"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_RESOURCE_ATTRIBUTES=a=%zz", "", "element 1"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(tt.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		c, err := CollectorFromEnv(func(name string) string { return env[name] })
		got := ""
		if c != nil {
			got = c.URL
		}
		if got != tt.url || (err == nil) != (tt.problem == "") || err != nil && (!strings.Contains(err.Error(), tt.problem) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %q, %v", tt.env, got, err)
		}
	}
}
