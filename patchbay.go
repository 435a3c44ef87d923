// Package patchbay is the host runtime of Patchbay as a library: it finds the
// MCP servers a person has configured in any product on the machine, decides
// which declaration of each is in force and whether it may be used, and lets a
// program add, change and approve them.
//
//	h, err := patchbay.Open(ctx, patchbay.Options{})
//	if err != nil {
//		return err
//	}
//	defer h.Close()
//	for _, s := range h.Servers() {
//		fmt.Println(s.Name, s.State, s.Origin.File)
//	}
//
// A Host is safe for concurrent use. Opening one reads configuration files and
// nothing else: no command runs and no server is contacted, whatever the files
// say. Every face of Patchbay, the command line included, is built on this
// package alone.
package patchbay

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/discover"
)

// Options says where a Host looks and what it trusts. The zero value is a
// person's own machine: the current directory, the process's environment.
type Options struct {
	Dir     string   // working directory; empty means the process's
	Home    string   // the user's home directory; empty means the process's
	Environ []string // the environment, as in os.Environ; nil means the process's

	Files         []string // further configuration files, trusted like the user's own
	StrictConfig  bool     // read Files and nothing else
	FailOnInvalid bool     // Open and Reload fail if any entry or file is invalid

	Logger *slog.Logger     // nil discards
	Now    func() time.Time // nil means time.Now

	// SystemRoot is put before system-wide paths, such as an administrator's
	// configuration; empty means the real root. For tests and images.
	SystemRoot string
}

// Host is the set of servers of one user in one project.
type Host struct {
	opts   Options
	places places
	scan   discover.Env

	mu   sync.Mutex // guards snap, and makes changes one after another
	snap Snapshot
}

// Open reads the configuration of every product it knows and returns the host.
func Open(ctx context.Context, opts Options) (*Host, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	pl, err := findPlaces(opts)
	if err != nil {
		return nil, err
	}
	executable, _ := os.Executable() // unknown is harmless: the base name is compared too
	h := &Host{
		opts:   opts,
		places: pl,
		scan: discover.Env{
			OS: runtime.GOOS, Home: opts.Home, Dir: opts.Dir, Project: pl.project,
			Getenv: opts.getenv, Root: opts.SystemRoot,
			ConfigDir: pl.config, StateDir: pl.state,
			Files: opts.Files, Strict: opts.StrictConfig, Executable: executable,
		},
	}
	if err := h.Reload(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

// Close releases what the host holds. It may be called twice.
func (h *Host) Close() error { return nil }

func (o Options) withDefaults() (Options, error) {
	var err error
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
		if o.Home, err = os.UserHomeDir(); err != nil {
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
	o.Files = slices.Clone(o.Files)
	for i, f := range o.Files {
		if !filepath.IsAbs(f) {
			o.Files[i] = filepath.Join(o.Dir, f)
		}
	}
	return o, nil
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
