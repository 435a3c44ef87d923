package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Some servers define a tool otherwise at every start, with the time of day as a
// default, for example. A person may say of such a member that it does not count.

// CheckIgnored says why a member of a tool's definition, as a JSON pointer, cannot
// be ignored.
func CheckIgnored(definition json.RawMessage, pointer string) error {
	d := readDefinition(definition)
	switch {
	case !strings.HasPrefix(pointer, "/"):
		return errors.New("a member is written as a JSON pointer, such as /inputSchema/properties/day/default")
	case strings.EqualFold(pointer, "/name"):
		return errors.New("the name always counts")
	case !dropMember(membersOf(d.pinned), pointer):
		return fmt.Errorf("there is no member %s", config.Escape(pointer))
	}
	return nil
}

// maxDiffering is how many members Differing names.
const maxDiffering = 10

// Differing returns the members, as JSON pointers, in which the definition of a
// tool is not the one that is remembered: the first of them, and none if only a
// digest was kept.
func (p Pins) Differing(server string, definition json.RawMessage) []string {
	d := readDefinition(definition)
	was := p.servers[server][d.name]
	if was.Definition == nil {
		return nil
	}
	var all []string
	differing(membersOf(was.Definition), membersOf(d.without(was.Ignored).pinned), "", &all)
	return all
}

func differing(a, b any, at string, found *[]string) {
	if len(*found) == maxDiffering || reflect.DeepEqual(a, b) {
		return
	}
	x, isObject := a.(map[string]any)
	y, both := b.(map[string]any)
	if isObject && both {
		names := slices.Sorted(maps.Keys(x))
		for name := range y {
			if _, ok := x[name]; !ok {
				names = append(names, name)
			}
		}
		for _, name := range names {
			differing(x[name], y[name], config.PointerTo(at, name), found)
		}
		return
	}
	*found = append(*found, at)
}

// without is the definition without members that do not count.
func (d definition) without(ignored []string) definition {
	if len(ignored) == 0 || d.pinned == nil || d.instructions {
		return d
	}
	value := membersOf(d.pinned)
	for _, pointer := range ignored {
		dropMember(value, pointer)
	}
	d.pinned, _ = json.Marshal(value) // it was JSON
	d.digest, d.ignored = digest("patchbay tool 1\n", d.pinned), ignored
	return d
}

// membersOf is what is pinned of a definition as values, numbers as they are written.
func membersOf(pinned []byte) (value any) {
	dec := json.NewDecoder(bytes.NewReader(pinned))
	dec.UseNumber()
	_ = dec.Decode(&value) // what is no JSON has no members
	return value
}

// dropMember takes a member out of a value, and reports whether there is one.
// Elements of an array become null, so that the others keep their places.
func dropMember(value any, pointer string) bool {
	path := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, name := range path {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		last := i == len(path)-1
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[name]
			if ok && last {
				delete(v, name)
			}
			if !ok || last {
				return ok
			}
			value = next
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(v) {
				return false
			}
			if last {
				v[n] = nil
				return true
			}
			value = v[n]
		default:
			return false
		}
	}
	return false
}
