// Package store keeps the durable facts: agents, conversations, messages and
// the journal of their turns, in SQLite or PostgreSQL. It starts no policies:
// what a row means is for its callers to know.
//
// Every write goes through one goroutine, the group committer (committer.go).
// It takes whatever is queued, runs it in one transaction on the one write
// connection and answers when the transaction is on disk, so that many
// conversations share one fsync. An operation that fails never harms its
// neighbours: the batch is rolled back and each operation runs on its own. The
// queue is bounded; when it is full, callers wait for room until their context
// ends. Reads have a pool of their own and never wait for writers. A second
// goroutine keeps the index that messages are searched by (indexer.go).
//
// The journal of a conversation is written with Commit under a lease (lease.go):
// its first statement renews the lease and hits no row when the lease has passed
// to another process, which then writes nothing. Rows of the journal therefore
// need no foreign keys; deleting a conversation deletes its lease.
//
// The SQL is portable and written once with "?" as placeholder. A dialect value
// (sqlite.go, postgres.go) holds the real differences. Every row belongs to a
// tenant and every query is bound to the store's one. Text is stored as valid
// UTF-8 without NUL on both databases, so that both answer alike.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"mneme/internal/agent"
)

// DefaultLeaseTerm is how long a lease holds without a Commit that renews it.
const DefaultLeaseTerm = 30 * time.Second

// Options are the settings of Open.
type Options struct {
	Logger *slog.Logger // nil = none
	// Owner is the stable id of the state holder: all its processes, one after
	// the other, have the same. "" = "local".
	Owner     string
	LeaseTerm time.Duration // 0 = DefaultLeaseTerm
	// BackupDir is where the SQLite file is copied to before a migration. "" =
	// the directory "backups" beside the file.
	BackupDir string
	Tenant    string // "" = agent.DefaultTenant
}

// A Store is an open database. It is safe for concurrent use.
type Store struct {
	dialect *dialect
	path    string // SQLite file; "" = none
	// backupDir is where copies of the file go before a migration.
	backupDir string
	tempDir   string // removed by Close; "" = none
	log       *slog.Logger
	owner     string
	term      time.Duration
	tenant    string

	writes  *sql.DB // one connection, used by the committer alone
	reads   *sql.DB
	queries sync.Map // SQL text -> *sql.Stmt on reads, fixed texts only
	commits *committer
	indexer *indexer

	closing sync.Once
	closed  error // set by closing
}

// Open opens the database at url, brings its tables up to date and starts the
// group committer. url is a path or file: URL of an SQLite file ("" is mneme.db
// in the working directory), ":memory:" for one that ends with the store (a
// temporary file without fsync, so that it behaves as any other), or a postgres://
// URL. A PostgreSQL that does not answer yet is waited for up to 30 s. The caller
// must Close the store.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	s := &Store{
		log:    opts.Logger,
		owner:  opts.Owner,
		term:   opts.LeaseTerm,
		tenant: opts.Tenant,

		backupDir: opts.BackupDir,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.owner == "" {
		s.owner = "local"
	}
	if s.term <= 0 {
		s.term = DefaultLeaseTerm
	}
	if s.tenant == "" {
		s.tenant = agent.DefaultTenant
	}
	open := s.openSQLite
	if isPostgres(url) {
		open = s.openPostgres
	}
	if err := open(ctx, url); err != nil {
		s.closeHandles()
		return nil, err
	}
	s.commits = newCommitter(&writer{db: s.writes, dialect: s.dialect}, s.log)
	s.indexer = newIndexer(s)
	return s, nil
}

// Close lets the queued writes finish and closes the database. Writes that come
// later fail with CodeShutdown. A second Close does nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.indexer.close()
		err := s.commits.close()
		if e := s.closeHandles(); err == nil {
			err = e
		}
		if err != nil {
			s.closed = fmt.Errorf("close store: %w", err)
		}
	})
	return s.closed
}

func (s *Store) closeHandles() error {
	var first error
	for _, q := range s.queries.Range {
		q.(*sql.Stmt).Close()
	}
	for _, db := range []*sql.DB{s.reads, s.writes} {
		if db == nil {
			continue
		}
		if err := db.Close(); first == nil {
			first = err
		}
	}
	if s.tempDir != "" {
		if err := os.RemoveAll(s.tempDir); first == nil {
			first = err
		}
	}
	return first
}

// Kind is "sqlite" or "postgres".
func (s *Store) Kind() string { return s.dialect.name }

// Path is the SQLite file; "" for other databases and for one in memory.
func (s *Store) Path() string { return s.path }

// Owner is the id under which this store takes leases.
func (s *Store) Owner() string { return s.owner }
