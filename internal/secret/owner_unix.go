//go:build unix

package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// CheckOwner tells whether the `!commands` of a user's file may run: the file
// must belong to the user, and nobody else may be able to write it. A group that
// nobody else is in is no other.
func CheckOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner is not known")
	case int(st.Uid) != os.Getuid():
		return fmt.Errorf("it belongs to user %d", st.Uid)
	case info.Mode().Perm()&0o002 != 0, info.Mode().Perm()&0o020 != 0 && !ownGroup(int(st.Gid)):
		return fmt.Errorf("others may write it (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// ownGroup reports whether this user is alone in a group, as far as the machine's
// own files tell: a group that is not in them may have any members.
func ownGroup(gid int) bool {
	users, err := os.ReadFile("/etc/passwd")
	groups, also := os.ReadFile("/etc/group")
	return err == nil && also == nil && alone(os.Getuid(), gid, string(users), string(groups))
}

// alone is ownGroup, given the two files: the group is the user's primary one and
// named like them, it is nobody else's, and it has no further members.
func alone(uid, gid int, users, groups string) bool {
	name := ""
	for fields := range entriesOf(users, 4) { // name:password:uid:gid
		switch {
		case fields[2] == strconv.Itoa(uid):
			if name = fields[0]; fields[3] != strconv.Itoa(gid) {
				return false
			}
		case fields[3] == strconv.Itoa(gid):
			return false
		}
	}
	for fields := range entriesOf(groups, 4) { // name:password:gid:members
		if fields[2] == strconv.Itoa(gid) {
			others := func(member string) bool { return member != "" && member != name }
			return name != "" && fields[0] == name && !slices.ContainsFunc(strings.Split(fields[3], ","), others)
		}
	}
	return false
}

// entriesOf yields the lines of a file with at least n fields between colons.
func entriesOf(file string, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(file) {
			if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) >= n && !yield(fields) {
				return
			}
		}
	}
}
