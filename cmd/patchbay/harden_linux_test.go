package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// With this in the environment the test program is patchbay, or says how it is
// hardened.
const role = "PATCHBAY_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "patchbay":
		main()
	case "tell":
		harden()
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		fmt.Println(dumpable, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// No process of the same user reads the memory or the environment of this one,
// and none of it gets to the disk.
func TestHardened(t *testing.T) {
	tell := exec.Command(os.Args[0])
	tell.Env = append(os.Environ(), role+"=tell")
	if out, err := tell.CombinedOutput(); err != nil || string(out) != "0 <nil>\n" {
		t.Errorf("dumpable: %s %v", out, err)
	}

	guard := exec.Command(os.Args[0], "__guard") // every mode begins the same
	guard.Env = append(os.Environ(), role+"=patchbay")
	in, err := guard.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = guard.Wait()
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", guard.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(limits), "Max core file size")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[0] == "0" && fields[1] == "0" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("core dumps are possible:\n%s", limits)
		}
	}
}
