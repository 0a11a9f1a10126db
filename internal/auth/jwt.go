package auth

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signed is the rule of --ws-auth signed-bearer-token: HS256 over the trimmed
// text of the shared secret.
type signed struct {
	secret           []byte
	skew             int64 // seconds
	issuer, audience string
}

// parser leaves the claims to us: their messages are part of the protocol.
var parser = jwt.NewParser(
	jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Name}),
	jwt.WithoutClaimsValidation(),
	jwt.WithJSONNumber(),
)

func (s signed) verify(token string) error {
	claims := jwt.MapClaims{}
	_, err := parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return s.secret, nil })
	if err != nil {
		return ErrJWT
	}
	c, ok := readClaims(claims)
	if !ok {
		return ErrJWT
	}
	now := time.Now().Unix()
	switch {
	case now > c.exp+s.skew:
		return ErrExpired
	case c.hasNBF && now < c.nbf-s.skew:
		return ErrNotYet
	case s.issuer != "" && c.iss != s.issuer:
		return ErrIssuer
	case s.audience != "" && !slices.Contains(c.aud, s.audience):
		return ErrAudience
	}
	return nil
}

// claims are those that count; iat, typ, kid and others are ignored.
type claims struct {
	exp, nbf int64 // unix seconds
	hasNBF   bool
	iss      string
	aud      []string
}

// readClaims checks the types: exp is a required integer, nbf an optional one,
// iss an optional string, aud an optional string or list of strings.
func readClaims(m jwt.MapClaims) (c claims, ok bool) {
	if c.exp, ok = integer(m["exp"]); !ok {
		return c, false
	}
	if v, found := m["nbf"]; found {
		if c.nbf, c.hasNBF = integer(v); !c.hasNBF {
			return c, false
		}
	}
	if v, found := m["iss"]; found {
		if c.iss, ok = v.(string); !ok {
			return c, false
		}
	}
	switch v := m["aud"].(type) {
	case nil:
		_, found := m["aud"]
		return c, !found
	case string:
		c.aud = []string{v}
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return c, false
			}
			c.aud = append(c.aud, s)
		}
	default:
		return c, false
	}
	return c, true
}

// latest bounds times so that adding a skew cannot overflow.
const latest = 1 << 53

func integer(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return i, -latest <= i && i <= latest
	}
	f, err := n.Float64() // 1e9 is an integer too
	if err != nil || f < -latest || f > latest || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}
