package patchbay

import (
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A URI is unique within its server only. One that a single server offers keeps
// its form, so that what tools answer about it stays true; those that several
// offer are told apart by a form of our own, which is understood for any.

// uriScheme begins the form that names the server, as in
// patchbay://server/file:///a/b. It works for templates as well.
const uriScheme = "patchbay://"

// qualifiedURI names a resource or a template together with its server.
func qualifiedURI(server, uri string) string { return uriScheme + server + "/" + uri }

// uris is which server offers what.
type uris struct {
	servers   []string            // that offer resources
	resources map[string][]string // servers, by URI
	templates map[string][]string // servers, by template
}

func (set *toolSet) routeURIs() *uris {
	u := &uris{resources: map[string][]string{}, templates: map[string][]string{}}
	add := func(to map[string][]string, uri, server string) {
		if !slices.Contains(to[uri], server) {
			to[uri] = append(to[uri], server)
		}
	}
	for i, st := range set.inputs.servers {
		c := set.inputs.catalogs[i]
		if c == nil || set.denied[st.Name] != nil {
			continue
		}
		if _, ok := wire.Member(c.Capabilities, "resources"); ok {
			u.servers = append(u.servers, st.Name)
		}
		for _, raw := range c.Resources {
			uri, _ := wire.StringMember(raw, "uri")
			add(u.resources, uri, st.Name)
		}
		for _, raw := range c.ResourceTemplates {
			template, _ := wire.StringMember(raw, "uriTemplate")
			add(u.templates, template, st.Name)
		}
	}
	return u
}

// FullURI is the form of a resource's URI, or of a template, that means this
// server's and no other's: the server's own if no other offers the same.
func (s *Session) FullURI(server, uri string) string {
	u := s.toolset().uris()
	if len(u.resources[uri]) > 1 || len(u.templates[uri]) > 1 || strings.HasPrefix(uri, uriScheme) {
		return qualifiedURI(server, uri)
	}
	return uri
}

// FindResource returns the server that a URI, or a template, belongs to, and the
// form that server knows it by: the server that lists it, or whose template it
// fits, or the only one with resources.
func (s *Session) FindResource(uri string) (server, own string, err error) {
	u := s.toolset().uris()
	if rest, ok := strings.CutPrefix(uri, uriScheme); ok {
		server, own, ok = strings.Cut(rest, "/")
		if ok && slices.Contains(u.servers, server) {
			return server, own, nil
		}
		return "", "", errorf(KindNotFound, "Server %q offers no resources here.", server)
	}
	for _, servers := range [][]string{u.resources[uri], u.templates[uri], u.matching(uri), u.servers} {
		if len(servers) == 1 {
			return servers[0], uri, nil
		}
		if len(servers) > 1 {
			return "", "", errorf(KindNotFound, "It cannot be told which server %q belongs to: %s.", uri, strings.Join(servers, ", ")).
				hint("Name it, as in %s.", qualifiedURI(servers[0], uri))
		}
	}
	return "", "", errorf(KindNotFound, "No server offers resources.")
}

// matching are the servers with the template that says most about a URI.
func (u *uris) matching(uri string) []string {
	var best []string
	most := -1
	for template, servers := range u.templates {
		literal, ok := fitsTemplate(template, uri)
		switch {
		case !ok || literal < most:
		case literal > most:
			most, best = literal, slices.Clone(servers)
		default:
			best = append(best, servers...)
		}
	}
	slices.Sort(best)
	return slices.Compact(best)
}

// fitsTemplate reports whether a URI may be an expansion of a template (RFC
// 6570), and how many characters of it the template itself has. It is meant to
// choose among servers, so it is generous about what an expression stands for.
func fitsTemplate(template, uri string) (literal int, ok bool) {
	rest, first := template, true
	for rest != "" {
		text, expression, found := strings.Cut(rest, "{")
		switch {
		case first && !strings.HasPrefix(uri, text), !found && !strings.HasSuffix(uri, text):
			return 0, false
		case first:
			uri = uri[len(text):]
		default:
			i := strings.Index(uri, text)
			if i < 0 {
				return 0, false
			}
			uri = uri[i+len(text):]
		}
		literal += len(text)
		if !found {
			return literal, !first || uri == ""
		}
		_, rest, found = strings.Cut(expression, "}")
		if !found {
			return 0, false
		}
		first = false
	}
	return literal, true
}
