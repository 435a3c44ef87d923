package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/config"
)

// HookLaunch is everything an approval of a project's hooks covers.
type HookLaunch struct {
	Project   string // real path of the project
	ProjectID string // inode of that directory, where known

	Hooks config.Hooks
	Files map[string]string // files of the project that a command names, by path, with the hash of their content

	Origin config.Origin `hash:"-"`
}

// HooksHash returns the number an approval of hooks is bound to.
func HooksHash(l HookLaunch) string {
	sum := sha256.Sum256(canonical([]byte("patchbay hooks 1\n"), reflect.ValueOf(l)))
	return hex.EncodeToString(sum[:])
}

// DescribeHooks returns what a person reads before approving hooks: every
// command in full.
func DescribeHooks(l HookLaunch) string {
	d := &description{}
	d.add("Declared in", place(l.Origin))
	d.add("Project", l.Project)
	for event, group := range l.Hooks.All() {
		about := group.Matcher
		if about == "" {
			about = "*"
		}
		for _, c := range group.Hooks {
			d.add(string(event), fmt.Sprintf("about %s, runs:", shown(about)), shown(c.Command))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.Files)) {
		d.add("Content", l.Files[path]+"  "+shown(path))
	}
	return d.String()
}
