package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) listCommand() *cobra.Command {
	var sources, all, showSecrets, connect, useExitCode bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "Show every server and where it stands",
		Long: `Show every MCP server that any product on this machine declares, for the
current directory. Nothing is started or contacted, unless --connect asks for it:
then each is shown as it stands when all have answered or the time is up.

A server from a project's files is "needs-approval" until you approve it. One
that another declaration of the same name comes before is shown with --all, and
always in --json.

With --exit-code the exit code says how the servers stand, or stood when they
were last tried: the first that applies of 6 one cannot be reached, 124 one did
not answer in time, 1 an entry is invalid, 4 one needs authentication or input,
5 one needs approval. Servers that are switched off do not count.`,
		Example: `  patchbay list
  patchbay list --sources      product, scope, file and line of each
  patchbay list --json         for scripts
  patchbay list --connect      who answers, and with how many tools
  patchbay list --connect --exit-code --quiet && echo all well`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(connect)(cmd.Context(), func(c *control.Client) error {
				if connect {
					// What could not be connected shows in the state of each.
					if _, err := connectAll(cmd.Context(), c, limit); err != nil {
						return err
					}
				}
				snap, err := c.Snapshot(cmd.Context(), showSecrets)
				if err != nil {
					return err
				}
				var stand error
				if useExitCode {
					stand = health(snap.Servers)
				}
				hidden := 0
				if !all && !a.json {
					n := len(snap.Servers)
					snap.Servers = slices.DeleteFunc(snap.Servers, func(s patchbay.ServerStatus) bool { return s.ShadowedBy != nil })
					hidden = n - len(snap.Servers)
				}
				if err := a.print(snap, func(p *printer) {
					p.list(snap, sources, hidden)
					p.answeredByDaemon(c)
				}); err != nil {
					return err
				}
				return stand
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&sources, "sources", false, "show product, scope, file and line of each")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show shadowed declarations too")
	cmd.Flags().BoolVar(&showSecrets, "show-secrets", false, "do not mask secrets in --json")
	cmd.Flags().BoolVar(&useExitCode, "exit-code", false, "exit with a code that says how the servers stand")
	connectFlags(cmd, &connect, &limit)
	return cmd
}

// health is the error whose exit code says how the servers stand; nil if there
// is nothing to say against them.
func health(servers []patchbay.ServerStatus) error {
	found := map[patchbay.Kind]string{} // and of which server
	for _, s := range servers {
		state := s.State
		if s.Last != nil && state == config.Pending {
			state = s.Last.State
		}
		switch {
		case !s.InForce || s.Skip != "":
		case s.NeedsInput():
			found[patchbay.KindNeedsInput] = s.Name
		case state == config.Failed && invalid(s):
			found[patchbay.KindConfigInvalid] = s.Name
		case state == config.Failed:
			found[patchbay.KindTransport] = s.Name
		case state == config.Connecting:
			found[patchbay.KindTimeout] = s.Name
		case state == config.NeedsAuth:
			found[patchbay.KindAuthUnavailable] = s.Name
		case state == config.NeedsApproval:
			found[patchbay.KindDenied] = s.Name
		}
	}
	for _, kind := range []patchbay.Kind{
		patchbay.KindTransport, patchbay.KindTimeout, patchbay.KindConfigInvalid, patchbay.KindAuthUnavailable, patchbay.KindNeedsInput, patchbay.KindDenied,
	} {
		if name, ok := found[kind]; ok {
			return reported(&patchbay.Error{Kind: kind, Message: name})
		}
	}
	return nil
}

func (p *printer) list(snap patchbay.Snapshot, sources bool, hidden int) {
	var itself []string // the products that have Patchbay, which is no server of its own
	if !sources {
		snap.Servers = slices.DeleteFunc(snap.Servers, func(s patchbay.ServerStatus) bool {
			if s.Skip == patchbay.SkipItself {
				itself = append(itself, fmt.Sprintf("%s (%s)", s.Origin.Product, s.Origin.Scope))
			}
			return s.Skip == patchbay.SkipItself
		})
	}
	if len(snap.Servers) == 0 {
		p.line("No MCP servers found. `patchbay add <name> -- <command>` adds one.")
	} else if sources {
		p.sourceTable(snap.Servers)
	} else {
		p.serverTable(snap.Servers)
	}
	if len(itself) > 0 {
		p.line("\nPatchbay itself is installed in %s.", strings.Join(itself, ", "))
	}
	p.reasons(snap.Servers)
	p.footnotes(snap, hidden)
}

// reasons say why servers that were tried are not connected, and where to see
// more.
func (p *printer) reasons(servers []patchbay.ServerStatus) {
	first := true
	for _, s := range servers {
		need, ok := needOf(s)
		if !ok || !s.InForce || s.Skip != "" || invalid(s) || s.State != config.Failed && s.State != config.NeedsAuth && len(s.Unlisted) == 0 && s.StrayOutput == "" {
			continue
		}
		if first {
			p.line("")
			first = false
		}
		p.line("%s", need)
	}
}

func (p *printer) serverTable(servers []patchbay.ServerStatus) {
	rows := make([][]cell, 0, len(servers))
	for _, s := range servers {
		rows = append(rows, []cell{
			{text: s.Name}, p.lastStateCell(s), toolCount(s), {text: string(s.Transport)},
			{text: fmt.Sprintf("%s (%s)", s.Origin.Product, s.Origin.Scope)}, {text: s.Target, style: dim, cut: true},
		})
	}
	p.table([]string{"NAME", "STATE", "TOOLS", "TYPE", "FROM", "TARGET"}, rows)
}

// lastStateCell renders where a server stands, and how it was found when it was
// last tried.
func (p *printer) lastStateCell(s patchbay.ServerStatus) cell {
	c := p.stateCell(s)
	if s.Last != nil && s.State == config.Pending {
		c.text += fmt.Sprintf(" (last %s)", s.Last.State)
	}
	return c
}

// toolCount renders how many tools a server has, as far as that is known.
func toolCount(s patchbay.ServerStatus) cell {
	switch {
	case s.Counts == nil:
		return cell{text: "-", style: dim}
	case s.Pins.Held() > 0:
		return cell{text: fmt.Sprintf("%d, %d held", s.Counts.Tools, s.Pins.Held()), style: yellow}
	case s.Cached:
		return cell{text: fmt.Sprintf("%d cached", s.Counts.Tools), style: dim}
	}
	return cell{text: fmt.Sprint(s.Counts.Tools)}
}

func (p *printer) sourceTable(servers []patchbay.ServerStatus) {
	rows := make([][]cell, 0, len(servers))
	for _, s := range servers {
		rows = append(rows, []cell{
			{text: s.Name}, p.stateCell(s), {text: s.Origin.Product}, {text: string(s.Origin.Scope)}, {text: p.place(s.Origin)},
		})
	}
	p.table([]string{"NAME", "STATE", "PRODUCT", "SCOPE", "DECLARED AT"}, rows)
}

// footnotes says what the table cannot: why something is off, and what to do.
func (p *printer) footnotes(snap patchbay.Snapshot, hidden int) {
	wrong, forbidden := 0, 0
	var approvals []string
	var unaccepted []string
	for _, s := range snap.Servers {
		if s.Forbidden && s.ShadowedBy == nil {
			forbidden++
		}
		if s.Pins != nil {
			unaccepted = append(unaccepted, s.Name)
		}
		if s.State == config.NeedsApproval && s.ShadowedBy == nil && s.Skip == "" {
			approvals = append(approvals, s.Name)
		}
		for _, pr := range s.Problems {
			if pr.Severity != config.SeverityNote && s.ShadowedBy == nil {
				wrong++
			}
		}
	}
	hooks := snap.Hooks != nil && snap.Hooks.State == config.NeedsApproval
	if len(approvals)+len(unaccepted)+forbidden+hidden+wrong > 0 || hooks {
		p.line("")
	}
	if len(approvals) > 0 {
		slices.Sort(approvals)
		approvals = slices.Compact(approvals)
		p.line("%s approval before use: patchbay approve %s", count(len(approvals), "server needs", "servers need"), approvals[0])
	}
	if len(unaccepted) > 0 {
		p.line("%s not as you accepted: patchbay approve --tools %s", count(len(unaccepted), "server offers what is", "servers offer what is"), shellName(unaccepted[0]))
	}
	if hooks {
		p.line("The project's hooks need approval before they run: patchbay approve --hooks")
	}
	if forbidden > 0 {
		p.line("%s forbidden by the administrator: patchbay doctor", count(forbidden, "server is", "servers are"))
	}
	if hidden > 0 {
		p.line("%s shadowed by another of the same name: patchbay list --all", count(hidden, "declaration is", "declarations are"))
	}
	if wrong > 0 {
		p.line("%s found: patchbay doctor", count(wrong, "problem", "problems"))
	}
	p.wrong(wrongFiles(snap))
}

// count renders a number with the noun in its form.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
