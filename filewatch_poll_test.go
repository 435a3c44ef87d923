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

	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// When there are no watches left files are looked at instead.
func TestWatchesExhausted(t *testing.T) {
	var log bytes.Buffer
	w := newFileWatch(slog.New(slog.NewTextHandler(&log, nil)))
	if w.polls {
		return // a system where they always are
	}
	dir := t.TempDir()
	survey := func(dirs ...string) discover.Survey { return discover.Survey{Dirs: dirs} }
	f := w.join(make(chan struct{}, 1), survey(dir))
	defer w.leave(f)
	other := t.TempDir()
	if w.cover(f, survey(dir), false) || !w.cover(f, survey(dir, other), false) {
		t.Error("a directory is new once")
	}
	if w.cover(f, survey(dir, other, filepath.Join(dir, "absent")), false) {
		t.Error("a directory that is not there is no trouble, and not watched")
	}
	w.events.Close()
	if w.cover(f, survey(dir, t.TempDir()), false) || !w.polls || w.events != nil || !strings.Contains(log.String(), "looking at them instead") {
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
		h.common.watch = newFileWatch(slog.New(slog.NewTextHandler(&log, nil)))
		h.common.watch.giveUp(errors.New("no space left"))
		if !strings.Contains(log.String(), "every=2s") || !strings.Contains(log.String(), "no space left") {
			t.Errorf("logged %s", log.String())
		}
		h.looked = h.survey()
		h.followers.Go(h.followFiles)
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
			time.Sleep(lookOften + pause)
			synctest.Wait()
			if got := len(h.Servers()); got != step.want {
				t.Errorf("%d servers after %v, want %d", got, time.Since(start), step.want)
			}
		}
	})
}

// A file that changes over and over is looked at every few seconds, by all hosts
// at the same time, and its first changes at once; other files do not wait for it.
func TestStreamOfChanges(t *testing.T) {
	home := t.TempDir()
	w := newFileWatch(slog.New(slog.DiscardHandler))
	survey := discover.NewSurvey(discover.Env{OS: "linux", Home: home, Dir: home})
	busy, other, none := filepath.Join(home, ".claude.json"), filepath.Join(home, ".cursor"), filepath.Join(home, ".bash_history")
	hosts := []*follower{{survey: survey, look: make(chan struct{}, 1)}, {survey: survey, look: make(chan struct{}, 1)}}
	for _, f := range hosts {
		w.followers[f] = true
	}
	start := time.Now()
	looked := func(at time.Duration) (n int) {
		w.due(start.Add(at))
		for _, f := range hosts {
			select {
			case <-f.look:
				n++
			default:
			}
		}
		return n
	}
	looks, gap, last := 0, time.Duration(0), time.Duration(0)
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		w.noticed(none, start.Add(at))
		if at%time.Second == 0 {
			w.noticed(busy, start.Add(at))
		}
		switch n := looked(at); n {
		case 0:
		case len(hosts):
			gap, last = max(gap, at-last), at
			looks++
		default:
			t.Errorf("%d of %d look after %v", n, len(hosts), at)
		}
		if at == quiet && looks != 1 {
			t.Errorf("the first change waits: %d looks", looks)
		}
	}
	if most := atOnce + int(time.Minute/pause); looks > most || looks < most-2 || gap > pause+time.Second {
		t.Errorf("%d looks in a minute, at most %v apart", looks, gap)
	}
	at := time.Minute
	for w.noticed(busy, start.Add(at)); !w.pending[busy].due.After(start.Add(at + quiet)); w.noticed(busy, start.Add(at)) {
		at += time.Second
		looked(at)
	}
	w.noticed(other, start.Add(at))
	if looked(at+quiet) != len(hosts) || w.pending[busy].due.IsZero() {
		t.Error("another file waits for the one that changes all the time")
	}
}
