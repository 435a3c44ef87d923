package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// fill gives every field of a value, at any depth, something that is not empty.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case config.Secret:
		v.Set(reflect.ValueOf(config.NewSecret("secret")))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"raw":1}`)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), elem)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			fill(v.FieldByIndex(f.Index))
		}
	default:
		panic("fill: " + v.Type().String())
	}
}

// mutate changes one thing after the other at any depth of a value, calls seen
// after each change, and undoes it.
func mutate(v reflect.Value, path string, seen func(path string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	try := func(path string, to reflect.Value) {
		v.Set(to)
		seen(path)
		v.Set(old)
	}
	try(path+" emptied", reflect.Zero(v.Type()))
	switch v.Interface().(type) {
	case config.Secret:
		try(path, reflect.ValueOf(config.NewSecret("secret2")))
		return
	case json.RawMessage:
		try(path, reflect.ValueOf(json.RawMessage(`{"raw":2}`)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		try(path, reflect.ValueOf("texu").Convert(v.Type()))
		try(path+" lengthened", reflect.ValueOf("text\x00").Convert(v.Type()))
	case reflect.Bool: // emptying it was the change
	case reflect.Int, reflect.Int64:
		try(path, reflect.ValueOf(8).Convert(v.Type()))
	case reflect.Pointer:
		mutate(v.Elem(), path, seen)
	case reflect.Slice:
		try(path+" shortened", v.Slice(0, 1))
		try(path+" lengthened", reflect.Append(v, v.Index(0)))
		mutate(v.Index(1), path+"[1]", seen)
	case reflect.Map:
		key := reflect.ValueOf("key")
		elem := reflect.New(v.Type().Elem()).Elem()
		elem.Set(v.MapIndex(key))
		other := reflect.MakeMap(v.Type())
		other.SetMapIndex(reflect.ValueOf("kez"), elem)
		try(path+" renamed", other)
		mutate(elem, path+".key", func(path string) {
			v.SetMapIndex(key, elem)
			seen(path)
		})
		v.SetMapIndex(key, elem)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			mutate(v.FieldByIndex(f.Index), path+"."+f.Name, seen)
		}
	}
}

// Whatever a launch holds, now or later, its change changes the hash.
func TestApprovalHashCoversEveryField(t *testing.T) {
	var l Launch
	fill(reflect.ValueOf(&l).Elem())
	want := ApprovalHash(l)
	n := 0
	mutate(reflect.ValueOf(&l).Elem(), "Launch", func(path string) {
		n++
		changed := ApprovalHash(l) != want
		// Where it is declared is only shown; Named follows from the argument and the directory.
		if shown := strings.HasPrefix(path, "Launch.Origin") || strings.Contains(path, "].Named"); changed == shown {
			t.Errorf("%s: hash changed: %v", path, changed)
		}
	})
	if ApprovalHash(l) != want || n < 150 {
		t.Errorf("the test tried %d changes", n)
	}
}

// Of a server's fields, all count but these.
func TestLaunchOfDropsWhatDoesNotLaunch(t *testing.T) {
	harmless := []string{"Enabled", "Timeout", "ConnectTimeout", "Lazy", "IdleStop", "Shared", "Pin", "EnabledTools", "DisabledTools", "Tools", "Description", "Extra"}
	var e config.Entry
	fill(reflect.ValueOf(&e).Elem())
	want := ApprovalHash(LaunchOf(e))
	mutate(reflect.ValueOf(&e.Server).Elem(), "", func(path string) {
		field, _, _ := strings.Cut(strings.TrimPrefix(path, "."), ".")
		field, _, _ = strings.Cut(strings.Fields(field + " x")[0], "[")
		changed := ApprovalHash(LaunchOf(e)) != want
		if changed == slices.Contains(harmless, field) {
			t.Errorf("%s: hash changed: %v", path, changed)
		}
	})
}

// No two of these may be mistaken for each other.
func TestCanonicalIsUnambiguous(t *testing.T) {
	servers := []config.Server{
		{Args: []string{"a", "b"}}, {Args: []string{"ab"}}, {Args: []string{"a,b"}}, {Args: []string{`a","b`}}, {Args: []string{"a", "b", ""}}, {Args: []string{"", "a", "b"}},
		{Command: "a", Args: []string{"b"}}, {Command: "a b"}, {Cwd: "a b"},
		{Env: map[string]config.Secret{"A": config.NewSecret("")}}, {Env: map[string]config.Secret{"A": config.NewSecret("B"), "C": config.NewSecret("D")}},
		{Env: map[string]config.Secret{"A": config.NewSecret(`B"],["C","D`)}}, {Headers: map[string]config.Secret{"A": config.NewSecret("")}},
		{EnvVars: []string{"A"}}, {UnsetEnv: []string{"A"}}, {},
		{Command: "\xff"}, {Command: "\xfe"}, {Command: "\ufffd"}, {Command: "ff"}, {Command: `{"hex":"ff"}`},
	}
	seen := map[string]config.Server{}
	for _, s := range servers {
		hash := ApprovalHash(LaunchOf(config.Entry{Server: s}))
		if other, ok := seen[hash]; ok {
			t.Errorf("%+v and %+v have the same hash", s, other)
		}
		seen[hash] = s
	}
}

// The hash is kept in files: it must not change from one release to the next.
func TestApprovalHashIsStable(t *testing.T) {
	e := config.Entry{
		Name: "files", Dialect: config.DialectClaude, Origin: config.Origin{Project: "/src/p"},
		Server: config.Server{Command: "npx", Args: []string{"-y", "@acme/files@1.0.0"}, Env: map[string]config.Secret{"B": config.NewSecret("${T}"), "A": config.NewSecret("x")}},
	}
	l := LaunchOf(e)
	l.ProjectID, l.ResolvedCommand = "64769:12", "/usr/bin/npx"
	const want = `{"Dialect":"claude","Name":"files","Project":"/src/p","ProjectID":"64769:12","ResolvedCommand":"/usr/bin/npx",` +
		`"Server":{"Args":["-y","@acme/files@1.0.0"],"Command":"npx","Env":[["A","x"],["B","${T}"]],"Type":"stdio"}}`
	if got := string(canonical(nil, reflect.ValueOf(l))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !json.Valid([]byte(want)) {
		t.Error("the rendering is not JSON")
	}
	const hash = "50243ee463ee6621c23e56edeb421d2677d400a199543e1912c4ae394fffa87e"
	if got := ApprovalHash(l); got != hash {
		t.Errorf("hash %s, want %s", got, hash)
	}
	// A file that says `"type": "stdio"` and one that leaves it out start the
	// same thing.
	e.Server.Type = config.Stdio
	if again := LaunchOf(e); again.Server.Type != l.Server.Type {
		t.Error("the type that is inferred and the same one written differ")
	}
}

func TestConnectHash(t *testing.T) {
	s := config.Server{URL: "https://h.test", Headers: map[string]config.Secret{"K": config.NewSecret("one")}}
	key := []byte("installation")
	base := ConnectHash(key, config.DialectPatchbay, s, Around{})
	if ConnectHash(key, config.DialectPatchbay, s, Around{}) != base {
		t.Error("not a function of its arguments")
	}
	if ConnectHash([]byte("another"), config.DialectPatchbay, s, Around{}) == base {
		t.Error("the key does not matter")
	}
	rotated := s
	rotated.Headers = map[string]config.Secret{"K": config.NewSecret("two")}
	if ConnectHash(key, config.DialectPatchbay, rotated, Around{}) == base {
		t.Error("a rotated secret is not noticed")
	}
	described := s
	described.Description = "x"
	if ConnectHash(key, config.DialectPatchbay, described, Around{}) != base {
		t.Error("a description restarts the connection")
	}
}

func ExampleApprovalHash() {
	e := config.Entry{Name: "files", Origin: config.Origin{Project: "/src/p"}, Server: config.Server{Command: "files-mcp"}}
	before := ApprovalHash(LaunchOf(e))
	e.Server.Args = []string{"--write"}
	fmt.Println(before == ApprovalHash(LaunchOf(e)))
	// Output: false
}
