package discover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
)

// SelfName is what Patchbay is called in the files of other products.
const SelfName = "patchbay"

// Self is Patchbay as another product is to know it: a program to start, or an
// address.
type Self struct {
	Command string
	Args    []string
	Env     map[string]string // set for it, if the product passes on little

	URL   string        // instead of a command
	Token config.Secret // presented there
}

// Target is the file of a product into which an entry for Patchbay goes, and
// the form it has there. It decides what the file is to be; others write it.
type Target struct {
	Provider Provider
	File     string
	form     form
}

// form is how a product writes down a server.
type form struct {
	files  []string // names of its files that have servers; the first is for a new one
	at     []string // members on the way to the servers
	list   bool     // the servers are a list, each with its name
	locate func(root config.Node) []string
	stdio  func(Self) members
	http   func(Self) members // nil: the product sends no headers, or how is not known

	mustExist bool // a new file would need more than a server
}

// members are those of a server's entry, in order.
type members []member

type member struct {
	name  string
	value any // what encoding/json takes
}

func (m members) json() json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, x := range m {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(literal(x.name) + ":" + literal(x.value))
	}
	out.WriteByte('}')
	return out.Bytes()
}

// literal renders a value in JSON, which is as good in YAML.
func literal(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // texts, booleans and lists and maps of them
	return strings.TrimSuffix(out.String(), "\n")
}

func (s Self) headers() map[string]string {
	return map[string]string{"Authorization": "Bearer " + s.Token.Reveal()}
}

// Builders of entries: the plain form, and what products add to it.

func started(extra ...member) func(Self) members {
	return func(s Self) members {
		return append(slices.Clone(extra), member{"command", s.Command}, member{"args", s.Args})
	}
}

func reached(address string, extra ...member) func(Self) members {
	return func(s Self) members {
		return append(slices.Clone(extra), member{address, s.URL}, member{"headers", s.headers()})
	}
}

func opencodeStarted(s Self) members {
	return members{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}}
}

func gooseForm(kind string, how func(Self) members) func(Self) members {
	return func(s Self) members {
		return append(members{{"name", SelfName}, {"type", kind}, {"enabled", true}}, how(s)...)
	}
}

// forms returns how each product writes servers down, by its id. Who is not in
// it keeps them where no program can put one, or in a form that is not known.
func forms() map[string]form {
	servers := []string{"mcpServers"}
	plainForm := form{at: servers, stdio: started()}
	webForm := form{at: servers, stdio: started(), http: reached("url")}
	typed := form{at: servers, stdio: started(member{"type", "stdio"}), http: reached("url", member{"type", "http"})}
	serverURL := form{at: servers, stdio: started(), http: reached("serverUrl")}
	httpURL := form{at: servers, stdio: started(), http: reached("httpUrl")}
	withFiles := func(f form, files ...string) form { f.files = files; return f }
	withHTTP := func(f form, http func(Self) members) form { f.http = http; return f }
	opencodeForm := form{at: []string{"mcp"}, locate: locateOpencode, stdio: opencodeStarted, http: reached("url", member{"type", "remote"})}
	return map[string]form{
		claudeProvider:   withFiles(typed, ".mcp.json", ".claude.json"),
		"codex":          {at: []string{"mcp_servers"}, stdio: started(), http: func(s Self) members { return members{{"url", s.URL}, {"http_headers", s.headers()}} }},
		"gemini":         httpURL,
		"qwen":           httpURL,
		"opencode":       withFiles(opencodeForm, "opencode.json", "opencode.jsonc"),
		"kilo":           withFiles(opencodeForm, "kilo.json", "kilo.jsonc"),
		"cursor":         webForm,
		"windsurf":       serverURL,
		"antigravity":    serverURL,
		"amazon-q":       withHTTP(plainForm, reached("url", member{"type", "http"})),
		"amp":            {at: []string{"amp.mcpServers"}, stdio: started(), http: reached("url")},
		"claude-desktop": plainForm,
		"cline":          withHTTP(plainForm, reached("url", member{"type", "streamableHttp"})),
		"continue": {at: servers, list: true, mustExist: true, files: []string{"config.yaml"},
			stdio: started(member{"type", "stdio"}),
			http: func(s Self) members {
				return members{{"type", "streamable-http"}, {"url", s.URL}, {"requestOptions", map[string]any{"headers": s.headers()}}}
			}},
		"copilot": {at: servers, locate: locateCopilot, files: []string{"mcp.json", "mcp-config.json"},
			stdio: started(member{"type", "local"}, member{"tools", []string{"*"}}),
			http:  reached("url", member{"type", "http"}, member{"tools", []string{"*"}})},
		"crush":   withFiles(form{at: []string{"mcp"}, stdio: typed.stdio, http: typed.http}, "crush.json", ".crush.json"),
		"factory": plainForm,
		"goose": {at: []string{"extensions"},
			stdio: gooseForm("stdio", func(s Self) members { return members{{"cmd", s.Command}, {"args", s.Args}} }),
			http:  gooseForm("streamable_http", func(s Self) members { return members{{"uri", s.URL}, {"headers", s.headers()}} })},
		"inspector": plainForm,
		"junie":     plainForm,
		"kimi":      plainForm,
		"kiro":      webForm,
		"lm-studio": webForm,
		"mcporter":  withFiles(withHTTP(plainForm, reached("baseUrl")), "mcporter.json", "mcporter.jsonc"),
		"omp":       withFiles(typed, "mcp.json", ".mcp.json"),
		"pi":        typed,
		"qoder":     withFiles(typed, "settings.json"),
		"roo":       withFiles(withHTTP(plainForm, reached("url", member{"type", "streamable-http"})), "mcp.json", "mcp_settings.json"),
		"trae":      plainForm,
		"vscode":    {at: []string{"servers"}, stdio: typed.stdio, http: typed.http},
		"xcsh":      withFiles(typed, "mcp.json", ".mcp.json"),
		"zed":       {at: []string{"context_servers"}, stdio: started(), http: reached("url")},
	}
}

