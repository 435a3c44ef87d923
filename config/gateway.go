package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DefaultListen is where the gateway listens unless it is told otherwise.
const DefaultListen = "127.0.0.1:7332"

// DefaultFirstList is how long a list waits for servers of which nothing is known
// yet. Many clients list once and never again.
const DefaultFirstList = 5 * time.Second

// maxFirstList is as long as a server may take to start, many times over.
const maxFirstList = 10 * time.Minute

// Memory that a gateway may use.
const (
	DefaultMemory = 512 << 20
	minMemory     = 64 << 20 // with less it could not do its work
)

// ParseMemory reads an amount of memory for a gateway, in bytes.
func ParseMemory(text string) (int64, error) {
	number, unit := text, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
	if unit == 1 || err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no amount of memory, such as 256MiB or 1GiB", text)
	}
	if n*unit < minMemory {
		return 0, fmt.Errorf("%s is not enough memory: at least %dMiB", text, minMemory>>20)
	}
	return n * unit, nil
}

// MemoryLimit is how many bytes the gateway may use.
func (g Gateway) MemoryLimit() int64 {
	if n, err := ParseMemory(g.Memory); err == nil {
		return n
	}
	return DefaultMemory
}

// GatewayTokenPrefix lets people, and programs that look for leaked secrets, tell
// what a token is for.
const GatewayTokenPrefix = "pbgw_"

// Gateway is how `patchbay serve` is reached, and by whom.
type Gateway struct {
	Listen string `json:"listen,omitempty"` // address and port; empty means DefaultListen

	// URL is where clients reach the gateway, without a path, if that is not
	// where it listens: behind a proxy, for example.
	URL string `json:"url,omitempty"`

	Profiles map[string]Profile `json:"profiles,omitempty"` // selections, served at /mcp/@name

	// Naming is how tools and prompts of several servers are named. Clients put a
	// prefix of their own before these names, so without a style it is plain, and
	// without a length they leave room for the prefix.
	Naming Naming `json:"naming,omitzero"`

	FirstList *int64 `json:"firstList,omitempty"` // ms that a list waits for servers of which nothing is known yet; nil means DefaultFirstList

	OIDC OIDC `json:"oidc,omitzero"`

	// Daemon says whether agents and commands share the servers of one daemon; nil
	// means that they do.
	Daemon *bool `json:"daemon,omitempty"`

	Memory string `json:"memory,omitempty"` // that it may use, such as 256MiB; empty means DefaultMemory

	// ManyUsers says that clients which say the same of themselves may be several
	// people's, as those of a service are: then a server's question that may belong
	// to any of several requests is asked in none of them.
	ManyUsers bool `json:"manyUsers,omitempty"`

	AllowedHosts   []string `json:"allowedHosts,omitempty"`   // further names under which it may be addressed
	AllowedOrigins []string `json:"allowedOrigins,omitempty"` // web pages that may send requests
}

