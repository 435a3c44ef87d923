package policy

import (
	"reflect"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// Connection is what decides how a server is connected, and what a person wrote
// to have it so. It holds secrets.
type Connection struct {
	Written    config.Server
	Expanded   config.Server
	References []string // variables that Written refers to, with their values, as NAME=value; those that are not set are left out
	Around     Around
}

// Unlike is how two connections differ, by names alone: values are secrets.
type Unlike struct {
	Directory bool
	Variables []string // of the environment, sorted
	Entry     []string // members of the configuration entry, sorted; of env and headers the single ones
}

// Differ says how two connections differ.
func Differ(a, b Connection) Unlike {
	u := Unlike{Directory: a.Expanded.Cwd != b.Expanded.Cwd || a.Around.Dir != b.Around.Dir}
	for _, pair := range [][2][]string{
		{a.References, b.References}, {a.Around.Environ, b.Around.Environ}, {a.Around.Named, b.Around.Named}, {a.Around.Commands, b.Around.Commands},
	} {
		u.Variables = append(u.Variables, differentNames(byName(pair[0]), byName(pair[1]))...)
	}
	slices.Sort(u.Variables)
	u.Variables = slices.Compact(u.Variables)
	u.Entry = differentMembers(a.Written, b.Written)
	if !u.Directory && len(u.Variables) == 0 && len(u.Entry) == 0 { // what a placeholder means is decided elsewhere, too
		u.Entry = differentMembers(a.Expanded, b.Expanded)
	}
	return u
}

func byName(environ []string) map[string]string {
	all := make(map[string]string, len(environ))
	for _, assignment := range environ {
		name, value, _ := strings.Cut(assignment, "=")
		all[name] = value
	}
	return all
}

// differentNames returns the keys under which two maps do not have the same.
func differentNames(a, b map[string]string) (names []string) {
	for name, value := range a {
		if other, ok := b[name]; !ok || other != value {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// differentMembers names the members that matter for reaching a server and are not
// the same in two entries, sorted.
func differentMembers(a, b config.Server) (names []string) {
	x, y := reflect.ValueOf(launchFields(a)), reflect.ValueOf(launchFields(b))
	for i := range x.NumField() {
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		one, two := parts(name, x.Field(i)), parts(name, y.Field(i))
		names = append(names, differentNames(one, two)...)
	}
	slices.Sort(names)
	return names
}

// parts are a member and what it holds, or each entry of a map by itself.
func parts(name string, v reflect.Value) map[string]string {
	all := map[string]string{}
	switch {
	case v.IsZero():
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			all[name+"."+key.String()] = string(canonical(nil, v.MapIndex(key)))
		}
	default:
		all[name] = string(canonical(nil, v))
	}
	return all
}
