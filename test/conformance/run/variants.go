package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// variant is one kind of server that scenarios ask for.
type variant struct {
	server string // the name in the scenario files; the plain server has none
	// prepare writes what the server needs into dir. It returns the server's
	// further flags and the variables of the scenarios, name=value.
	prepare func(dir string) (flags, vars []string, err error)
}

var variants = []variant{
	{"", func(string) (flags, vars []string, err error) { return nil, nil, nil }},
	{"auth", capabilityToken},
	{"jwt", signedTokens},
}

func capabilityToken(dir string) (flags, vars []string, err error) {
	token, file := rand.Text(), filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		return nil, nil, err
	}
	return []string{"--ws-auth", "capability-token", "--ws-token-file", file}, []string{"token=" + token}, nil
}

func signedTokens(dir string) (flags, vars []string, err error) {
	secret, file := rand.Text()+rand.Text(), filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		return nil, nil, err
	}
	vars, err = tokens([]byte(secret), time.Now())
	return []string{"--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", file,
		"--ws-issuer", "kit", "--ws-audience", "app"}, vars, err
}

// tokens makes one good token and one with each fault, as name=value.
func tokens(secret []byte, now time.Time) ([]string, error) {
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	var vars []string
	for _, t := range []struct {
		name   string
		method jwt.SigningMethod
		key    any
		change jwt.MapClaims // over the good claims; nil takes one away
	}{
		{"token", jwt.SigningMethodHS256, secret, nil},
		{"expired", jwt.SigningMethodHS256, secret, jwt.MapClaims{"exp": at(-time.Hour)}},
		{"badsig", jwt.SigningMethodHS256, append([]byte("not "), secret...), nil},
		{"badiss", jwt.SigningMethodHS256, secret, jwt.MapClaims{"iss": "other"}},
		{"badaud", jwt.SigningMethodHS256, secret, jwt.MapClaims{"aud": "other"}},
		{"notyet", jwt.SigningMethodHS256, secret, jwt.MapClaims{"nbf": at(2 * time.Hour), "exp": at(3 * time.Hour)}},
		{"algnone", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil},
		{"noexp", jwt.SigningMethodHS256, secret, jwt.MapClaims{"exp": nil}},
	} {
		claims := jwt.MapClaims{"iss": "kit", "aud": "app", "exp": at(time.Hour)}
		for k, v := range t.change {
			claims[k] = v
			if v == nil {
				delete(claims, k)
			}
		}
		signed, err := jwt.NewWithClaims(t.method, claims).SignedString(t.key)
		if err != nil {
			return nil, fmt.Errorf("sign %s: %w", t.name, err)
		}
		vars = append(vars, t.name+"="+signed)
	}
	return vars, nil
}
