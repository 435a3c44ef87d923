package atomicfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s holds %q, want %q", path, got, want)
	}
}

// wantFiles checks the names in a directory, so that no litter goes unseen.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func appendLine(line string) func([]byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) { return append(bytes.Clone(old), line+"\n"...), nil }
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "file")
	for _, content := range []string{"one", "", "three"} {
		if err := Write(path, []byte(content), Options{}); err != nil {
			t.Fatal(err)
		}
		wantContent(t, path, content)
	}
	wantFiles(t, filepath.Dir(path), "file")
}

func TestUpdate(t *testing.T) {
	dir, locks := t.TempDir(), filepath.Join(t.TempDir(), "locks")
	path, opts := filepath.Join(dir, "sub", "file"), Options{LockDir: locks}
	update := func(edit func([]byte) ([]byte, error)) (bool, error) {
		return Update(t.Context(), path, opts, edit)
	}

	// An edit that makes nothing of a missing file leaves nothing behind.
	boom := errors.New("boom")
	if changed, err := update(func(old []byte) ([]byte, error) { return nil, nil }); changed || err != nil {
		t.Errorf("nothing from nothing: %v, %v", changed, err)
	}
	if _, err := update(func(old []byte) ([]byte, error) { return []byte("x"), boom }); err != boom {
		t.Errorf("error of edit became %v", err)
	}
	wantFiles(t, dir)

	changed, err := update(func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("missing file is %q, want nil", old)
		}
		return []byte("one\n"), nil
	})
	if !changed || err != nil {
		t.Fatalf("create: %v, %v", changed, err)
	}
	if changed, err = update(appendLine("two")); !changed || err != nil {
		t.Fatalf("append: %v, %v", changed, err)
	}
	wantContent(t, path, "one\ntwo\n")

	before, _ := os.Stat(path)
	for name, edit := range map[string]func([]byte) ([]byte, error){
		"same":  func(old []byte) ([]byte, error) { return bytes.Clone(old), nil },
		"nil":   func(old []byte) ([]byte, error) { return nil, nil },
		"error": func(old []byte) ([]byte, error) { return []byte("x"), boom },
	} {
		if changed, err := update(edit); changed || (err != nil && err != boom) {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("an edit without effect replaced the file")
	}
	wantFiles(t, filepath.Dir(path), "file")
	if files, _ := os.ReadDir(locks); len(files) != 1 {
		t.Errorf("%d lock files for one path", len(files))
	}
}

func TestUpdateEmptyFileIsNotMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "")
	_, err := Update(t.Context(), path, Options{}, func(old []byte) ([]byte, error) {
		if old == nil {
			t.Error("an empty file looks like a missing one")
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpdateConcurrently(t *testing.T) {
	const workers, rounds = 8, 10
	path := filepath.Join(t.TempDir(), "file")
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				if _, err := Update(t.Context(), path, Options{}, appendLine(fmt.Sprint(w, ".", r))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	data, _ := os.ReadFile(path)
	if n := bytes.Count(data, []byte("\n")); n != workers*rounds {
		t.Errorf("%d lines, want %d", n, workers*rounds)
	}
	wantFiles(t, filepath.Dir(path), ".file.lock", "file")
}

func TestUpdateMeetsAnEditorWithoutLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "start\n")
	intrusions, edits := 0, 0
	opts := Options{testOnlyStep: func(step string, _ *os.File) {
		if step == "check" && intrusions < 2 {
			intrusions++
			put(t, path, fmt.Sprintf("theirs %d\n", intrusions))
		}
	}}
	changed, err := Update(t.Context(), path, opts, func(old []byte) ([]byte, error) {
		edits++
		return appendLine("ours")(old)
	})
	if !changed || err != nil || edits != 3 {
		t.Errorf("changed %v, error %v, %d edits", changed, err, edits)
	}
	wantContent(t, path, "theirs 2\nours\n")
}

func TestUpdateMeetsARemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "start\n")
	opts := Options{testOnlyStep: func(step string, _ *os.File) {
		if step == "check" {
			_ = os.Remove(path)
		}
	}}
	if _, err := Update(t.Context(), path, opts, appendLine("ours")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, path, "ours\n")
}

