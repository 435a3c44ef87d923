package conn

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// keyed is a target whose catalog is kept.
func keyed(f *fake, key string) Target {
	target := local(f)
	target.CatalogKey = key
	return target
}

func cacheFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The tools of a server are known before it is connected, if they were once.
func TestSavedCatalog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "catalogs")
	synctest.Test(t, func(t *testing.T) {
		s := one(t, newManager(t, Options{CacheDir: dir}), keyed(&fake{}, "key"))
		mustWait(t, s)
		if c := s.Catalog(); c.Cached {
			t.Errorf("%+v", c)
		}
	})
	files := cacheFiles(t, dir)
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, Options{CacheDir: dir})
		f := &fake{init: func(ctx context.Context) error { sleep(ctx, 10*second); return nil }}
		f.list = func(context.Context, string) (string, error) { return toolList("new"), nil }
		s := one(t, m, keyed(f, "key"))
		st := s.Status()
		c := s.Catalog()
		if c == nil || !c.Cached || !st.ToolsFromCache || c.tool("echo") == nil || c.Instructions != "be kind" || c.FetchedAt.IsZero() {
			t.Fatalf("%+v", c)
		}
		mustWait(t, s)
		if c := s.Catalog(); c.Cached || s.Status().ToolsFromCache || c.tool("echo") != nil || c.tool("new") == nil {
			t.Errorf("%+v", c)
		}
		// Another server does not get it, nor does the same under another key.
		other := keyed(&fake{init: forever}, "other")
		other.ConnectHash = "2"
		if c := one(t, m, other).Catalog(); c != nil {
			t.Errorf("%+v", c)
		}
	})

	synctest.Test(t, func(t *testing.T) {
		s := one(t, newManager(t, Options{CacheDir: dir}), keyed(&fake{init: forever}, "key"))
		if c := s.Catalog(); c.tool("new") == nil {
			t.Errorf("%+v", c)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(cacheLife + time.Minute)
		s := one(t, newManager(t, Options{CacheDir: dir}), keyed(&fake{init: forever}, "key"))
		if c := s.Catalog(); c != nil {
			t.Errorf("%v after %v", c.FetchedAt, cacheLife)
		}
	})
}

// Row 4 of the fault matrix: a server of the legacy era that does not answer
// what it does not know costs three seconds once, not every time.
func TestEraIsRemembered(t *testing.T) {
	dir := t.TempDir()
	f := &fake{other: forever}
	for _, want := range []time.Duration{3050 * time.Millisecond, 0} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			s := one(t, newManager(t, Options{CacheDir: dir}), keyed(f, "key"))
			mustWait(t, s)
			if took := time.Since(begin); took != want {
				t.Errorf("connecting took %v, want %v", took, want)
			}
			f.die()
			synctest.Wait()
			mustCall(t, s)
			if took := time.Since(begin); took != want {
				t.Errorf("connecting again took until %v, want %v", took, want)
			}
		})
	}
}

// What a server offers is saved a while after it was listed: by then others that
// started with it are listed too.
func TestSavedSoon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "catalogs")
	synctest.Test(t, func(t *testing.T) {
		mustWait(t, one(t, newManager(t, Options{CacheDir: dir}), keyed(&fake{}, "key")))
		time.Sleep(savePause - time.Millisecond)
		synctest.Wait()
		if files := cacheFiles(t, dir); len(files) > 0 {
			t.Errorf("saved at once: %v", files)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if c := newCache(dir, slog.New(slog.DiscardHandler)).load("key").Catalog; c.tool("echo") == nil {
			t.Errorf("%+v", c)
		}
	})
}

// Damage makes a file worthless, not dangerous, and the next connection mends it.
func TestDamagedCatalog(t *testing.T) {
	dir := t.TempDir()
	connected := func(t *testing.T) *Catalog {
		var before *Catalog
		synctest.Test(t, func(t *testing.T) {
			target := keyed(&fake{}, "key")
			target.Lazy = true
			s := one(t, newManager(t, Options{CacheDir: dir}), target)
			before = s.Catalog()
			mustCall(t, s)
			mustWait(t, s)
		})
		return before
	}
	connected(t)
	file := cacheFiles(t, dir)[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := func(change func(m map[string]any)) []byte {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		data, _ := json.Marshal(m)
		return data
	}
	for name, bad := range map[string][]byte{
		"empty":          {},
		"cut":            good[:len(good)/2],
		"no JSON":        []byte("hello"),
		"null":           []byte("null"),
		"no UTF-8":       []byte(strings.Replace(string(good), "echo", "e\xffcho", 1)),
		"twice the same": []byte(strings.Replace(string(good), `"name":"echo"`, `"name":"echo","name":"x"`, 1)),
		"other version":  edited(func(m map[string]any) { m["version"] = 2 }),
		"other key":      edited(func(m map[string]any) { m["key"] = "other" }),
		"no catalog":     edited(func(m map[string]any) { delete(m, "fetchedAt") }),
		"nameless tool":  []byte(strings.Replace(string(good), `"name":"echo"`, `"nome":"echo"`, 1)),
		"tomorrow":       edited(func(m map[string]any) { m["fetchedAt"] = "2030-01-01T00:00:00Z" }),
	} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if c := connected(t); c != nil {
			t.Errorf("%s: used as %+v", name, c)
		}
		if c := connected(t); c == nil {
			t.Errorf("%s: not mended", name)
		}
	}
}