// Endpoint is the URL at which clients on this machine find everything, as far
// as the settings say.
func (g Gateway) Endpoint() string {
	if g.URL != "" {
		return g.URL + "/mcp"
	}
	host, port, err := net.SplitHostPort(cmp.Or(g.Listen, DefaultListen))
	if err != nil { // decoding leaves no other
		return "http://" + DefaultListen + "/mcp"
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/mcp"
}

// ListPatience is how long a list waits for servers of which nothing is known yet.
func (g Gateway) ListPatience() time.Duration {
	if g.FirstList == nil {
		return DefaultFirstList
	}
	return time.Duration(*g.FirstList) * time.Millisecond
}

// Profile is a named selection of servers and tools. In lists nil means all and
// empty means none.
type Profile struct {
	Servers []string `json:"servers,omitempty"`
	Tools   []string `json:"tools,omitempty"` // names or patterns, as in permissions
}

// OIDC names an authorization server whose access tokens are accepted.
type OIDC struct {
	Issuer   string   `json:"issuer,omitempty"`
	Audience string   `json:"audience,omitempty"` // that a token must be for; empty means the URL of the endpoint, which gateway.url must say then
	Scopes   []string `json:"scopes,omitempty"`   // that a token must have
}

// profileName is what fits into a path as it is.
var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// decodeGateway reads the gateway's settings. What cannot be understood is left
// out, which never opens anything: without an issuer no access token counts,
// and a selection nobody understands selects nothing.
func decodeGateway(f *Fields) Gateway {
	g := Gateway{Listen: f.String("listen"), URL: strings.TrimSuffix(f.String("url"), "/"), AllowedHosts: f.Strings("allowedHosts"), AllowedOrigins: f.Strings("allowedOrigins")}
	if g.Listen != "" {
		if _, _, err := net.SplitHostPort(g.Listen); err != nil {
			f.Report(SeverityError, "listen", fmt.Sprintf("%q is no address with a port, such as %s", g.Listen, DefaultListen), "")
			g.Listen = ""
		}
	}
	if u, err := url.Parse(g.URL); g.URL != "" && (err != nil || !isWeb(u) || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
		f.Report(SeverityError, "url", fmt.Sprintf("%q is not of the form https://host", g.URL), "")
		g.URL = ""
	}
	if p := f.Object("profiles"); p != nil {
		g.Profiles = decodeProfiles(p)
	}
	g.Naming = decodeNaming(f)
	if g.FirstList = f.Millis("firstList", 1); g.FirstList != nil && *g.FirstList > maxFirstList.Milliseconds() {
		f.Report(SeverityError, "firstList", fmt.Sprintf("a list waits for %d ms at most", maxFirstList.Milliseconds()), "")
		g.FirstList = nil
	}
	if many := f.Bool("manyUsers"); many != nil {
		g.ManyUsers = *many
	}
	g.Daemon = f.Bool("daemon")
	if o := f.Object("oidc"); o != nil {
		g.OIDC = OIDC{Issuer: o.String("issuer"), Audience: o.String("audience"), Scopes: o.Strings("scopes")}
		if err := checkIssuer(g.OIDC.Issuer); err != nil {
			o.Report(SeverityError, "issuer", err.Error(), "until it is corrected, no access token is accepted")
			g.OIDC = OIDC{}
		} else if g.OIDC.Audience == "" && !hasOwnName(g.URL) {
			o.Report(SeverityError, "audience", "it is needed where gateway.url does not say how others reach the gateway: http://"+DefaultListen+"/mcp is the same on each machine, so a token for one would be good for all",
				"until it is there, no access token is accepted")
			g.OIDC = OIDC{}
		}
		o.reportUnknown()
	}
	if g.Memory = f.String("memory"); g.Memory != "" {
		if _, err := ParseMemory(g.Memory); err != nil {
			f.Report(SeverityError, "memory", err.Error(), "")
			g.Memory = ""
		}
	}
	f.reportUnknown()
	return g
}

// hasOwnName reports whether an address is that of one machine, and not the
// same on all of them.
func hasOwnName(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return !IsLoopback(u.Hostname()) && (err != nil || !ip.IsUnspecified())
}

func decodeProfiles(f *Fields) map[string]Profile {
	profiles := map[string]Profile{}
	for _, m := range f.Node.Members {
		p := f.Object(m.Name)
		if m.Repeated || p == nil {
			continue
		}
		if !profileName.MatchString(m.Name) {
			f.Report(SeverityError, m.Name, fmt.Sprintf("%q cannot be the name of a profile: letters, digits, \"-\", \"_\" and \".\", at most 64", m.Name), "")
			continue
		}
		profiles[m.Name] = Profile{Servers: p.selection("servers"), Tools: p.selection("tools")}
		p.reportUnknown()
	}
	f.Rest() // reports what occurs twice
	return profiles
}

// selection reads a list of names that select. One that is no list was meant to
// select something, so it must not mean all.
func (f *Fields) selection(name string) []string {
	list := f.Strings(name)
	if _, given := f.Take(name); given && list == nil {
		return []string{}
	}
	return list
}

// checkIssuer accepts an https URL, and an http one for this machine itself.
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case issuer == "":
		return fmt.Errorf("an issuer is needed to check access tokens")
	case err != nil || !isWeb(u) || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("%q is not the URL of an issuer", issuer)
	case u.Scheme == "http" && !IsLoopback(u.Hostname()):
		return fmt.Errorf("the issuer %q must be reached over https", issuer)
	}
	return nil
}

func isWeb(u *url.URL) bool { return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" }

// IsLoopback reports whether a host name or address always means this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
