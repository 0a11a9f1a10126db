package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// IsLoopback says whether a configured host is reached from this machine only:
// localhost, 127.0.0.0/8 or ::1, with or without brackets.
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// RequireFor refuses to open a listener beyond loopback without a credential.
// host and port are as configured.
func (c *Checker) RequireFor(host string, port int) error {
	if c.Enabled() || IsLoopback(host) {
		return nil
	}
	return fmt.Errorf("refusing to start non-loopback websocket listener %s:%d without auth; configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`", host, port)
}

// A Guard holds the Origin and Host rules of one listener.
type Guard struct {
	// Origins are further allowed origins, scheme://host[:port].
	Origins []string
	// Hosts are further names of a loopback listener, without port.
	Hosts []string
	// Loopback says that the listener is reached from this machine only: just
	// then the Host header is checked.
	Loopback bool
}

// NewGuard checks the values of --allow-origin and --allow-host.
func NewGuard(origins, hosts []string, loopback bool) (*Guard, error) {
	g := &Guard{Loopback: loopback}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("--allow-origin must be scheme://host[:port] (got %q)", o)
		}
		g.Origins = append(g.Origins, strings.ToLower(u.Scheme+"://"+u.Host))
	}
	for _, h := range hosts {
		if h == "" || strings.ContainsAny(h, "/@") {
			return nil, fmt.Errorf("--allow-host must be a host name (got %q)", h)
		}
		g.Hosts = append(g.Hosts, hostOf(strings.ToLower(h)))
	}
	return g, nil
}

// OriginOK says whether the request's Origin is absent, allowed, or the
// listener's own. The own one is recognised by the Host header, so HostOK must
// hold too.
func (g *Guard) OriginOK(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 || len(origins) == 1 && origins[0] == "" {
		return true
	}
	origin := strings.ToLower(origins[0])
	if len(origins) > 1 {
		return false
	}
	if slices.Contains(g.Origins, origin) {
		return true
	}
	host := strings.ToLower(r.Host)
	return host != "" && (origin == "http://"+host || origin == "https://"+host)
}

// HostOK says whether the Host header fits the listener: on loopback only a
// loopback name or an allowed one does.
func (g *Guard) HostOK(r *http.Request) bool {
	if !g.Loopback {
		return true
	}
	host := hostOf(strings.ToLower(r.Host))
	return IsLoopback(host) || slices.Contains(g.Hosts, host)
}

// hostOf cuts a port and the brackets of an IPv6 address.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}
