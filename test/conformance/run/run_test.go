package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const kit = ".."

// What the lists and folders of the kit name must exist, and nothing may be
// both left out and compared.
func TestKitIsConsistent(t *testing.T) {
	scenarios, err := load(kit)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := readList(filepath.Join(kit, "notyet.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known, kinds := map[string]bool{}, map[string]bool{}
	for _, v := range variants {
		kinds[v.server] = true
	}
	for _, s := range scenarios {
		known[s.name] = true
		if !kinds[s.Server] {
			t.Errorf("scenario %s wants server %q, which nobody starts", s.name, s.Server)
		}
		if _, err := os.Stat(filepath.Join(kit, "golden", s.name+".json")); err != nil {
			t.Errorf("scenario %s has no transcript: %v", s.name, err)
		}
	}
	for name := range listed {
		if !known[name] {
			t.Errorf("notyet.txt names %s, which is no scenario", name)
		}
	}
	for _, dir := range []string{"golden", "deviations"} {
		files, err := filepath.Glob(filepath.Join(kit, dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := strings.TrimSuffix(filepath.Base(f), ".json")
			if !known[name] {
				t.Errorf("%s belongs to no scenario", f)
			}
			if dir == "deviations" && listed[name] {
				t.Errorf("%s deviates and is not yet played", name)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	vars, err := tokens(secret, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]error{
		"token": nil, "expired": jwt.ErrTokenExpired, "badsig": jwt.ErrTokenSignatureInvalid,
		"badiss": jwt.ErrTokenInvalidIssuer, "badaud": jwt.ErrTokenInvalidAudience, "notyet": jwt.ErrTokenNotValidYet,
		"algnone": jwt.ErrTokenSignatureInvalid, "noexp": jwt.ErrTokenRequiredClaimMissing,
	}
	for _, v := range vars {
		name, token, _ := strings.Cut(v, "=")
		_, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return secret, nil },
			jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer("kit"), jwt.WithAudience("app"), jwt.WithExpirationRequired())
		if expect, ok := want[name]; !ok || !errors.Is(err, expect) {
			t.Errorf("%s: got %v, want %v", name, err, expect)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not made: %v", want)
	}
}

func TestCounts(t *testing.T) {
	c, err := readCounts("PASS a\nFAIL b\n     1 passed is not the end\n7 passed, 1 deviate, 2 failed, 30 not yet\n")
	if want := (counts{7, 1, 2, 30}); err != nil || c != want {
		t.Errorf("got %v, %v, want %v", c, err, want)
	}
	c.add(counts{1, 1, 1, 1})
	if got := c.String(); got != "8 passed, 2 deviate, 3 failed, 31 not yet" {
		t.Error(got)
	}
	for _, broken := range []string{"", "panic: x\n", "2 passed"} {
		if _, err := readCounts(broken); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}
