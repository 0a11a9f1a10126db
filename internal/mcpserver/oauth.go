package mcpserver

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	keysLife    = time.Hour        // of the issuer's keys
	keysPause   = 10 * time.Second // between two looks for a key that is not known
	keysTimeout = 10 * time.Second
	keysMax     = 1 << 20 // bytes of an answer of the issuer
	clockSkew   = 30 * time.Second
)

// A verifier checks access tokens of an OAuth issuer: JSON web tokens, signed
// with one of the keys that the issuer publishes.
type verifier struct {
	issuer string
	client *http.Client
	parser *jwt.Parser

	asking chan struct{} // held while the issuer is asked

	mu     sync.Mutex
	keys   map[string]crypto.PublicKey // by key id
	loaded time.Time
	tried  time.Time
}

func newVerifier(issuer string) *verifier {
	return &verifier{
		issuer: issuer, asking: make(chan struct{}, 1),
		client: &http.Client{Timeout: keysTimeout},
		parser: jwt.NewParser(jwt.WithIssuer(issuer), jwt.WithExpirationRequired(), jwt.WithLeeway(clockSkew),
			jwt.WithValidMethods([]string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})),
	}
}

// A grant is what a token says.
type grant struct {
	subject string
	scopes  []string
}

// verify checks a token that must be meant for audience.
func (v *verifier) verify(ctx context.Context, token, audience string) (*grant, error) {
	claims := jwt.MapClaims{}
	parsed, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		return v.key(ctx, kid)
	})
	if err != nil || !parsed.Valid {
		return nil, fmt.Errorf("access token: %w", err)
	}
	meant, err := claims.GetAudience()
	if err != nil {
		return nil, err
	}
	ours := false
	for _, a := range meant {
		ours = ours || strings.TrimRight(a, "/") == strings.TrimRight(audience, "/")
	}
	if !ours {
		return nil, errors.New("access token: it is meant for another resource")
	}
	g := &grant{}
	if g.subject, err = claims.GetSubject(); err != nil || g.subject == "" {
		return nil, errors.New("access token: it names no subject")
	}
	switch s := claims["scope"].(type) {
	case string:
		g.scopes = strings.Fields(s)
	case []any:
		for _, e := range s {
			g.scopes = append(g.scopes, fmt.Sprint(e))
		}
	}
	return g, nil
}

// key finds a key of the issuer, and asks it for its keys if the key is not
// known, or if what is known is old.
func (v *verifier) key(ctx context.Context, kid string) (crypto.PublicKey, error) {
	if k := v.known(kid, keysLife); k != nil {
		return k, nil
	}
	select {
	case v.asking <- struct{}{}:
		defer func() { <-v.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if k := v.known(kid, keysLife); k != nil {
		return k, nil // while we waited
	}
	if v.mayAsk() {
		keys, err := v.fetch(ctx)
		if err != nil {
			return nil, err
		}
		v.mu.Lock()
		v.keys, v.loaded = keys, time.Now()
		v.mu.Unlock()
	}
	if k := v.known(kid, keysLife); k != nil {
		return k, nil
	}
	return nil, errors.New("the issuer has no such key")
}

func (v *verifier) known(kid string, life time.Duration) crypto.PublicKey {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.loaded) > life {
		return nil
	}
	if kid == "" && len(v.keys) == 1 {
		for _, k := range v.keys {
			return k
		}
	}
	return v.keys[kid]
}

// mayAsk keeps tokens with made-up key ids from making us ask all the time.
func (v *verifier) mayAsk() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.tried) < keysPause {
		return false
	}
	v.tried = time.Now()
	return true
}

// fetch finds the issuer's key set by its metadata (RFC 8414, or OpenID Connect
// Discovery) and reads it.
func (v *verifier) fetch(ctx context.Context) (map[string]crypto.PublicKey, error) {
	u, err := url.Parse(v.issuer)
	if err != nil {
		return nil, err
	}
	base := u.Scheme + "://" + u.Host
	var meta struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	for _, place := range []string{
		base + "/.well-known/oauth-authorization-server" + u.Path,
		base + "/.well-known/openid-configuration" + u.Path,
		v.issuer + "/.well-known/openid-configuration",
	} {
		if err = v.get(ctx, place, &meta); err == nil && meta.Keys != "" {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("metadata of the issuer: %w", err)
	}
	if meta.Issuer != v.issuer || meta.Keys == "" {
		return nil, errors.New("metadata of the issuer: they name another issuer or no keys")
	}
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := v.get(ctx, meta.Keys, &set); err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	keys := map[string]crypto.PublicKey{}
	for _, k := range set.Keys {
		if public := k.public(); public != nil && k.Use != "enc" {
			keys[k.ID] = public
		}
	}
	return keys, nil
}

func (v *verifier) get(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, keysMax)).Decode(into)
}

// A webKey is a public key as issuers publish it (RFC 7517).
type webKey struct {
	ID    string `json:"kid"`
	Type  string `json:"kty"`
	Use   string `json:"use"`
	Curve string `json:"crv"`
	N     string `json:"n"`
	E     string `json:"e"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

// public is the key; nil for one that we cannot use.
func (k webKey) public() crypto.PublicKey {
	field := func(s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
		if err != nil {
			return nil
		}
		return b
	}
	switch k.Type {
	case "RSA":
		n, e := new(big.Int).SetBytes(field(k.N)), new(big.Int).SetBytes(field(k.E))
		if n.BitLen() < 2048 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
			return nil
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
		if curve == nil {
			return nil
		}
		size := (curve.Params().BitSize + 7) / 8
		point := make([]byte, 1+2*size)
		point[0] = 4 // not compressed
		x, y := field(k.X), field(k.Y)
		if len(x) > size || len(y) > size {
			return nil
		}
		copy(point[1+size-len(x):], x)
		copy(point[1+2*size-len(y):], y)
		public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
		if err != nil {
			return nil
		}
		return public
	case "OKP":
		if x := field(k.X); k.Curve == "Ed25519" && len(x) == ed25519.PublicKeySize {
			return ed25519.PublicKey(x)
		}
	}
	return nil
}
