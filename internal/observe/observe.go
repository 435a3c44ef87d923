// Package observe keeps the books of a gateway: an audit log of every call,
// metrics for Prometheus, a line of the program's log for each call, and spans
// for OpenTelemetry.
//
// A Books is the one place that hosts report to (Books.Attach). What a call pays
// for is a few counters and a place in a queue; files and collectors are written
// to by goroutines of the package's own, in batches, and where one is slow or
// broken records are dropped and counted, and calls go on. No argument, result
// or secret is ever among what it gets. A Books is safe for concurrent use.
package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// Options say which books are kept. The zero value keeps metrics alone.
type Options struct {
	Logger   *slog.Logger // for a line for each call, and for trouble; nil discards
	AuditDir string       // where the audit log is, see patchbay.Directories.State; empty means none
	Traces   *Collector   // where spans go; nil means nowhere, and requests are left as they are
}

// Books keeps records of what hosts do.
type Books struct {
	opts    Options
	metrics metrics
	records *batches // for the audit log and the program's log
	audit   *auditLog
	spans   *batches           // nil if there is no collector
	giveUp  context.CancelFunc // on the collector

	mu    sync.Mutex // guards hosts
	hosts map[*patchbay.Host]bool
}

// New begins to keep books. They are to be closed when every host is.
func New(o Options) *Books {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Books{opts: o, hosts: map[*patchbay.Host]bool{}}
	b.audit = &auditLog{log: o.Logger, path: o.AuditDir, maxFile: maxAuditFile, maxKept: maxAuditKept, now: time.Now}
	b.records = newBatches(b.write)
	if o.Traces != nil {
		x := &exporter{to: o.Traces, log: o.Logger}
		x.life, b.giveUp = context.WithCancel(context.Background())
		b.spans = newBatches(x.send)
	}
	return b
}

// Attach has a host that is opened with these options report to the books.
func (b *Books) Attach(o *patchbay.Options) {
	o.Observe = b.observe
	o.Traces = b.spans != nil
}

// Follow includes a host in the metrics, until forget is called.
func (b *Books) Follow(h *patchbay.Host) (forget func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hosts[h] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hosts, h)
	}
}

// Close writes down what is not written yet. It may be called twice.
func (b *Books) Close() error {
	b.records.close()
	if b.spans != nil {
		defer time.AfterFunc(lastExport, b.giveUp).Stop()
		b.spans.close()
		b.giveUp()
	}
	return b.audit.close()
}

// observe takes in one record. It is called by the call itself.
func (b *Books) observe(r patchbay.CallRecord) {
	b.metrics.count(&r)
	b.records.add(r)
	if b.spans != nil && r.SpanID != "" {
		b.spans.add(r)
	}
}

// write takes a batch to the audit log and the program's log.
func (b *Books) write(records []patchbay.CallRecord, dropped int) {
	if b.opts.AuditDir != "" {
		b.metrics.auditDropped.Add(uint64(dropped + b.audit.write(records, dropped)))
	}
	if dropped > 0 {
		b.opts.Logger.Warn("calls came faster than they could be logged", "unlogged", dropped)
	}
	for i := range records {
		b.log(&records[i])
	}
}

// log writes one call to the program's log, as of when it was over.
func (b *Books) log(r *patchbay.CallRecord) {
	level := slog.LevelInfo
	switch r.Outcome {
	case patchbay.OutcomeOK, patchbay.OutcomeToolError, patchbay.OutcomeCancelled:
	default:
		level = slog.LevelWarn
	}
	ctx, handler := context.Background(), b.opts.Logger.Handler()
	if !handler.Enabled(ctx, level) {
		return
	}
	line := slog.NewRecord(r.Time.Add(r.Duration), level, "call", 0)
	line.AddAttrs(slog.String("session", r.Session))
	if r.Method != "tools/call" {
		line.AddAttrs(slog.String("method", r.Method))
	}
	line.AddAttrs(slog.String("server", r.Server))
	if r.Tool != "" {
		line.AddAttrs(slog.String("tool", r.Tool))
	}
	if r.Decision != "" {
		line.AddAttrs(slog.String("decision", string(r.Decision)))
	}
	line.AddAttrs(slog.String("outcome", r.Outcome), slog.Duration("took", r.Duration.Round(time.Microsecond)),
		slog.Int("in", r.BytesIn), slog.Int("out", r.BytesOut))
	if r.TraceID != "" {
		line.AddAttrs(slog.String("trace", r.TraceID))
	}
	_ = handler.Handle(ctx, line) // there is nowhere else to say so
}
