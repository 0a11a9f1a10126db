package mcpserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// An issuer is an OAuth server that publishes one key.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		number := base64.RawURLEncoding.EncodeToString
		json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "x": number(point[1:33]), "y": number(point[33:]),
		}}})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(t *testing.T, change func(jwt.MapClaims, map[string]any)) string {
	t.Helper()
	claims := jwt.MapClaims{
		"iss": i.URL, "sub": "alice", "aud": "https://mcp.example.org/mcp", "exp": time.Now().Add(time.Hour).Unix(), "scope": "other memory",
	}
	tok := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	tok.Header["kid"] = "k1"
	if change != nil {
		change(claims, tok.Header)
	}
	s, err := tok.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOAuth(t *testing.T) {
	i := newIssuer(t)
	other := newIssuer(t)
	r := start(t, nil, "MCP_OAUTH_ISSUER", i.URL, "MCP_PUBLIC_URL", "https://mcp.example.org/mcp", "MCP_OAUTH_SCOPE", "memory")
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, tt := range []struct {
		name   string
		token  string
		status int
		says   string
	}{
		{"good", i.token(t, nil), 200, ""},
		{"our own token", token, 200, ""},
		{"expired", i.token(t, func(c jwt.MapClaims, _ map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), 401, "invalid_token"},
		{"without expiry", i.token(t, func(c jwt.MapClaims, _ map[string]any) { delete(c, "exp") }), 401, "invalid_token"},
		{"for another resource", i.token(t, func(c jwt.MapClaims, _ map[string]any) { c["aud"] = "https://evil.example/mcp" }), 401, "invalid_token"},
		{"of another issuer", other.token(t, nil), 401, "invalid_token"},
		{"that names our issuer, signed by another", other.token(t, func(c jwt.MapClaims, _ map[string]any) { c["iss"] = i.URL }), 401, "invalid_token"},
		{"without subject", i.token(t, func(c jwt.MapClaims, _ map[string]any) { delete(c, "sub") }), 401, "invalid_token"},
		{"unknown key", i.token(t, func(_ jwt.MapClaims, h map[string]any) { h["kid"] = "k2" }), 401, "invalid_token"},
		{"not signed", strings.Join(strings.Split(i.token(t, nil), ".")[:2], ".") + ".", 401, "invalid_token"},
		{"without the scope", i.token(t, func(c jwt.MapClaims, _ map[string]any) { c["scope"] = "other" }), 403, "insufficient_scope"},
	} {
		a := r.do("POST", "/mcp", []byte(initialize), "Authorization", "Bearer "+tt.token)
		challenge := a.header.Get("WWW-Authenticate")
		if a.status != tt.status || !strings.Contains(challenge, tt.says) {
			t.Errorf("%s: %d %q %s", tt.name, a.status, challenge, a.body)
		}
		if a.status != 200 && !strings.Contains(challenge, `resource_metadata="https://mcp.example.org/.well-known/oauth-protected-resource/mcp"`) {
			t.Errorf("%s: the challenge is %q", tt.name, challenge)
		}
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		a := r.do("GET", path, nil, "Authorization", "-")
		var meta struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
		}
		if json.Unmarshal(a.body, &meta) != nil || meta.Resource != "https://mcp.example.org/mcp" || len(meta.Servers) != 1 || meta.Servers[0] != i.URL {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A session belongs to the credential that began it.
func TestSessionTheft(t *testing.T) {
	i := newIssuer(t)
	r := start(t, nil, "MCP_OAUTH_ISSUER", i.URL, "MCP_PUBLIC_URL", "https://mcp.example.org/mcp")
	session := r.session("2025-11-25", "")
	alice := i.token(t, nil)
	for _, method := range []string{"POST", "GET", "DELETE"} {
		var body []byte
		if method == "POST" {
			body = []byte(ping)
		}
		if a := r.do(method, "/mcp", body, "Authorization", "Bearer "+alice, "Mcp-Session-Id", session); a.status != 404 {
			t.Errorf("%s with another credential: %d %s", method, a.status, a.body)
		}
	}
	if a := r.legacy(session, ping); a.status != 200 {
		t.Errorf("its own client: %d", a.status)
	}
}
