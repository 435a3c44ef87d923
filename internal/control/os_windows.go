package control

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// alsoType are the bits of a mode that say nothing here about what a file is: a
// socket is a reparse point, which may show as an irregular file.
const alsoType = fs.ModeIrregular | fs.ModeSocket

// aside is nothing: a socket cannot be renamed here.
const aside = ""

// gone are the errors of a connection to a socket that nobody serves, or nobody
// does any more.
var gone = []error{fs.ErrNotExist, windows.WSAECONNREFUSED, windows.WSAECONNRESET}

// temporary is the directory for temporary files.
func temporary() string { return os.TempDir() }

// The rights of the profile directory decide who may get at what is in it.
func checkOwner(string, fs.FileInfo) error { return nil }

func checkPeer(*net.UnixConn) error { return nil }

// detach makes a command one that outlives this process and its console.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