func TestUpdateGivesUpOnARestlessFile(t *testing.T) {
	path, n := filepath.Join(t.TempDir(), "file"), 0
	put(t, path, "")
	opts := Options{testOnlyStep: func(step string, _ *os.File) {
		if step == "check" {
			n++
			put(t, path, fmt.Sprint(n))
		}
	}}
	changed, err := Update(t.Context(), path, opts, appendLine("ours"))
	wantError(t, err, path, "another program keeps changing this file")
	if changed {
		t.Error("reported a change")
	}
	wantContent(t, path, fmt.Sprint(updateAttempts))
	wantFiles(t, filepath.Dir(path), ".file.lock", "file")
}

func TestUpdateWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		put(t, path, "")
		held, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := Update(t.Context(), path, Options{}, func([]byte) ([]byte, error) {
				close(held)
				<-release
				return nil, nil
			})
			done <- err
		}()
		<-held

		never := func([]byte) ([]byte, error) { t.Error("edit called without the lock"); return nil, nil }
		start := time.Now()
		_, err := Update(t.Context(), path, Options{}, never)
		wantError(t, err, path, "is being changed by another process", fmt.Sprint("process ", os.Getpid()), "30s")
		if waited := time.Since(start); waited != lockWait {
			t.Errorf("waited %s, want %s", waited, lockWait)
		}

		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, err = Update(ctx, path, Options{}, never); !errors.Is(err, why) {
			t.Errorf("error %v, want %v", err, why)
		}
		if _, err = Update(ctx, path, Options{}, never); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended gives %v", err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * staleAfter)
	const random = "0123456789abcdef"
	for name, stale := range map[string]bool{
		".file.patchbay-" + random + ".tmp":   true,
		".file.patchbay-1123456789abcdef.tmp": false, // young
		".other.patchbay-" + random + ".tmp":  true,  // of another file
		".file.patchbay-" + random + ".bak":   true,
		".file.patchbay-xyz.tmp":              true,
		".file.tmp":                           true,
	} {
		path := filepath.Join(dir, name)
		put(t, path, "")
		if stale {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Write(filepath.Join(dir, "file"), nil, Options{}); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, ".file.patchbay-"+random+".bak", ".file.patchbay-1123456789abcdef.tmp", ".file.patchbay-xyz.tmp",
		".file.tmp", ".other.patchbay-"+random+".tmp", "file")
}

func TestWithin(t *testing.T) {
	top := t.TempDir()
	within := filepath.Join(top, "state")
	for _, path := range []string{within, top, filepath.Join(top, "other", "file"), filepath.Join(within, "..", "file")} {
		wantError(t, Write(path, nil, Options{Within: within}), "does not lie below "+within)
	}
	wantError(t, Write(filepath.Join(within, "file"), nil, Options{Within: within, FollowSymlink: true}), "exclude each other")
	wantFiles(t, top)

	path := filepath.Join(within, "a", "b", "file")
	if err := Write(path, []byte("x"), Options{Within: within}); err != nil {
		t.Fatal(err)
	}
	wantContent(t, path, "x")
	wantError(t, Write(filepath.Join(path, "below", "file"), nil, Options{Within: within}), path+" is not a directory")
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "12345")
	if data, err := Read(path, 5); string(data) != "12345" || err != nil {
		t.Errorf("Read gives %q, %v", data, err)
	}
	_, err := Read(path, 4)
	wantError(t, err, path+" is longer than 4 bytes")
	_, err = Read(dir, 4)
	wantError(t, err, dir+" is a directory, not a regular file")
	if _, err = Read(filepath.Join(dir, "none"), 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}
