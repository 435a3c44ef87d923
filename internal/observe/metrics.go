package observe

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// Metrics are written in the text format of Prometheus by hand: what is needed of
// it is short, and its client library would make the program a fifth larger.

// maxSeries is how many tools are counted one by one. Whatever servers and
// clients come up with, the metrics stay of bearable size.
const maxSeries = 1000

// otherTools stands for the tools beyond that.
const otherTools = "_other"

// outcomes are how requests end; the last is any other.
var outcomes = [...]string{
	patchbay.OutcomeOK, patchbay.OutcomeToolError, patchbay.OutcomeCancelled,
	string(patchbay.KindDenied), string(patchbay.KindTimeout), string(patchbay.KindServer), string(patchbay.KindTransport),
	string(patchbay.KindToolNotFound), string(patchbay.KindNotFound), string(patchbay.KindAuthUnavailable), string(patchbay.KindConfigInvalid),
	patchbay.OutcomeError,
}

// methods are those that are counted by name.
var methods = [...]string{
	"tools/call", "tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get", "completion/complete",
}

// bounds of the histogram of durations.
var bounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute,
}

// seriesKey is what requests are counted by.
type seriesKey struct{ method, server, tool string }

// series counts the requests of one tool.
type series struct {
	outcomes [len(outcomes)]atomic.Uint64
	buckets  [len(bounds) + 1]atomic.Uint64
	took     atomic.Int64 // nanoseconds
	in, out  atomic.Uint64
}

// metrics counts requests. The zero value is ready.
type metrics struct {
	mu           sync.RWMutex // guards table
	table        map[seriesKey]*series
	auditDropped atomic.Uint64
}

// count takes in one record. Nothing is allocated for a tool that was called
// before.
func (m *metrics) count(r *patchbay.CallRecord) {
	s := m.series(keyOf(r))
	outcome := slices.Index(outcomes[:], r.Outcome)
	if outcome < 0 {
		outcome = len(outcomes) - 1
	}
	s.outcomes[outcome].Add(1)
	bucket := 0
	for bucket < len(bounds) && r.Duration > bounds[bucket] {
		bucket++
	}
	s.buckets[bucket].Add(1)
	s.took.Add(int64(r.Duration))
	s.in.Add(uint64(r.BytesIn))
	s.out.Add(uint64(r.BytesOut))
}

// keyOf keeps what a client made up out of the labels.
func keyOf(r *patchbay.CallRecord) seriesKey {
	key := seriesKey{r.Method, r.Server, r.Tool}
	if !slices.Contains(methods[:], r.Method) {
		key.method = "other"
	}
	switch patchbay.Kind(r.Outcome) {
	case patchbay.KindToolNotFound, patchbay.KindNotFound:
		key.server, key.tool = "", ""
	}
	return key
}

func (m *metrics) series(key seriesKey) *series {
	m.mu.RLock()
	s := m.table[key]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table == nil {
		m.table = map[seriesKey]*series{}
	}
	if len(m.table) >= maxSeries {
		key = seriesKey{"other", "", otherTools}
	}
	s = m.table[key]
	if s == nil {
		s = &series{}
		m.table[key] = s
	}
	return s
}

// Metrics serves what was counted to Prometheus.
func (b *Books) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		var p page
		b.metrics.render(&p)
		b.renderHosts(&p)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(p.Bytes()) // who went away needs no answer
	})
}

