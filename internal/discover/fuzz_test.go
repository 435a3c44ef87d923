package discover

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

func FuzzJSON(f *testing.F) { fuzzFormat(f, ".json", ".jsonc") }
func FuzzTOML(f *testing.F) { fuzzFormat(f, ".toml") }
func FuzzYAML(f *testing.F) { fuzzFormat(f, ".yaml", ".yml") }

var validName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,100}$`)

// fuzzFormat gives any bytes to every reader of a format. Whatever they are:
// names are identifiers, places are known, and what is kept is JSON.
func fuzzFormat(f *testing.F, extensions ...string) {
	err := filepath.WalkDir("testdata/config", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !hasExtension(path, extensions) {
			return err
		}
		data, err := os.ReadFile(path)
		f.Add(data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	providers := Providers()
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parse("x"+extensions[0], data)
		if err != nil {
			e, ok := errors.AsType[*config.SyntaxError](err)
			if !ok || e.Line < 1 || e.Column < 1 || e.Message == "" {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if !json.Valid(root.JSON()) {
			t.Fatalf("not JSON: %s", root.JSON())
		}
		s := newScan(Env{OS: "linux", Home: "/home/u", Dir: "/p", Project: "/p"})
		for i := range providers {
			for j := range providers[i].Places {
				place := &providers[i].Places[j]
				if place.Note != "" || place.script != nil || !hasExtension(place.Path, extensions) {
					continue
				}
				d := s.newDoc(candidate{provider: &providers[i], place: place, path: "/p/x" + extensions[0], base: "/p"})
				c, err := parseContent(d.path, place.form(), bytes.NewReader(data), 0)
				if err != nil {
					t.Fatal(err)
				}
				d.read(c)
				checkDoc(t, d)
			}
		}
		r := s.finish()
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}

func hasExtension(path string, extensions []string) bool {
	for _, ext := range extensions {
		if strings.HasSuffix(path, ext) {
			return true
		}
	}
	return false
}

func checkDoc(t *testing.T, d *doc) {
	t.Helper()
	for _, p := range d.problems {
		if p.Line < 1 || p.File == "" || p.Message == "" {
			t.Fatalf("%s: %+v", d.origin.Provider, p)
		}
	}
	for _, e := range d.entries {
		if !validName.MatchString(e.Name) {
			t.Fatalf("%s: name %q of %q", d.origin.Provider, e.Name, e.Title)
		}
		if e.Origin.Line < 1 || e.Origin.Pointer == "" {
			t.Fatalf("%s: origin %+v", d.origin.Provider, e.Origin)
		}
		for _, p := range e.Problems {
			if p.Line < 1 || p.File == "" || p.Message == "" {
				t.Fatalf("%s: %+v", d.origin.Provider, p)
			}
		}
		if s := e.Server; s.Cwd != "" && !strings.ContainsAny(s.Cwd[:1], "/${%~") {
			t.Fatalf("%s: the directory %q depends on ours", d.origin.Provider, s.Cwd)
		}
	}
}

func FuzzScript(f *testing.F) {
	for _, file := range []string{"testdata/config/crush/project/.crushrc", "testdata/config/_crush/project/.crushrc"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		last, lines := 1, 1+strings.Count(text, "\n")
		for _, c := range shellCommands(text) {
			if len(c.words) == 0 || c.line < last || c.line > lines {
				t.Fatalf("%+v", c)
			}
			last = c.line
		}
	})
}

// FuzzIdentifiers: titles of one file get identifiers of their own.
func FuzzIdentifiers(f *testing.F) {
	f.Add("a b\na/b\na_b")
	f.Add("\n__proto__\nünï")
	f.Fuzz(func(t *testing.T, text string) {
		owner := map[string]string{}
		for title, name := range Identifiers(strings.Split(text, "\n")) {
			if !validName.MatchString(name) {
				t.Fatalf("%q for %q", name, title)
			}
			if other, taken := owner[name]; taken {
				t.Fatalf("%q and %q are both %q", title, other, name)
			}
			owner[name] = title
		}
	})
}
