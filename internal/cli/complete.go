package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// completion offers words for the next argument of a command.
type completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// complete offers fixed words for a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	// The flag is defined right above each call, which is the only error.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// scopes makes a flag called scope one of some words.
func scopes(cmd *cobra.Command, words ...string) {
	complete(cmd, "scope", words...)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		f := cmd.Flag("scope")
		if !f.Changed || slices.Contains(words, f.Value.String()) {
			return nil
		}
		last := len(words) - 1
		return usagef(cmd.CommandPath(), "Invalid scope %q: expected %s or %s", f.Value, strings.Join(words[:last], ", "), words[last])
	}
}

// words are what can come next, given the arguments before and the beginning of
// this one.
type words func(ctx context.Context, c *control.Client, args []string, word string) ([]string, error)

// completed makes a completion of words. The host that knows them connects to
// no server for it.
func (a *app) completed(next words) completion {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		c, closeHost, err := a.open(cmd.Context(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer closeHost()
		list, err := next(cmd.Context(), c, args, word)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(list, func(w string) bool { return strings.Contains(w, "=\t") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // a value follows
		}
		return list, directive
	}
}

// servers completes the names of servers, each once, that are wanted.
func (a *app) servers(wanted func(args []string, s patchbay.ServerStatus) bool) completion {
	return a.completed(func(ctx context.Context, c *control.Client, args []string, _ string) ([]string, error) {
		return serverWords(ctx, c, args, wanted)
	})
}

func serverWords(ctx context.Context, c *control.Client, args []string, wanted func(args []string, s patchbay.ServerStatus) bool) ([]string, error) {
	snap, err := c.Snapshot(ctx, false)
	var names []string
	seen := slices.Clone(args)
	for _, s := range snap.Servers {
		if !slices.Contains(seen, s.Name) && wanted(args, s) {
			names = suggest(names, s.Name, s.Origin.Product)
			seen = append(seen, s.Name)
		}
	}
	return names, err
}

// usableServer completes the name of one server that may be connected.
func (a *app) usableServer() completion {
	return onlyFirst(a.servers(func(_ []string, s patchbay.ServerStatus) bool { return usable(s) }))
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

// toolNames completes the names of tools, in the form the word begins.
func toolNames(ctx context.Context, c *control.Client, args []string, word string) ([]string, error) {
	if len(args) > 0 {
		return nil, nil
	}
	tools, err := c.Tools(ctx)
	var names []string
	for _, t := range tools {
		name := t.Name
		if t.Server != "" && !strings.HasPrefix(word, "mcp_") {
			name = t.Server + "." + t.Tool
		}
		names = suggest(names, name, t.ForModel().Description)
	}
	return names, err
}

// toolArguments completes the name of a tool, then the arguments in its schema.
func toolArguments(ctx context.Context, c *control.Client, args []string, word string) ([]string, error) {
	if len(args) == 0 {
		return toolNames(ctx, c, args, word)
	}
	known, err := c.Why(ctx, args[0])
	if err != nil {
		return nil, err
	}
	properties := schemaProperties(known.Tool)
	var words []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		sign := "="
		if !properties[name].isText() {
			sign = ":="
		}
		words = suggest(words, name+sign, properties[name].Description)
	}
	return words, nil
}

// property is what a schema says about one argument.
type property struct {
	Type        json.RawMessage `json:"type"`
	Description string          `json:"description"`
}

// isText reports whether the argument may be a string; one of which the schema
// says nothing may be.
func (p property) isText() bool {
	return len(p.Type) == 0 || strings.Contains(string(p.Type), `"string"`)
}

// schemaProperties returns what a tool's schema says about its arguments; a
// schema that is not understood says nothing.
func schemaProperties(t patchbay.Tool) map[string]property {
	var schema struct {
		Properties map[string]property `json:"properties"`
	}
	if json.Unmarshal(t.ForModel().InputSchema, &schema) != nil {
		return nil
	}
	return schema.Properties
}

// resourceURIs completes a server, then one of its resources.
func resourceURIs(ctx context.Context, c *control.Client, args []string, word string) ([]string, error) {
	switch len(args) {
	case 0:
		return serverWords(ctx, c, args, func(_ []string, s patchbay.ServerStatus) bool { return usable(s) })
	case 1:
		resources, err := c.Resources(ctx, "")
		var uris []string
		for _, r := range resources {
			if r.Server == args[0] {
				uris = suggest(uris, r.URI, r.Name)
			}
		}
		return uris, err
	}
	return nil, nil
}

// promptArguments completes a server, then one of its prompts, then the
// arguments of that.
func promptArguments(ctx context.Context, c *control.Client, args []string, word string) ([]string, error) {
	if len(args) == 0 {
		return serverWords(ctx, c, args, func(_ []string, s patchbay.ServerStatus) bool { return usable(s) })
	}
	prompts, err := c.Prompts(ctx, "")
	var words []string
	for _, p := range prompts {
		about := promptAbout(p)
		switch {
		case p.Server != args[0]:
		case len(args) == 1:
			words = suggest(words, p.Name, about.Description)
		case p.Name == args[1]:
			for _, arg := range about.Arguments {
				words = suggest(words, arg.Name+"=", arg.Description)
			}
		}
	}
	return words, err
}

// shortText is how many characters of a description go beside a name.
const shortText = 60

// firstLine is the beginning of a text.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimRight(text, "\r")
	if runes := []rune(text); len(runes) > shortText {
		text = string(runes[:shortText-1]) + "…"
	}
	return text
}

// suggest adds a word that somebody else chose to a completion, with what there
// is to say about it. Words that a shell would not show as they are, are left
// out.
func suggest(words []string, word, about string) []string {
	if word != config.Escape(word) {
		return words
	}
	return append(words, word+"\t"+config.Escape(firstLine(about)))
}
