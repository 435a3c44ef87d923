package cli

import (
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
)

// guardName is the hidden command that Env.Guard runs.
const guardName = "__guard"

func guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "End the servers of a Patchbay that was killed",
		Hidden: true,
		Args:   exactly(),
		Run:    func(*cobra.Command, []string) { patchbay.RunGuard() },
	}
}
