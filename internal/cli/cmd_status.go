package cli

import "github.com/spf13/cobra"

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "status",
		Short:             "Show the daemon, who uses it, and which processes run for whom",
		Example:           `  patchbay status --json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.showStatus(cmd.Context()) },
	}
}
