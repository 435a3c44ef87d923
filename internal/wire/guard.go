package wire

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Guard turns away requests that a web page has caused, whether through a name
// that was rebound to this machine or across origins. Programs that are not
// browsers send neither Origin nor Sec-Fetch-Site and pass. The zero Guard
// admits loopback names only.
type Guard struct {
	// Hosts are further names, with or without a port, under which the server
	// may be addressed. "*" admits any: right only where every request is
	// authenticated.
	Hosts []string

	// Origins are further origins, as scheme://host[:port], that may send
	// requests. What is listed here may do so across sites.
	Origins []string
}

// Check returns nil if the request may pass.
func (g Guard) Check(r *http.Request) *Refusal {
	if !g.host(r.Host) {
		return refuse(http.StatusMisdirectedRequest, CodeInvalidRequest, "Host denied")
	}
	origins := r.Header["Origin"]
	if len(origins) > 1 {
		return refuse(http.StatusForbidden, CodeInvalidRequest, "Origin denied")
	}
	if len(origins) == 1 {
		for _, o := range g.Origins {
			if strings.EqualFold(o, origins[0]) {
				return nil
			}
		}
		if !loopbackOrigin(origins[0]) {
			return refuse(http.StatusForbidden, CodeInvalidRequest, "Origin denied")
		}
	}
	// A page on another port of the same machine is of the same site.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	return refuse(http.StatusForbidden, CodeInvalidRequest, "cross-site request denied")
}

// Protect puts the guard in front of a handler.
func (g Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := g.Check(r); no != nil {
			no.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g Guard) host(host string) bool {
	name := hostname(host)
	if loopbackName(name) {
		return true
	}
	for _, h := range g.Hosts {
		if h == "*" || strings.EqualFold(h, host) || strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// hostname is a host without its port, and without the brackets of an IPv6
// address.
func hostname(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}

func loopbackName(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	// Only the two addresses that are always this machine: the rest of 127/8
	// may be anything that was bound there.
	addr, err := netip.ParseAddr(name)
	return err == nil && (addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback())
}

func loopbackOrigin(origin string) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	return ok && (scheme == "http" || scheme == "https") &&
		!strings.ContainsAny(host, "/?#@\\") && loopbackName(hostname(host))
}
