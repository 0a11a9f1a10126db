package store

import (
	"context"
	"fmt"

	"mneme/internal/agent"
)

// What rebuilds the index: nothing is kept of it, and all messages are queued.
var sqlRebuild = []string{
	`DELETE FROM message_fts WHERE rowid IN (SELECT ord FROM message_index WHERE tenant = ?)`,
	`DELETE FROM message_index WHERE tenant = ?`,
	`DELETE FROM search_queue WHERE tenant = ?`,
	`INSERT INTO search_queue (tenant, message_id) SELECT tenant, id FROM messages
		WHERE role IN ('user', 'assistant', 'tool', 'system', 'summary') AND interrupted = 0 AND tenant = ? ORDER BY created_ns, id`,
}

// What is wrong with an index whatever the messages say.
var sqlIndexFaults = []struct{ what, query string }{
	{"entries of messages that are gone", `SELECT count(*) FROM message_index
		WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = message_index.message_id)`},
	{"entries without tokens", `SELECT count(*) FROM message_index
		WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM message_fts WHERE message_fts.rowid = message_index.ord)`},
	{"tokens without an entry", `SELECT count(*) FROM message_fts
		WHERE ? <> '' AND NOT EXISTS (SELECT 1 FROM message_index WHERE message_index.ord = message_fts.rowid)`},
}

// RebuildIndex throws the index of messages away and has it filled again, oldest
// messages first, by the indexer. Until that is done searches find less.
func (s *Store) RebuildIndex(ctx context.Context) error {
	return s.write(ctx, "rebuild the search index", func(t *tx) error {
		for _, query := range sqlRebuild {
			if _, err := t.exec(query, s.tenant); err != nil {
				return err
			}
		}
		return nil
	})
}

// CheckIndex compares the index with the messages, those aside that wait to be
// indexed, and returns what differs, one sentence each; nothing is well.
func (s *Store) CheckIndex(ctx context.Context) ([]string, error) {
	var faults []string
	missing, needless := 0, 0
	err := s.snapshot(ctx, func(r reader) error {
		waits := map[string]bool{}
		err := r.eachOf(ctx, func(row scanner) error {
			var id string
			err := row.Scan(&id)
			waits[id] = true
			return err
		}, `SELECT message_id FROM search_queue WHERE tenant = ?`, s.tenant)
		if err != nil {
			return err
		}
		for _, fault := range sqlIndexFaults {
			n := 0
			if err := r.eachOf(ctx, func(row scanner) error { return row.Scan(&n) }, fault.query, s.tenant); err != nil {
				return err
			}
			if n > 0 {
				faults = append(faults, fmt.Sprintf("%d %s", n, fault.what))
			}
		}
		return r.eachOf(ctx, func(row scanner) error {
			m, indexed, err := scanIndexed(row)
			switch {
			case err != nil || waits[m.ID]:
			case indexed && s.tokens(m) == "":
				needless++
			case !indexed && s.tokens(m) != "":
				missing++
			}
			return err
		}, "SELECT "+messageColumns+`, (SELECT ord FROM message_index WHERE message_id = messages.id) FROM messages WHERE tenant = ?`, s.tenant)
	})
	if missing > 0 {
		faults = append(faults, fmt.Sprintf("%d messages without an entry", missing))
	}
	if needless > 0 {
		faults = append(faults, fmt.Sprintf("%d entries of messages that nobody looks for", needless))
	}
	return faults, s.dialect.fault("check the search index", err)
}

// scanIndexed reads a message and whether it has an entry.
func scanIndexed(r scanner) (*agent.Message, bool, error) {
	var ord *int64
	m, err := scanMessage(extended{r, &ord})
	return m, ord != nil, err
}

// An extended row has one column more than a scan function knows.
type extended struct {
	scanner
	last any
}

func (x extended) Scan(dest ...any) error { return x.scanner.Scan(append(dest, x.last)...) }
