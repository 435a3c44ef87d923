package patchbay

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/discover"
	"github.com/patchbay-mcp/patchbay/internal/policy"
	"github.com/patchbay-mcp/patchbay/internal/secret"
)

// ProjectHooks is what Approval, Approve and Reject call the hooks of the
// project's settings. No server has such a name.
const ProjectHooks = "@hooks"

// HooksStatus is the hooks of the project's settings, and whether they run.
type HooksStatus struct {
	State    config.State  `json:"state"`            // pending if they run; else needs-approval, disabled (by you) or failed (they are invalid)
	Reason   string        `json:"reason,omitempty"` // why they do not
	Commands int           `json:"commands"`         // how many there are
	Origin   config.Origin `json:"origin"`

	launch policy.HookLaunch
	hash   string
}

// projectHooks says how the hooks of the project stand; nil if it has none.
func (h *Host) projectHooks(hooks config.Hooks, approvals policy.Approvals) *HooksStatus {
	st := &HooksStatus{Origin: config.Origin{
		Provider: nativeProvider, Product: "Patchbay", Scope: config.ScopeProject,
		File: h.places().projectSettings(), Pointer: "/hooks", Project: h.places().project,
	}}
	invalid := ""
	for _, g := range hooks.All() {
		for _, c := range g.Hooks {
			st.Commands++
			if st.Origin.Line == 0 || c.Line < st.Origin.Line {
				st.Origin.Line = c.Line
			}
			if invalid == "" {
				invalid = c.Invalid
			}
		}
	}
	if st.Commands == 0 {
		return nil
	}
	st.launch = policy.HookLaunch{Project: h.places().realProject, Hooks: hooks, Files: h.hookFiles(hooks), Origin: st.Origin}
	if info, err := os.Stat(h.places().project); err == nil {
		st.launch.ProjectID = fileIdentity(info)
	}
	st.hash = policy.HooksHash(st.launch)
	st.State, st.Reason = policy.Trust(config.Entry{Name: ProjectHooks, Origin: st.Origin}, st.hash, approvals)
	if invalid != "" {
		st.State, st.Reason = config.Failed, invalid
	}
	return st
}

// Run reports whether the hooks run.
func (st *HooksStatus) Run() bool { return st != nil && st.State == config.Pending }

// problem tells a person who wonders why the hooks do not run.
func (st *HooksStatus) problem() config.Problem {
	p := config.Problem{
		Severity: config.SeverityNote, File: st.Origin.File, Line: st.Origin.Line, Pointer: st.Origin.Pointer,
		Message: "the hooks of the project do not run: " + st.Reason,
	}
	if st.State == config.NeedsApproval {
		p.Hint = "patchbay approve --hooks shows them and lets them run"
	}
	return p
}

// commandHooks gathers the hooks of settings that may run.
func (h *Host) commandHooks(s settings, project *HooksStatus) *commandHooks {
	c := &commandHooks{host: h, groups: map[config.HookEvent][]commandGroup{}}
	file := h.places().userSettings()
	c.add(s.user.Hooks, hookSource{file: file, mayAllow: true, wrong: notOwned(file)})
	if project.Run() {
		c.add(s.project.Hooks, hookSource{file: project.Origin.File, files: project.launch.Files})
	}
	return c
}

// unsafeHooks reports hooks of the user's that do not run because of who can write
// their file: what they are about is denied meanwhile.
func (h *Host) unsafeHooks(hooks config.Hooks) []config.Problem {
	file := h.places().userSettings()
	for range hooks.All() { // if there are any
		if why := notOwned(file); why != "" {
			return []config.Problem{{
				Severity: config.SeverityError, File: file, Pointer: "/hooks",
				Message: "the hooks do not run, and every call that they are about is denied: " + why,
				Hint:    "Let nobody else write it: chmod 600 " + file,
			}}
		}
		break
	}
	return nil
}

// notOwned says why a file's commands do not run although it is the user's.
func notOwned(file string) string {
	info, err := os.Stat(file)
	if err == nil {
		err = secret.CheckOwner(info)
	}
	if err != nil {
		return "its file is not the user's alone: " + err.Error()
	}
	return ""
}

// hookFiles returns the files of the project that the commands name, with the
// hashes of their content: an edited one asks again.
func (h *Host) hookFiles(hooks config.Hooks) map[string]string {
	digests := programDigests{left: maxProgramBytes, known: map[string]string{}}
	files := map[string]string{}
	for _, g := range hooks.All() {
		for _, c := range g.Hooks {
			for _, path := range h.namedFiles(c.Command) {
				files[path] = digests.digest(path)
			}
		}
	}
	return files
}

// namedFiles returns the files of the project that a command line names in so
// many words. What a shell would make of the rest is not looked into.
func (h *Host) namedFiles(command string) (files []string) {
	project := h.places().realProject
	command = strings.NewReplacer(
		"${CLAUDE_PROJECT_DIR}", project, "$CLAUDE_PROJECT_DIR", project,
		"${PATCHBAY_PROJECT_DIR}", project, "$PATCHBAY_PROJECT_DIR", project,
	).Replace(command)
	for _, word := range shellWords(command) {
		if !filepath.IsAbs(word) {
			word = filepath.Join(project, word)
		}
		path, err := filepath.EvalSymlinks(word)
		if err != nil || !discover.Inside(path, project) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, path)
		}
	}
	return files
}

// shellWords splits a command line at what divides words and commands, outside
// of quotes, which it takes off.
func shellWords(line string) (words []string) {
	var word strings.Builder
	var quote rune
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && strings.ContainsRune(" \t\r\n;|&()<>`=", r):
			end()
		default:
			word.WriteRune(r)
		}
	}
	end()
	return words
}

// changedFile returns one of the files a command names that is not as it was
// approved, or nothing.
func (h *Host) changedFile(command string, approved map[string]string) string {
	if approved == nil {
		return ""
	}
	now := h.hookFiles(config.Hooks{Notification: []config.HookGroup{{Hooks: []config.HookCommand{{Command: command}}}}})
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if was, ok := approved[path]; !ok || was != now[path] {
			return path
		}
	}
	return ""
}
