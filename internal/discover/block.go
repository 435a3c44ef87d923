package discover

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/patchbay-mcp/patchbay/config"
)

// In TOML and YAML files the entry is a block of lines between two marks, so
// that it can be found again and nothing else need be understood.
const (
	blockBegin = "# >>> patchbay"
	blockEnd   = "# <<< patchbay"
)

// marked reports whether the file is of a format that gets a block.
func (t Target) marked() bool {
	switch strings.ToLower(filepath.Ext(t.File)) {
	case ".toml", ".yaml", ".yml":
		return true
	}
	return false
}

func (t Target) isTOML() bool { return strings.EqualFold(filepath.Ext(t.File), ".toml") }

// setBlock returns the file with the block in it: in place of an older one, or
// where it belongs. What else the file says must come out the same.
func (t Target) setBlock(old []byte, entry members) ([]byte, error) {
	rest, at, _, err := cutBlock(old)
	if err != nil {
		return nil, err
	}
	before, err := t.parse(rest)
	if err != nil {
		return nil, err
	}
	if there, ok := t.find(before); ok {
		_, wanted := there.Get(entry[len(entry)-1].name) // args or headers: the same form
		switch {
		case !isSelf(there):
			return nil, ErrForeign
		case wanted:
			return old, nil
		}
		return nil, ErrUnmarked
	}
	lines, at, err := t.block(rest, at, before, entry)
	if err != nil {
		return nil, err
	}
	out := slices.Concat(rest[:at], []byte(lines), rest[at:])
	after, err := t.parse(out)
	if err != nil || t.isTOML() && toml.Unmarshal(out, new(map[string]any)) != nil { // which knows when a table cannot be added to
		return nil, ErrCannotAdd
	}
	written, ok := t.find(after)
	wanted, parseErr := config.ParseJSON(entry.json())
	if !ok || parseErr != nil || !contains(written, wanted) || string(t.without(after).JSON()) != string(t.without(before).JSON()) {
		return nil, ErrCannotAdd
	}
	return out, nil
}

// removeBlock returns the file without the block.
func (t Target) removeBlock(old []byte) ([]byte, error) {
	rest, _, found, err := cutBlock(old)
	if err != nil {
		return nil, err
	}
	root, err := t.parse(rest)
	if err != nil {
		return nil, err
	}
	switch there, ok := t.find(root); {
	case found:
		return rest, nil
	case ok && isSelf(there):
		return nil, ErrUnmarked
	case ok:
		return nil, ErrForeign
	}
	return old, nil
}

