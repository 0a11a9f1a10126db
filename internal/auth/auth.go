// Package auth decides who may talk to a listener and keeps secrets sealed.
//
// A Checker holds one credential rule, made from the flags at start: none, a
// capability token (known by its SHA-256 digest only), or bearer tokens signed
// with a shared secret. Its messages are wire texts that clients show, so they
// stay word for word (spec/app-server-core.md sections 1.1 and 1.4). A token is
// checked once per request or upgrade; expiry does not end a live socket.
//
// A Guard holds the Origin and Host rules of the listener (spec/rest.md section
// 2.10). They stop web pages: a page's scripts can reach a loopback port, with
// the page's Origin, or after DNS rebinding with a foreign Host.
//
// A Sealer encrypts secrets before they become rows (AES-256-GCM), each bound
// to the record it belongs to, so that a row moved or swapped does not open.
// Its key is the file secret.key or MNEME_SECRET_KEY.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The values of --ws-auth.
const (
	ModeToken  = "capability-token"
	ModeSigned = "signed-bearer-token"
)

// Options are the auth flags as typed; "" = not given.
type Options struct {
	Mode       string // --ws-auth
	TokenFile  string // --ws-token-file
	SHA256     string // --ws-token-sha256
	SecretFile string // --ws-shared-secret-file
	Issuer     string // --ws-issuer
	Audience   string // --ws-audience
	Skew       string // --ws-max-clock-skew-seconds

	// Token and PlainTokenFile are MNEME_TOKEN and --token-file of `mneme serve`.
	// They count only without a Mode; the file wins.
	Token          string
	PlainTokenFile string
}

// An Error is a refused credential, status 401. Its text is the reason phrase
// of a refused upgrade.
type Error string

func (e Error) Error() string { return string(e) }

// The refusals of spec/app-server-core.md section 1.4.
const (
	ErrMissing  Error = "missing websocket bearer token"
	ErrHeader   Error = "invalid authorization header"
	ErrToken    Error = "invalid websocket bearer token"
	ErrJWT      Error = "invalid websocket jwt"
	ErrExpired  Error = "expired websocket jwt"
	ErrNotYet   Error = "websocket jwt is not valid yet"
	ErrIssuer   Error = "websocket jwt issuer mismatch"
	ErrAudience Error = "websocket jwt audience mismatch"
)

// A Checker checks credentials. The zero value accepts everybody.
type Checker struct {
	verify func(token string) error // nil = no credential needed
	file   string
}

// New makes a Checker. Its errors are the start-up texts of
// spec/app-server-core.md section 1.1.
func New(o Options) (*Checker, error) {
	skew := strings.TrimSpace(o.Skew)
	signedFlags := o.SecretFile != "" || strings.TrimSpace(o.Issuer) != "" || strings.TrimSpace(o.Audience) != "" || skew != ""
	tokenFlags := o.TokenFile != "" || o.SHA256 != ""
	switch o.Mode {
	case ModeToken:
		if signedFlags {
			return nil, errors.New("`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and `--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`")
		}
		return capabilityChecker(o)
	case ModeSigned:
		if tokenFlags {
			return nil, errors.New("`--ws-token-file` and `--ws-token-sha256` require `--ws-auth capability-token`, not `signed-bearer-token`")
		}
		return signedChecker(o, skew)
	case "":
		if signedFlags || tokenFlags {
			return nil, errors.New("websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`")
		}
		return plainChecker(o)
	}
	return nil, fmt.Errorf("unsupported --ws-auth mode %q; expected %q or %q", o.Mode, ModeToken, ModeSigned)
}

func capabilityChecker(o Options) (*Checker, error) {
	switch {
	case o.TokenFile != "" && o.SHA256 != "":
		return nil, errors.New("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive")
	case o.TokenFile != "":
		token, err := readSecret("--ws-token-file", o.TokenFile)
		if err != nil {
			return nil, err
		}
		return &Checker{verify: tokenIs(sha256.Sum256([]byte(token))), file: o.TokenFile}, nil
	case o.SHA256 != "":
		digest, err := hex.DecodeString(strings.TrimSpace(o.SHA256))
		if err != nil || len(digest) != sha256.Size {
			return nil, errors.New("--ws-token-sha256 must be a 64-character hex SHA-256 digest")
		}
		return &Checker{verify: tokenIs([sha256.Size]byte(digest))}, nil
	}
	return nil, errors.New("`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set")
}

func signedChecker(o Options, skew string) (*Checker, error) {
	if o.SecretFile == "" {
		return nil, errors.New("`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set")
	}
	seconds := 30
	if skew != "" {
		n, err := strconv.Atoi(skew)
		if err != nil || n < 0 {
			return nil, errors.New("--ws-max-clock-skew-seconds must be a non-negative integer")
		}
		seconds = n
	}
	secret, err := readSecret("--ws-shared-secret-file", o.SecretFile)
	if err != nil {
		return nil, err
	}
	if len(secret) < 32 {
		return nil, fmt.Errorf("signed websocket bearer secret %s must be at least 32 bytes", o.SecretFile)
	}
	s := signed{
		secret: []byte(secret), skew: min(int64(seconds), latest),
		issuer: strings.TrimSpace(o.Issuer), audience: strings.TrimSpace(o.Audience),
	}
	return &Checker{verify: s.verify}, nil
}

// plainChecker is the rule of `mneme serve` without --ws-auth.
func plainChecker(o Options) (*Checker, error) {
	if o.PlainTokenFile != "" {
		path, err := filepath.Abs(o.PlainTokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token, err := readSecret("--token-file", path)
		if err != nil {
			return nil, err
		}
		return &Checker{verify: tokenIs(sha256.Sum256([]byte(token))), file: path}, nil
	}
	if token := strings.TrimSpace(o.Token); token != "" {
		return &Checker{verify: tokenIs(sha256.Sum256([]byte(token)))}, nil
	}
	return &Checker{}, nil
}

// readSecret reads the trimmed text of a secret file.
func readSecret(flag, path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s must be an absolute path", flag)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the path is named already
		}
		return "", fmt.Errorf("failed to read websocket auth secret %s: %w", path, err)
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" {
		return "", fmt.Errorf("websocket auth secret %s must not be empty", path)
	}
	return secret, nil
}

func tokenIs(digest [sha256.Size]byte) func(string) error {
	return func(token string) error {
		given := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(given[:], digest[:]) != 1 {
			return ErrToken
		}
		return nil
	}
}

// Enabled says whether requests need a credential.
func (c *Checker) Enabled() bool { return c.verify != nil }

// File is the file that holds the token, for other commands of the same user;
// "" if there is none.
func (c *Checker) File() string { return c.file }

// Check checks the Authorization header of a request. The error is an Error:
// its text goes into the 401 answer.
func (c *Checker) Check(r *http.Request) error {
	if c.verify == nil {
		return nil
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return ErrMissing
	}
	scheme, token, ok := strings.Cut(strings.TrimSpace(header), " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return ErrHeader
	}
	return c.verify(token)
}

// CheckToken checks a token that came in another header.
func (c *Checker) CheckToken(token string) error {
	if c.verify == nil {
		return nil
	}
	if token = strings.TrimSpace(token); token == "" {
		return ErrMissing
	}
	return c.verify(token)
}
