package policy

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
)

// Launch is everything an approval covers: what would run or be contacted, in
// the bytes of the file, with nothing expanded. Two entries with equal launches
// do the same thing on the same machine.
type Launch struct {
	Project   string // real path of the project
	ProjectID string // inode of that directory, where known

	Name    string
	Dialect config.Dialect // how the values are read
	Server  config.Server  // its launch fields alone

	ResolvedCommand string // absolute path of the program; empty if there is none now
	CommandDigest   string // hash of that program's content, if it is a file of the project

	// Files are further files of the project that are run or decide what is, with
	// the hashes of their contents.
	Files []BoundFile

	// Executes lists what would run besides the command, to obtain values.
	Executes []string

	// Origin is shown, but moving a declaration to another line or file of the
	// project changes nothing about what it does.
	Origin config.Origin `hash:"-"`
}

// BoundFile is a file of the project whose content an approval covers.
type BoundFile struct {
	Argument string // as the entry has it
	Named    string `hash:"-"` // the path that the program gets to it by
	Path     string // the real one
	Digest   string
}

// LaunchOf takes from an entry what its approval covers. The caller adds what
// only the file system knows: the project's real path and identity, and the
// command's resolved path and digest.
func LaunchOf(e config.Entry) Launch {
	executes := slices.Concat(e.Executes, config.Executes(e.Server, e.Dialect))
	seen := map[string]bool{}
	executes = slices.DeleteFunc(executes, func(command string) bool {
		again := seen[command]
		seen[command] = true
		return again
	})
	return Launch{
		Project: e.Origin.Project, Name: e.Name, Dialect: e.Dialect, Server: launchFields(e.Server),
		Executes: executes, Origin: e.Origin,
	}
}

// launchFields clears what does not matter for reaching a server. A field that
// is added to config.Server later counts unless it is cleared here.
func launchFields(s config.Server) config.Server {
	s.Type = s.Transport()
	s.Enabled, s.Timeout, s.ConnectTimeout = nil, nil, nil
	s.Lazy, s.IdleStop, s.Shared, s.Pin = false, nil, "", ""
	s.EnabledTools, s.DisabledTools, s.Tools = nil, nil, nil
	s.Description, s.Extra = "", nil
	return s
}
