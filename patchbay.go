// Package patchbay is the host runtime of Patchbay as a library. It finds the
// MCP servers a person has configured in any product on the machine, decides
// which declaration of each is in force and whether it may be used, connects to
// those that may, and offers their tools, resources and prompts to sessions,
// under one naming scheme and under permission rules.
//
//	h, err := patchbay.Open(ctx, patchbay.Options{})
//	if err != nil {
//		return err
//	}
//	defer h.Close()
//	s, err := h.NewSession(patchbay.SessionOptions{AllowedTools: []string{"mcp__files__read"}})
//	if err != nil {
//		return err
//	}
//	result, err := s.Call(ctx, patchbay.Call{Tool: "mcp__files__read", Arguments: arguments})
//
// A Host is one user in one project: configuration, trust, connections. A
// Session is one agent's view of it. Both are safe for concurrent use. Open
// does not wait for any server, and one that hangs or dies harms no other.
// Nothing that comes from a project's files runs, is contacted or gets to see a
// variable before a person approved it.
//
// Every face of Patchbay, the command line included, is built on this package
// alone.
package patchbay

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/conn"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/proc"
	"github.com/patchbay-mcp/patchbay/internal/secret"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Options says where a Host looks and what it trusts. The zero value is a
// person's own machine: the current directory, the process's environment.
type Options struct {
	Dir     string   // working directory; empty means the process's
	Home    string   // the user's home directory; empty means the process's
	Environ []string // the environment, as in os.Environ; nil means the process's

	Files         []string // further configuration files, trusted like the user's own
	StrictConfig  bool     // servers are those of Files and no others; settings hold all the same
	FailOnInvalid bool     // Open and Reload fail if any entry or file is invalid

	// AllowedServerNames are the only servers to connect to, besides those of
	// InProcess. In lists nil means all and empty means none.
	AllowedServerNames []string

	InProcess map[string]LocalServer // servers of the embedding program, by name
	UI        *UI                    // how to reach a person; nil means not at all
	Hooks     *Hooks                 // run around every call

	// Observe is told of every request of every session when it is over, from the
	// goroutine that made it: it must return at once. May be nil.
	Observe func(CallRecord)

	// Traces begins a span of W3C trace context with every request: servers are
	// told of it, and records name it. Otherwise what callers send passes as it
	// is. It takes Observe.
	Traces bool

	// Served are URLs under which the program serves the host's servers, besides
	// the address in the settings. Entries that lead there would lead back to the
	// host, and are skipped.
	Served []string

	// Serves says that the program serves the host's servers as the settings say
	// when the host is opened. What of that changes later takes a restart, and is
	// reported as a problem of the file. The address does not count if Served has
	// one.
	Serves bool

	Naming config.Naming // how tools are named; the zero value means as the settings say

	// WatchFiles reads configuration again when a file of it changes, appears or
	// goes: servers that stay as they were keep their connections. Approvals and
	// pins that another process records count too.
	WatchFiles bool

	// Lazy connects a server when it is first needed, not at the start, and not
	// even to learn what it offers.
	Lazy bool

	// Guard is the command line of a program that calls RunGuard: it ends the
	// servers' processes if this one dies without doing so. Empty means none.
	Guard []string

	// RequestTimeout bounds what the host does for a caller, such as reading or
	// changing files. It does not apply to servers, whose time limits are those
	// of their entries, and never to a call of a tool. 0 means one minute, less
	// than 0 no limit but the caller's own.
	RequestTimeout time.Duration

	// Beside is a host that this one stands beside: both are of the same user, each
	// in a project of its own, and they share the connections of the servers that
	// they would connect the same way, whatever they call them. Each may be closed
	// without the other. Home, SystemRoot, Guard and Version are those of that host,
	// Environ too if there is none, and connections log to its Logger. nil means
	// none.
	Beside *Host

	// Inputs are the answers to what entries ask a person for. nil means those of
	// Beside, or none yet: GiveInputs adds some.
	Inputs *Inputs

	Version string           // of the embedding program, as servers are told; empty means unknown
	Logger  *slog.Logger     // nil discards
	Now     func() time.Time // nil means time.Now

	// SystemRoot is put before system-wide paths, such as an administrator's
	// configuration; empty means the real root. For tests and images.
	SystemRoot string
}

