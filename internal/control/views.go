package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// View is what a daemon keeps for those who work in one directory with the same
// environment.
type View struct {
	Host *patchbay.Host

	// Attach serves one MCP client on conn, which it closes in the end, until
	// the client has gone or ctx has ended. Endpoint is what the client gets to
	// see, as in the path of a URL. nil means that nobody can attach.
	Attach func(ctx context.Context, conn wire.Conn, endpoint string) error

	// Listen serves MCP clients over HTTP until ctx has ended, and then lets calls
	// in flight finish; ready is told the URL before. nil means that nobody can ask
	// for it.
	Listen func(ctx context.Context, o ListenOptions, ready func(url string) error) error

	// Check says why there is no such endpoint; nil means that there is any.
	Check func(endpoint string) error

	// Needs returns what a person has to do before all of it can be used, once
	// that is known. nil means that nobody tells.
	Needs func(ctx context.Context) []string

	// Drain refuses what clients ask from now on and returns when what is under
	// way has ended, or ctx has; then it ends their connections. nil means that
	// there is nothing to wait for.
	Drain func(ctx context.Context) error

	// Close ends everything the view has, and waits for it.
	Close func() error
}

// OpenView opens the view of a caller, beside the host of another view if there is
// one. ctx lasts as long as all views.
type OpenView func(ctx context.Context, c Caller, beside *patchbay.Host) (*View, error)

// Views keeps a view for each directory that somebody works in, with each
// environment, and for a while after that. Environments that differ in nothing
// that decides anything are one.
type Views struct {
	open OpenView
	key  []byte          // of hashes of environments
	life context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // goroutines that open and close views

	opening sync.Mutex // one at a time, so that the next finds it

	mu     sync.Mutex
	closed bool
	views  map[*view]bool
}

// maxViews is how many there can be at a time.
const maxViews = 64

// viewIdle is how long a view that nobody uses is kept.
const viewIdle = 10 * time.Minute

// view is a View, or the promise of one.
type view struct {
	View
	caller  Caller // who was the first
	environ string // what counts of its environment, as a keyed hash
	handler http.Handler
	ready   chan struct{} // closed when it is open, or err is set
	err     error

	// Guarded by Views.mu.
	users int
	since time.Time   // when the last one left
	timer *time.Timer // ends it if nobody comes
}

// NewViews returns an empty set.
func NewViews(open OpenView) *Views {
	v := &Views{open: open, key: []byte(rand.Text()), views: map[*view]bool{}}
	v.life, v.stop = context.WithCancel(context.Background())
	return v
}

// View returns the view of a caller, opened if need be. It stays open at least
// until release is called, once.
func (v *Views) View(ctx context.Context, c Caller) (*View, func(), error) {
	found, err := v.use(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return &found.View, sync.OnceFunc(func() { v.release(found) }), nil
}

// use is View; whoever calls it calls release once.
func (v *Views) use(ctx context.Context, c Caller) (*view, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, invalidDir("The project directory %q is not an absolute path.", c.Dir)
	}
	c.Dir = filepath.Clean(c.Dir)
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return nil, invalidDir("%s is not a directory.", c.Dir)
	}
	environ := patchbay.EnvironmentKey(v.key, c.Environ)
	for {
		found, err := v.enter(c, environ)
		if err != nil {
			return nil, err
		}
		select {
		case <-found.ready:
			err = found.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil && found.suits(c) {
			return found, nil
		}
		v.release(found)
		if err != nil {
			return nil, err
		}
	}
}

// suits reports whether a view is what a caller would have opened with its own
// environment, whose hash is the same. One that is not ready may be.
func (w *view) suits(c Caller) bool {
	select {
	case <-w.ready:
		return w.err != nil || w.Host == nil || w.Host.Suits(c.Environ)
	default:
		return true
	}
}

func invalidDir(format string, args ...any) error {
	return &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: fmt.Sprintf(format, args...)}
}

// enter counts one more user of a view, and has it opened by the first.
func (v *Views) enter(c Caller, environ string) (*view, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, &patchbay.Error{Kind: patchbay.KindDenied, Message: "The daemon is shutting down."}
	}
	var found *view
	for w := range v.views {
		if w.caller.Dir == c.Dir && w.environ == environ && w.suits(c) {
			found = w
			break
		}
	}
	if found == nil {
		if !v.makeRoom() {
			return nil, &patchbay.Error{Kind: patchbay.KindDenied, Message: fmt.Sprintf("The daemon works for %d project directories and environments already.", maxViews)}
		}
		found = &view{caller: c, environ: environ, ready: make(chan struct{})}
		v.views[found] = true
		v.work.Go(func() { v.fill(found) })
	}
	if found.timer != nil {
		found.timer.Stop()
		found.timer = nil
	}
	found.users++
	return found, nil
}

// fill opens a view. One that cannot be opened is forgotten at once.
func (v *Views) fill(w *view) {
	v.opening.Lock()
	defer v.opening.Unlock()
	beside, release := v.neighbour()
	defer release()
	opened, err := v.open(v.life, w.caller, beside)
	if err == nil {
		w.View, w.handler = *opened, Handler(opened.Host)
	} else {
		w.err = err
		v.mu.Lock()
		delete(v.views, w)
		v.mu.Unlock()
	}
	close(w.ready)
}

// neighbour returns the host of a view that is open, nil if none is; it stays so
// until release is called.
func (v *Views) neighbour() (beside *patchbay.Host, release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for w := range v.views {
		select {
		case <-w.ready:
			w.users++
			return w.Host, func() { v.release(w) }
		default:
		}
	}
	return nil, func() {}
}

// makeRoom ends the view that nobody has used for longest if there is no room
// for another; v.mu is held.
func (v *Views) makeRoom() bool {
	if len(v.views) < maxViews {
		return true
	}
	var oldest *view
	for w := range v.views {
		if w.users == 0 && (oldest == nil || w.since.Before(oldest.since)) {
			oldest = w
		}
	}
	if oldest == nil {
		return false
	}
	v.end(oldest)
	return true
}

// release counts one user of a view less.
func (v *Views) release(w *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if w.users--; w.users > 0 || !v.views[w] {
		return
	}
	w.since = time.Now()
	w.timer = time.AfterFunc(viewIdle, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if w.users == 0 && v.views[w] {
			v.end(w)
		}
	})
}

// end forgets a view and has it closed; v.mu is held.
func (v *Views) end(w *view) {
	delete(v.views, w)
	if w.timer != nil {
		w.timer.Stop()
	}
	v.work.Go(func() {
		<-w.ready
		if w.err == nil {
			_ = w.Close() // nobody is left to be told
		}
	})
}

// drain has all views let go of their clients.
func (v *Views) drain(ctx context.Context) {
	v.mu.Lock()
	open := slices.Collect(maps.Keys(v.views))
	v.mu.Unlock()
	var work sync.WaitGroup
	for _, w := range open {
		work.Go(func() {
			select {
			case <-w.ready:
			case <-ctx.Done():
				return
			}
			if w.err == nil && w.Drain != nil {
				_ = w.Drain(ctx) // that something had to be cancelled is what ctx is for
			}
		})
	}
	work.Wait()
}

// Close ends all views and waits for them. It may be called twice.
func (v *Views) Close() {
	v.stop()
	v.mu.Lock()
	v.closed = true
	for w := range v.views {
		v.end(w)
	}
	v.mu.Unlock()
	v.work.Wait()
}
