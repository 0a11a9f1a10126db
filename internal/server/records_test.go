package server

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/store"
)

func TestRecordsAreSealed(t *testing.T) {
	ctx := t.Context()
	st, err := store.Open(ctx, filepath.Join(t.TempDir(), "mneme.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	sealer := func(b byte) *auth.Sealer {
		s, err := auth.NewSealer(bytes.Repeat([]byte{b}, 32))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var log strings.Builder
	r := &records{store: st, sealer: sealer(1), log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Now().UTC()
	want := []llm.Record{
		{Name: "a", Type: "openai", Key: "sk-secret", Timeout: 90 * time.Second, CreatedAt: now, UpdatedAt: now},
		{Name: "b", Type: "lmstudio", BaseURL: "http://127.0.0.1:1/v1", Timeout: -1, CreatedAt: now, UpdatedAt: now},
	}
	for _, rec := range want {
		if err := r.PutProvider(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := st.Providers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(rows[0].SealedKey, []byte("sk-secret")) || len(rows[0].SealedKey) == 0 {
		t.Errorf("stored key %q", rows[0].SealedKey)
	}
	got, err := r.Providers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want[1].Timeout = -time.Millisecond
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}

	r.sealer = sealer(2) // the key file was replaced
	got, err = r.Providers(ctx)
	if err != nil || len(got) != 2 || got[0].Key != "" {
		t.Errorf("with another key: %+v, %v", got, err)
	}
	if !strings.Contains(log.String(), "provider=a") {
		t.Errorf("the log says %q", log.String())
	}
	for range 2 {
		if err := r.DeleteProvider(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if got, err := r.Providers(ctx); err != nil || len(got) != 1 {
		t.Errorf("after deleting: %+v, %v", got, err)
	}
}
