package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// writeTimeout ends a transaction on a database server that stopped answering.
// A file needs none.
const writeTimeout = 60 * time.Second

// A writer is the one write connection with its prepared statements. Only the
// committer's goroutine uses it.
type writer struct {
	db      *sql.DB
	dialect *dialect
	conn    *sql.Conn // nil = to be opened with the next transaction
	stmts   map[string]*sql.Stmt
	texts   map[string]string // portable SQL -> SQL of the dialect
}

// attempt runs the writes in one transaction and fills in their errors. It
// returns false when nothing was committed because one of several failed, which
// makes it worth running them one by one. A write that failed before it wrote
// anything does not count: the others go on without it.
func (w *writer) attempt(ops []*op, errs []error) (settled bool) {
	ctx := context.Background()
	if !w.dialect.prepare {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeTimeout)
		defer cancel()
	}
	if err := w.begin(ctx); err != nil {
		fill(errs, w.explain(err))
		return true
	}
	wrote := false
	for i, o := range ops {
		t := &tx{w: w, ctx: ctx}
		errs[i] = t.call(o.run)
		if errs[i] == nil {
			wrote = wrote || t.dirty
			continue
		}
		if w.dialect.gone(errs[i]) {
			w.rollback(ctx)
			fill(errs, w.explain(errs[i]))
			return true
		}
		if t.dirty || t.broken {
			w.rollback(ctx)
			return len(ops) == 1
		}
	}
	if !wrote {
		w.rollback(ctx)
		return true
	}
	if _, err := w.exec(ctx, "COMMIT"); err != nil {
		w.rollback(ctx)
		for i := range errs {
			if errs[i] == nil {
				errs[i] = w.explain(fmt.Errorf("commit: %w", err))
			}
		}
	}
	return true
}

// explain gives a lost connection a code here, where it cannot be taken for the end
// of a caller's context.
func (w *writer) explain(err error) error {
	if w.dialect.gone(err) {
		return noAnswer("write", err)
	}
	return err
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}

// begin starts a transaction. A connection that broke while it was idle is
// replaced once: nothing was sent on it yet.
func (w *writer) begin(ctx context.Context) error {
	fresh := w.conn == nil
	err := w.tryBegin(ctx)
	if err != nil && !fresh && w.dialect.gone(err) {
		err = w.tryBegin(ctx)
	}
	return err
}

func (w *writer) tryBegin(ctx context.Context) error {
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return err
		}
		w.conn, w.stmts, w.texts = conn, map[string]*sql.Stmt{}, map[string]string{}
	}
	if _, err := w.exec(ctx, w.dialect.begin); err != nil {
		if w.dialect.gone(err) {
			w.drop()
		}
		return err
	}
	return nil
}

// rollback ends a failed transaction. A connection on which even that fails is
// given up, which rolls back too.
func (w *writer) rollback(ctx context.Context) {
	if _, err := w.exec(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		w.drop()
	}
}

// drop closes the connection for good rather than giving it back to the pool.
func (w *writer) drop() {
	for _, s := range w.stmts {
		s.Close()
	}
	w.conn.Raw(func(any) error { return driver.ErrBadConn })
	w.conn.Close()
	w.conn, w.stmts = nil, nil
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	var errs []error
	for _, s := range w.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// exec runs one of the fixed statements and returns the number of rows it hit.
func (w *writer) exec(ctx context.Context, query string, args ...any) (int64, error) {
	var result sql.Result
	stmt, text, err := w.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	if stmt != nil {
		result, err = stmt.ExecContext(ctx, args...)
	} else {
		result, err = w.conn.ExecContext(ctx, text, args...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (w *writer) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, text, err := w.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if stmt != nil {
		return stmt.QueryContext(ctx, args...)
	}
	return w.conn.QueryContext(ctx, text, args...)
}

// prepare returns the prepared statement for a fixed text, or the dialect's text
// where the driver caches statements itself.
func (w *writer) prepare(ctx context.Context, query string) (*sql.Stmt, string, error) {
	if !w.dialect.prepare {
		return nil, w.text(query), nil
	}
	if stmt, ok := w.stmts[query]; ok {
		return stmt, "", nil
	}
	stmt, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, "", err
	}
	w.stmts[query] = stmt
	return stmt, "", nil
}

// text is a fixed statement in the dialect's own words.
func (w *writer) text(query string) string {
	text, ok := w.texts[query]
	if !ok {
		text = w.dialect.rebind(query)
		w.texts[query] = text
	}
	return text
}

// A tx is the part of the running transaction that belongs to one write. Its
// SQL texts are fixed: each is prepared once and kept.
type tx struct {
	w      *writer
	ctx    context.Context // of the whole transaction, not of the caller
	dirty  bool            // rows were changed
	broken bool            // a statement failed
}

// A panicked error carries a panic of a write to its caller's goroutine: a mistake
// there must not end the committer.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic in a write: %v\n%s", p.value, p.stack) }

// call runs a write.
func (t *tx) call(run func(*tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			t.broken = true
			err = &panicked{v, debug.Stack()}
		}
	}()
	return run(t)
}

// exec runs a statement and returns the number of rows it hit.
func (t *tx) exec(query string, args ...any) (int64, error) {
	n, err := t.w.exec(t.ctx, query, args...)
	t.broken = t.broken || err != nil
	t.dirty = t.dirty || n > 0
	return n, err
}

// execAll executes statements in order, until one fails or hits no row, and returns
// the rows that each hit up to there. A server is sent all at once: what comes
// after the one that misses is executed too, which the caller's error undoes.
func (t *tx) execAll(stmts []statement) (hits []int64, err error) {
	hits = make([]int64, 0, len(stmts))
	if pipeline := t.w.dialect.pipeline; pipeline != nil {
		hits, err = pipeline(t.ctx, t.w.conn, t.w.text, stmts, hits)
		t.dirty = true
		t.broken = t.broken || err != nil
		return hits, err
	}
	for i := range stmts {
		n, err := t.exec(stmts[i].query, stmts[i].args...)
		if err != nil {
			return hits, err
		}
		if hits = append(hits, n); n == 0 && !stmts[i].any {
			break
		}
	}
	return hits, nil
}

// each calls scan for every row of a query.
func (t *tx) each(scan func(scanner) error, query string, args ...any) error {
	rows, err := t.w.query(t.ctx, query, args...)
	if err == nil {
		err = eachRow(rows, scan)
	}
	t.broken = t.broken || err != nil
	return err
}

// one scans the first row of a query; found is false if there is none.
func (t *tx) one(scan func(scanner) error, query string, args ...any) (found bool, err error) {
	err = t.each(func(r scanner) error {
		found = true
		return scan(r)
	}, query, args...)
	return found, err
}

// write runs fn in a transaction through the committer and waits until it is on
// disk. fn runs on the committer's goroutine: it must be quick, must not use the
// store, and may run again after a neighbour in its batch failed.
func (s *Store) write(ctx context.Context, what string, fn func(*tx) error) error {
	err := s.commits.do(ctx, fn)
	if err == nil {
		s.indexer.nudge()
	}
	return s.dialect.fault(what, err)
}