// A catalog that did not change is not written again, until it would expire.
func TestUnchangedCatalogIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	f := &fake{}
	connect := func(after time.Duration) time.Time {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			m := newManager(t, Options{CacheDir: dir})
			mustWait(t, one(t, m, keyed(f, "key")))
		})
		var file saved
		data, err := os.ReadFile(cacheFiles(t, dir)[0])
		if err == nil {
			file, err = parseSaved(data, "key")
		}
		if err != nil {
			t.Fatal(err)
		}
		return file.Catalog.FetchedAt
	}
	first := connect(0)
	if again := connect(rewriteAfter / 2); !again.Equal(first) {
		t.Errorf("written again after %v", again.Sub(first))
	}
	if again := connect(2 * rewriteAfter); !again.After(first) {
		t.Error("not written again")
	}
}

// A catalog with holes is not kept: the next time may be better.
func TestIncompleteCatalogIsNotSaved(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{list: func(ctx context.Context, _ string) (string, error) { return "", forever(ctx) }}
		s := one(t, newManager(t, Options{CacheDir: dir}), keyed(f, "key"))
		mustWait(t, s)
		wantState(t, s, config.Connected, "tools/list")
		// Nor is one of a client with other capabilities.
		f.set(func() { f.list = nil })
		plain, rich := Profile{Session: "1"}, Profile{Key: "rich", Session: "2"}
		s.manager.Hold(plain)
		s.manager.Hold(rich)
		r, _ := s.manager.Server("srv", rich)
		mustCall(t, r)
		mustWait(t, r)
	})
	if c := newCache(dir, slog.New(slog.DiscardHandler)).load("key").Catalog; c != nil {
		t.Errorf("%+v", c)
	}
}

// How a server stood is known to the next process, until that tries it itself.
func TestLastKnownState(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		f     *fake
		state config.State
	}{
		{&fake{refuse: errors.New("no")}, config.Failed},
		{&fake{}, config.Connected},
		{&fake{refuse: errors.New("no")}, config.Failed},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := one(t, newManager(t, Options{CacheDir: dir}), keyed(step.f, "key"))
			_ = s.Wait(t.Context())
			if st := wantState(t, s, step.state, ""); st.Last != nil {
				t.Errorf("%+v", st.Last)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour)
			target := keyed(&fake{}, "key")
			target.Lazy = true
			s := one(t, newManager(t, Options{CacheDir: dir}), target)
			st := wantState(t, s, config.Pending, "")
			if st.Last == nil || st.Last.State != step.state || time.Since(st.Last.At) != time.Hour {
				t.Errorf("%+v", st.Last)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := one(t, newManager(t, Options{CacheDir: dir}), keyed(&fake{init: forever}, "key"))
		if c := s.Catalog(); c.tool("echo") == nil {
			t.Errorf("a failure has cost the catalog: %+v", c)
		}
	})
}

// What a server wrote is kept as it is, byte for byte.
func TestSavedBytes(t *testing.T) {
	in := saved{Key: "k", Dialect: wire.DialectLegacy, Last: &Known{config.Failed, "x < y", time.Unix(5, 0).UTC()}, Catalog: &Catalog{
		Tools: []json.RawMessage{
			json.RawMessage(`{ "name" : "a<b>&\u00e9\u2028", "n":12345678901234567890.10e+2, "z":1, "a":[ ] }`),
			json.RawMessage(`{"name":"é"}`),
		},
		Prompts:      []json.RawMessage{json.RawMessage(`{"name":"p"}`)},
		Capabilities: json.RawMessage(`{ "tools": {} }`), Instructions: "<x>", Notes: []string{"n"},
		FetchedAt: time.Unix(7, 0).UTC(), Cached: true,
	}}
	data, err := in.appendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := parseSaved(data, "k")
	if err != nil || !reflect.DeepEqual(*out.Last, *in.Last) || out.Dialect != in.Dialect {
		t.Fatalf("%+v, %v", out, err)
	}
	if !out.Catalog.sameLists(in.Catalog) || !out.Catalog.FetchedAt.Equal(in.Catalog.FetchedAt) {
		t.Errorf("%s became %+v", data, out.Catalog)
	}
}

func TestExpiredCatalogsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old" + cacheFileName: 2 * cacheLife, "young" + cacheFileName: time.Hour, "foreign.json": 2 * cacheLife} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
	m := newManager(t, Options{CacheDir: dir})
	mustWait(t, one(t, m, keyed(&fake{}, "key")))
	if err := m.Close(); err != nil { // which waits for the writing
		t.Fatal(err)
	}
	files := strings.Join(cacheFiles(t, dir), "\n")
	if strings.Contains(files, "old") || !strings.Contains(files, "young") || !strings.Contains(files, "foreign") || strings.Count(files, "\n") != 2 {
		t.Errorf("left:\n%s", files)
	}
}

// Whatever a file holds, it is refused, or survives being written and read.
func FuzzCacheFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"key":"key","fetchedAt":"2026-01-01T00:00:00Z","raw":{"serverInfo":{}},"lists":{"tools":[{"name":"a"}]}}`))
	f.Add([]byte(`{"version":1,"key":"key","state":"failed","reason":"<x>","at":"2026-01-01T00:00:00Z","lists":{"prompts":[null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSaved(data, "key")
		if err != nil {
			return
		}
		again, err := s.appendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseSaved(again, "key")
		if err != nil || back.differs(s) || s.Catalog != nil && !back.Catalog.sameLists(s.Catalog) {
			t.Errorf("%s became %s, %v", data, again, err)
		}
	})
}
