package discover

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFixtures reads each product's sample files, laid out as a home and a
// project, and compares everything found with testdata/golden.
func TestFixtures(t *testing.T) {
	products, err := os.ReadDir("testdata/config")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		t.Run(p.Name(), func(t *testing.T) {
			m := newMachine(t)
			m.lay("testdata/config/" + p.Name())
			golden(t, "testdata/golden/"+p.Name()+".json", m.render(Scan(t.Context(), m.env)))
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// machine is a home, a project and a system in a temporary directory.
type machine struct {
	t   testing.TB
	env Env
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, env: Env{
		OS: "linux", Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "project"), Project: filepath.Join(dir, "project"), Root: filepath.Join(dir, "root"),
	}}
	m.env.ConfigDir = filepath.Join(m.env.Home, ".config", "patchbay")
	m.env.StateDir = filepath.Join(m.env.Home, ".local", "state", "patchbay")
	for _, d := range []string{m.env.Home, m.env.Project, m.env.Root} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// write puts a file at a path that begins with home, project or root. In its
// text /srv/app stands for the project.
func (m *machine) write(path, text string) string {
	m.t.Helper()
	local := LocalFile(m.env.StateDir, m.env.Project)
	path = strings.ReplaceAll(path, "projects/LOCAL", "projects/"+filepath.Base(filepath.Dir(local)))
	file := filepath.Join(filepath.Dir(m.env.Home), path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/srv/app", m.env.Project)), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// lay copies a tree of home/, project/ and root/ onto the machine.
func (m *machine) lay(tree string) {
	m.t.Helper()
	err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		m.write(filepath.ToSlash(rel), string(text))
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// render writes a result as text that is the same on every machine. Secrets
// are shown: all of them are made up.
func (m *machine) render(r Result) []byte {
	m.t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(reveal(reflect.ValueOf(r))); err != nil {
		m.t.Fatal(err)
	}
	local := filepath.Base(filepath.Dir(LocalFile(m.env.StateDir, m.env.Project)))
	inPointer := strings.ReplaceAll(m.env.Project, "/", "~1")
	return []byte(strings.NewReplacer(m.env.Home, "HOME", m.env.Project, "PROJECT", m.env.Root, "ROOT", local, "LOCAL", inPointer, "PROJECT").Replace(buf.String()))
}

// reveal copies a value into plain maps and lists, with the text of its secrets.
func reveal(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case config.Secret:
		return x.Reveal()
	case json.RawMessage:
		return x
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return reveal(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		out := []any{}
		for i := range v.Len() {
			out = append(out, reveal(v.Index(i)))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for _, k := range v.MapKeys() {
			out[k.String()] = reveal(v.MapIndex(k))
		}
		return out
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if f := v.Field(i); !f.IsZero() {
				out[name] = reveal(f)
			}
		}
		return out
	default:
		return v.Interface()
	}
}
