package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"mneme/internal/agent"
)

// Result codes of SQLite, see https://www.sqlite.org/rescode.html.
const (
	sqliteBusy       = 5
	sqliteCorrupt    = 11
	sqliteNotADB     = 26
	sqlitePrimaryKey = 1555
	sqliteUnique     = 2067
)

// readConns bounds the connections that read the SQLite file. Each has a page cache
// of its own, so they are few and idle ones are closed.
const readConns = 4

func sqliteDialect() *dialect {
	return &dialect{
		name: "sqlite", goose: goose.DialectSQLite3, begin: "BEGIN IMMEDIATE", prepare: true,
		ord: "INTEGER PRIMARY KEY", clustered: "WITHOUT ROWID",
		fullText: fullText{
			tokens: "?", match: "message_fts MATCH ?", quote: `"`, and: " AND ", or: " OR ",
		},
		unique: func(err error) bool {
			code := sqliteCode(err)
			return code == sqliteUnique || code == sqlitePrimaryKey
		},
		gone: func(error) bool { return false },
		busy: func(err error) bool { return sqliteCode(err)&0xff == sqliteBusy },
	}
}

// sqliteCode is the extended result code of an error, 0 if it is not SQLite's.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// openSQLite opens the file with one write connection and a pool of readers.
func (s *Store) openSQLite(ctx context.Context, target string) error {
	s.dialect = sqliteDialect()
	path, err := sqlitePath(target)
	if err != nil {
		return err
	}
	synchronous := "FULL"
	if path == "" {
		synchronous = "OFF" // it need not outlive the process
		if s.tempDir, err = os.MkdirTemp("", "mneme-"); err != nil {
			return fmt.Errorf("open temporary database: %w", err)
		}
		path = filepath.Join(s.tempDir, "mneme.db")
	}
	if err := createPrivate(path); err != nil {
		return fmt.Errorf("open database %s: %w", path, err)
	}
	s.path = path
	if s.backupDir == "" {
		s.backupDir = filepath.Join(filepath.Dir(path), "backups")
	}
	s.writes, s.reads = sqlitePools(path, synchronous)
	// The first statement reads the file's head: a damaged file shows here.
	if _, err := s.writes.ExecContext(ctx, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return s.sqliteFault(err)
	}
	if err := s.migrate(ctx, s.writes); err != nil {
		return s.sqliteFault(err)
	}
	return nil
}

// sqlitePools opens the two handles. The journal is fsynced with each commit
// unless synchronous says otherwise; the busy timeout comes first so that even the
// switch to WAL waits for another process.
func sqlitePools(path, synchronous string) (writes, reads *sql.DB) {
	// The driver takes a URI: "?", "#" and "%" of a name are escaped.
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?"
	write := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "foreign_keys(1)", "journal_mode(WAL)", "synchronous(" + synchronous + ")",
		"cache_size(-4096)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)",
	}}
	read := url.Values{"_pragma": {"busy_timeout(10000)", "query_only(1)", "cache_size(-1024)"}}
	// sql.Open fails only for an unknown driver.
	writes, _ = sql.Open("sqlite", dsn+write.Encode())
	writes.SetMaxOpenConns(1)
	reads, _ = sql.Open("sqlite", dsn+read.Encode())
	reads.SetMaxOpenConns(readConns)
	reads.SetMaxIdleConns(readConns)
	reads.SetConnMaxIdleTime(time.Minute)
	return writes, reads
}

// sqlitePath returns the absolute path that the URL names, "" for a temporary
// database.
func sqlitePath(target string) (string, error) {
	switch {
	case target == ":memory:" || target == "file::memory:":
		return "", nil
	case target == "":
		target = "mneme.db"
	case strings.HasPrefix(target, "file:"):
		u, err := url.Parse(target)
		if err != nil {
			return "", agent.Invalid("database", "The database URL %q is not valid: %v.", target, err)
		}
		if u.RawQuery != "" {
			return "", agent.Invalid("database", "The database URL %q has parameters; an SQLite file takes none.", target)
		}
		target = u.Path
		if u.Opaque != "" { // a relative path
			if target, err = url.PathUnescape(u.Opaque); err != nil {
				return "", agent.Invalid("database", "The database URL is not valid: %v.", err)
			}
		}
	case strings.Contains(target, "://"):
		return "", agent.Invalid("database", "The database URL %q is neither a file nor postgres://.", target)
	}
	path, err := filepath.Abs(target)
	if err != nil {
		return "", fmt.Errorf("find database %s: %w", target, err)
	}
	return path, nil
}

// createPrivate makes the file readable by its owner only before SQLite makes
// it with the usual mode; its companions take over that mode.
func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// sqliteFault explains an error of opening the file; a damaged one is named
// together with the way on.
func (s *Store) sqliteFault(err error) error {
	switch sqliteCode(err) & 0xff {
	case sqliteCorrupt, sqliteNotADB:
	default:
		return err
	}
	return s.damaged(err.Error())
}

// damaged is the error for a broken file: nothing is changed or set aside by us.
func (s *Store) damaged(detail string) error {
	hint := fmt.Sprintf("If you have a backup, copy it over %s while no server runs.", s.path)
	if last := latestBackup(s.backupDir); last != "" {
		hint = fmt.Sprintf("To go back to the last backup, move the file away together with %s-wal and %s-shm and run `cp %s %s` while no server runs.",
			filepath.Base(s.path), filepath.Base(s.path), last, s.path)
	}
	return &agent.Error{Code: agent.CodeInternal, Detail: detail, Ref: s.path, Message: fmt.Sprintf(
		"The database %s is damaged and was left as it is. %s To save what is still readable, run `sqlite3 %s .recover`. "+
			"To start empty, move the file away together with %s-wal and %s-shm.",
		s.path, hint, s.path, filepath.Base(s.path), filepath.Base(s.path))}
}
