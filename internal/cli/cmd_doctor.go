package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Show every file read and everything that is wrong",
		Long: `Show every configuration file that was found and what is wrong in it, variables
that servers refer to and that are not set, servers that are the same connection
under two names, names of tools that collide, and files with the gateway's token
that other users can read. Nothing is started or contacted.

The exit code is 1 if anything is an error, else 0.`,
		Example: `  patchbay doctor
  patchbay doctor --json | jq '.problems[] | .file + ":" + (.line|tostring)'`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *control.Client) error {
				snap, err := c.Snapshot(cmd.Context(), false)
				if err != nil {
					return err
				}
				r := diagnose(snap)
				if err := a.print(r, func(p *printer) { p.report(r) }); err != nil {
					return err
				}
				if r.Errors > 0 {
					return errReported
				}
				return nil
			})
		},
	}
}

// report is what doctor found.
type report struct {
	Project  string                `json:"project"`
	Files    []patchbay.SourceFile `json:"files"`
	Problems []config.Problem      `json:"problems"`
	Unset    []unsetVariable       `json:"unsetVariables"`
	Same     []sameServers         `json:"sameConnection"`
	Errors   int                   `json:"errors"`
	Warnings int                   `json:"warnings"`
}

type unsetVariable struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	File   string `json:"file"`
	Line   int    `json:"line"`
}

type sameServers struct {
	Names []string `json:"names"`
}

func diagnose(snap patchbay.Snapshot) report {
	r := report{Project: snap.Project, Files: snap.Files, Problems: append([]config.Problem{}, snap.Problems...), Unset: []unsetVariable{}, Same: []sameServers{}}
	for _, s := range snap.Servers {
		r.Problems = append(r.Problems, s.Problems...)
		if s.ShadowedBy == nil && s.Skip == "" && s.State != config.Disabled {
			for _, name := range s.Unset {
				r.Unset = append(r.Unset, unsetVariable{name, s.Name, s.Origin.File, s.Origin.Line})
			}
		}
		if len(s.SameAs) > 0 && s.Name < s.SameAs[0] {
			r.Same = append(r.Same, sameServers{append([]string{s.Name}, s.SameAs...)})
		}
	}
	for _, p := range r.Problems {
		switch p.Severity {
		case config.SeverityError:
			r.Errors++
		case config.SeverityWarning:
			r.Warnings++
		}
	}
	return r
}

func (p *printer) report(r report) {
	p.line("Project: %s", p.path(r.Project))
	p.line("")
	rows := make([][]cell, 0, len(r.Files))
	for _, f := range r.Files {
		rows = append(rows, []cell{{text: f.Product}, {text: string(f.Scope)}, {text: f.Status}, {text: fmt.Sprint(f.Entries)}, {text: p.path(f.Path)}})
	}
	if len(rows) == 0 {
		p.line("No configuration files found.")
	} else {
		p.table([]string{"PRODUCT", "SCOPE", "STATUS", "SERVERS", "FILE"}, rows)
	}
	if len(r.Problems) > 0 {
		p.line("\nProblems:")
		p.problems(r.Problems)
	}
	if len(r.Unset) > 0 {
		p.line("\nVariables that are not set:")
		for _, u := range r.Unset {
			p.line("  %s, needed by %q (%s:%d)", u.Name, u.Server, p.path(u.File), u.Line)
		}
	}
	if len(r.Same) > 0 {
		p.line("\nThe same connection under several names:")
		for _, s := range r.Same {
			p.line("  %s", strings.Join(s.Names, ", "))
		}
	}
	p.line("")
	p.line("%s, %s, %s not set", count(r.Errors, "error", "errors"), count(r.Warnings, "warning", "warnings"), count(len(r.Unset), "variable", "variables"))
}
