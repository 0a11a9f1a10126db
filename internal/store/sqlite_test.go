package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/store/storetest"
)

func open(t *testing.T, url string, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func pair(t *testing.T, url string) (a, b *store.Store) {
	t.Helper()
	return open(t, url, store.Options{Owner: "a"}), open(t, url, store.Options{Owner: "b"})
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store {
		return open(t, filepath.Join(t.TempDir(), "mneme.db"), store.Options{})
	})
}

func TestSQLiteInMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store { return open(t, ":memory:", store.Options{}) })
}

func TestSQLitePair(t *testing.T) {
	storetest.RunPair(t, func(t *testing.T) (a, b *store.Store) {
		return pair(t, filepath.Join(t.TempDir(), "mneme.db"))
	})
}

func TestSQLiteTenants(t *testing.T) {
	storetest.RunTenants(t, func(t *testing.T) (a, b *store.Store) {
		return tenants(t, filepath.Join(t.TempDir(), "mneme.db"))
	})
}

func tenants(t *testing.T, url string) (a, b *store.Store) {
	t.Helper()
	return open(t, url, store.Options{Tenant: "a"}), open(t, url, store.Options{Tenant: "b"})
}

func TestSQLiteURLs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct{ url, path string }{
		{"", "mneme.db"},
		{"rel.db", "rel.db"},
		{"file:relurl.db", "relurl.db"},
		{filepath.Join(dir, "new", "abs.db"), "new/abs.db"},
		{"file:" + filepath.Join(dir, "url.db"), "url.db"},
		{"file://" + filepath.Join(dir, "url2.db"), "url2.db"},
		{filepath.Join(dir, "odd ?#%20&=ü.db"), "odd ?#%20&=ü.db"},
	} {
		s := open(t, c.url, store.Options{})
		if want := filepath.Join(dir, c.path); s.Path() != want || s.Kind() != "sqlite" {
			t.Errorf("%q is %s %s, want %s", c.url, s.Kind(), s.Path(), want)
		}
		info, err := os.Stat(filepath.Join(dir, c.path))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("%q has mode %v", c.url, info.Mode())
		}
	}
	for _, url := range []string{"mysql://x/y", "file:x.db?mode=ro", "file:%zz"} {
		if _, err := store.Open(t.Context(), url, store.Options{}); agent.CodeOf(err) != agent.CodeInvalid {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := store.Open(t.Context(), dir, store.Options{}); err == nil {
		t.Error("a directory was opened")
	}
}

func TestTemporaryDatabase(t *testing.T) {
	a, b := open(t, ":memory:", store.Options{}), open(t, ":memory:", store.Options{})
	if err := a.SetSetting(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := b.Setting(t.Context(), "k"); found || err != nil {
		t.Errorf("found %v, %v in another database", found, err)
	}
	path := a.Path()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

// fill stores n settings of 1 KiB.
func fill(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for i := range n {
		if err := s.SetSetting(t.Context(), fmt.Sprint("key", i), strings.Repeat("v", 1024)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamage: whatever is broken, the error names the file and the way on, and the
// file is left alone.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func([]byte)
	}{
		{"random bytes", func(b []byte) {
			for i := range b {
				b[i] = byte(i*7919 + 13)
			}
		}},
		{"head", func(b []byte) { clear(b[:100]) }},
		{"schema", func(b []byte) { clear(b[100:4096]) }},
		{"middle", func(b []byte) { clear(b[40*4096 : 44*4096]) }},
		{"tail", func(b []byte) { clear(b[len(b)-16*4096:]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "mneme.db")
			s := open(t, path, store.Options{})
			fill(t, s, 60)
			backup := filepath.Join(dir, "backups", "mneme-v1.db")
			if err := os.Mkdir(filepath.Dir(backup), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Backup(t.Context(), backup), s.Close()); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c.damage(data)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err = store.Open(t.Context(), path, store.Options{})
			if err == nil { // what Open does not read, Check finds
				err = s.Check(t.Context())
				if e := s.Close(); e != nil {
					t.Error(e)
				}
			}
			var e *agent.Error
			if !errors.As(err, &e) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range []string{path + " is damaged", "cp " + backup + " " + path, ".recover"} {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%q does not say %q", e.Message, want)
				}
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, data) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "mneme.db"), store.Options{})
	fill(t, s, 10)
	to := filepath.Join(dir, "it's a copy.db")
	if err := s.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), to); agent.CodeOf(err) != agent.CodeConflict {
		t.Errorf("over an existing file: %v", err)
	}
	if err := s.Backup(t.Context(), filepath.Join(dir, "none", "x.db")); err == nil {
		t.Error("a backup into no directory succeeded")
	}
	fill(t, s, 11) // the source goes on
	copied := open(t, to, store.Options{})
	if _, found, err := copied.Setting(t.Context(), "key9"); !found || err != nil {
		t.Errorf("key9 in the copy: %v, %v", found, err)
	}
	if _, found, err := copied.Setting(t.Context(), "key10"); found || err != nil {
		t.Errorf("key10 in the copy: %v, %v", found, err)
	}
	if err := copied.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
