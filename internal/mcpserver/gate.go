package mcpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A gate lets requests in by their bearer token: the configured one, or with
// OAuth one of the issuer's (spec/mcp.md section 3).
type gate struct {
	cfg    *Config
	digest [sha256.Size]byte
	oauth  *verifier // nil = off
}

func newGate(cfg *Config) *gate {
	g := &gate{cfg: cfg, digest: sha256.Sum256([]byte(cfg.Token))}
	if cfg.OAuthIssuer != "" {
		g.oauth = newVerifier(cfg.OAuthIssuer)
	}
	return g
}

// ownPrincipal is who has the configured token.
const ownPrincipal = "token"

// admit checks a request's token and says whose it is. A request that is not let
// in is answered.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (principal string, ok bool) {
	header := strings.TrimSpace(r.Header.Get("Authorization"))
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if header == "" || !strings.EqualFold(scheme, "Bearer") || token == "" {
		g.refuse(w, http.StatusUnauthorized, "")
		return "", false
	}
	given := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(given[:], g.digest[:]) == 1 {
		return ownPrincipal, true
	}
	if g.oauth == nil {
		g.refuse(w, http.StatusUnauthorized, "invalid_token")
		return "", false
	}
	claims, err := g.oauth.verify(r.Context(), token, g.cfg.PublicURL)
	if err != nil {
		g.refuse(w, http.StatusUnauthorized, "invalid_token")
		return "", false
	}
	if need := g.cfg.OAuthScope; need != "" && !slices.Contains(claims.scopes, need) {
		g.refuse(w, http.StatusForbidden, "insufficient_scope")
		return "", false
	}
	return "oauth:" + claims.subject, true
}

// refuse answers a request without a good token. Which of its parts was wrong is
// said to nobody.
func (g *gate) refuse(w http.ResponseWriter, status int, code string) {
	challenge := `Bearer realm="letta-mcp"`
	if code != "" {
		challenge += fmt.Sprintf(", error=%q", code)
	}
	if g.oauth != nil {
		challenge += fmt.Sprintf(", resource_metadata=%q", g.metadataURL())
		if g.cfg.OAuthScope != "" {
			challenge += fmt.Sprintf(", scope=%q", g.cfg.OAuthScope)
		}
	}
	w.Header().Set("WWW-Authenticate", challenge)
	body := "unauthorized"
	if status == http.StatusForbidden {
		body = code
	}
	writeJSON(w, status, map[string]string{"error": body})
}

// metadataURL is where the metadata of the endpoint is.
func (g *gate) metadataURL() string {
	scheme, rest, _ := strings.Cut(g.cfg.PublicURL, "://")
	host, path, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + "/.well-known/oauth-protected-resource/" + path
}

// metadata tells where tokens come from (RFC 9728).
func (g *gate) metadata(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, nil, "GET, HEAD")
		return
	}
	m := map[string]any{
		"resource": g.cfg.PublicURL, "authorization_servers": []string{g.cfg.OAuthIssuer},
		"bearer_methods_supported": []string{"header"}, "resource_name": "mneme",
	}
	if g.cfg.OAuthScope != "" {
		m["scopes_supported"] = []string{g.cfg.OAuthScope}
	}
	writeJSON(w, http.StatusOK, m)
}
