package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"mneme/internal/agent"
)

// migrationFiles holds NNNN_name.sql for both databases, and
// NNNN_name.sqlite.sql with NNNN_name.postgres.sql where they differ.
//
//go:embed migrations/*.sql
var migrationFiles embed.FS

// versionTable is where goose keeps the number of the last migration.
const versionTable = "schema_version"

// migrate brings the tables up to date, each migration in a transaction of its
// own, so that a killed one starts over. An SQLite file that has tables is copied
// first. A database newer than this program is refused untouched.
func (s *Store) migrate(ctx context.Context, db *sql.DB) error {
	provider, err := s.migrations(db, migrationFiles)
	if err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	return s.migrateWith(ctx, provider)
}

func (s *Store) migrateWith(ctx context.Context, provider *goose.Provider) error {
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read database version: %w", err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	if current > newest {
		return s.tooNew(current, newest)
	}
	if current == newest {
		return nil
	}
	filled, err := s.hasTables(ctx)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	if filled {
		to, err := s.backupBefore(ctx, current)
		if err != nil {
			return fmt.Errorf("back up database before migration: %w", err)
		}
		s.log.Info("database backed up before migration", "file", to)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate database from version %d: %w", current, err)
	}
	if current > 0 {
		s.log.Info("database migrated", "from", current, "to", newest, "migrations", len(results))
	}
	return nil
}

// hasTables tells an SQLite file that needs a copy from a new one.
func (s *Store) hasTables(ctx context.Context) (bool, error) {
	if s.path == "" {
		return false, nil
	}
	var n int
	err := s.reads.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema
		WHERE type = 'table' AND name <> ? AND name NOT LIKE 'sqlite%'`, versionTable).Scan(&n)
	return n > 0, err
}

func (s *Store) tooNew(current, newest int64) error {
	hint := ""
	if last := latestBackup(s.backupDir); last != "" {
		hint = fmt.Sprintf(" The last backup made before a migration is %s.", last)
	}
	return agent.Errorf(agent.CodeConflict,
		"The database has version %d, this program knows versions up to %d: use a newer mneme.%s", current, newest, hint)
}

// migrations reads the files for the store's dialect.
func (s *Store) migrations(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []*goose.Migration
	for _, name := range names {
		words := strings.Split(path.Base(name), ".") // NNNN_name [dialect] sql
		if len(words) == 3 && words[1] != s.dialect.name {
			continue
		}
		number, _, _ := strings.Cut(words[0], "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		script := s.dialect.ddl(string(text))
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{
			RunTx: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, script)
				return err
			},
		}, nil))
	}
	if len(all) == 0 {
		return nil, errors.New("no migrations")
	}
	opts := []goose.ProviderOption{
		goose.WithGoMigrations(all...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(versionTable),
		goose.WithSlog(slog.New(slog.DiscardHandler)),
	}
	if s.dialect.name == "postgres" {
		// Several nodes may start at once: one migrates, the others look every
		// second whether it is done.
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(s.dialect.goose, db, nil, opts...)
}
