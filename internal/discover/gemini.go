package discover

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// geminiServer reads a server of Gemini CLI and Qwen Code. There a URL alone
// means SSE, and httpUrl means Streamable HTTP.
func geminiServer(_ *doc, f *config.Fields, e *config.Entry) {
	e.Server = common(f, "url")
	s := &e.Server
	s.Timeout = f.Millis("timeout", 1)
	s.EnabledTools = f.Strings("includeTools")
	s.DisabledTools = slices.Concat(s.DisabledTools, f.Strings("excludeTools"))
	httpURL := f.String("httpUrl")
	switch {
	case httpURL != "":
		s.URL, s.Type = httpURL, config.HTTP // as the products: httpUrl goes before url
	case s.URL != "" && s.Type == "" && s.Command == "":
		s.Type = config.SSE
	}
}

// gemini reads settings.json of Gemini CLI and Qwen Code: the servers, and
// which of them may be used.
func gemini(d *doc) {
	serversAt(geminiServer, "mcpServers")(d)
	mcp, pointer, ok := d.find("mcp")
	if !ok {
		return
	}
	excluded, _ := d.names(mcp, pointer, "excluded")
	d.denyNames(excluded, "mcp.excluded", nil)
	if allowed, listed := d.names(mcp, pointer, "allowed"); listed {
		d.rule(func(e *config.Entry) string {
			if !slices.Contains(allowed, sourceName(e)) {
				return "not in mcp.allowed"
			}
			return ""
		})
	}
}

// geminiExtension reads the manifest of an extension, whose servers may name
// the extension's own directory.
func geminiExtension(d *doc) {
	d.base = filepath.Dir(d.path)
	own := strings.NewReplacer("${extensionPath}", d.base, "${workspacePath}", d.scan.env.Project,
		"${/}", string(filepath.Separator), "${pathSeparator}", string(filepath.Separator))
	serversAt(func(d *doc, f *config.Fields, e *config.Entry) {
		geminiServer(d, f, e)
		s := &e.Server
		for _, text := range []*string{&s.Command, &s.Cwd, &s.URL, &s.EnvFile} {
			*text = own.Replace(*text)
		}
		for i := range s.Args {
			s.Args[i] = own.Replace(s.Args[i])
		}
		for name, value := range s.Env {
			s.Env[name] = config.NewSecret(own.Replace(value.Reveal()))
		}
	}, "mcpServers")(d)
}
