package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"mneme/internal/auth"
)

const secret = "0123456789abcdef0123456789abcdef"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartupErrors(t *testing.T) {
	token, short, empty := write(t, " secret\n"), write(t, secret[:31]+"\n\n"), write(t, " \n")
	long := write(t, secret+"\n")
	digest := strings.Repeat("aB", 32)
	missing := filepath.Join(t.TempDir(), "nope")
	for name, c := range map[string]struct {
		o    auth.Options
		want string // "" = starts
	}{
		"none":                  {auth.Options{}, ""},
		"token file":            {auth.Options{Mode: "capability-token", TokenFile: token}, ""},
		"digest":                {auth.Options{Mode: "capability-token", SHA256: " " + digest + " "}, ""},
		"signed":                {auth.Options{Mode: "signed-bearer-token", SecretFile: long, Issuer: "i", Audience: "a", Skew: "0"}, ""},
		"blank issuer":          {auth.Options{Issuer: "  "}, ""},
		"unknown mode":          {auth.Options{Mode: "X"}, `unsupported --ws-auth mode "X"; expected "capability-token" or "signed-bearer-token"`},
		"token without mode":    {auth.Options{TokenFile: token}, "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"},
		"digest without mode":   {auth.Options{SHA256: digest}, "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"},
		"issuer without mode":   {auth.Options{Issuer: "i"}, "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"},
		"skew without mode":     {auth.Options{Skew: "5"}, "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"},
		"token with jwt flags":  {auth.Options{Mode: "capability-token", TokenFile: token, Audience: "a"}, "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and `--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`"},
		"both sources":          {auth.Options{Mode: "capability-token", TokenFile: token, SHA256: digest}, "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive"},
		"no source":             {auth.Options{Mode: "capability-token"}, "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set"},
		"jwt with token flags":  {auth.Options{Mode: "signed-bearer-token", SecretFile: long, SHA256: digest}, "`--ws-token-file` and `--ws-token-sha256` require `--ws-auth capability-token`, not `signed-bearer-token`"},
		"jwt without secret":    {auth.Options{Mode: "signed-bearer-token"}, "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set"},
		"relative token file":   {auth.Options{Mode: "capability-token", TokenFile: "t"}, "--ws-token-file must be an absolute path"},
		"relative secret file":  {auth.Options{Mode: "signed-bearer-token", SecretFile: "t"}, "--ws-shared-secret-file must be an absolute path"},
		"unreadable":            {auth.Options{Mode: "capability-token", TokenFile: missing}, "failed to read websocket auth secret " + missing + ": no such file or directory"},
		"empty":                 {auth.Options{Mode: "capability-token", TokenFile: empty}, "websocket auth secret " + empty + " must not be empty"},
		"short":                 {auth.Options{Mode: "signed-bearer-token", SecretFile: short}, "signed websocket bearer secret " + short + " must be at least 32 bytes"},
		"short digest":          {auth.Options{Mode: "capability-token", SHA256: digest[1:]}, "--ws-token-sha256 must be a 64-character hex SHA-256 digest"},
		"no digest":             {auth.Options{Mode: "capability-token", SHA256: strings.Repeat("x", 64)}, "--ws-token-sha256 must be a 64-character hex SHA-256 digest"},
		"negative skew":         {auth.Options{Mode: "signed-bearer-token", SecretFile: long, Skew: "-1"}, "--ws-max-clock-skew-seconds must be a non-negative integer"},
		"fractional skew":       {auth.Options{Mode: "signed-bearer-token", SecretFile: long, Skew: "1.5"}, "--ws-max-clock-skew-seconds must be a non-negative integer"},
		"empty plain file":      {auth.Options{PlainTokenFile: empty}, "websocket auth secret " + empty + " must not be empty"},
		"plain token":           {auth.Options{Token: "x"}, ""},
		"plain token with mode": {auth.Options{Token: "x", Mode: "capability-token", TokenFile: token}, ""},
	} {
		_, err := auth.New(c.o)
		if got := text(err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func check(t *testing.T, o auth.Options, header string) string {
	t.Helper()
	c, err := auth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/ws", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return text(c.Check(r))
}

func TestCapabilityToken(t *testing.T) {
	sum := sha256.Sum256([]byte("tok"))
	for name, o := range map[string]auth.Options{
		"file":   {Mode: "capability-token", TokenFile: write(t, "\n tok \n")},
		"digest": {Mode: "capability-token", SHA256: strings.ToUpper(hex.EncodeToString(sum[:]))},
		"plain":  {Token: "tok"},
		"serve":  {Token: "other", PlainTokenFile: write(t, "tok\n")},
	} {
		for header, want := range map[string]string{
			"":               "missing websocket bearer token",
			"Bearer tok":     "",
			"bEaReR   tok  ": "",
			"Bearer":         "invalid authorization header",
			"Bearer  ":       "invalid authorization header",
			"Basic tok":      "invalid authorization header",
			"tok":            "invalid authorization header",
			"Bearer wrong":   "invalid websocket bearer token",
			"Bearer tok x":   "invalid websocket bearer token",
		} {
			if got := check(t, o, header); got != want {
				t.Errorf("%s, %q: got %q, want %q", name, header, got, want)
			}
		}
	}
	if got := check(t, auth.Options{}, "nonsense"); got != "" {
		t.Errorf("without auth: %s", got)
	}
}

func TestSignedToken(t *testing.T) {
	o := auth.Options{Mode: "signed-bearer-token", SecretFile: write(t, " "+secret+"\n"), Issuer: " kit ", Audience: "app"}
	loose := auth.Options{Mode: "signed-bearer-token", SecretFile: o.SecretFile, Skew: "5"}
	now := time.Now()
	in := func(d time.Duration) int64 { return now.Add(d).Unix() }
	good := func(over jwt.MapClaims) jwt.MapClaims {
		c := jwt.MapClaims{"iss": "kit", "aud": "app", "exp": in(time.Hour)}
		for k, v := range over {
			if c[k] = v; v == "gone" {
				delete(c, k)
			}
		}
		return c
	}
	for name, c := range map[string]struct {
		o      auth.Options
		claims jwt.MapClaims
		want   string
	}{
		"good":               {o, good(nil), ""},
		"audience list":      {o, good(jwt.MapClaims{"aud": []string{"x", "app"}}), ""},
		"ignored claims":     {o, good(jwt.MapClaims{"iat": "nonsense", "sub": 7}), ""},
		"expired within":     {o, good(jwt.MapClaims{"exp": in(-20 * time.Second)}), ""},
		"expired beyond":     {o, good(jwt.MapClaims{"exp": in(-40 * time.Second)}), "expired websocket jwt"},
		"expired small skew": {loose, good(jwt.MapClaims{"exp": in(-20 * time.Second)}), "expired websocket jwt"},
		"no exp":             {o, good(jwt.MapClaims{"exp": "gone"}), "invalid websocket jwt"},
		"exp text":           {o, good(jwt.MapClaims{"exp": "2000000000"}), "invalid websocket jwt"},
		"exp fraction":       {o, good(jwt.MapClaims{"exp": 2000000000.5}), "invalid websocket jwt"},
		"exp huge":           {o, good(jwt.MapClaims{"exp": 1e300}), "invalid websocket jwt"},
		"nbf within":         {o, good(jwt.MapClaims{"nbf": in(20 * time.Second)}), ""},
		"nbf beyond":         {o, good(jwt.MapClaims{"nbf": in(time.Minute)}), "websocket jwt is not valid yet"},
		"nbf text":           {o, good(jwt.MapClaims{"nbf": "1"}), "invalid websocket jwt"},
		"nbf null":           {o, good(jwt.MapClaims{"nbf": nil}), "invalid websocket jwt"},
		"other issuer":       {o, good(jwt.MapClaims{"iss": "x"}), "websocket jwt issuer mismatch"},
		"no issuer":          {o, good(jwt.MapClaims{"iss": "gone"}), "websocket jwt issuer mismatch"},
		"issuer number":      {o, good(jwt.MapClaims{"iss": 5}), "invalid websocket jwt"},
		"other audience":     {o, good(jwt.MapClaims{"aud": []string{"x"}}), "websocket jwt audience mismatch"},
		"no audience":        {o, good(jwt.MapClaims{"aud": "gone"}), "websocket jwt audience mismatch"},
		"audience numbers":   {o, good(jwt.MapClaims{"aud": []int{1}}), "invalid websocket jwt"},
		"audience null":      {o, good(jwt.MapClaims{"aud": nil}), "invalid websocket jwt"},
		"nothing asked":      {loose, jwt.MapClaims{"exp": in(time.Hour)}, ""},
	} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c.claims).SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		if got := check(t, c.o, "Bearer "+token); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	sign := func(m jwt.SigningMethod, key any) string {
		token, err := jwt.NewWithClaims(m, good(nil)).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	parts := strings.Split(sign(jwt.SigningMethodHS256, []byte(secret)), ".")
	for name, token := range map[string]string{
		"other secret": sign(jwt.SigningMethodHS256, []byte("x"+secret)),
		"alg none":     sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"alg HS512":    sign(jwt.SigningMethodHS512, []byte(secret)),
		"two parts":    parts[0] + "." + parts[1],
		"four parts":   strings.Join(parts, ".") + ".x",
		"not base64":   "!!." + parts[1] + "." + parts[2],
		"not JSON":     parts[0] + ".eHh4." + parts[2],
		"no signature": parts[0] + "." + parts[1] + ".",
		"a word":       "wrong",
	} {
		if got := check(t, o, "Bearer "+token); got != "invalid websocket jwt" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := check(t, o, ""); got != "missing websocket bearer token" {
		t.Errorf("no header: %q", got)
	}
}

func TestTokenInAnotherHeader(t *testing.T) {
	c, err := auth.New(auth.Options{Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{" tok ": "", "": "missing websocket bearer token", "x": "invalid websocket bearer token"} {
		if got := text(c.CheckToken(token)); got != want {
			t.Errorf("%q: got %q, want %q", token, got, want)
		}
	}
}

func TestFileOfToken(t *testing.T) {
	path := write(t, "tok")
	for _, o := range []auth.Options{{Mode: "capability-token", TokenFile: path}, {PlainTokenFile: path}} {
		c, err := auth.New(o)
		if err != nil || c.File() != path || !c.Enabled() {
			t.Errorf("%+v: file %q, %v", o, c.File(), err)
		}
	}
}
