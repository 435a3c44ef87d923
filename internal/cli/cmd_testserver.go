package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) testCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "test <name>",
		Short: "Connect to a server, step by step",
		Long: `Connect to a server and show each step with the time it took: what was found,
what it resolved to, whether it started and spoke MCP, and what it offers. If it
cannot be connected, or does not tell what it offers, you see why, what it wrote
to its standard error and what to try, and the exit code is not 0. What it prints
on its standard output besides messages is shown, too.`,
		Example: `  patchbay test github
  patchbay test github --timeout 5s --json`,
		Args: exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				r, failure := tryServer(ctx, c, args[0], start)
				if r.Name == "" {
					return failure
				}
				if err := a.print(r, func(p *printer) { p.trial(r) }); err != nil {
					return err
				}
				if failure != nil && a.json {
					return reported(failure)
				}
				return failure
			})
		},
		ValidArgsFunction: a.usableServer(),
	}
	timeoutFlag(cmd, &limit)
	return cmd
}

// trial is what came of an attempt to connect.
type trial struct {
	Name     string           `json:"name"`
	OK       bool             `json:"ok"`
	Steps    []trialStep      `json:"steps"`
	Tools    []string         `json:"tools,omitempty"`       // as the server calls them
	Problems []config.Problem `json:"problems,omitempty"`    // of its entry, and of what it lists
	Stray    string           `json:"strayOutput,omitempty"` // what it printed first where only messages belong
	Stderr   string           `json:"stderr,omitempty"`      // of a server that failed
	Error    *patchbay.Error  `json:"error,omitempty"`

	NotPassed []string `json:"notPassed,omitempty"` // variables that a program which failed does not get

	server patchbay.ServerStatus
}

type trialStep struct {
	Step   string  `json:"step"` // found, resolved, started, connected or listed
	Detail string  `json:"detail"`
	Millis float64 `json:"ms"`
}

// tryServer connects a server and reports how far it came, since start. The name
// of the report is empty if there is no such server.
func tryServer(ctx context.Context, c *control.Client, name string, start time.Time) (trial, error) {
	s, err := c.Server(ctx, name, false)
	if err != nil {
		return trial{}, err
	}
	found := time.Since(start)
	failure := c.Connect(ctx, s.Name)
	// Whatever became of that is told even if the time is over.
	ctx = context.WithoutCancel(ctx)
	if s, err = c.Server(ctx, s.Name, false); err != nil {
		return trial{}, err
	}
	r := trial{Name: s.Name, OK: failure == nil, Problems: s.Problems, Stray: s.StrayOutput, server: s}
	r.add("found", s.Origin.Product+" ("+string(s.Origin.Scope)+" scope)", found)
	for _, step := range s.Steps {
		r.add(step.Name, r.detail(step.Name), step.Took)
	}
	if failure != nil {
		r.Error = asError(failure)
		r.NotPassed = s.NotPassed
		r.Stderr, _ = c.Logs(ctx, s.Name) // the failure is what matters
		return r, failure
	}
	tools, err := c.Tools(ctx)
	for _, t := range tools {
		if t.Server == s.Name {
			r.Tools = append(r.Tools, t.Tool)
		}
	}
	if err == nil {
		err = unlisted(s, "")
	}
	if err != nil {
		r.OK, r.Error = false, asError(err)
		r.Stderr, _ = c.Logs(ctx, s.Name) // the failure is what matters
	}
	return r, err
}

func (r *trial) add(step, detail string, took time.Duration) {
	r.Steps = append(r.Steps, trialStep{step, detail, float64(took.Microseconds()) / 1000})
}

// detail says what a step came to.
func (r *trial) detail(step string) string {
	switch step {
	case "resolved":
		return r.server.Target
	case "connected":
		return strings.Join([]string{introduction(r.server), "MCP " + r.server.Protocol}, ", ")
	case "listed":
		return offers(r.server)
	}
	return ""
}

// introduction is how a server introduced itself.
func introduction(s patchbay.ServerStatus) string {
	var info struct{ Name, Version string }
	_ = json.Unmarshal(s.ServerInfo, &info) // one that does not introduce itself properly has no name
	return strings.TrimSpace(orDash(info.Name) + " " + info.Version)
}

// offers counts what a server has.
func offers(s patchbay.ServerStatus) string {
	if s.Counts == nil {
		return ""
	}
	text := count(s.Counts.Tools, "tool", "tools")
	for _, more := range []struct {
		n         int
		one, many string
	}{
		{s.Counts.Resources, "resource", "resources"},
		{s.Counts.Templates, "resource template", "resource templates"},
		{s.Counts.Prompts, "prompt", "prompts"},
	} {
		if more.n > 0 {
			text += ", " + count(more.n, more.one, more.many)
		}
	}
	return text
}

const (
	shownTools  = 10
	shownNames  = 20 // of variables
	shownStderr = 20 // lines
)

func (p *printer) trial(r trial) {
	for _, s := range r.Steps {
		detail := s.Detail
		if s.Step == "found" {
			detail += ", " + p.place(r.server.Origin)
		}
		took := time.Duration(s.Millis * float64(time.Millisecond))
		line := strings.TrimRight(fmt.Sprintf("  %8v  %s", took.Round(10*time.Microsecond), detail), " ")
		p.line(p.paint("%s", green)+"%s", fmt.Sprintf("%-9s", s.Step), line)
	}
	if len(r.Tools) > 0 {
		names := strings.Join(r.Tools[:min(len(r.Tools), shownTools)], ", ")
		if more := len(r.Tools) - shownTools; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		p.line("Tools: %s", names)
	}
	p.problems(slices.DeleteFunc(slices.Clone(r.Problems), func(pr config.Problem) bool { return pr.Severity == config.SeverityError })) // with which the command ends
	if r.server.StrayOutput != "" {
		p.line("  "+p.paint("%s", yellow)+" it %s", "warning:", strayOutput(r.server))
		p.line("    a server has to log to its standard error instead")
	}
	p.stderr(r.Stderr)
	if names := r.NotPassed; len(names) > 0 {
		more := ""
		if len(names) > shownNames {
			names, more = names[:shownNames], fmt.Sprintf(" and %d more", len(names)-shownNames)
		}
		p.line("Variables of yours that it does not get (envVars in its entry names those it needs): %s%s", strings.Join(names, ", "), more)
	}
}

// stderr shows the end of what a server wrote to its standard error.
func (p *printer) stderr(text string) {
	if text == "" {
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	p.line("What it wrote to its standard error:")
	p.block("  ", strings.Join(lines[max(0, len(lines)-shownStderr):], "\n"))
}
