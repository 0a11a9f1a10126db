package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"mneme/internal/agent"
)

// postgresWait is how long Open waits for a server that does not answer yet.
const postgresWait = 30 * time.Second

// postgresConns bounds the connections that read.
const postgresConns = 8

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

func postgresDialect() *dialect {
	return &dialect{
		name: "postgres", goose: goose.DialectPostgres, begin: "BEGIN", numeric: true,
		ord: "BIGINT GENERATED ALWAYS AS IDENTITY", clustered: "",
		pipeline: postgresPipeline,
		fullText: fullText{
			tokens: "array_to_tsvector(string_to_array(?, ' '))",
			match:  "tokens @@ CAST(CAST(? AS text) AS tsquery)", quote: "'", and: " & ", or: " | ",
		},
		unique: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && e.Code == "23505" // unique_violation
		},
		gone: postgresGone,
		busy: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && (e.Code == "40001" || e.Code == "40P01") // serialization, deadlock
		},
	}
}

// postgresGone tells a server that cannot be reached, is starting, stopping or
// out of connections from one that refused a statement.
func postgresGone(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code[:2] {
		case "08", "53", "57": // connection, resources, operator
			return true
		}
		return false
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, sql.ErrConnDone)
}

// postgresPipeline spares a round trip per statement.
func postgresPipeline(ctx context.Context, conn *sql.Conn, text func(string) string, stmts []statement, hits []int64) ([]int64, error) {
	var batch pgx.Batch
	for i := range stmts {
		batch.Queue(text(stmts[i].query), stmts[i].args...)
	}
	err := conn.Raw(func(c any) error {
		results := c.(*stdlib.Conn).Conn().SendBatch(ctx, &batch)
		for range stmts {
			tag, err := results.Exec()
			if err != nil {
				results.Close() // repeats the error
				return err
			}
			hits = append(hits, tag.RowsAffected())
		}
		return results.Close()
	})
	return hits, err
}

// openPostgres connects with one connection for writes and a pool for reads.
func (s *Store) openPostgres(ctx context.Context, url string) error {
	s.dialect = postgresDialect()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// pgx redacts the password.
		return agent.Invalid("database", "The database URL is not valid: %v.", err)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "mneme"
	}
	s.writes = stdlib.OpenDB(*config)
	s.writes.SetMaxOpenConns(1)
	s.reads = stdlib.OpenDB(*config)
	s.reads.SetMaxOpenConns(postgresConns)
	s.reads.SetMaxIdleConns(postgresConns)
	s.reads.SetConnMaxIdleTime(5 * time.Minute)
	if err := s.awaitServer(ctx, config); err != nil {
		return err
	}
	return s.migrate(ctx, s.writes)
}

// awaitServer pings until the server answers. Only failures to reach it are
// waited out: a wrong password or database does not mend itself.
func (s *Store) awaitServer(ctx context.Context, config *pgx.ConnConfig) error {
	where := fmt.Sprintf("PostgreSQL at %s port %d, database %q", config.Host, config.Port, config.Database)
	deadline := time.Now().Add(postgresWait)
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 4*time.Second) {
		err := s.writes.PingContext(ctx)
		if err == nil {
			return nil
		}
		left := time.Until(deadline)
		if !postgresGone(err) || refused(err) || left <= 0 || ctx.Err() != nil {
			return &agent.Error{Code: agent.CodeInternal, Detail: err.Error(), Retryable: postgresGone(err),
				Message: fmt.Sprintf("Cannot use %s: %v.", where, err)}
		}
		s.log.Warn("database does not answer yet, trying again", "database", where, "error", err,
			"giving_up_in", left.Round(time.Second))
		select {
		case <-time.After(min(wait, left)):
		case <-ctx.Done():
		}
	}
}

// refused recognizes a server that answered and said no for good: class 28 is a
// failed login, 3D an unknown database.
func refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(e.Code, "28") || strings.HasPrefix(e.Code, "3D"))
}
