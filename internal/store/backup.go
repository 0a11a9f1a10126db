package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
)

// Backup writes a consistent copy of the SQLite file to path, which must not
// exist, while the store goes on working. On other databases it fails with
// CodeNotBuilt: they have tools of their own.
func (s *Store) Backup(ctx context.Context, path string) error {
	if s.dialect.name != "sqlite" {
		return agent.Errorf(agent.CodeNotBuilt, "Only an SQLite database is backed up by mneme; use pg_dump for PostgreSQL.")
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return agent.Errorf(agent.CodeConflict, "The backup file %s exists already.", path)
	}
	if err := s.vacuumInto(ctx, path); err != nil {
		return fmt.Errorf("back up database to %s: %w", path, err)
	}
	return nil
}

// vacuumInto copies the database under a temporary name, flushes it and moves it
// into place, so that a file with the final name is always whole.
func (s *Store) vacuumInto(ctx context.Context, path string) error {
	temp := path + ".partial"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// VACUUM INTO reads one snapshot. query_only would refuse it, although the
	// database itself is not written.
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "PRAGMA query_only = 0"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "VACUUM INTO ?", temp)
	if _, e := conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA query_only = 1"); err == nil {
		err = e
	}
	if err != nil {
		return errors.Join(err, removeIfExists(temp))
	}
	if err := os.Chmod(temp, 0o600); err != nil {
		return err
	}
	if err := flush(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return flush(filepath.Dir(path))
}

func removeIfExists(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// flush fsyncs a file or directory.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// backupBefore copies the file before a migration and returns the copy's path.
func (s *Store) backupBefore(ctx context.Context, version int64) (string, error) {
	if err := os.MkdirAll(s.backupDir, 0o700); err != nil {
		return "", err
	}
	name := strings.TrimSuffix(filepath.Base(s.path), filepath.Ext(s.path))
	to := filepath.Join(s.backupDir, fmt.Sprintf("%s-v%d-%s.db", name, version, time.Now().UTC().Format("20060102T150405.000Z")))
	return to, s.vacuumInto(ctx, to)
}

// latestBackup is the newest copy in dir, "" if there is none.
func latestBackup(dir string) string {
	names, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
}

func modTime(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Check looks for damage: SQLite reads the whole file, other databases are only
// asked whether they answer. The error says what is wrong and what to do.
func (s *Store) Check(ctx context.Context) error {
	if s.dialect.name != "sqlite" {
		return s.dialect.fault("reach the database", s.reads.PingContext(ctx))
	}
	rows, err := s.reads.QueryContext(ctx, "PRAGMA quick_check(10)")
	if err != nil {
		return s.sqliteFault(err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if line != "ok" {
			found = append(found, line)
		}
	}
	if err := rows.Err(); err != nil {
		return s.sqliteFault(err)
	}
	if len(found) > 0 {
		return s.damaged(strings.Join(found, "\n"))
	}
	return nil
}