// locateOpencode finds the second layout, where a file has it.
func locateOpencode(root config.Node) []string {
	mcp, _ := root.Get("mcp")
	if servers, ok := mcp.Get("servers"); ok && servers.Kind == config.Object {
		if _, isServer := servers.Get("type"); !isServer {
			return []string{"mcp", "servers"}
		}
	}
	return nil
}

// locateCopilot finds the servers of a file that has nothing around them.
func locateCopilot(root config.Node) []string {
	if _, ok := root.Get("mcpServers"); !ok && len(root.Members) > 0 {
		return []string{}
	}
	return nil
}

// Installable returns the products that an entry for Patchbay can be written
// for, with the scopes they have files for.
func Installable(goos string) map[string][]config.Scope {
	out := map[string][]config.Scope{}
	for _, p := range Providers() {
		if f, ok := forms()[p.ID]; ok {
			for _, scope := range []config.Scope{config.ScopeUser, config.ScopeProject} {
				if len(f.places(&p, goos, scope)) > 0 {
					out[p.ID] = append(out[p.ID], scope)
				}
			}
		}
	}
	return out
}

// places are those of a provider in which an entry can be written: the names of
// their files are known to hold servers.
func (f form) places(p *Provider, goos string, scope config.Scope) []*Place {
	var out []*Place
	for i := range p.Places {
		place := &p.Places[i]
		wanted := f.files
		if wanted == nil {
			wanted = []string{path.Base(p.Places[0].Path)}
		}
		if place.Scope == scope && (place.OS == "" || place.OS == goos) && place.Note == "" && place.script == nil && !strings.Contains(place.Path, "*") && slices.Contains(wanted, path.Base(place.Path)) {
			out = append(out, place)
		}
	}
	return out
}

// errNoTarget says that a product has no place for an entry.
var errNoTarget = errors.New("no place for an entry")

// FindTarget returns where an entry of a product goes: the file that exists
// already, else the one the product would make.
func FindTarget(env Env, id string, scope config.Scope) (Target, error) {
	providers := Providers()
	i := slices.IndexFunc(providers, func(p Provider) bool { return p.ID == id })
	if i < 0 {
		return Target{}, errNoTarget
	}
	t := Target{Provider: providers[i]}
	var ok bool
	if t.form, ok = forms()[id]; !ok {
		return Target{}, errNoTarget
	}
	s := newScan(env)
	var all []string
	for _, place := range t.form.places(&t.Provider, env.OS, scope) {
		root, rest := s.env.Project, place.Path
		if !place.relative() {
			if root, rest, _ = s.resolve(place.Path); root == "" {
				continue
			}
		}
		file := filepath.Join(root, filepath.FromSlash(rest))
		if _, err := os.Lstat(file); err == nil {
			t.File = file
			return t, nil
		}
		all = append(all, file)
	}
	if len(all) == 0 {
		return Target{}, errNoTarget
	}
	t.File = all[0]
	if i := slices.IndexFunc(all, func(file string) bool {
		return t.form.files != nil && filepath.Base(file) == t.form.files[0]
	}); i >= 0 {
		t.File = all[i]
	}
	return t, nil
}

// HTTP reports whether the product can be told an address and a token.
func (t Target) HTTP() bool { return t.form.http != nil }

// MustExist reports whether the product makes the file itself, with more in it
// than servers.
func (t Target) MustExist() bool { return t.form.mustExist }

