package proc

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitExit waits until the child has exited. It does not reap it: until reap
// does, the number of its group cannot be given to anybody else.
func awaitExit(cmd *exec.Cmd) {
	pollExit(cmd.Process.Pid)
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// pollExit waits for the exit where the kernel (5.10) lets one do so without
// keeping a thread. It may return early.
func pollExit(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer file.Close()
	if conn, err := file.SyscallConn(); err == nil {
		_ = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil
		})
	}
}

// reap kills what is left of the child's group and takes the child's state.
func reap(cmd *exec.Cmd) error {
	_ = killGroup(cmd) // nobody being left is fine
	return cmd.Wait()
}

// waitGroup waits for the child and ends what is left of its group.
func waitGroup(cmd *exec.Cmd) error {
	awaitExit(cmd)
	return reap(cmd)
}

// process is what /proc tells of one.
type process struct {
	parent, group, session int
	start                  uint64 // tells it from a later one with the same number
	alive                  bool
}

// processes returns all processes by number; without /proc there are none.
func processes() map[int]process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]process, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// readProcess does without os.ReadFile, which would take twice as long.
func readProcess(pid int) (process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer unix.Close(fd)
	var stat [1024]byte
	n, err := unix.Read(fd, stat[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(stat[:n])
}

// parseStat reads a line of /proc/<pid>/stat. The second field is the name in
// parentheses; it is the process's own choice and may hold anything.
func parseStat(stat []byte) (process, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	number := func(i int) int {
		n, err := strconv.Atoi(string(fields[i]))
		if err != nil {
			return -1
		}
		return n
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	// What has no thread but the dead first one waits to be reaped, no more.
	dead := (fields[0][0] == 'Z' || fields[0][0] == 'X') && number(17) <= 1
	return process{parent: number(1), group: number(2), session: number(3), start: start, alive: !dead}, err == nil
}

// tree is a process, the leader of a session, with all that it started and
// that can still be recognised: who is of its group or session, descends from
// it, or did so when last seen.
type tree struct {
	root  int
	start uint64
	held  bool            // root is not reaped, its number its own
	known map[int]process // the living, as of the last update
}

// childTree is the tree of a child that is not reaped.
func childTree(pid int) *tree {
	t := rememberedTree(pid, 0)
	p, _ := readProcess(pid)
	t.start, t.held = p.start, true
	return t
}

// rememberedTree is the tree of a process that may have gone meanwhile.
func rememberedTree(pid int, start uint64) *tree { return &tree{root: pid, start: start} }

// update looks for the tree among all processes.
func (t *tree) update(all map[int]process) {
	root, found := all[t.root]
	recycled := found && root.start != t.start // a stranger, with a group of its own
	children := make(map[int][]int)
	var next []int
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
		ours := p.group == t.root || p.session == t.root || pid == t.root
		if k, ok := t.known[pid]; ours && !recycled || ok && k.start == p.start {
			next = append(next, pid)
		}
	}
	t.known = make(map[int]process)
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		if _, seen := t.known[pid]; seen || !all[pid].alive || pid == os.Getpid() {
			continue
		}
		t.known[pid] = all[pid]
		next = append(next, children[pid]...)
	}
}

func (t *tree) alive() bool { return len(t.known) > 0 }

// terminate asks all to end. Who was stopped goes on, to be able to.
func (t *tree) terminate() {
	t.signal(syscall.SIGTERM)
	t.signal(syscall.SIGCONT)
}

func (t *tree) kill() { t.signal(syscall.SIGKILL) }

// signal signals the group at once, so that nobody can slip away by forking,
// and the others one by one. That they cannot be signalled shows in them being
// alive.
func (t *tree) signal(sig syscall.Signal) {
	group := t.held
	for pid, p := range t.known {
		if p.group == t.root {
			group = true
			continue
		}
		one, err := os.FindProcess(pid) // holds on to this very process ...
		if err != nil {
			continue
		}
		if now, ok := readProcess(pid); ok && now.start == p.start { // ... if it is still the one we mean
			_ = one.Signal(sig)
		}
		_ = one.Release()
	}
	if group {
		_ = syscall.Kill(-t.root, sig)
	}
}
