package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/patchbay-mcp/patchbay/internal/cli"
)

var update = flag.Bool("update", false, "rewrite expected output")

// Programs built for the race detector wait a second before they exit, for
// reports of others that do not come here.
const quickExit = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", quickExit)
	testscript.Main(m, map[string]func(){
		"patchbay": func() {
			ctx, stop := cli.Signals(context.Background()) // as the program itself does
			defer stop()
			env := cli.Process()
			if os.Getenv("UNGUARDED") != "" {
				env.Guard = nil
			}
			os.Exit(cli.Main(ctx, env))
		},
		"mcptest-server": runScriptServer,
	})
}

// TestScripts runs the commands as a person would. Each script starts in an
// empty project, $WORK/home/project, with an otherwise empty home, $WORK/home.
func TestScripts(t *testing.T) {
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
