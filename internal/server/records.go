package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"mneme/internal/agent"
	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/store"
)

// records keeps connections to providers as rows, their keys sealed.
type records struct {
	store  *store.Store
	sealer *auth.Sealer
	log    *slog.Logger
}

// extra is what of a record has no column of its own.
type extra struct {
	TimeoutMS int64 `json:"timeout_ms,omitempty"` // -1 = none
}

// sealedFor names the row that a key is bound to.
func sealedFor(provider string) string { return "provider/" + provider }

// Providers implements llm.RecordStore. A key that does not open is left out and
// reported: it must not take the other providers with it.
func (r *records) Providers(ctx context.Context) ([]llm.Record, error) {
	rows, err := r.store.Providers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]llm.Record, 0, len(rows))
	for _, row := range rows {
		rec := llm.Record{Name: row.Name, Type: row.Type, BaseURL: row.BaseURL, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt}
		if len(row.SealedKey) > 0 {
			key, err := r.sealer.Open(row.SealedKey, sealedFor(row.Name))
			if err != nil {
				r.log.Error("provider is used without its key", "provider", row.Name, "err", err)
			}
			rec.Key = string(key)
		}
		var x extra
		if len(row.Extra) > 0 {
			if err := json.Unmarshal(row.Extra, &x); err != nil {
				return nil, fmt.Errorf("provider %s: %w", row.Name, err)
			}
		}
		rec.Timeout = time.Duration(x.TimeoutMS) * time.Millisecond
		out = append(out, rec)
	}
	return out, nil
}

// PutProvider implements llm.RecordStore.
func (r *records) PutProvider(ctx context.Context, rec llm.Record) error {
	row := &store.Provider{Name: rec.Name, Type: rec.Type, BaseURL: rec.BaseURL, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt}
	if rec.Key != "" {
		row.SealedKey = r.sealer.Seal([]byte(rec.Key), sealedFor(rec.Name))
	}
	if rec.Timeout != 0 {
		x := extra{TimeoutMS: rec.Timeout.Milliseconds()}
		if rec.Timeout < 0 {
			x.TimeoutMS = -1
		}
		var err error
		if row.Extra, err = json.Marshal(x); err != nil {
			return err
		}
	}
	return r.store.PutProvider(ctx, row)
}

// DeleteProvider implements llm.RecordStore.
func (r *records) DeleteProvider(ctx context.Context, name string) error {
	err := r.store.DeleteProvider(ctx, name)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil
	}
	return err
}
