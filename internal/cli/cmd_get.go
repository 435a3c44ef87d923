package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) getCommand() *cobra.Command {
	var showSecrets, connect bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "get <name>",
		Short: "Show one server in full",
		Long: `Show one server: where it stands and why, where it is declared, its
configuration with secrets masked, the variables it needs, the tools it offers,
and other declarations of the same name. Nothing is started or contacted, unless
--connect asks for it; what the server offers is that of its last connection.`,
		Example: `  patchbay get github
  patchbay get github --connect
  patchbay get github --json --show-secrets`,
		Args: exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(connect)(cmd.Context(), func(c *control.Client) error {
				logs := ""
				if connect {
					var err error
					if logs, err = connectForGet(cmd.Context(), c, args[0], limit); err != nil {
						return err
					}
				}
				s, err := c.Server(cmd.Context(), args[0], showSecrets)
				if err != nil {
					return err
				}
				snap, err := c.Snapshot(cmd.Context(), false)
				if err != nil {
					return err
				}
				return a.print(s, func(p *printer) {
					p.server(s, snap.Servers)
					p.stderr(logs)
					p.answeredByDaemon(c)
				})
			})
		},
		ValidArgsFunction: onlyFirst(a.servers(func([]string, patchbay.ServerStatus) bool { return true })),
	}
	cmd.Flags().BoolVar(&showSecrets, "show-secrets", false, "do not mask secrets")
	connectFlags(cmd, &connect, &limit)
	return cmd
}

// connectForGet connects a server that is to be shown, and returns what one that
// cannot be connected wrote to its standard error. Why it cannot is its state.
func connectForGet(ctx context.Context, c *control.Client, name string, limit time.Duration) (logs string, err error) {
	bound, stop := within(ctx, limit)
	defer stop()
	if c.Connect(bound, name) == nil {
		return "", nil
	}
	if err := interrupted(bound); err != nil {
		return "", err
	}
	return c.Logs(ctx, name)
}

func (p *printer) server(s patchbay.ServerStatus, all []patchbay.ServerStatus) {
	field := func(name, value string) {
		if value != "" {
			p.field(name, config.Escape(value))
		}
	}
	title := s.Name
	if s.Title != "" {
		title += " (" + s.Title + ")"
	}
	field("Name", title)
	state := p.stateCell(s)
	p.field("State", p.paint(state.text, state.style)+config.Escape(note(s.Reason+s.Skip)))
	if s.Last != nil {
		field("Last time", fmt.Sprintf("%s%s, %s", s.Last.State, note(s.Last.Reason), s.Last.At.Local().Format(time.DateTime)))
	}
	if len(s.ServerInfo) > 0 {
		field("Server", introduction(s))
	}
	field("Protocol", s.Protocol)
	if s.Cached {
		field("Offers", offers(s)+" (cached)")
	} else {
		field("Offers", offers(s))
	}
	field("Type", string(s.Transport))
	field("Product", s.Origin.Product+" ("+string(s.Origin.Scope)+" scope)")
	field("Declared at", p.place(s.Origin))
	field("Also read by", strings.Join(s.Origin.AlsoReadBy, ", "))
	if s.StrayOutput != "" {
		field("Printed", fmt.Sprintf("%q on its standard output, where only messages belong", s.StrayOutput))
	}
	field("Same as", strings.Join(s.SameAs, ", "))
	field("Variables", strings.Join(s.Variables, ", "))
	field("Not set", strings.Join(s.Unset, ", "))
	for _, in := range s.Inputs {
		given := " (given)"
		if !in.Given {
			given = " (not given)"
		}
		field("Input", in.ID+given+note(in.Description))
	}
	for _, e := range s.Executes {
		field("Executes", e)
	}
	p.line("Config:")
	p.jsonBlock("  ", s.Config)
	p.offeredTools(s.Tools)
	p.problems(s.Problems)
	for _, o := range all {
		switch {
		case o.Name != s.Name || o.Origin.File == s.Origin.File && o.Origin.Pointer == s.Origin.Pointer:
		case o.ShadowedBy != nil:
			p.line("Shadows:      %s: %s", p.place(o.Origin), o.Why)
		default:
			p.line("Also at:      %s: %s%s", p.place(o.Origin), p.stateCell(o).text, note(o.Reason+o.Skip))
		}
	}
}

// offeredTools lists what a server offers, whether or not rules hide it.
func (p *printer) offeredTools(tools []patchbay.ToolInfo) {
	if len(tools) == 0 {
		return
	}
	p.line("Tools:")
	rows := make([][]cell, 0, len(tools))
	for _, t := range tools {
		rows = append(rows, []cell{{text: "  " + t.Name}, {text: strings.Join(claims(t.Annotations), " ")}, p.about(t.Description)})
	}
	p.rows(rows)
}
