package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

const (
	socketName = "control.sock"
	lockName   = "control.lock"
)

// maxSocketPath is how long the path of a socket may be on every system.
const maxSocketPath = 100 // and room for aside

// SocketPath returns where the control socket of a user is: beside the user's
// state, and if that is too deep down for a socket in a directory of its own for
// temporary files. Nothing else decides, in particular not XDG_RUNTIME_DIR or
// TMPDIR: many clients start servers without those, and would have a daemon of
// their own. The directory is nobody else's in any case, or it is not used.
func SocketPath(dirs patchbay.Directories) string {
	if path := filepath.Join(dirs.State, "run", socketName); len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(dirs.State))
	name := fmt.Sprintf("patchbay-%s-%s", strconv.Itoa(os.Geteuid()), hex.EncodeToString(sum[:4]))
	return filepath.Join(temporary(), name, socketName)
}

func isKind(info fs.FileInfo, kind fs.FileMode) bool {
	return (info.Mode()&fs.ModeType^kind)&^alsoType == 0
}

// checkPrivate says why something might not be the user's alone. Links are not
// followed.
func checkPrivate(path string, kind fs.FileMode) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !isKind(info, kind):
		return fmt.Errorf("%s is not what belongs there", path)
	}
	return checkOwner(path, info)
}

// Socket is the control socket of the one process that serves it: the daemon.
type Socket struct {
	path     string
	lock     *atomicfile.Lock
	listener *net.UnixListener
}

// ErrOwned is the error of Own if another process is the daemon.
var ErrOwned = errors.New("another process serves the control socket")

// Own makes this process the one that serves the control socket at path. It
// fails with ErrOwned if there is one already. What a daemon that died left
// behind is replaced.
func Own(path string) (*Socket, error) {
	dir, err := privateDir(path)
	if err != nil {
		return nil, err
	}
	lock, err := atomicfile.Hold(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, ErrOwned
	}
	listener, err := listen(path)
	if err != nil {
		lock.Release()
		return nil, err
	}
	return &Socket{path: path, lock: lock, listener: listener}, nil
}

// privateDir makes the directory of a socket, if it is missing.
func privateDir(path string) (string, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, checkPrivate(dir, fs.ModeDir)
}

// listen replaces what is at path, which must be a socket that nobody serves.
func listen(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil {
		if !isKind(info, fs.ModeSocket) {
			return nil, fmt.Errorf("%s is not a socket", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, ErrOwned // by somebody who does not know of the lock
		}
	}
	for _, old := range []string{path, path + aside} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	// Nobody sees it before it has its mode. The directory keeps others out in
	// any case.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + aside, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would be under its first name
	err = os.Chmod(path+aside, 0o600)
	if err == nil && aside != "" {
		err = os.Rename(path+aside, path)
	}
	if err != nil {
		l.Close()
		_ = os.Remove(path + aside)
		return nil, err
	}
	return l, nil
}

// Close gives the socket up; another process may own it then. It may be called
// twice.
func (s *Socket) Close() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil // and the socket may be another's
	}
	err = errors.Join(err, os.Remove(s.path))
	s.lock.Release()
	return err
}

// own is a listener that lets nobody else in.
type own struct{ *net.UnixListener }

// Accept returns the next connection of the user's own processes.
func (l own) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if checkPeer(c) == nil {
			return c, nil
		}
		c.Close()
	}
}

// dial connects to the control socket at path, if it is the user's own and so is
// the process behind it.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if err := checkPrivate(filepath.Dir(path), fs.ModeDir); err != nil {
		return nil, err
	}
	if err := checkPrivate(path, fs.ModeSocket); err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	if err := checkPeer(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
