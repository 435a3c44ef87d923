package control

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// api is the number of this package's protocol. Within one build client and
// handler always agree; it is here for whoever looks from outside.
const api = 2

// Identity is who one side of a control socket is, as far as the other must
// know to trust what it says: the same user, with the same files, running the
// same build.
type Identity struct {
	API     int    `json:"api"`
	Version string `json:"version"` // of the build
	PID     int    `json:"pid"`
	UID     int    `json:"uid"` // -1 where users have no numbers
	Home    string `json:"home"`

	// Built is when the program's file was written. Where two builds are in use,
	// the daemon of the later one takes the other's place.
	Built time.Time `json:"built,omitzero"`

	// Foreground is whether a person started it where it runs, who alone ends it.
	Foreground bool   `json:"foreground,omitempty"`
	Serving    string `json:"serving,omitempty"` // the URL of its gateway, then

	patchbay.Directories
}

// Identify describes this process, a build of the given version, working with
// the options of a host.
func Identify(version string, o patchbay.Options) (Identity, error) {
	dirs, err := o.Directories()
	return Identity{API: api, Version: version, PID: os.Getpid(), UID: os.Geteuid(), Home: filepath.Clean(o.Home), Directories: dirs}, err
}

// unlike says why one side must not work for the other; nothing if it may.
func (i Identity) unlike(other Identity) string {
	if reason := i.apart(other); reason != "" {
		return reason
	}
	if i.Version != other.Version {
		return i.otherBuild(other)
	}
	return ""
}

func (i Identity) otherBuild(other Identity) string {
	return fmt.Sprintf("it is version %s, and this is %s", other.Version, i.Version)
}

// apart is unlike for a client that only has MCP messages carried, which any
// build does the same way.
func (i Identity) apart(other Identity) string {
	switch {
	case i.UID != other.UID:
		return fmt.Sprintf("it belongs to user %d", other.UID)
	case i.API != other.API:
		return i.otherBuild(other)
	case i.Config != other.Config:
		return fmt.Sprintf("its configuration is in %s, and yours in %s", other.Config, i.Config)
	case i.State != other.State || i.Cache != other.Cache || i.Home != other.Home:
		return fmt.Sprintf("its home directory is %s with state in %s, and yours %s with state in %s", other.Home, other.State, i.Home, i.State)
	}
	return ""
}
