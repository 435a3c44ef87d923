//go:build unix

package main

import "fmt"

// A budget is what a row must not exceed. The zero value allows everything.
type budget struct {
	cpu   float64 // as a ratio to the SDK
	bytes float64 // allocated, as a ratio to this many bytes:
	of    int
}

// A row is one line of the table.
type row struct {
	match  match
	trial  trial
	rounds [][2]sample // ours, the SDK's
}

func (r row) name() string {
	return fmt.Sprintf("%s, %s, %d", r.match.name(), r.trial.load.Name, r.trial.callers)
}

// of returns the median of what f makes of the rounds.
func (r row) of(f func(ours, sdk sample) float64) float64 {
	var values []float64
	for _, round := range r.rounds {
		values = append(values, f(round[0], round[1]))
	}
	return median(values)
}

func printHeader() {
	fmt.Println("| | payload | callers | CPU ratio | CPU per call: ours, SDK | allocations | bytes allocated | budget | |")
	fmt.Println("|---|---|--:|--:|--:|--:|--:|---|---|")
}

// print prints the row and reports whether it keeps its budget.
func (r row) print() bool {
	ratio := r.of(func(a, b sample) float64 { return a.cpu / b.cpu })
	bytes := r.of(func(a, _ sample) float64 { return a.bytes })
	limit, kept, mark := "", true, ""
	switch b := r.trial.budget; {
	case b.cpu > 0:
		limit, kept = fmt.Sprintf("CPU ≤ %.2f × SDK", b.cpu), ratio <= b.cpu
	case b.bytes > 0:
		share := bytes / float64(b.of)
		limit, kept = fmt.Sprintf("bytes %.2f ≤ %.2f × payload", share, b.bytes), share <= b.bytes
	}
	if limit != "" {
		mark = map[bool]string{true: "✓", false: "✗"}[kept]
	}
	fmt.Printf("| %s | %s | %d | %.2f | %s, %s | %.0f, %.0f | %s, %s | %s | %s |\n",
		r.match.name(), r.trial.load.Name, r.trial.callers, ratio,
		micros(r.of(func(a, _ sample) float64 { return a.cpu })), micros(r.of(func(_, b sample) float64 { return b.cpu })),
		r.of(func(a, _ sample) float64 { return a.allocs }), r.of(func(_, b sample) float64 { return b.allocs }),
		amount(bytes), amount(r.of(func(_, b sample) float64 { return b.bytes })),
		limit, mark)
	return kept
}

func micros(us float64) string {
	if us >= 1000 {
		return fmt.Sprintf("%.2g ms", us/1000)
	}
	return fmt.Sprintf("%.0f µs", us)
}

func amount(bytes float64) string {
	switch {
	case bytes >= mebibyte:
		return fmt.Sprintf("%.1f MiB", bytes/mebibyte)
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", bytes/(1<<10))
	}
	return fmt.Sprintf("%.0f B", bytes)
}