// Host is the set of servers of one user in one project, and the connections to
// them.
type Host struct {
	opts     Options
	located  atomic.Pointer[places] // replaced with changing held
	scan     discover.Env
	common   *common // with the hosts beside this one
	resolver *secret.Resolver
	manager  *conn.Manager
	news     news

	life context.Context // ends with Close
	stop context.CancelFunc

	// changing makes changes one after another. They may wait for files, and
	// nobody waits for them but other changes.
	changing sync.Mutex
	applied  map[string]config.Server
	served   []string                // see Options.Served
	reading  atomic.Pointer[reading] // replaced with changing held
	hooked   atomic.Pointer[Hooks]   // of the reading and the program; replaced with it
	serving  config.Gateway          // as it was when the host was opened

	looking  sync.Mutex      // one look at the files at a time
	looked   discover.Survey // the files as they were at the last, guarded by looking
	lookSoon chan struct{}   // has room for one

	answers  atomic.Pointer[elicitModes] // what can be answered without a session's user; replaced with sessionsMu held
	declares string                      // the capabilities that connections for no session in particular declare
	visits   visits

	sessionsMu sync.Mutex // guards what follows
	sessions   map[*Session]bool
	closed     bool
	followers  sync.WaitGroup // one for each session that is told of changes, and one for files

	pinsMu      sync.Mutex // guards the pins
	pins        policy.Pins
	pinsUnsaved []learned // what of them is to be saved soon
	pinsDamaged bool      // they cannot be read

	pinsUnwritable error             // why they could not be saved; nil if they could
	pinsTimer      *time.Timer       // saves them; nil if there is nothing to wait for
	pinsTold       map[toldPins]bool // what was logged of differences
	pinsSeq        atomic.Uint64     // grows when other definitions are accepted

	asking     atomic.Int64  // questions of servers that functions of the program answer
	departures atomic.Uint64 // of flights

	knownMu sync.Mutex // guards what is known of catalogs
	known   map[knownKey]*knownTools
	infos   map[string]toolInfos // by server
	clashes collisions

	toolSets  toolSets
	idleRules idleRules
}

