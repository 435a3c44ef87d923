package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

func (a *app) readCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "read <server> <uri>",
		Short: "Read a resource",
		Long: `Connect to a server, read one of its resources and print its text. Binary content
is saved to a file, and the path of that is printed.`,
		Example: `  patchbay read docs file:///guide.md`,
		Args:    exactly("server", "uri"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServers(cmd.Context(), func(c *control.Client) error {
				ctx, stop := within(cmd.Context(), limit)
				defer stop()
				contents, err := c.ReadResource(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return a.print(contentList{contents}, func(p *printer) {
					for _, r := range contents {
						if r.BlobSavedTo != "" {
							p.line("%s (%s) is in %s", r.URI, orDash(r.MIMEType), r.BlobSavedTo)
							continue
						}
						p.text(a.foreign(r.Text))
					}
				})
			})
		},
		ValidArgsFunction: a.completed(resourceURIs),
	}
	timeoutFlag(cmd, &limit)
	return cmd
}

// contentList is what the command prints as JSON.
type contentList struct {
	Contents []patchbay.ResourceContent `json:"contents"`
}