// cutBlock returns the file without the block and the blank line before it, and
// where that was.
func cutBlock(src []byte) (rest []byte, at int, found bool, err error) {
	begin, end := -1, -1
	for offset := 0; offset < len(src); {
		line := src[offset:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		switch string(bytes.TrimSpace(line)) {
		case blockBegin:
			if begin >= 0 {
				return nil, 0, false, ErrCannotAdd
			}
			begin = offset
		case blockEnd:
			if begin < 0 || end >= 0 {
				return nil, 0, false, ErrCannotAdd
			}
			end = offset + len(line)
		}
		offset += len(line)
	}
	switch {
	case begin < 0 && end < 0:
		return src, len(src), false, nil
	case end < 0:
		return nil, 0, false, ErrCannotAdd
	}
	for _, blank := range []string{"\n\n", "\r\n\r\n"} {
		if bytes.HasSuffix(src[:begin], []byte(blank)) && end == len(src) {
			begin -= len(blank) / 2
		}
	}
	return append(append([]byte{}, src[:begin]...), src[end:]...), begin, true, nil // never nil
}

// block renders the lines to insert and says where.
func (t Target) block(rest []byte, at int, root config.Node, entry members) (string, int, error) {
	eol := "\n"
	if i := bytes.IndexByte(rest, '\n'); i > 0 && rest[i-1] == '\r' {
		eol = "\r\n"
	}
	_, holds := root.Get(t.form.at[0])
	indent, inside := "", false
	if holds && !t.isTOML() {
		var ok bool
		if at, indent, ok = insertion(rest, t.form.at[0]); !ok {
			return "", 0, ErrCannotAdd
		}
		inside = true
	}
	lines := []string{blockBegin}
	switch {
	case t.isTOML():
		lines = append(lines, "["+t.form.at[0]+"."+SelfName+"]")
		for _, m := range entry {
			lines = append(lines, m.name+" = "+tomlLiteral(m.value))
		}
	case inside:
		lines = append(lines, t.yamlEntry("", entry)...)
	default:
		lines = append(lines, t.form.at[0]+":")
		lines = append(lines, t.yamlEntry("  ", entry)...)
	}
	lines = append(lines, blockEnd)
	text := indent + strings.Join(lines, eol+indent) + eol
	if !inside && at == len(rest) && at > 0 { // at the end of something
		if !bytes.HasSuffix(rest, []byte("\n")) {
			text = eol + text
		}
		text = eol + text
	}
	return text, at, nil
}

// yamlEntry renders the entry as a member of a mapping, or as an item of a list.
func (t Target) yamlEntry(indent string, entry members) []string {
	first, further := SelfName+":", indent+"  "
	if t.form.list {
		first = "- name: " + SelfName
	}
	lines := []string{indent + first}
	for _, m := range entry {
		lines = append(lines, further+m.name+": "+literal(m.value))
	}
	return lines
}

// tomlLiteral renders a value in TOML: JSON, but for tables.
func tomlLiteral(v any) string {
	table, ok := v.(map[string]string)
	if !ok {
		return literal(v)
	}
	var pairs []string
	for name, value := range table {
		pairs = append(pairs, literal(name)+" = "+literal(value))
	}
	slices.Sort(pairs)
	return "{ " + strings.Join(pairs, ", ") + " }"
}

// insertion finds the line behind a top-level key of YAML whose value is a block
// or nothing, and how what is in it is indented.
func insertion(src []byte, key string) (at int, indent string, ok bool) {
	offset := 0
	for line := range bytes.Lines(src) {
		offset += len(line)
		rest, isKey := bytes.CutPrefix(line, []byte(key+":"))
		if value := bytes.TrimSpace(rest); !isKey || len(value) > 0 && value[0] != '#' {
			continue
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			return 0, "", false // the last line, without an end
		}
		for next := range bytes.Lines(src[offset:]) {
			text := bytes.TrimSpace(next)
			if len(text) == 0 || text[0] == '#' {
				continue
			}
			if indent = string(next[:len(next)-len(bytes.TrimLeft(next, " "))]); indent == "" && text[0] != '-' {
				break
			}
			return offset, indent, true
		}
		return offset, "  ", true
	}
	return 0, "", false
}

// find returns the entry named patchbay.
func (t Target) find(root config.Node) (config.Node, bool) {
	holder, _ := get(root, t.at(root))
	if t.form.list {
		i := slices.IndexFunc(holder.Items, isNamedSelf)
		if i < 0 {
			return config.Node{}, false
		}
		return holder.Items[i], true
	}
	return holder.Get(SelfName)
}

func isNamedSelf(item config.Node) bool {
	name, _ := item.Get("name")
	return name.Text == SelfName
}

// without is a file's content but for the entry, and for what holds nothing.
func (t Target) without(root config.Node) config.Node {
	out := config.Node{Kind: config.Object}
	for _, m := range root.Members {
		if m.Name == t.form.at[0] {
			holder := config.Node{Kind: m.Value.Kind}
			holder.Members = slices.DeleteFunc(slices.Clone(m.Value.Members), func(m config.Member) bool { return m.Name == SelfName })
			holder.Items = slices.DeleteFunc(slices.Clone(m.Value.Items), isNamedSelf)
			if len(holder.Members)+len(holder.Items) == 0 {
				continue
			}
			m.Value = holder
		}
		out.Members = append(out.Members, m)
	}
	return out
}
