package patchbay

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// When there are no watches left files are looked at instead.
func TestWatchesExhausted(t *testing.T) {
	var log bytes.Buffer
	w := newFileWatch(slog.New(slog.NewTextHandler(&log, nil)))
	if w.events == nil {
		return // a system where they always are
	}
	dir := t.TempDir()
	if !w.cover([]string{dir}) || w.cover([]string{dir}) {
		t.Error("a directory is new once")
	}
	if w.cover([]string{dir, filepath.Join(dir, "absent")}) {
		t.Error("a directory that is not there is no trouble, and not watched")
	}
	w.close()
	if w.cover([]string{dir, t.TempDir()}) || w.events != nil || !strings.Contains(log.String(), "looking at them instead") {
		t.Errorf("logged %s", log.String())
	}
}

// Where the system reports no changes files are looked at every now and then,
// and the log says so.
func TestPolledFiles(t *testing.T) {
	home := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h, err := Open(t.Context(), Options{Home: home, Dir: home, Environ: []string{}, SystemRoot: home, Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var log bytes.Buffer
		w := &fileWatch{log: slog.New(slog.NewTextHandler(&log, nil))}
		w.giveUp(errors.New("no space left"))
		if !strings.Contains(log.String(), "every=2s") || !strings.Contains(log.String(), "no space left") {
			t.Errorf("logged %s", log.String())
		}
		h.followers.Go(func() { h.followFiles(w, h.survey()) })
		start := time.Now()
		file := filepath.Join(home, ".cursor", "mcp.json")
		for _, step := range []struct {
			do   func() error
			want int
		}{
			{func() error { return os.Mkdir(filepath.Dir(file), 0o700) }, 0},
			{func() error { return os.WriteFile(file, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600) }, 1},
			{func() error { return os.Remove(file) }, 0},
		} {
			synctest.Wait()
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookOften)
			synctest.Wait()
			if got := len(h.Servers()); got != step.want {
				t.Errorf("%d servers after %v, want %d", got, time.Since(start), step.want)
			}
		}
	})
}
