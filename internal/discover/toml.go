package discover

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/patchbay-mcp/patchbay/config"
)

// parseTOML parses a TOML file. An error is a *config.SyntaxError. A key that
// is defined twice is kept as a repeated member: it spoils what it defines, not
// the file.
func parseTOML(data []byte) (config.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	b := &tomlBuilder{data: data, lines: []int{0}, left: maxNodes, root: &tomlTable{line: 1, column: 1}}
	for i, c := range data {
		if c == '\n' {
			b.lines = append(b.lines, i+1)
		}
	}
	b.parser.Reset(data)
	current := b.root
	for b.parser.NextExpression() {
		var err error
		switch e := b.parser.Expression(); e.Kind {
		case unstable.KeyValue:
			err = b.keyValue(current, e)
		case unstable.Table, unstable.ArrayTable:
			current, err = b.header(e)
		}
		if err != nil {
			return config.Node{}, err
		}
	}
	if err := b.parser.Error(); err != nil {
		return config.Node{}, b.syntaxError(err)
	}
	return b.root.node(), nil
}

// tomlTable is a table under construction: later headers may add to it.
type tomlTable struct {
	line, column int
	depth        int
	members      []tomlMember
	index        map[string]int // of the first member of a name
	defined      bool           // by a header or as a value; not merely on the way to another
}

// tomlMember is one key of a table; exactly one of its last three is meant.
type tomlMember struct {
	name     string
	line     int
	repeated bool
	value    config.Node  // a scalar, or an array of values
	table    *tomlTable   // a table
	tables   []*tomlTable // an array of tables
}

type tomlBuilder struct {
	parser unstable.Parser
	data   []byte
	lines  []int // offset of the first byte of each line
	left   int   // values that may still come
	root   *tomlTable
}

func (b *tomlBuilder) position(offset int) (line, column int) {
	line = sort.SearchInts(b.lines, offset+1)
	return line, offset - b.lines[line-1] + 1
}

func (b *tomlBuilder) errorAt(offset int, format string, args ...any) error {
	line, column := b.position(offset)
	return &config.SyntaxError{Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// syntaxError places an error of the parser by the bytes it points to.
func (b *tomlBuilder) syntaxError(err error) error {
	offset := len(b.data)
	if e, ok := errors.AsType[*unstable.ParserError](err); ok {
		offset = min(max(cap(b.data)-cap(e.Highlight), 0), len(b.data))
	}
	return b.errorAt(offset, "%s", err)
}

// count takes one more value into account, at some depth.
func (b *tomlBuilder) count(offset, depth int) error {
	if depth > config.MaxDepth {
		return b.errorAt(offset, "nested more than %d levels deep", config.MaxDepth)
	}
	if b.left--; b.left < 0 {
		return b.errorAt(offset, "more than %d values", maxNodes)
	}
	return nil
}

// header makes or finds the table that [a.b] or [[a.b]] opens.
func (b *tomlBuilder) header(e *unstable.Node) (*tomlTable, error) {
	t := b.root
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		if !keys.IsLast() {
			next, err := b.step(t, key)
			if err != nil {
				return nil, err
			}
			t = next
			continue
		}
		offset := int(key.Raw.Offset)
		if err := b.count(offset, t.depth+1); err != nil {
			return nil, err
		}
		name := string(key.Data)
		line, column := b.position(offset)
		fresh := &tomlTable{line: line, column: column, depth: t.depth + 1, defined: true}
		m := t.get(name)
		switch {
		case m == nil && e.Kind == unstable.ArrayTable:
			t.add(tomlMember{name: name, line: line, tables: []*tomlTable{fresh}})
		case m != nil && e.Kind == unstable.ArrayTable && m.tables != nil:
			m.tables = append(m.tables, fresh)
		case m != nil && e.Kind == unstable.Table && m.table != nil && !m.table.defined:
			m.table.defined = true
			return m.table, nil
		default: // new, or defined before
			t.add(tomlMember{name: name, line: line, table: fresh})
		}
		return fresh, nil
	}
	return t, nil
}

// step goes one part of a dotted key down, making the table if need be.
func (b *tomlBuilder) step(t *tomlTable, key *unstable.Node) (*tomlTable, error) {
	name, offset := string(key.Data), int(key.Raw.Offset)
	switch m := t.get(name); {
	case m == nil:
		if err := b.count(offset, t.depth+1); err != nil {
			return nil, err
		}
		line, column := b.position(offset)
		next := &tomlTable{line: line, column: column, depth: t.depth + 1}
		t.add(tomlMember{name: name, line: line, table: next})
		return next, nil
	case m.table != nil:
		return m.table, nil
	case len(m.tables) > 0:
		return m.tables[len(m.tables)-1], nil
	default:
		return nil, b.errorAt(offset, "%q is a value already and cannot have members", name)
	}
}

// keyValue puts the value of `a.b = value` into a table.
func (b *tomlBuilder) keyValue(t *tomlTable, e *unstable.Node) error {
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		if !keys.IsLast() {
			next, err := b.step(t, key)
			if err != nil {
				return err
			}
			t = next
			continue
		}
		offset := int(key.Raw.Offset)
		line, _ := b.position(offset)
		m := tomlMember{name: string(key.Data), line: line}
		v := e.Value()
		if v.Kind == unstable.InlineTable {
			inline, err := b.inlineTable(v, offset, t.depth+1)
			if err != nil {
				return err
			}
			m.table = inline
		} else {
			value, err := b.value(v, offset, t.depth+1)
			if err != nil {
				return err
			}
			m.value = value
		}
		t.add(m)
	}
	return nil
}

