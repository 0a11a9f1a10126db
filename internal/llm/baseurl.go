package llm

import (
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"mneme/internal/agent"
)

var versionSegment = regexp.MustCompile(`^v\d+[a-z0-9.]*$`)

// NormalizeBaseURL brings a provider's base URL into the form that paths are
// appended to: with scheme and version segment, without a slash at the end.
// "localhost:1234", "http://[::1]:1234/" and "http://localhost:1234/v1" are the
// same. A path without a version gets /v1. Errors are CodeInvalid and name
// field, the setting that the text came from (bug-report cases H03, H04).
func NormalizeBaseURL(field, raw string) (string, error) {
	s := strings.TrimSpace(raw)
	switch {
	case s == "":
		return "", agent.Invalid(field, "%s is empty: give the provider's base URL, such as http://127.0.0.1:1234/v1.", field)
	case strings.ContainsAny(s, "\"'`"):
		return "", agent.Invalid(field, "%s must be given without quotes: %s", field, s)
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
		u, err := url.Parse(s)
		if err != nil || !isLoopback(u.Hostname()) {
			return "", agent.Invalid(field, "%s must begin with http:// or https://: %s", field, raw)
		}
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", agent.Invalid(field, "%s is not a URL: %s", field, raw)
	}
	port, badPort := u.Port(), false
	if port != "" {
		n, err := strconv.Atoi(port)
		badPort = err != nil || n < 1 || n > 65535
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", agent.Invalid(field, "%s must begin with http:// or https://: %s", field, raw)
	case u.Hostname() == "" || u.Opaque != "":
		return "", agent.Invalid(field, "%s names no host: %s", field, raw)
	case badPort || strings.HasSuffix(u.Host, ":"):
		return "", agent.Invalid(field, "%s has no valid port: %s", field, raw)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", agent.Invalid(field, "%s must hold scheme, host and path only: %s", field, u.Redacted())
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	for _, end := range []string{"/chat/completions", "/models"} {
		path = strings.TrimRight(strings.TrimSuffix(path, end), "/")
	}
	if !hasVersion(path) {
		path += "/v1"
	}
	return u.Scheme + "://" + u.Host + path, nil
}

func hasVersion(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if versionSegment.MatchString(segment) {
			return true
		}
	}
	return false
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// withoutVersion is the address of a server's own API beside its /v1.
func withoutVersion(base string) string {
	i := strings.LastIndexByte(base, '/')
	if i > 0 && versionSegment.MatchString(base[i+1:]) {
		return base[:i]
	}
	return base
}