// Errors that tell whose entry a file has.
var (
	ErrForeign   = errors.New("has an entry named patchbay that is not Patchbay")
	ErrUnmarked  = errors.New("has an entry for Patchbay that was written by hand")
	ErrCannotAdd = errors.New("is written in a way that cannot be added to")
)

func (t Target) entry(self Self) members {
	if self.URL != "" {
		return t.form.http(self)
	}
	return t.form.stdio(self)
}

// Set returns the file with the entry for Patchbay in it. If it is there
// already, with whatever a person added to it, the file is returned as it is.
func (t Target) Set(old []byte, self Self) ([]byte, error) {
	if t.marked() {
		return t.setBlock(old, t.entry(self))
	}
	root, err := t.parse(old)
	if err != nil {
		return nil, err
	}
	entry := t.entry(self).json()
	if there, ok := t.find(root); ok {
		if !isSelf(there) {
			return nil, ErrForeign
		}
		if wanted, err := config.ParseJSON(entry); err == nil && contains(there, wanted) {
			return old, nil
		}
	}
	return config.SetMember(old, pointerTo(t.at(root), SelfName), entry)
}

// Remove returns the file without the entry for Patchbay, and without what held
// nothing else. What is not Patchbay stays.
func (t Target) Remove(old []byte) ([]byte, error) {
	if t.marked() {
		return t.removeBlock(old)
	}
	root, err := t.parse(old)
	if err != nil {
		return nil, err
	}
	there, ok := t.find(root)
	if !ok {
		return old, nil
	}
	if !isSelf(there) {
		return nil, ErrForeign
	}
	at := t.at(root)
	if holder, _ := get(root, at); len(holder.Members) == 1 && len(at) > 0 && slices.Equal(at, t.form.at) {
		return config.RemoveMember(old, pointerTo(at[:len(at)-1], at[len(at)-1]))
	}
	return config.RemoveMember(old, pointerTo(at, SelfName))
}

func (t Target) parse(data []byte) (config.Node, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return config.Node{Kind: config.Object}, nil
	}
	root, err := t.read(data)
	if syntax, ok := errors.AsType[*config.SyntaxError](err); ok {
		return root, fmt.Errorf("%d:%d: %s", syntax.Line, syntax.Column, syntax.Message)
	}
	return root, err
}

// read parses a file, and of a long one no more than the servers.
func (t Target) read(data []byte) (config.Node, error) {
	if len(data) > config.MaxFileSize && t.form.locate == nil {
		return config.ReadPart(bytes.NewReader(data), config.Part{t.form.at[0]: nil})
	}
	return parse(t.File, data)
}

func (t Target) at(root config.Node) []string {
	if t.form.locate != nil {
		if at := t.form.locate(root); at != nil {
			return at
		}
	}
	return t.form.at
}

func pointerTo(at []string, name string) string {
	pointer := ""
	for _, n := range at {
		pointer = config.PointerTo(pointer, n)
	}
	return config.PointerTo(pointer, name)
}

func get(n config.Node, names []string) (config.Node, bool) {
	for _, name := range names {
		var ok bool
		if n, ok = n.Get(name); !ok {
			return n, false
		}
	}
	return n, true
}

// contains reports whether an object has all members of another.
func contains(there, wanted config.Node) bool {
	for _, m := range wanted.Members {
		if v, ok := there.Get(m.Name); !ok || string(v.JSON()) != string(m.Value.JSON()) {
			return false
		}
	}
	return true
}

// isSelf reports whether an entry called patchbay is Patchbay, whatever the
// product: it starts a program to serve, or has an address and a token of ours.
func isSelf(entry config.Node) bool {
	all := texts(entry)
	has := func(is func(string) bool) bool { return slices.ContainsFunc(all, is) }
	is := func(text string) func(string) bool { return func(s string) bool { return s == text } }
	return has(is("serve")) && (has(isOurName) || has(is("--stdio"))) ||
		has(servesGateway) && has(func(s string) bool { return strings.HasPrefix(s, "Bearer "+config.GatewayTokenPrefix) })
}

func servesGateway(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Path == "/mcp" || strings.HasPrefix(u.Path, "/mcp/"))
}

// texts lists the texts among the values of a node.
func texts(n config.Node) []string {
	var out []string
	if n.Kind == config.String {
		out = append(out, n.Text)
	}
	for _, it := range n.Items {
		out = append(out, texts(it)...)
	}
	for _, m := range n.Members {
		out = append(out, texts(m.Value)...)
	}
	return out
}

// Texts returns the texts of a file's entry for Patchbay; nil if there is none.
func (t Target) Texts(data []byte) []string {
	root, err := t.parse(data)
	if err != nil {
		return nil
	}
	there, ok := t.find(root)
	if !ok || !isSelf(there) {
		return nil
	}
	return texts(there)
}