// Open reads the configuration of every product it knows, begins to connect to
// the servers that may be used, and returns without waiting for any.
func Open(ctx context.Context, opts Options) (*Host, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	opts.Hooks = opts.Hooks.looking()
	pl, err := findPlaces(opts)
	if err != nil {
		return nil, err
	}
	if err := checkState(pl.state); err != nil {
		return nil, err
	}
	shared := &common{key: []byte(rand.Text()), files: &discover.Cache{}, watch: newFileWatch(opts.Logger)}
	if opts.Beside != nil {
		shared = opts.Beside.common
	}
	executable, _ := os.Executable() // unknown is harmless: the base name is compared too
	h := &Host{
		opts:     opts,
		common:   shared,
		served:   opts.Served,
		lookSoon: make(chan struct{}, 1),
		sessions: map[*Session]bool{}, known: map[knownKey]*knownTools{}, infos: map[string]toolInfos{},
		scan: discover.Env{
			OS: runtime.GOOS, Home: opts.Home, Dir: opts.Dir,
			Getenv: opts.getenv, Root: opts.SystemRoot,
			ConfigDir: pl.config, StateDir: pl.state,
			Files: opts.Files, Strict: opts.StrictConfig, Executable: executable,
			Memory: &discover.Memory{}, Cache: shared.files,
		},
	}
	h.located.Store(&pl)
	h.life, h.stop = context.WithCancel(context.Background())
	if err := h.start(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// start prepares what connections need and reads the configuration.
func (h *Host) start(ctx context.Context) error {
	answers := h.elicitModes(h.firstHooks())
	h.answers.Store(&answers)
	h.declares = string((*Client)(nil).capabilities(answers))
	h.resolver = secret.New(secret.Options{Lookup: h.opts.lookup, Dir: h.places().project, Env: h.opts.Environ})
	var looking sync.WaitGroup
	if h.opts.WatchFiles { // what changes from now on is noticed
		looking.Go(func() { h.looked = h.survey() })
	}
	err := h.startConnections()
	looking.Wait()
	h.opts.Inputs.tell(h, true)
	if err == nil {
		err = h.readAgain(ctx)
	}
	if err == nil && h.opts.WatchFiles {
		h.followers.Go(h.followFiles)
	}
	return err
}

// common is what hosts beside each other have in common, besides connections.
type common struct {
	// key is of the hashes of connections. They are compared within this process
	// only, so a key of its own is enough, and nothing about a secret can be told
	// from them.
	key []byte

	files *discover.Cache // what files say, read once for all of them
	watch *fileWatch
}

// startConnections prepares to connect: with what is needed for that, or as
// another host does.
func (h *Host) startConnections() error {
	options := conn.Options{
		Logger: h.opts.Logger, Environ: h.opts.Environ, Vars: h.vars(), Resolver: h.resolver,
		CacheDir: h.places().catalogDir(), Info: clientInfo(h.opts.Version), Capabilities: []byte(h.declares),
		Changed: h.news.announce, Owner: h, Handler: func(c *conn.Shared) wire.Handler { return serverSide{c} },
	}
	var err error
	if other := h.opts.Beside; other != nil {
		if h.manager, err = other.manager.Beside(options); err != nil {
			return errorf(KindDenied, "The host to stand beside is closed.")
		}
		return nil
	}
	if len(h.opts.Guard) > 0 {
		if options.Guard, err = proc.NewGuard(h.opts.Guard); err != nil {
			// Servers end by themselves when they lose their input, most of them.
			h.opts.Logger.Warn("servers are not guarded: should this process be killed, some may go on", "error", err)
		}
	}
	h.manager = conn.NewManager(options)
	return nil
}

// Close ends every connection, stops every process of a server and waits for
// them; what hosts beside this one use as well goes on. It may be called twice.
func (h *Host) Close() error {
	h.sessionsMu.Lock()
	h.closed = true
	h.sessionsMu.Unlock()
	h.stop()
	h.opts.Inputs.tell(h, false)
	h.followers.Wait()
	h.savePins()
	var err error
	if h.manager != nil {
		err = h.manager.Close()
	}
	if h.resolver != nil {
		h.resolver.Close()
	}
	return err
}

// change begins a change: they are made one after another, each in limited time.
func (h *Host) change(ctx context.Context) (limited context.Context, end func()) {
	h.changing.Lock()
	if h.opts.RequestTimeout < 0 {
		return ctx, h.changing.Unlock
	}
	ctx, stop := context.WithTimeoutCause(ctx, h.opts.RequestTimeout, tooLong(h.opts.RequestTimeout))
	return ctx, func() {
		stop()
		h.changing.Unlock()
	}
}

// tooLong says that a change took more time than it may.
type tooLong time.Duration

func (e tooLong) Error() string        { return fmt.Sprintf("not done after %v", time.Duration(e)) }
func (e tooLong) Is(target error) bool { return target == context.DeadlineExceeded }

// RunGuard is the main function of the program that Options.Guard names. It
// returns when the host is gone and the servers' processes with it.
func RunGuard() { proc.RunGuard(os.Stdin) }

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Beside != nil {
		with := o.Beside.opts
		o.Home, o.SystemRoot, o.Guard, o.Version = with.Home, with.SystemRoot, with.Guard, with.Version
		if o.Environ == nil {
			o.Environ = with.Environ
		}
		if o.Inputs == nil {
			o.Inputs = with.Inputs
		}
	}
	if o.Inputs == nil {
		o.Inputs = &Inputs{}
	}
	if o.Dir == "" {
		if o.Dir, err = os.Getwd(); err != nil {
			return o, fmt.Errorf("the working directory: %w", err)
		}
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, err
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Home == "" {
		if o.Home, err = HomeDir(); err != nil {
			return o, errorf(KindConfigInvalid, "The home directory is not known: %v", err).hint("Set it to the directory that holds your configuration.")
		}
	}
	if !filepath.IsAbs(o.Home) { // or every directory could bring its own
		return o, errorf(KindConfigInvalid, "The home directory %q is not an absolute path.", o.Home)
	}
	o.Home = filepath.Clean(o.Home)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = time.Minute
	}
	o.Files = slices.Clone(o.Files)
	for i, f := range o.Files {
		if !filepath.IsAbs(f) {
			o.Files[i] = filepath.Join(o.Dir, f)
		}
	}
	return o, nil
}

// HomeDir is the home directory of the user of this process: as the environment
// says, or, if it does not, as the system does.
func HomeDir() (string, error) {
	home, err := os.UserHomeDir()
	if err == nil {
		return home, nil
	}
	if u, unknown := user.Current(); unknown == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", err
}

// lookup finds a variable in the environment the host was opened with.
func (o Options) lookup(name string) (string, bool) {
	// The last assignment counts, as it does for a child process.
	for i := len(o.Environ) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(o.Environ[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

func (o Options) getenv(name string) string {
	v, _ := o.lookup(name)
	return v
}
