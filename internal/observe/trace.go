package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Spans go to a collector in the JSON form of OTLP over HTTP, written by hand: a
// record of a call has all that a span says, and the exporter of the
// OpenTelemetry project brings gRPC along.

const (
	exportTimeout  = 10 * time.Second
	exportAttempts = 3
	exportPause    = time.Second     // before the second attempt, and twice that before the third
	lastExport     = 3 * time.Second // for what is left when the books are closed
)

// Collector is where spans go.
type Collector struct {
	URL        string                   // of its OTLP endpoint for traces
	Headers    map[string]config.Secret // sent with every request
	Attributes map[string]string        // of the resource; service.name among them
	Timeout    time.Duration            // of one request; 0 means 10 s
	Transport  http.RoundTripper        // nil means http.DefaultTransport
}

// CollectorFromEnv reads the variables that OpenTelemetry specifies. Nil means
// that they ask for no traces.
func CollectorFromEnv(getenv func(string) string) (*Collector, error) {
	base, whole := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base == "" && whole == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	variable := func(name string) (value, found string) { // the one for traces before the one for all
		for _, n := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
			if v := getenv(n); v != "" {
				return v, n
			}
		}
		return "", ""
	}
	c := &Collector{URL: whole, Headers: map[string]config.Secret{}, Timeout: exportTimeout, Transport: wire.NewProxyTransport(getenv)}
	if whole == "" {
		c.URL = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the OTLP endpoint is not an http or https URL")
	}
	if protocol, name := variable("PROTOCOL"); strings.HasPrefix(protocol, "grpc") {
		return nil, fmt.Errorf("%s: grpc is not spoken, http/json is", name)
	}
	if text, name := variable("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return nil, fmt.Errorf("%s is not a number of milliseconds", name)
		}
		c.Timeout = time.Duration(ms) * time.Millisecond
	}
	text, name := variable("HEADERS")
	headers, err := pairs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for key, value := range headers {
		c.Headers[key] = config.NewSecret(value)
	}
	if c.Attributes, err = pairs(getenv("OTEL_RESOURCE_ATTRIBUTES")); err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if service := getenv("OTEL_SERVICE_NAME"); service != "" {
		c.Attributes["service.name"] = service
	}
	return c, nil
}

// pairs reads name=value,name=value with percent-encoded values. Its errors show
// no value.
func pairs(text string) (map[string]string, error) {
	out := map[string]string{}
	for i, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" {
			return nil, fmt.Errorf("element %d is not name=value", i+1)
		}
		out[name] = value
	}
	return out, nil
}

// exporter sends spans. One goroutine uses it.
type exporter struct {
	to      *Collector
	log     *slog.Logger
	life    context.Context // ends when nobody waits for it any longer
	failing bool            // which was said
}

// send sends the spans of a batch. What a collector does not take is lost, and
// said once.
func (x *exporter) send(records []patchbay.CallRecord, dropped int) {
	err := x.deliver(records)
	if dropped > 0 {
		x.log.Warn("calls came faster than they could be traced", "untraced", dropped)
	}
	if failing := err != nil; failing != x.failing {
		x.failing = failing
		if failing {
			x.log.Warn("the collector takes no traces; calls go on without them", "error", err)
		} else {
			x.log.Info("the collector takes traces again")
		}
	}
}

// deliver takes spans to the collector, as patiently as the queue allows in which
// further ones wait.
func (x *exporter) deliver(records []patchbay.CallRecord) error {
	body, err := json.Marshal(x.request(records))
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		again, err := x.post(body)
		if err == nil || !again || attempt == exportAttempts {
			return err
		}
		select {
		case <-time.After(time.Duration(attempt) * exportPause):
		case <-x.life.Done():
			return err
		}
	}
}

// post makes one request, and says whether another may do better. Its errors
// have no URL and no header.
func (x *exporter) post(body []byte) (again bool, err error) {
	ctx, stop := context.WithTimeout(x.life, cmp.Or(x.to.Timeout, exportTimeout))
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.to.URL, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("its URL is malformed")
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range x.to.Headers {
		r.Header.Set(name, value.Reveal())
	}
	transport := x.to.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	answer, err := transport.RoundTrip(r) // no redirects: the headers are for this host alone
	if err != nil {
		return true, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("it answered %s", answer.Status)
}

// The request of OTLP, as far as it is needed. 64-bit numbers are strings in its
// JSON form.
type (
	otlpRequest struct {
		ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
	}
	otlpResourceSpans struct {
		Resource   otlpResource     `json:"resource"`
		ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
	}
	otlpResource struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		ParentID   string          `json:"parentSpanId,omitempty"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      int64           `json:"startTimeUnixNano,string"`
		End        int64           `json:"endTimeUnixNano,string"`
		Attributes []otlpAttribute `json:"attributes"`
		Status     *otlpStatus     `json:"status,omitempty"`
	}
	otlpStatus struct {
		Code int `json:"code"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *int64  `json:"intValue,string,omitempty"`
	}
)

const (
	otlpKindClient  = 3
	otlpStatusError = 2
)

func textAttribute(key, value string) otlpAttribute {
	return otlpAttribute{key, otlpValue{Text: &value}}
}

func numberAttribute(key string, value int) otlpAttribute {
	n := int64(value)
	return otlpAttribute{key, otlpValue{Number: &n}}
}

// request makes spans of records.
func (x *exporter) request(records []patchbay.CallRecord) otlpRequest {
	resource := otlpResourceSpans{ScopeSpans: make([]otlpScopeSpans, 1)}
	attributes := map[string]string{"service.name": "patchbay"}
	maps.Copy(attributes, x.to.Attributes)
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		resource.Resource.Attributes = append(resource.Resource.Attributes, textAttribute(key, attributes[key]))
	}
	scope := &resource.ScopeSpans[0]
	scope.Scope.Name = "patchbay"
	for i := range records {
		scope.Spans = append(scope.Spans, spanOf(&records[i]))
	}
	return otlpRequest{[]otlpResourceSpans{resource}}
}

// spanOf names things as the conventions for MCP do.
func spanOf(r *patchbay.CallRecord) otlpSpan {
	s := otlpSpan{
		TraceID: r.TraceID, SpanID: r.SpanID, ParentID: r.ParentID, Name: r.Method, Kind: otlpKindClient,
		Start: r.Time.UnixNano(), End: r.Time.Add(r.Duration).UnixNano(),
		Attributes: []otlpAttribute{
			textAttribute("mcp.method.name", r.Method), textAttribute("patchbay.server", r.Server), textAttribute("patchbay.session", r.Session),
			numberAttribute("patchbay.bytes.in", r.BytesIn), numberAttribute("patchbay.bytes.out", r.BytesOut),
		},
	}
	if r.Tool != "" {
		s.Name += " " + r.Tool
		s.Attributes = append(s.Attributes, textAttribute("gen_ai.operation.name", "execute_tool"), textAttribute("gen_ai.tool.name", r.Tool))
	}
	if r.Decision != "" {
		s.Attributes = append(s.Attributes, textAttribute("patchbay.decision", string(r.Decision)))
	}
	if r.Outcome != patchbay.OutcomeOK {
		s.Attributes = append(s.Attributes, textAttribute("error.type", r.Outcome))
		s.Status = &otlpStatus{otlpStatusError}
	}
	return s
}
