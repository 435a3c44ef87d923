package patchbay

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
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

// Some products write a file of many megabytes every second. The first changes
// of a file count at once, and after those one every few seconds.
const (
	atOnce = 5
	pause  = 5 * time.Second
)

// survey looks at every file that a reading depends on, without reading it.
func (h *Host) survey() discover.Survey {
	env := h.scanEnv()
	further := []string{h.places().approvalsFile(), h.places().pinsFile(), h.places().adoptedFile(), h.places().userSettings(), h.places().projectSettings()}
	if r := h.reading.Load(); r != nil {
		further = append(further, r.boundPaths()...)
		env.Disabled = r.settings.Discovery.DisabledProviders
	}
	return discover.NewSurvey(env, further...)
}

// look reads the configuration again if a file of it is not as it was at the last
// look, or the project is another, and returns what it saw.
func (h *Host) look(ctx context.Context) (now discover.Survey, changed bool, err error) {
	h.looking.Lock()
	defer h.looking.Unlock()
	now = h.survey()
	if _, moved := h.locate(); !moved && now.Same(h.looked) {
		return now, false, nil
	}
	err = h.readAgain(ctx)
	if ctx.Err() == nil {
		h.looked = now
	}
	return now, true, err
}

// Refresh reads the configuration again if a file of it has changed and the host,
// which watches them, has not been told yet. It looks at the files, and reads only
// what is not as it was.
func (h *Host) Refresh(ctx context.Context) error {
	if !h.opts.WatchFiles {
		return nil
	}
	_, changed, err := h.look(ctx)
	if changed { // other files may count now
		wake(h.lookSoon)
	}
	return err
}

// followFiles looks at the files whenever one may have changed, until the host
// ends. At first it leaves the processor to the servers that are being started.
func (h *Host) followFiles() {
	w := h.common.watch
	h.looking.Lock()
	f := w.join(h.lookSoon, h.looked)
	h.looking.Unlock()
	defer w.leave(f)
	for soon := patience; f.wait(h.life, soon); {
		now, changed, err := h.look(h.life)
		if err != nil && h.life.Err() == nil {
			h.opts.Logger.Warn("configuration not read again", "error", err)
		}
		next := now
		if changed {
			next = h.survey() // settings may say of other files that they count
		}
		soon = 0
		if w.cover(f, next, changed) || !next.SamePlaces(now) {
			soon = quiet // what is new among them may have changed before it was watched
		}
	}
}

// fileWatch waits for changes of files on behalf of hosts beside each other, so
// that the system has to report each once, and all look at it at the same time.
type fileWatch struct {
	log *slog.Logger

	mu        sync.Mutex
	polls     bool // the system reports nothing
	followers map[*follower]bool
	events    *fsnotify.Watcher      // nil if it polls, or nobody follows
	watched   map[string]os.FileInfo // what was watched under a name, which may mean another now
	pending   map[string]pendingLook // by path
	paid      map[string]time.Time   // by path: looks count as done, one every pause, until then
	busy      bool                   // the last look found a change
	stop      context.CancelFunc
	done      chan struct{}
}

// pendingLook is one that a change asks for.
type pendingLook struct{ first, due time.Time }

// follower is a host that is told when to look.
type follower struct {
	survey discover.Survey // guarded by fileWatch.mu
	look   chan struct{}   // has room for one, and belongs to the host
}

func newFileWatch(log *slog.Logger) *fileWatch {
	return &fileWatch{
		// Elsewhere to watch a directory is to open every file in it, and some
		// systems then ask their user what this is about.
		log: log, polls: runtime.GOOS != "linux" && runtime.GOOS != "windows",
		followers: map[*follower]bool{}, watched: map[string]os.FileInfo{},
		pending: map[string]pendingLook{}, paid: map[string]time.Time{},
	}
}

// join begins to tell a host of changes.
func (w *fileWatch) join(look chan struct{}, s discover.Survey) *follower {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &follower{survey: s, look: look}
	w.followers[f] = true
	if len(w.followers) == 1 {
		w.start()
	}
	w.coverAll()
	return f
}

