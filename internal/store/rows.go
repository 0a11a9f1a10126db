package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A scanner is a row that is being read.
type scanner interface{ Scan(dest ...any) error }

func eachRow(rows *sql.Rows, scan func(scanner) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A reader runs queries: the pool, or one transaction on it.
type reader struct {
	s  *Store
	tx *sql.Tx // nil = the pool
	// missing collects the queries of tx that were not prepared yet.
	missing *[]string
}

// snapshot calls fn with a reader whose queries all see the same state.
func (s *Store) snapshot(ctx context.Context, fn func(reader) error) error {
	opts := &sql.TxOptions{ReadOnly: true}
	if s.dialect.numeric {
		opts.Isolation = sql.LevelRepeatableRead // SQLite has nothing weaker
	}
	tx, err := s.reads.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	r := reader{s: s, tx: tx, missing: new([]string)}
	err = fn(r)
	tx.Rollback() // nothing was written
	for _, query := range *r.missing {
		if _, err := s.prepared(ctx, query); err != nil {
			break // the next one who needs it says what is wrong
		}
	}
	return err
}

func (s *Store) pool() reader { return reader{s: s} }

// each calls scan for every row of a query with a fixed text, which is prepared
// once and kept.
func (r reader) each(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	if !r.s.dialect.prepare {
		return r.eachOf(ctx, scan, query, args...)
	}
	if r.tx != nil {
		// Preparing takes a connection of its own. Who holds one must not wait for
		// another: if all readers did, none would go on.
		known, ok := r.s.queries.Load(query)
		if !ok {
			*r.missing = append(*r.missing, query)
			return r.eachOf(ctx, scan, query, args...)
		}
		rows, err := r.tx.StmtContext(ctx, known.(*sql.Stmt)).QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		return eachRow(rows, scan)
	}
	stmt, err := r.s.prepared(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// eachOf is each for a text that was built for this one query.
func (r reader) eachOf(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	run := r.s.reads.QueryContext
	if r.tx != nil {
		run = r.tx.QueryContext
	}
	rows, err := run(ctx, r.s.dialect.rebind(query), args...)
	if err != nil {
		return err
	}
	return eachRow(rows, scan)
}

// one scans the first row of a fixed query; found is false if there is none.
func (r reader) one(ctx context.Context, scan func(scanner) error, query string, args ...any) (found bool, err error) {
	err = r.each(ctx, func(row scanner) error {
		found = true
		return scan(row)
	}, query, args...)
	return found, err
}

func (s *Store) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.queries.Load(query); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := s.reads.PrepareContext(ctx, s.dialect.rebind(query))
	if err != nil {
		return nil, err
	}
	if other, loaded := s.queries.LoadOrStore(query, stmt); loaded {
		stmt.Close()
		return other.(*sql.Stmt), nil
	}
	return stmt, nil
}

// marks makes "?, ?, ?" for the columns of a list.
func marks(list string) string {
	return strings.Repeat("?, ", strings.Count(list, ",")) + "?"
}

// updates makes "a = excluded.a, b = excluded.b" for an upsert.
func updates(list string) string {
	var b strings.Builder
	for i, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name + " = excluded." + name)
	}
	return b.String()
}

// Values on their way into the database.

// clean makes text that both databases take: valid UTF-8 without NUL.
func clean(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

func ns(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func optBit(b *bool) any {
	if b == nil {
		return nil
	}
	return bit(*b)
}

func optText(s *string) any {
	if s == nil {
		return nil
	}
	return clean(*s)
}

// orNull stores an empty text as NULL, where empty means none and must not clash.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return clean(s)
}

func rawText(r json.RawMessage) any {
	if r == nil {
		return nil
	}
	return clean(string(r))
}

// jsonText encodes a nested value. HTML is not escaped, so that provider data
// and raw contents inside keep their characters.
func jsonText(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return clean(strings.TrimSuffix(b.String(), "\n")), nil
}

// Values on their way out.

type scanTime struct{ to *time.Time }

func (t scanTime) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("time is a %T", v)
	}
	if n == 0 {
		*t.to = time.Time{}
	} else {
		*t.to = time.Unix(0, n).UTC()
	}
	return nil
}

type scanBit struct{ to *bool }

func (b scanBit) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("flag is a %T", v)
	}
	*b.to = n != 0
	return nil
}

type scanOptBit struct{ to **bool }

func (b scanOptBit) Scan(v any) error {
	*b.to = nil
	if v == nil {
		return nil
	}
	*b.to = new(bool)
	return scanBit{*b.to}.Scan(v)
}

// scanText reads a text; NULL is empty.
type scanText struct{ to *string }

func (t scanText) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*t.to = ""
	case string:
		*t.to = v
	case []byte:
		*t.to = string(v)
	default:
		return fmt.Errorf("text is a %T", v)
	}
	return nil
}

type scanOptText struct{ to **string }

func (t scanOptText) Scan(v any) error {
	*t.to = nil
	if v == nil {
		return nil
	}
	*t.to = new(string)
	return scanText{*t.to}.Scan(v)
}

type scanRaw struct{ to *json.RawMessage }

func (r scanRaw) Scan(v any) error {
	*r.to = nil
	if v == nil {
		return nil
	}
	var s string
	if err := (scanText{&s}).Scan(v); err != nil {
		return err
	}
	*r.to = json.RawMessage(s)
	return nil
}

// scanJSON decodes a nested value into the pointer; NULL leaves it alone.
type scanJSON struct{ to any }

func (j scanJSON) Scan(v any) error {
	if v == nil {
		return nil
	}
	var s string
	if err := (scanText{&s}).Scan(v); err != nil {
		return err
	}
	return json.Unmarshal([]byte(s), j.to)
}
