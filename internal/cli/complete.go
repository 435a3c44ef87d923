package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// completion offers words for the next argument of a command.
type completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// complete offers fixed words for a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	// The flag is defined right above each call, which is the only error.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// servers completes the names of servers, each once, that are wanted.
func (a *app) servers(wanted func(args []string, s patchbay.ServerStatus) bool) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, closeHost, err := a.open(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer closeHost()
		snap, err := c.Snapshot(cmd.Context(), false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		seen := slices.Clone(args)
		for _, s := range snap.Servers {
			if !slices.Contains(seen, s.Name) && wanted(args, s) {
				names = append(names, s.Name+"\t"+s.Origin.Product)
				seen = append(seen, s.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// serversIn completes the names of servers in one of the states.
func (a *app) serversIn(states ...config.State) completion {
	return a.servers(func(_ []string, s patchbay.ServerStatus) bool {
		return s.Skip == "" && slices.Contains(states, s.State)
	})
}

// onlyFirst completes the first argument only.
func onlyFirst(next completion) completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return next(cmd, args, word)
	}
}

// products are the ids of products, with their names.
func products() []string {
	var words []string
	for _, p := range patchbay.Providers() {
		words = append(words, p.ID+"\t"+p.Product)
	}
	return words
}
