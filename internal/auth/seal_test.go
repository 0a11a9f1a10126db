package auth_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mneme/internal/auth"
)

func TestSealing(t *testing.T) {
	s, err := auth.NewSealer(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := auth.NewSealer(bytes.Repeat([]byte{8}, 32))
	sealed := s.Seal([]byte("sk-secret"), "provider-1")
	if bytes.Contains(sealed, []byte("sk-secret")) {
		t.Fatal("the secret is readable")
	}
	if bytes.Equal(sealed, s.Seal([]byte("sk-secret"), "provider-1")) {
		t.Error("two sealings are equal")
	}
	plain, err := s.Open(sealed, "provider-1")
	if err != nil || string(plain) != "sk-secret" {
		t.Fatalf("got %q, %v", plain, err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1] ^= 1
	for name, f := range map[string]func() ([]byte, error){
		"other record": func() ([]byte, error) { return s.Open(sealed, "provider-2") },
		"other key":    func() ([]byte, error) { return other.Open(sealed, "provider-1") },
		"damaged":      func() ([]byte, error) { return s.Open(damaged, "provider-1") },
		"cut":          func() ([]byte, error) { return s.Open(sealed[:9], "provider-1") },
		"empty":        func() ([]byte, error) { return s.Open(nil, "provider-1") },
		"version":      func() ([]byte, error) { return s.Open(append([]byte{9}, sealed[1:]...), "provider-1") },
	} {
		if got, err := f(); !errors.Is(err, auth.ErrSealed) || got != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if plain, err := s.Open(s.Seal(nil, ""), ""); err != nil || len(plain) != 0 {
		t.Errorf("empty secret: %q, %v", plain, err)
	}
	if _, err := auth.NewSealer([]byte("short")); err == nil {
		t.Error("a short key was accepted")
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	first, err := auth.OpenSealer(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, auth.KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	again, err := auth.OpenSealer(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Open(first.Seal([]byte("x"), "r"), "r"); err != nil || string(plain) != "x" {
		t.Errorf("after reopening: %q, %v", plain, err)
	}
}

func TestKeyFileIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	sealers := make([]*auth.Sealer, 8)
	var wg sync.WaitGroup
	for i := range sealers {
		wg.Go(func() {
			s, err := auth.OpenSealer(dir, "")
			if err != nil {
				t.Error(err)
			}
			sealers[i] = s
		})
	}
	wg.Wait()
	sealed := sealers[0].Seal([]byte("x"), "")
	for i, s := range sealers {
		if _, err := s.Open(sealed, ""); err != nil {
			t.Errorf("sealer %d has a key of its own", i)
		}
	}
}

func TestKeyFromEnvironment(t *testing.T) {
	dir, key := t.TempDir(), bytes.Repeat([]byte{0xAB}, 32)
	want, _ := auth.NewSealer(key)
	for _, text := range []string{strings.Repeat("ab", 32), " " + strings.Repeat("AB", 32) + "\n",
		base64.StdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key)} {
		s, err := auth.OpenSealer(dir, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, err := s.Open(want.Seal(nil, ""), ""); err != nil {
			t.Errorf("%q: another key", text)
		}
	}
	for _, text := range []string{"password", strings.Repeat("ab", 31), strings.Repeat("x", 64)} {
		if _, err := auth.OpenSealer(dir, text); err == nil || !strings.HasPrefix(err.Error(), "MNEME_SECRET_KEY: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, auth.KeyFile)); err == nil {
		t.Error("a key file was made")
	}
	if err := os.WriteFile(filepath.Join(dir, auth.KeyFile), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.OpenSealer(dir, ""); err == nil || !strings.Contains(err.Error(), auth.KeyFile) {
		t.Errorf("junk key file: %v", err)
	}
}
