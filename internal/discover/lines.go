package discover

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
	"go.yaml.in/yaml/v3"
)

// entryLines is where an entry is in a file of TOML or YAML: whole lines, of which
// the first says its name.
type entryLines struct {
	from, to int    // offsets of its first byte, and behind its last
	body     int    // offset behind the line with its name
	indent   string // of its members
	parts    []part // from body on
}

// part is a stretch of lines that one member has, with the comments above it. Some
// belong to no member.
type part struct {
	name string
	from int
}

// lines finds the entry. It fails with ErrForm if that is not written as a table
// of its own, or as a mapping in block style.
func (a Adopted) lines(data []byte) (entryLines, error) {
	find := yamlLines
	if a.isTOML() {
		find = tomlLines
	}
	b, ok := find(data, a.names())
	if !ok {
		return b, ErrForm
	}
	b.body = lineEnd(data, b.from)
	for b.to > b.body && len(bytes.TrimSpace(data[lineStart(data, b.to-1):b.to])) == 0 {
		b.to = lineStart(data, b.to-1) // blank lines at the end are not its
	}
	if len(b.parts) == 0 || b.parts[0].from > b.body {
		b.parts = slices.Insert(b.parts, 0, part{from: b.body})
	}
	if b.parts[0].from < b.body || b.to < b.parts[len(b.parts)-1].from {
		return b, ErrForm
	}
	return b, nil
}

func lineStart(data []byte, offset int) int { return bytes.LastIndexByte(data[:offset], '\n') + 1 }

func lineEnd(data []byte, offset int) int {
	if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(data)
}

// withComments moves the beginning of a line up over the comments right above it,
// but not beyond a limit.
func withComments(data []byte, from, limit int) int {
	for from > limit {
		above := lineStart(data, from-1)
		if above < limit || !bytes.HasPrefix(bytes.TrimSpace(data[above:from]), []byte("#")) {
			break
		}
		from = above
	}
	return from
}

// tomlLines finds a table [a.b] with the tables in it, which must follow it.
func tomlLines(data []byte, names []string) (b entryLines, ok bool) {
	var p unstable.Parser
	p.Reset(data)
	var table []string
	inside, last := false, 0 // last is behind the line on which the expression before begins
	for p.NextExpression() {
		e := p.Expression()
		keys, at := []string(nil), len(data)
		for it := e.Key(); it.Next(); {
			keys = append(keys, string(it.Node().Data))
			at = min(at, int(it.Node().Raw.Offset))
		}
		path := slices.Concat(table, keys)
		header := e.Kind == unstable.Table || e.Kind == unstable.ArrayTable
		if header {
			path, table = keys, keys
		}
		from := lineStart(data, at)
		own := len(path) >= len(names) && slices.Equal(path[:len(names)], names)
		switch {
		case own && e.Kind == unstable.Table && len(path) == len(names) && b.to == 0:
			b, inside = entryLines{from: from, to: len(data)}, true
		case own && inside && len(path) > len(names):
			b.parts = append(b.parts, part{path[len(names)], withComments(data, from, last)})
		case own: // elsewhere, or as a value
			return b, false
		case inside:
			b.to, inside = withComments(data, from, last), false
		}
		last = lineEnd(data, at)
	}
	return b, b.to > 0 && p.Error() == nil
}

// yamlLines finds a mapping in block style.
func yamlLines(data []byte, names []string) (b entryLines, ok bool) {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return b, false
	}
	starts := []int{0}
	for line := range bytes.Lines(data) {
		starts = append(starts, starts[len(starts)-1]+len(line))
	}
	key, value := (*yaml.Node)(nil), doc.Content[0]
	for _, name := range names {
		if value.Kind != yaml.MappingNode || value.Style&yaml.FlowStyle != 0 {
			return b, false
		}
		key = nil
		for i := 0; i+1 < len(value.Content) && key == nil; i += 2 {
			if value.Content[i].Value == name {
				key, value = value.Content[i], value.Content[i+1]
				break
			}
		}
		if key == nil {
			return b, false
		}
	}
	if value.Kind != yaml.MappingNode || value.Style&yaml.FlowStyle != 0 || value.Anchor != "" || len(value.Content) == 0 {
		return b, false
	}
	// indent is the white space before a node that begins its line.
	indent := func(n *yaml.Node) (string, bool) {
		line := data[starts[n.Line-1]:]
		text := line[:len(line)-len(bytes.TrimLeft(line, " "))]
		return string(text), len(text) == n.Column-1
	}
	outer, ok := indent(key)
	if !ok {
		return b, false
	}
	b.from = starts[key.Line-1]
	for b.to = lineEnd(data, b.from); b.to < len(data); b.to = lineEnd(data, b.to) {
		text := data[b.to:lineEnd(data, b.to)]
		content := strings.TrimSpace(string(text))
		if content != "" && len(text)-len(bytes.TrimLeft(text, " ")) <= len(outer) {
			break
		}
	}
	last := lineEnd(data, b.from)
	for i := 0; i < len(value.Content); i += 2 {
		n := value.Content[i]
		from := starts[n.Line-1]
		if b.indent, ok = indent(n); !ok || from < last {
			return b, false
		}
		b.parts = append(b.parts, part{n.Value, withComments(data, from, last)})
		last = lineEnd(data, from)
	}
	return b, true
}
