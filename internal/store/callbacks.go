package store

import (
	"context"
	"encoding/json"
	"time"

	"mneme/internal/agent"
)

const callbackColumns = `run_id, tenant, tries, next_ns, sent_ns, status, url, payload, error`

const callbackStateColumns = `tries, next_ns, sent_ns, status, url, payload, error`

var (
	sqlPutCallback = "INSERT INTO callbacks (" + callbackColumns + ") VALUES (" + marks(callbackColumns) + `)
		ON CONFLICT (run_id) DO UPDATE SET ` + updates(callbackStateColumns) + ` WHERE callbacks.tenant = excluded.tenant`
	sqlOweCallback = "INSERT INTO callbacks (" + callbackColumns + ") VALUES (" + marks(callbackColumns) + `)
		ON CONFLICT (run_id) DO NOTHING`
	sqlCallback     = "SELECT " + callbackColumns + " FROM callbacks WHERE run_id = ? AND tenant = ?"
	sqlDueCallbacks = "SELECT " + callbackColumns + ` FROM callbacks
		WHERE next_ns > 0 AND next_ns <= ? AND tenant = ? ORDER BY next_ns LIMIT 100`
	sqlNextCallback = `SELECT coalesce(min(next_ns), 0) FROM callbacks WHERE next_ns > 0 AND tenant = ?`
)

// A Callback is somebody who is to be told of the end of a run. Commit makes it
// when a run ends whose spec has a callback, due at once.
type Callback struct {
	RunID   string
	URL     string
	Payload json.RawMessage // nil = made when it is sent
	Tries   int
	Next    time.Time // of the next try; zero = nothing is left to do
	Sent    time.Time // of the last try; zero = none yet
	Status  int       // HTTP status of the last answer; 0 = none came
	Error   string    // of the last try
}

func (e *encoder) callback(r *agent.Run) {
	e.stmts = append(e.stmts, statement{
		what: "callback of " + r.ID, query: sqlOweCallback, any: true,
		args: []any{r.ID, e.s.tenant, 0, ns(r.EndedAt), 0, 0, clean(r.Spec.Callback), nil, nil},
	})
}

func scanCallback(r scanner) (*Callback, error) {
	c := new(Callback)
	var tenant string
	err := r.Scan(&c.RunID, &tenant, &c.Tries, scanTime{&c.Next}, scanTime{&c.Sent}, &c.Status, &c.URL,
		scanRaw{&c.Payload}, scanText{&c.Error})
	return c, err
}

// PutCallback stores where a callback stands.
func (s *Store) PutCallback(ctx context.Context, c *Callback) error {
	return s.write(ctx, "store the callback of "+c.RunID, func(t *tx) error {
		return t.run([]statement{{what: "callback of " + c.RunID, query: sqlPutCallback, args: []any{
			c.RunID, s.tenant, int64(c.Tries), ns(c.Next), ns(c.Sent), int64(c.Status), clean(c.URL), rawText(c.Payload), orNull(c.Error),
		}}})
	})
}

// Callback returns the callback of a run; nil if it has none or has not ended.
func (s *Store) Callback(ctx context.Context, runID string) (*Callback, error) {
	c, err := maybe(ctx, s.pool(), scanCallback, sqlCallback, runID, s.tenant)
	return c, s.dialect.fault("read the callback of "+runID, err)
}

// DueCallbacks lists callbacks to be sent by the given time, the most overdue
// first, at most 100.
func (s *Store) DueCallbacks(ctx context.Context, by time.Time) ([]*Callback, error) {
	var all []*Callback
	err := s.pool().each(ctx, appendTo(&all, scanCallback), sqlDueCallbacks, ns(by), s.tenant)
	return all, s.dialect.fault("list due callbacks", err)
}

// NextCallback is when the next callback is due, zero if none is.
func (s *Store) NextCallback(ctx context.Context) (time.Time, error) {
	var next time.Time
	_, err := s.pool().one(ctx, func(r scanner) error { return r.Scan(scanTime{&next}) }, sqlNextCallback, s.tenant)
	return next, s.dialect.fault("find the next callback", err)
}
