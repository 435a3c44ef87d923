package discover

import "github.com/patchbay-mcp/patchbay/config"

// Memory is what files said when they could last be read. A host that goes on
// scanning keeps one in its Env, so that nobody loses a server, a switch or a
// decision against one to a file that is half saved: such a file goes on saying
// what it said, with the problem it has now. A file that is gone says nothing.
//
// The zero value remembers nothing yet. One scan at a time may use it.
type Memory struct {
	files map[string]remembered // by path
	seen  map[string]bool       // in the scan that is going on
}

type remembered struct {
	last    *content // kept so that nobody reads it again; nil if it could not be read
	good    *content // the last one that was good, if any was
	project string   // whose tree decided about that
}

// begin starts a scan.
func (m *Memory) begin() {
	if m != nil {
		m.seen = map[string]bool{}
	}
}

// note keeps what a file says if it can be read, and otherwise has it say what
// it said before.
func (m *Memory) note(d *doc, now *content) {
	if m == nil {
		return
	}
	m.seen[d.path] = true
	if m.files == nil {
		m.files = map[string]remembered{}
	}
	if d.status != Unreadable && d.status != Invalid {
		m.files[d.path] = remembered{now, now, d.origin.Project}
		return
	}
	file := m.files[d.path]
	file.last = now
	m.files[d.path] = file
	if file.good == nil {
		return
	}
	status, problems := d.status, d.problems
	d.origin.Project = file.project
	d.read(file.good)
	d.status, d.problems = status, problems
}

// good returns what a file said when it was last good; nothing if it never was.
func (m *Memory) good(path string) config.Node {
	if m == nil || m.files[path].good == nil {
		return config.Node{}
	}
	return m.files[path].good.root
}

// has reports whether a file was good once.
func (m *Memory) has(path string) bool {
	if m == nil {
		return false
	}
	return m.files[path].good != nil
}

// end forgets the files that are gone.
func (m *Memory) end() {
	if m == nil {
		return
	}
	for path := range m.files {
		if !m.seen[path] {
			delete(m.files, path)
		}
	}
}
