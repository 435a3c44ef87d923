package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

var update = flag.Bool("update", false, "rewrite expected output")

// Programs built for the race detector wait a second before they exit, for
// reports of others that do not come here.
const quickExit = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", quickExit)
	testscript.Main(noDaemonLeft{m}, map[string]func(){
		"patchbay": func() {
			if failing := os.Getenv("FAILING_DAEMON"); failing != "" && slices.Contains(os.Args, "run") {
				failDaemon(failing)
			}
			ctx, stop := cli.Signals(context.Background()) // as the program itself does
			defer stop()
			env := cli.Process()
			if os.Getenv("FAILING_DAEMON") == "" { // tests have time, and slow machines
				env.DaemonTimeout = time.Minute
			}
			if os.Getenv("UNGUARDED") != "" {
				env.Guard = nil
			}
			os.Exit(cli.Main(ctx, env))
		},
		"mcptest-server": runScriptServer,
	})
}

// noDaemonLeft runs all tests and fails if a daemon that one of them started is
// still there.
type noDaemonLeft struct{ *testing.M }

func (m noDaemonLeft) Run() int {
	program, err := exec.LookPath("patchbay")
	code := m.M.Run()
	left, globErr := filepath.Glob("/proc/[0-9]*/cmdline") // there are none where the system does not tell
	if err := errors.Join(err, globErr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, file := range left {
		text, _ := os.ReadFile(file) // it may have ended meanwhile
		if strings.HasPrefix(string(text), program+"\x00daemon\x00run\x00") {
			fmt.Fprintf(os.Stderr, "a daemon is left: %s %q\n", file, text)
			code = 1
		}
	}
	return code
}

// failDaemon is a daemon that takes note of its start, in the file that is named
// after what it does then.
func failDaemon(how string) {
	f, err := os.OpenFile(how, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, _ = f.WriteString("started\n") // the test will say
		f.Close()
	}
	if filepath.Base(how) == "hangs" {
		select {}
	}
	fmt.Fprintln(os.Stderr, "patchbay: no room in the harbour")
	fmt.Fprintln(os.Stderr, "Come back with the tide.")
	os.Exit(1)
}

// TestScripts runs the commands as a person would. Each script starts in an
// empty project, $WORK/home/project, with an otherwise empty home, $WORK/home.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			project := filepath.Join(home, "project")
			for _, dir := range []string{home, filepath.Join(project, ".git")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			env.Setenv("GORACE", quickExit)
			env.Setenv("UNGUARDED", "1") // one process less for each command; see TestGuard
			env.Setenv("HOME", home)
			env.Setenv("PROJECT", project)
			if program, err := exec.LookPath("patchbay"); err == nil { // TestMain put it there
				env.Setenv("PATCHBAY", program)
			}
			env.Cd = project
			env.Defer(func() { stopDaemon(home, project) }) // that noDaemonLeft will say
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mode":  checkMode,
			"exits": checkExit,
		},
	})
}

// checkExit runs a command and compares its exit code: exits 7 command args...
// What it printed is there for stdout and stderr.
func checkExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command args...")
	}
	code, err := 0, ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("%s: exit code %d, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}

// checkMode compares the permission bits of a file: mode 0600 file.
func checkMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode 0600 file")
	}
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := "0" + octal(info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}

func octal(m os.FileMode) string {
	const digits = "01234567"
	return string([]byte{digits[m>>6&7], digits[m>>3&7], digits[m&7]})
}

// stopDaemon ends the daemon of a home, if there is one.
func stopDaemon(home, project string) ([]byte, error) {
	cmd := exec.Command("patchbay", "daemon", "stop")
	cmd.Dir, cmd.Env = project, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=" + quickExit}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 {
		return nil, nil // there is none
	}
	return out, err
}
