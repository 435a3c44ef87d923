package cli

import "github.com/spf13/cobra"

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, who uses it, and which processes run for whom",
		Long: `Show the daemon, the agents that are attached to it, and which of them use which
process of each server.

Agents share a process if it would be the same for them. Where a server has
several, each is compared with the one before that is most like it, and what
differs is named: the directory, variables of the environment (names, never
values), members of the configuration entry, the person, capabilities of the
agent, the era of the protocol, roots, or that a session has one for itself.`,
		Example: `  patchbay status
  patchbay status --json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.showStatus(cmd.Context()) },
	}
}