func (b *tomlBuilder) inlineTable(v *unstable.Node, offset, depth int) (*tomlTable, error) {
	if err := b.count(offset, depth); err != nil {
		return nil, err
	}
	line, column := b.position(offset)
	t := &tomlTable{line: line, column: column, depth: depth, defined: true}
	for it := v.Children(); it.Next(); {
		if it.Node().Kind != unstable.KeyValue {
			continue
		}
		if err := b.keyValue(t, it.Node()); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// value converts a scalar or an array; offset is that of the nearest key, since
// an array has no position of its own.
func (b *tomlBuilder) value(v *unstable.Node, offset, depth int) (config.Node, error) {
	if v.Raw.Length > 0 {
		offset = int(v.Raw.Offset)
	}
	if err := b.count(offset, depth); err != nil {
		return config.Node{}, err
	}
	n := config.Node{}
	n.Line, n.Column = b.position(offset)
	switch v.Kind {
	case unstable.InlineTable:
		t, err := b.inlineTable(v, offset, depth)
		if err != nil {
			return n, err
		}
		return t.node(), nil
	case unstable.Array:
		n.Kind = config.Array
		for it := v.Children(); it.Next(); {
			item, err := b.value(it.Node(), offset, depth+1)
			if err != nil {
				return n, err
			}
			n.Items = append(n.Items, item)
		}
	default:
		n.Kind, n.Text = tomlScalar(v)
	}
	return n, nil
}

// tomlScalar gives a scalar its JSON type; dates are text.
func tomlScalar(v *unstable.Node) (config.Kind, string) {
	text := string(v.Data)
	plain := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	switch v.Kind {
	case unstable.Bool:
		return config.Bool, text
	case unstable.Integer:
		if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
			return config.Number, strconv.FormatInt(i, 10)
		}
	case unstable.Float:
		if f, err := strconv.ParseFloat(plain, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return config.Number, strconv.FormatFloat(f, 'g', -1, 64)
		}
	}
	return config.String, text
}

func (t *tomlTable) get(name string) *tomlMember {
	if i, ok := t.index[name]; ok {
		return &t.members[i]
	}
	return nil
}

func (t *tomlTable) add(m tomlMember) {
	if t.index == nil {
		t.index = map[string]int{}
	}
	if _, ok := t.index[m.name]; ok {
		m.repeated = true
	} else {
		t.index[m.name] = len(t.members)
	}
	t.members = append(t.members, m)
}

func (t *tomlTable) node() config.Node {
	n := config.Node{Kind: config.Object, Line: t.line, Column: t.column}
	for _, m := range t.members {
		value := m.value
		switch {
		case m.table != nil:
			value = m.table.node()
		case m.tables != nil:
			value = config.Node{Kind: config.Array, Line: m.line, Column: 1}
			for _, element := range m.tables {
				value.Items = append(value.Items, element.node())
			}
		}
		n.Members = append(n.Members, config.Member{Name: m.name, Value: value, Line: m.line, Repeated: m.repeated})
	}
	return n
}