// start begins to watch; w.mu is held.
func (w *fileWatch) start() {
	if !w.polls {
		var err error
		if w.events, err = fsnotify.NewWatcher(); err != nil {
			w.giveUp(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.stop, w.done = stop, done
	events := w.events
	go func() {
		defer close(done)
		w.run(ctx, events)
	}()
}

// leave ends that. The last to leave waits until nothing is watched any more.
func (w *fileWatch) leave(f *follower) {
	w.mu.Lock()
	delete(w.followers, f)
	last, done := len(w.followers) == 0, w.done
	if last {
		w.stop()
		w.close()
		clear(w.pending)
	} else {
		w.coverAll()
	}
	w.mu.Unlock()
	if last {
		<-done
	}
}

// giveUp has files looked at instead; w.mu is held.
func (w *fileWatch) giveUp(err error) {
	w.log.Warn("changes of configuration files are not reported; looking at them instead", "every", lookOften, "error", err)
	w.close()
	w.polls = true
}

func (w *fileWatch) close() {
	if w.events != nil {
		_ = w.events.Close()
		w.events = nil
	}
	clear(w.watched)
}

// wait returns true when it is time to look at the files again, false when ctx
// ends. That is soon, if soon is not 0.
func (f *follower) wait(ctx context.Context, soon time.Duration) bool {
	look := time.NewTimer(cmp.Or(soon, lookAnyhow))
	defer look.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-look.C:
	case <-f.look:
	}
	return true
}

// wake has a host look.
func wake(look chan<- struct{}) {
	select {
	case look <- struct{}{}:
	default: // it is about to
	}
}

// cover has changes reported near the files that a host has seen, and reports
// whether any directory was not watched before. Changed tells how the look went.
func (w *fileWatch) cover(f *follower, s discover.Survey, changed bool) (added bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.survey = s
	w.busy = w.busy || changed
	return w.coverAll()
}

// coverAll watches the directories of all hosts and no others; w.mu is held.
func (w *fileWatch) coverAll() (added bool) {
	if w.events == nil {
		return false
	}
	dirs := map[string]bool{}
	for f := range w.followers {
		for _, dir := range f.survey.Dirs {
			dirs[dir] = true
		}
	}
	for dir := range w.watched {
		if !dirs[dir] {
			w.drop(dir)
		}
	}
	live := w.events.WatchList() // those of directories that are gone are not among them
	for dir := range dirs {
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

// run tells hosts to look, until ctx ends.
func (w *fileWatch) run(ctx context.Context, events *fsnotify.Watcher) {
	var changes <-chan fsnotify.Event
	var failures <-chan error
	if events != nil {
		changes, failures = events.Events, events.Errors
	}
	next := time.NewTimer(lookOften)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-changes:
			if !ok { // it gave up
				changes, failures = nil, nil
				break
			}
			w.noticed(e.Name, time.Now())
		case err := <-failures: // some changes were lost
			if err != nil {
				w.log.Debug("watching configuration files", "error", err)
				w.noticed(anyFile, time.Now())
			}
		case <-next.C:
		}
		next.Reset(w.due(time.Now()))
	}
}

// anyFile stands for changes of which it is not known where they were.
const anyFile = ""

func (f *follower) concerned(path string) bool { return path == anyFile || f.survey.Concerns(path) }

// noticed plans a look at what changed.
func (w *fileWatch) noticed(path string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.followers {
		if !f.concerned(path) {
			continue
		}
		p := w.pending[path]
		if p.first.IsZero() {
			p.first = now
		}
		p.due = now.Add(min(quiet, max(0, patience-now.Sub(p.first))))
		if paid := w.paid[path].Add(-(atOnce - 1) * pause); p.due.Before(paid) {
			p.due = paid
		}
		w.pending[path] = p
		return
	}
}

// due tells those to look who are concerned by a change that has waited long
// enough, and returns how long the next has to wait.
func (w *fileWatch) due(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.polls {
		wait := lookOften
		if w.busy {
			wait = pause
		}
		w.busy = false
		for f := range w.followers {
			wake(f.look)
		}
		return wait
	}
	wait := lookAnyhow
	for path, p := range w.pending {
		if p.due.After(now) {
			wait = min(wait, p.due.Sub(now))
			continue
		}
		delete(w.pending, path)
		for path, until := range w.paid {
			if until.Before(now) {
				delete(w.paid, path)
			}
		}
		if w.paid[path].Before(now) {
			w.paid[path] = now
		}
		w.paid[path] = w.paid[path].Add(pause)
		for f := range w.followers {
			if f.concerned(path) {
				wake(f.look)
			}
		}
	}
	return wait
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
