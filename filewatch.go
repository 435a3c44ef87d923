package patchbay

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// Files are looked at when the system reports a change near them: a moment
// later, as editors and products take several steps to save one. Now and then
// they are looked at anyhow, for what no system reports, such as another name
// for a directory far above or a change on a network drive; and often, where
// nothing is reported at all.
const (
	quiet      = 200 * time.Millisecond // since the last change nearby
	patience   = time.Second            // for quiet, since the first
	lookAnyhow = 30 * time.Second
	lookOften  = 2 * time.Second
)

// survey looks at every file that a reading depends on, without reading it.
func (h *Host) survey() discover.Survey {
	env := h.scan
	further := []string{h.places.approvalsFile(), h.places.pinsFile(), h.places.userSettings(), h.places.projectSettings()}
	if r := h.reading.Load(); r != nil {
		further = append(further, r.boundPaths()...)
		env.Disabled = r.settings.Discovery.DisabledProviders
	}
	return discover.NewSurvey(env, further...)
}

// followFiles reads the configuration again whenever a file of it is not as it
// was, until the host ends. At first it leaves the processor to the servers that
// are being started.
func (h *Host) followFiles(w *fileWatch, last discover.Survey) {
	defer w.close()
	w.cover(last.Dirs)
	for soon, now := patience, last; w.wait(h.life, now, soon); {
		now, soon = h.survey(), 0
		if w.cover(now.Dirs) {
			soon = quiet
		}
		if now.Same(last) {
			continue
		}
		last, soon = now, quiet // settings may say of other files that they count
		if err := h.Reload(h.life); err != nil && h.life.Err() == nil {
			h.opts.Logger.Warn("configuration not read again", "error", err)
		}
	}
}

// fileWatch waits for changes in directories.
type fileWatch struct {
	log     *slog.Logger
	events  *fsnotify.Watcher      // nil if the system reports nothing
	watched map[string]os.FileInfo // what was watched under a name, which may mean another now
}

func newFileWatch(log *slog.Logger) *fileWatch {
	w := &fileWatch{log: log, watched: map[string]os.FileInfo{}}
	// Elsewhere to watch a directory is to open every file in it, and some
	// systems then ask their user what this is about.
	if runtime.GOOS != "linux" && runtime.GOOS != "windows" {
		return w
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		w.giveUp(err)
		return w
	}
	w.events = events
	return w
}

// giveUp has files looked at instead.
func (w *fileWatch) giveUp(err error) {
	w.log.Warn("changes of configuration files are not reported; looking at them instead", "every", lookOften, "error", err)
	w.close()
	w.events = nil
}

func (w *fileWatch) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

// cover watches these directories and no others, and reports whether any of
// them was not watched before.
func (w *fileWatch) cover(dirs []string) (added bool) {
	if w.events == nil {
		return false
	}
	for dir := range w.watched {
		if !slices.Contains(dirs, dir) {
			w.drop(dir)
		}
	}
	live := w.events.WatchList() // those of directories that are gone are not among them
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue // gone again, which its parent tells
		}
		if was, ok := w.watched[dir]; ok && os.SameFile(was, info) && slices.Contains(live, dir) {
			continue
		}
		w.drop(dir)
		switch err := w.events.Add(dir); {
		case err == nil:
			w.watched[dir] = info
			added = true
		case !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist):
			w.giveUp(err)
			return false
		}
	}
	return added
}

func (w *fileWatch) drop(dir string) {
	if _, ok := w.watched[dir]; ok {
		_ = w.events.Remove(dir) // fails if the directory is gone, and the watch with it
		delete(w.watched, dir)
	}
}

// wait returns true when it is time to look at the files again, false when ctx
// ends. That is soon, if soon is not 0: what is new among the files may have
// changed before it was watched.
func (w *fileWatch) wait(ctx context.Context, s discover.Survey, soon time.Duration) bool {
	var changes <-chan fsnotify.Event
	var failures <-chan error
	interval := lookOften
	if w.events != nil {
		changes, failures, interval = w.events.Events, w.events.Errors, lookAnyhow
	}
	if soon > 0 {
		interval = soon
	}
	look := time.NewTimer(interval)
	defer look.Stop()
	var first time.Time // of the changes that are waited for to end
	noticed := func() {
		if first.IsZero() {
			first = time.Now()
		}
		look.Reset(min(quiet, max(0, patience-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
			return true
		case e := <-changes:
			if s.Concerns(e.Name) {
				noticed()
			}
		case err := <-failures: // some changes were lost
			w.log.Debug("watching configuration files", "error", err)
			noticed()
		}
	}
}

// reportProblems logs what went wrong with files since the last reading.
func (h *Host) reportProblems(last, now *reading) {
	if last == nil {
		return // who opens a host sees the snapshot
	}
	h.opts.Logger.Info("configuration changed", "servers", len(now.snap.Servers), "problems", len(now.snap.Problems))
	for _, p := range now.snap.Problems {
		if p.Severity != config.SeverityNote && !slices.Contains(last.snap.Problems, p) {
			h.opts.Logger.Warn("configuration problem", "file", p.File, "line", p.Line, "at", p.Pointer, "problem", p.Message)
		}
	}
}
