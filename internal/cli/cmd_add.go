package cli

import (
	"context"
	"fmt"
	"net/textproto"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
)

// addFlags is what `add` can be told about a server.
type addFlags struct {
	scope, transport           string
	env, headers               []string
	url, token, tokenEnvVar    string
	timeout                    int64
	includeTools, excludeTools []string
	description                string
	replace                    bool
}

func (a *app) addCommand() *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use:   "add [flags] <name> <command or URL> [args...]",
		Short: "Add a server",
		Long: `Add an MCP server to one of Patchbay's own files.

The scope decides which: local (this project, only you; the default), user (every
project, only you) or project (.patchbay/mcp.json, shared with everyone who has
the project). Put -- before the command, so that its options are not taken for
Patchbay's. A URL means an http server unless -t says otherwise.

Without arguments on a terminal, a few questions are asked instead.`,
		Example: `  patchbay add files -- npx -y @acme/files ~/notes
  patchbay add -s user -e API_KEY='${ACME_KEY}' acme -- acme-mcp --verbose
  patchbay add docs https://docs.example.com/mcp -H "X-Team: core"
  patchbay add -t sse old --url https://old.example.com/sse --token '${OLD_TOKEN}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && cmd.Flags().NFlag() == 0 && a.env.Interactive {
				return a.addWizard(cmd.Context())
			}
			command := args
			if len(args) > 0 {
				command = args[1:]
			}
			timeoutGiven := cmd.Flags().Changed("timeout")
			name, server, notes, err := f.server(cmd, args, command, timeoutGiven)
			if err != nil {
				return err
			}
			return a.addTyped(cmd.Context(), patchbay.AddRequest{Name: name, Scope: config.Scope(f.scope), Replace: f.replace}, server, notes)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.scope, "scope", "s", "local", "`scope`: local, user or project")
	flags.StringVarP(&f.transport, "transport", "t", "", "`type` of the server: stdio, http or sse")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable for the server, `KEY=value` (repeatable)")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "HTTP header, `\"Key: value\"` (repeatable)")
	flags.StringVar(&f.url, "url", "", "`URL` of the server")
	flags.StringVar(&f.token, "token", "", "bearer `token` to send; '${VAR}' keeps it out of the file")
	flags.StringVar(&f.tokenEnvVar, "bearer-token-env-var", "", "`name` of the variable that holds the bearer token")
	flags.Int64Var(&f.timeout, "timeout", 0, "`ms` a call may take; 0 means no limit")
	flags.StringSliceVar(&f.includeTools, "include-tools", nil, "only these `tools` (comma-separated, repeatable)")
	flags.StringSliceVar(&f.excludeTools, "exclude-tools", nil, "all but these `tools`")
	flags.StringVar(&f.description, "description", "", "a `sentence` about the server")
	flags.BoolVar(&f.replace, "replace", false, "replace a server of the same name in that file")
	scopes(cmd, "local", "user", "project")
	complete(cmd, "transport", "stdio", "http", "sse")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		e := flagError(cmd, err)
		e.message += "; put -- before the command if it is an option of that"
		return e
	})
	return cmd
}

// server turns the command line into a server, and notes on what was inferred.
func (f *addFlags) server(cmd *cobra.Command, args, command []string, timeoutGiven bool) (name string, s config.Server, notes []string, err error) {
	usage := func(format string, args ...any) error { return usagef(cmd.CommandPath(), format, args...) }
	if len(args) == 0 {
		return "", s, nil, usage("missing argument: name")
	}
	name = args[0]
	switch {
	case f.url != "" && len(command) > 0:
		return "", s, nil, usage("Use either --url or -- <command...>, not both.")
	case f.url != "":
		s.URL = f.url
		if !strings.Contains(s.URL, "://") && !strings.HasPrefix(s.URL, "${") {
			s.URL = "https://" + s.URL
			notes = append(notes, "No scheme given; using "+s.URL)
		}
	case len(command) == 0:
		return "", s, nil, usage("missing argument: command or URL")
	case isURL(command[0]) && f.transport != "stdio":
		s.URL = command[0]
		if len(command) > 1 {
			return "", s, nil, usage("unexpected argument after the URL: %q", command[1])
		}
	default:
		s.Command = command[0]
		if looksLikeURL.MatchString(s.Command) && len(command) == 1 {
			notes = append(notes, fmt.Sprintf("Warning: %q looks like a URL, but is taken for a command. If it is a URL: patchbay add --replace %s http://%s", s.Command, shellName(name), s.Command))
		}
		if len(command) > 1 {
			s.Args = command[1:]
		}
	}
	if f.token != "" && s.URL == "" {
		return "", s, nil, usage("--token requires --url (HTTP/SSE transport).")
	}
	if f.tokenEnvVar != "" && s.URL == "" {
		return "", s, nil, usage("--bearer-token-env-var requires --url (HTTP/SSE transport).")
	}
	s.Type = config.Transport(f.transport)
	if s.Type == "" {
		if s.Type = s.Transport(); s.Type == config.HTTP {
			notes = append(notes, "A URL without -t means an http server; use -t sse for the older transport.")
		}
	}
	if s.Env, err = pairs(f.env, "=", "-e", "KEY=value"); err != nil {
		return "", s, nil, usage("%v", err)
	}
	if s.Headers, err = pairs(f.headers, ":=", "-H", `"Key: value"`); err != nil {
		return "", s, nil, usage("%v", err)
	}
	if len(s.Headers) > 0 && s.URL == "" {
		return "", s, nil, usage("-H requires a URL (HTTP/SSE transport).")
	}
	if len(s.Env) > 0 && s.URL != "" {
		return "", s, nil, usage("-e requires a command (stdio transport).")
	}
	if f.token != "" {
		if s.Headers == nil {
			s.Headers = map[string]config.Secret{}
		}
		s.Headers["Authorization"] = config.NewSecret("Bearer " + f.token)
	}
	s.BearerTokenEnvVar = f.tokenEnvVar
	s.EnabledTools, s.DisabledTools, s.Description = f.includeTools, f.excludeTools, f.description
	if timeoutGiven {
		s.Timeout = &f.timeout
	}
	return name, s, notes, nil
}