func (m *metrics) render(p *page) {
	m.mu.RLock()
	table := maps.Clone(m.table)
	m.mu.RUnlock()
	keys := slices.SortedFunc(maps.Keys(table), func(a, b seriesKey) int {
		return cmp.Or(strings.Compare(a.method, b.method), strings.Compare(a.server, b.server), strings.Compare(a.tool, b.tool))
	})
	labels := make([]string, len(keys))
	for i, k := range keys {
		labels[i] = label("method", k.method) + "," + label("server", k.server) + "," + label("tool", k.tool)
	}
	p.metric("patchbay_calls_total", "counter", "Requests that are over, by how they ended.")
	for i, k := range keys {
		for j := range outcomes {
			if n := table[k].outcomes[j].Load(); n > 0 {
				p.sample("patchbay_calls_total", labels[i]+","+label("outcome", outcomes[j]), strconv.FormatUint(n, 10))
			}
		}
	}
	p.metric("patchbay_call_duration_seconds", "histogram", "How long requests took, with all waiting.")
	for i, k := range keys {
		p.histogram("patchbay_call_duration_seconds", labels[i], table[k])
	}
	p.metric("patchbay_call_bytes_total", "counter", "Bytes of the params of requests (in) and of their results (out).")
	for i, k := range keys {
		p.sample("patchbay_call_bytes_total", labels[i]+`,direction="in"`, strconv.FormatUint(table[k].in.Load(), 10))
		p.sample("patchbay_call_bytes_total", labels[i]+`,direction="out"`, strconv.FormatUint(table[k].out.Load(), 10))
	}
	p.metric("patchbay_audit_dropped_total", "counter", "Records that could not be written to the audit log.")
	p.sample("patchbay_audit_dropped_total", "", strconv.FormatUint(m.auditDropped.Load(), 10))
}

// serverStates are those a server can be in.
var serverStates = [...]config.State{
	config.Disabled, config.NeedsApproval, config.Pending, config.Connecting, config.Connected, config.NeedsAuth, config.Failed,
}

// renderHosts tells where the servers of every host stand.
func (b *Books) renderHosts(p *page) {
	b.mu.Lock()
	hosts := slices.Collect(maps.Keys(b.hosts))
	b.mu.Unlock()
	type view struct {
		snap     patchbay.Snapshot
		sessions int
	}
	views := make([]view, len(hosts))
	for i, h := range hosts {
		views[i] = view{h.Snapshot(), h.Sessions()}
	}
	sameDir := func(a, b view) int { return strings.Compare(a.snap.Dir, b.snap.Dir) }
	slices.SortFunc(views, sameDir)
	views = slices.CompactFunc(views, func(a, b view) bool { return sameDir(a, b) == 0 }) // or a page has one series twice
	each := func(do func(labels string, st patchbay.ServerStatus)) {
		for _, v := range views {
			for _, st := range v.snap.Servers {
				if st.InForce {
					do(label("dir", v.snap.Dir)+","+label("server", st.Name), st)
				}
			}
		}
	}
	p.metric("patchbay_sessions", "gauge", "Sessions that are open.")
	for _, v := range views {
		p.sample("patchbay_sessions", label("dir", v.snap.Dir), strconv.Itoa(v.sessions))
	}
	p.metric("patchbay_server_state", "gauge", "1 for the state that a server is in, 0 for every other.")
	each(func(labels string, st patchbay.ServerStatus) {
		for _, state := range serverStates {
			value := "0"
			if st.State == state {
				value = "1"
			}
			p.sample("patchbay_server_state", labels+","+label("state", string(state)), value)
		}
	})
	p.metric("patchbay_server_restarts_total", "counter", "Times that a server was connected anew.")
	each(func(labels string, st patchbay.ServerStatus) {
		p.sample("patchbay_server_restarts_total", labels, strconv.Itoa(st.Restarts))
	})
}

// page is text in the format of Prometheus.
type page struct{ bytes.Buffer }

func (p *page) metric(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p *page) sample(name, labels, value string) {
	p.WriteString(name)
	if labels != "" {
		p.WriteString("{" + labels + "}")
	}
	p.WriteString(" " + value + "\n")
}

func (p *page) histogram(name, labels string, s *series) {
	var total uint64
	for i := range s.buckets {
		total += s.buckets[i].Load()
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i].Seconds(), 'g', -1, 64)
		}
		p.sample(name+"_bucket", labels+","+label("le", le), strconv.FormatUint(total, 10))
	}
	p.sample(name+"_sum", labels, strconv.FormatFloat(time.Duration(s.took.Load()).Seconds(), 'g', -1, 64))
	p.sample(name+"_count", labels, strconv.FormatUint(total, 10))
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label is a label with its value.
func label(name, value string) string {
	return name + `="` + labelEscapes.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}
