package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildFacts is what a binary knows of how it was built.
type buildFacts struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version and how it was built",
		Example:           `  patchbay version --json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			facts := readBuildFacts()
			return a.print(facts, func(p *printer) {
				p.line("patchbay %s", facts.Version)
				if facts.Commit != "" {
					p.line("commit   %s", facts.Commit)
				}
				p.line("built    %s %s", facts.Go, facts.Platform)
			})
		},
	}
}

// version is the version and the commit on one line.
func version() string {
	facts := readBuildFacts()
	if facts.Commit == "" {
		return facts.Version
	}
	return facts.Version + " (" + facts.Commit[:min(len(facts.Commit), 12)] + ")"
}

func readBuildFacts() buildFacts {
	f := buildFacts{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return f
	}
	if info.Main.Version != "" {
		f.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			f.Commit = s.Value
		case "vcs.modified":
			f.Modified = s.Value == "true"
		}
	}
	return f
}
