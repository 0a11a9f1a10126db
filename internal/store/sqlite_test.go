package store_test

import (
	"path/filepath"
	"testing"

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
