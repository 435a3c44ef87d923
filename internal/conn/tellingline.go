package conn

import (
	"regexp"
	"strings"
)

var (
	// npmLine is a line of npm's that says that something went wrong.
	npmLine = regexp.MustCompile(`^npm (?:error|ERR!) ?(.*)$`)

	// npmAside is what npm adds to that: codes for programs, and where its log is.
	npmAside = regexp.MustCompile(`^(code|errno|syscall|path|dest|cwd) |^A complete log of this run|^\d*$|^$`)

	// thrown is how runtimes and programs begin the line with the reason of their
	// end: `TypeError: …`, `Error [ERR_X]: …`, `panic: …`, `error: …`.
	thrown = regexp.MustCompile(`^(?:[\w.]*(?:Error|Exception)(?: \[\w+\])?|panic|fatal error|fatal|error|ERROR): \S`)

	// around is what runtimes print around the reason: frames, braces, their version.
	around = regexp.MustCompile(`^\s*$|^\s+at |^\s+\^+$|^[{}]$|^Node\.js v|^npm notice|^goroutine \d`)
)

// tellingLine picks from what a child wrote last the line that says why it
// failed, which is often not the last.
func tellingLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, l := range lines {
		if m := npmLine.FindStringSubmatch(l); m != nil && !npmAside.MatchString(m[1]) {
			return l
		}
	}
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		switch l := strings.TrimRight(lines[i], "\r"); {
		case thrown.MatchString(l):
			return l
		case last == "" && !around.MatchString(l):
			last = strings.TrimSpace(l)
		}
	}
	return last
}