// looksLikeURL matches a URL without its scheme: a host with a port, or with a
// path that servers usually have.
var looksLikeURL = regexp.MustCompile(`^(?i)(localhost|\[[0-9a-f:]+\]|[\w-]+(\.[\w-]+)*)(:\d+(/\S*)?|/(mcp|sse)/?)$`)

func isURL(s string) bool {
	lower := strings.ToLower(s)
	return strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
}

// pairs splits KEY=value words at the first of the separators.
func pairs(words []string, separators, flag, want string) (map[string]config.Secret, error) {
	var out map[string]config.Secret
	for _, w := range words {
		i := strings.IndexAny(w, separators)
		if i <= 0 {
			return nil, fmt.Errorf("%s expects %s", flag, want)
		}
		if out == nil {
			out = map[string]config.Secret{}
		}
		key, value := strings.TrimSpace(w[:i]), w[i+1:]
		if flag == "-H" {
			key, value = textproto.CanonicalMIMEHeaderKey(key), strings.TrimSpace(value)
		}
		out[key] = config.NewSecret(value)
	}
	return out, nil
}

// addTyped adds a server that somebody typed. A relative path to its program is
// meant from where they are, which is not where the file will be read from.
func (a *app) addTyped(ctx context.Context, r patchbay.AddRequest, s config.Server, notes []string) error {
	return a.withClient(ctx, func(c *control.Client) error {
		if strings.ContainsRune(s.Command, filepath.Separator) && !filepath.IsAbs(s.Command) && !strings.ContainsAny(s.Command[:1], "~$") {
			snap, err := c.Snapshot(ctx, false)
			if err != nil {
				return err
			}
			s.Command = filepath.Join(snap.Dir, s.Command)
			rel, err := filepath.Rel(snap.Project, s.Command)
			if err == nil && filepath.IsLocal(rel) && r.Scope == config.ScopeProject { // others have the project elsewhere
				s.Command = "./" + filepath.ToSlash(rel)
			}
		}
		r.Server = config.EncodeServer(s)
		return a.add(ctx, c, r, notes)
	})
}

// add sends the request and reports what was written where.
func (a *app) add(ctx context.Context, c *control.Client, r patchbay.AddRequest, notes []string) error {
	change, err := c.Add(ctx, r)
	if err != nil {
		return err
	}
	snap, err := c.Snapshot(ctx, false)
	if err != nil {
		return err
	}
	return a.print(change, func(p *printer) {
		for _, n := range notes {
			p.line("%s", n)
		}
		p.change(change)
		p.standing(change, snap.Servers)
	})
}

// standing says what a new declaration means for others of its name, and what to
// do next.
func (p *printer) standing(c patchbay.Change, servers []patchbay.ServerStatus) {
	for _, s := range servers {
		switch {
		case s.Name != c.Name || s.Skip != "":
		case s.Origin.File == c.File && s.ShadowedBy != nil:
			p.line("It is not used: %s comes before it.", p.place(*s.ShadowedBy))
			return
		case s.Origin.File != c.File && s.ShadowedBy != nil && s.ShadowedBy.File == c.File:
			p.line("It takes the place of %q of %s (%s), which is not used any more.", s.Name, s.Origin.Product, p.place(s.Origin))
		}
	}
	p.line("Next: patchbay test %s", shellName(c.Name))
}
