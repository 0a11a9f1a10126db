package store_test

import (
	"testing"

	"mneme/internal/store"
	"mneme/internal/store/storetest"
)

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store { return open(t, storetest.Postgres(t), store.Options{}) })
}

func TestPostgresPair(t *testing.T) {
	storetest.Postgres(t) // the server is started outside of the bubbles
	storetest.RunPair(t, func(t *testing.T) (a, b *store.Store) { return pair(t, storetest.Postgres(t)) })
}
