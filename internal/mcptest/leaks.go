package mcptest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// LeavesNothing fails the test if it leaves a goroutine, a process or a descriptor
// behind. It is called first, so that it looks when everything has been cleaned
// up.
func LeavesNothing(t testing.TB) {
	t.Helper()
	descriptors, processes := Descriptors(t), children(t)
	t.Cleanup(func() {
		goleak.VerifyNone(t)
		if n := children(t); n != processes {
			t.Errorf("%d children, %d before", n, processes)
		}
		if n := Descriptors(t); n != descriptors {
			t.Errorf("%d descriptors are open, %d were before", n, descriptors)
		}
	})
}

// Descriptors counts those of this process, where the system tells.
func Descriptors(t testing.TB) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// children counts this process's, those included that have ended and were not
// waited for, where the system tells.
func children(t testing.TB) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ") // state, then the parent
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == fmt.Sprint(os.Getpid()) {
			count++
		}
	}
	return count
}
