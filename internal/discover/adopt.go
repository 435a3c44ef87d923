package discover

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"github.com/patchbay-mcp/patchbay/config"
)

// Adopted is a server of a product's own file in whose place Patchbay stands: the
// product starts Patchbay, which serves the original, kept here.
type Adopted struct {
	Name     string       `json:"name"` // <provider>/<server>, which tells it from all others
	Provider string       `json:"provider"`
	Scope    config.Scope `json:"scope"`
	File     string       `json:"file"`
	Pointer  string       `json:"pointer"`

	Original string `json:"original"` // the bytes of the entry
	Written  string `json:"written"`  // those that took their place
}

// launchMembers are the members of entries that say how a server is reached, in
// all products. Everything else is the product's own business.
var launchMembers = []string{
	"type", "transport", "transportType", "command", "cmd", "args", "env", "envs", "environment", "envFile", "cwd",
	"url", "serverUrl", "httpUrl", "baseUrl", "uri", "headers", "headersHelper", "oauth", "auth",
	"http_headers", "env_http_headers", "bearer_token_env_var", "http_headers_helper", "scopes", "oauth_resource",
}

func isLaunch(name string) bool { return slices.Contains(launchMembers, name) }

// Adoptable returns the ids of the products whose servers Patchbay can stand in
// for: those whose files it writes, with an entry for each server.
func Adoptable() []string {
	var ids []string
	for id, f := range forms() {
		if !f.list {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Why an entry cannot be adopted, or released.
var (
	ErrOtherFile = errors.New("it is in a file that Patchbay does not write")
	ErrForm      = errors.New("it is written in a way that Patchbay does not edit")
	ErrSandboxed = errors.New("its product runs it in a sandbox, from which Patchbay cannot be reached")
	ErrAsks      = errors.New("it has inputs, which its product asks for")
	ErrEdited    = errors.New("it was edited since")
	ErrReplaced  = errors.New("it is not Patchbay any more")
)

// Adopt returns a product's file with Patchbay in place of a server, and the
// record of that. Members that do not say how the server is reached stay. Where
// Patchbay stands already, as before says, only its command is made new.
func Adopt(data []byte, e config.Entry, name string, self Self, before *Adopted) ([]byte, Adopted, error) {
	a := Adopted{Name: name, Provider: e.Origin.Provider, Scope: e.Origin.Scope, File: e.Origin.File, Pointer: e.Origin.Pointer}
	f, ok := forms()[a.Provider]
	if !ok || f.list || !f.writes(a) {
		return nil, a, ErrOtherFile
	}
	root, err := a.read(data)
	if err != nil {
		return nil, a, err
	}
	was, ok := get(root, a.names())
	if !ok || was.Kind != config.Object {
		return nil, a, ErrForm
	}
	switch on, _ := was.Get("sandboxEnabled"); {
	case on.Text == "true":
		return nil, a, ErrSandboxed
	case len(e.Inputs) > 0:
		return nil, a, ErrAsks
	}
	if a.Original, err = a.text(data); err != nil {
		return nil, a, err
	}
	if read, err := a.parse(a.Original); err != nil || string(read.JSON()) != string(was.JSON()) || !utf8.ValidString(a.Original) {
		return nil, a, ErrForm // it depends on something elsewhere in the file
	}
	self.Args = append(slices.Clone(self.Args), "--endpoint", name)
	ours := slices.DeleteFunc(f.stdio(self), func(m member) bool { return !isLaunch(m.name) })
	if !InheritsAll(a.Provider) {
		ours = append(ours, passedOn(e, was, self.Env)...)
	}
	out, err := a.rewrite(data, was, ours)
	if err != nil {
		return nil, a, err
	}
	if err := a.check(root, out, wanted(was, ours)); err != nil {
		return nil, a, err
	}
	if a.Written, err = a.text(out); err != nil {
		return nil, a, err
	}
	if before != nil { // of which the original is not what stands there
		if !before.unchanged(a.Original) {
			a.Written = before.Written
		}
		a.Original = before.Original
	}
	return out, a, nil
}

// writes reports whether the form is that of a file: one of the user's own that the
// product has for servers, and not one that came with an extension or a plugin.
func (f form) writes(a Adopted) bool {
	for _, p := range Providers() {
		if p.ID != a.Provider {
			continue
		}
		files := f.files
		if files == nil {
			files = []string{filepath.Base(p.Places[0].Path)}
		}
		return slices.Contains(files, filepath.Base(a.File)) && slices.ContainsFunc(p.Places, func(place Place) bool {
			return place.Scope == user && filepath.Base(place.Path) == filepath.Base(a.File)
		})
	}
	return false
}

// passedOn are the members by which a product that gives its servers little of its
// environment passes on the variables that an entry names: they are replaced by
// Patchbay now, in what it gets itself. Others are set.
func passedOn(e config.Entry, was config.Node, set map[string]string) (ours members) {
	env := map[string]string{}
	names := config.References(e.Server, e.Dialect)
	for _, name := range names {
		if text, ok := e.Dialect.Variable(name); ok {
			env[name] = text
		}
	}
	maps.Copy(env, set)
	switch {
	case len(env) == 0:
	case e.Dialect == config.DialectOpencode:
		ours = append(ours, member{"environment", env})
	default:
		ours = append(ours, member{"env", env})
	}
	listed, _ := was.Get("env_vars")
	if all := texts(listed); e.Origin.Provider == "codex" && len(names) > 0 && len(all) == len(listed.Items) { // which has no placeholders
		ours = append(ours, member{"env_vars", mergeNames(all, names)})
	}
	return ours
}

// Movers returns the variables that say where Patchbay finds its own files and
// those of a product, as far as they are set. Whoever has not the same does not
// find what was adopted.
func Movers(provider string, getenv func(string) string) map[string]string {
	names := []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME"}
	for _, p := range Providers() {
		for _, place := range p.Places {
			if inner, ok := strings.CutPrefix(place.Path, "${"); ok && p.ID == provider {
				name, _, _ := strings.Cut(inner, "}")
				name, _, _ = strings.Cut(name, ":-")
				names = append(names, name)
			}
		}
	}
	set := map[string]string{}
	for _, name := range names {
		if value := getenv(name); filepath.IsAbs(value) {
			set[name] = value
		}
	}
	return set
}

// wanted is an entry with Patchbay's members in place of those that say how the
// server is reached.
func wanted(was config.Node, ours members) config.Node {
	n := config.Node{Kind: config.Object}
	for _, m := range was.Members {
		if !isLaunch(m.Name) && !ours.has(m.Name) {
			n.Members = append(n.Members, m)
		}
	}
	entry, _ := config.ParseJSON(ours.json()) // which is JSON
	n.Members = append(n.Members, entry.Members...)
	return n
}

func (m members) has(name string) bool {
	return slices.ContainsFunc(m, func(x member) bool { return x.name == name })
}

// check reports whether a file says the same as it did but for the entry, which
// says what is wanted.
func (a Adopted) check(before config.Node, out []byte, want config.Node) error {
	after, err := a.read(out)
	if err != nil || a.isTOML() && toml.Unmarshal(out, new(map[string]any)) != nil { // which knows of tables that are there twice
		return ErrForm
	}
	blank := func(config.Node) config.Node { return config.Node{Kind: config.Null} }
	is, _ := get(after, a.names())
	same := len(is.Members) == len(want.Members) && contains(is, want)
	replaceAt(&before, a.names(), blank)
	replaceAt(&after, a.names(), blank)
	if !same || string(before.JSON()) != string(after.JSON()) {
		return ErrForm
	}
	return nil
}

// Release returns the file with the original entry in the place of ours, byte for
// byte. If ours was edited it fails with ErrEdited, and with ErrReplaced if it is
// not there any more.
func (a Adopted) Release(data []byte) ([]byte, error) {
	root, err := a.read(data)
	if err != nil {
		return nil, err
	}
	if is, ok := get(root, a.names()); !ok || !a.standsIn(is) {
		return nil, ErrReplaced
	}
	text, err := a.text(data)
	if err != nil || !a.unchanged(text) {
		return nil, ErrEdited
	}
	out, err := a.setText(data, a.Original)
	if err != nil {
		return nil, err
	}
	original, err := a.parse(a.Original)
	if err != nil {
		return nil, err
	}
	return out, a.check(root, out, original)
}

// Restored reports whether the original stands in its place.
func (a Adopted) Restored(data []byte) bool {
	text, err := a.text(data)
	return err == nil && text == a.Original
}

// Server is the name of the server, as its product has it.
func (a Adopted) Server() string {
	names := a.names()
	return names[len(names)-1]
}

// unchanged reports whether an entry says what was written. A product that saves
// its file may have laid it out anew.
func (a Adopted) unchanged(text string) bool {
	if text == a.Written {
		return true
	}
	is, err1 := a.parse(text)
	was, err2 := a.parse(a.Written)
	return err1 == nil && err2 == nil && string(is.JSON()) == string(was.JSON())
}

// standsIn reports whether an entry is Patchbay in the place of this server.
func (a Adopted) standsIn(entry config.Node) bool {
	return endpointOf(entry) == a.Name
}

// endpointOf is what an entry that starts Patchbay asks it for.
func endpointOf(entry config.Node) string {
	all := texts(entry)
	i := slices.Index(all, "--endpoint")
	if i < 0 || i+1 >= len(all) || !isSelf(entry) {
		return ""
	}
	return all[i+1]
}

// program is what our entry starts.
func program(entry config.Node) string {
	all := texts(entry)
	if i := slices.Index(all, "serve"); i > 0 {
		return all[i-1]
	}
	return ""
}

// meant is what an entry in which Patchbay stands in for a server means: the
// original, with what was changed since of all that is the product's own business.
func (a Adopted) meant(is config.Node) (config.Node, bool) {
	original, err := a.parse(a.Original)
	if err != nil {
		return config.Node{}, false
	}
	written, err := a.parse(a.Written)
	if err != nil {
		return config.Node{}, false
	}
	out := config.Node{Kind: config.Object, Line: is.Line, Column: is.Column}
	for _, m := range original.Members {
		then, had := written.Get(m.Name)
		now, has := is.Get(m.Name)
		switch {
		case isLaunch(m.Name), !had, has && string(now.JSON()) == string(then.JSON()):
			place(&m.Value, is.Line, is.Column)
		case !has:
			continue
		default:
			m.Value = now
		}
		m.Line = is.Line
		out.Members = append(out.Members, m)
	}
	for _, m := range is.Members {
		_, then := original.Get(m.Name)
		if _, had := written.Get(m.Name); !then && !had && !isLaunch(m.Name) {
			out.Members = append(out.Members, m)
		}
	}
	return out, true
}

// place says that a node is on a line.
func place(n *config.Node, line, column int) {
	n.Line, n.Column = line, column
	for i := range n.Items {
		place(&n.Items[i], line, column)
	}
	for i := range n.Members {
		n.Members[i].Line = line
		place(&n.Members[i].Value, line, column)
	}
}

// standIns puts the originals in the place of the entries that stand for them, and
// remembers which those are.
func (d *doc) standIns() {
	for _, a := range d.scan.env.Adopted {
		if a.File != d.path || a.Provider != d.origin.Provider {
			continue
		}
		replaceAt(&d.root, a.names(), func(is config.Node) config.Node {
			if !a.standsIn(is) {
				return is
			}
			original, ok := a.meant(is)
			if !ok {
				return is
			}
			if d.adopted == nil {
				d.adopted = map[string]standIn{}
			}
			d.adopted[a.Pointer] = standIn{a.Name, program(is)}
			return original
		})
	}
}

// standIn is an entry that stands for another.
type standIn struct{ name, program string }

// adoption tells of an entry for which Patchbay stands, and what is wrong with
// that: its program is gone, or its original is.
func (d *doc) adoption(e *config.Entry, node config.Node) {
	s, ok := d.adopted[e.Origin.Pointer]
	if !ok {
		if name := endpointOf(node); strings.Contains(name, "/") {
			e.Problems = append(e.Problems, problemAt(config.SeverityWarning, *e, node, fmt.Sprintf("Patchbay stands here for %q, of which nothing is kept on this machine", config.Escape(name))))
		}
		return
	}
	e.Adopted = s.name
	e.Origin.Project = "" // wherever its file is seen from: it was the user's own, and comes from their state
	if _, err := os.Stat(s.program); !filepath.IsAbs(s.program) || err == nil {
		return
	}
	p := problemAt(config.SeverityWarning, *e, node, fmt.Sprintf("%s stands for this server in %s and is gone", config.Escape(s.program), e.Origin.Product))
	p.Hint = fmt.Sprintf("Run `patchbay adopt %s` again, or `patchbay release %[1]s`. The original: %s", e.Origin.Provider, config.MarshalMasked(e.Server))
	e.Problems = append(e.Problems, p)
}

// replaceAt has a function replace the node that names lead to, if there is one.
// What is above it is copied, so that no other tree changes.
func replaceAt(n *config.Node, names []string, with func(config.Node) config.Node) {
	if len(names) == 0 {
		*n = with(*n)
		return
	}
	n.Members = slices.Clone(n.Members)
	for i, m := range n.Members {
		if m.Name == names[0] && !m.Repeated {
			replaceAt(&n.Members[i].Value, names[1:], with)
			return
		}
	}
}

func (a Adopted) names() []string {
	names := strings.Split(strings.TrimPrefix(a.Pointer, "/"), "/")
	for i, n := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(n)
	}
	return names
}

func (a Adopted) isTOML() bool { return strings.EqualFold(filepath.Ext(a.File), ".toml") }

// marked reports whether the file is of a format in which an entry is lines.
func (a Adopted) marked() bool { return Target{File: a.File}.marked() }

// read parses the file, and of a long one no more than the entry.
func (a Adopted) read(data []byte) (config.Node, error) {
	if len(data) <= config.MaxFileSize || a.marked() {
		return parse(a.File, data)
	}
	var part config.Part
	for _, name := range slices.Backward(a.names()) {
		part = config.Part{name: part}
	}
	return config.ReadPart(bytes.NewReader(data), part)
}

// parse reads the bytes of an entry.
func (a Adopted) parse(text string) (config.Node, error) {
	root, err := parse(a.File, []byte(text))
	if err != nil || !a.marked() {
		return root, err
	}
	names := a.names()
	if !a.isTOML() {
		names = names[len(names)-1:]
	}
	n, ok := get(root, names)
	if !ok {
		return n, ErrForm
	}
	return n, nil
}

// text returns the bytes of the entry.
func (a Adopted) text(data []byte) (string, error) {
	if !a.marked() {
		text, err := config.MemberText(data, a.Pointer)
		return string(text), err
	}
	b, err := a.lines(data)
	if err != nil {
		return "", err
	}
	return string(data[b.from:b.to]), nil
}

// setText returns the file with other bytes for the entry.
func (a Adopted) setText(data []byte, text string) ([]byte, error) {
	if !a.marked() {
		return config.SetMemberText(data, a.Pointer, []byte(text))
	}
	b, err := a.lines(data)
	if err != nil {
		return nil, err
	}
	return slices.Concat(data[:b.from], []byte(text), data[b.to:]), nil
}

// rewrite returns the file with our members in the entry.
func (a Adopted) rewrite(data []byte, was config.Node, ours members) ([]byte, error) {
	if !a.marked() {
		return config.SetMember(data, a.Pointer, wanted(was, ours).JSON())
	}
	b, err := a.lines(data)
	if err != nil {
		return nil, err
	}
	eol := "\n"
	if bytes.Contains(data[b.from:b.body], []byte("\r\n")) {
		eol = "\r\n"
	}
	var text strings.Builder
	text.Write(data[b.from:b.body])
	for _, m := range ours {
		if a.isTOML() {
			text.WriteString(m.name + " = " + tomlLiteral(m.value) + eol)
		} else {
			text.WriteString(b.indent + m.name + ": " + literal(m.value) + eol)
		}
	}
	for i, part := range b.parts {
		end := b.to
		if i+1 < len(b.parts) {
			end = b.parts[i+1].from
		}
		if part.name == "" || !isLaunch(part.name) && !ours.has(part.name) {
			text.Write(data[part.from:end])
		}
	}
	written := strings.TrimRight(text.String(), "\r\n") // as the entry itself ends
	if bytes.HasSuffix(data[b.from:b.to], []byte("\n")) {
		written += eol
	}
	return slices.Concat(data[:b.from], []byte(written), data[b.to:]), nil
}
