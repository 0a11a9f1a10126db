package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
)

// later is the set of migrations of a newer program.
func later(t *testing.T, second string) fs.FS {
	t.Helper()
	files := upTo(t, 9000)
	files["migrations/9001_more.sqlite.sql"] = &fstest.MapFile{Data: []byte(second)}
	files["migrations/9001_more.postgres.sql"] = &fstest.MapFile{Data: []byte("not for this database")}
	files["migrations/9002_empty.postgres.sql"] = &fstest.MapFile{Data: []byte("not for this database")}
	return files
}

// upTo is the set of this program's migrations up to a version.
func upTo(t *testing.T, version int) fstest.MapFS {
	t.Helper()
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, name := range names {
		data, err := migrationFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d_", &n); err != nil {
			t.Fatal(name, err)
		}
		if n <= version {
			files[name] = &fstest.MapFile{Data: data}
		}
	}
	return files
}

// migrateTo opens the file with other migrations than this program's.
func migrateTo(t *testing.T, path string, files fs.FS) error {
	t.Helper()
	s := &Store{dialect: sqliteDialect(), path: path, backupDir: filepath.Join(filepath.Dir(path), "backups"),
		log: slog.New(slog.DiscardHandler), tenant: agent.DefaultTenant}
	s.writes, s.reads = sqlitePools(path, "FULL")
	defer s.closeHandles()
	provider, err := s.migrations(s.writes, files)
	if err != nil {
		t.Fatal(err)
	}
	return s.migrateWith(t.Context(), provider)
}

func backups(t *testing.T, path string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(filepath.Dir(path), "backups", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMigrationFromEarlierVersion(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "mneme.db")
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetSetting(ctx, "k", "v"), s.Close()); err != nil {
		t.Fatal(err)
	}
	if all := backups(t, path); len(all) != 0 {
		t.Errorf("a new file was backed up: %v", all)
	}

	// A migration that fails changes nothing, and the next start tries again.
	if err := migrateTo(t, path, later(t, "ALTER TABLE settings ADD COLUMN note TEXT; INSERT INTO nowhere VALUES (1);")); err == nil {
		t.Fatal("a broken migration succeeded")
	}
	if s, err = Open(ctx, path, Options{}); err != nil {
		t.Fatal(err)
	}
	if v, found, err := s.Setting(ctx, "k"); v != "v" || !found || err != nil {
		t.Errorf("setting after a failed migration: %q, %v, %v", v, found, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := migrateTo(t, path, later(t, "ALTER TABLE settings ADD COLUMN note TEXT")); err != nil {
		t.Fatal(err)
	}

	// Each attempt made a copy of the file as it was before.
	all := backups(t, path)
	if len(all) != 2 {
		t.Fatalf("backups %v", all)
	}
	for _, file := range all {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(filepath.Base(file), "mneme-v") {
			t.Errorf("backup %s: %v, %v", file, info.Mode(), err)
		}
		old, err := Open(ctx, file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, err := old.Setting(ctx, "k"); v != "v" || err != nil {
			t.Errorf("setting in the backup: %q, %v", v, err)
		}
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	}

	// This program is now too old for the file, and says where the copy is.
	_, err = Open(ctx, path, Options{})
	if agent.CodeOf(err) != agent.CodeConflict || !strings.Contains(err.Error(), "version 9001") ||
		!strings.Contains(err.Error(), latestBackup(filepath.Dir(all[0]))) {
		t.Errorf("opened by an older program: %v", err)
	}
}

// TestMigrationKeepsRows: a file of the first version with a run and a message in
// it.
func TestMigrationKeepsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mneme.db")
	if err := migrateTo(t, path, upTo(t, 1)); err != nil {
		t.Fatal(err)
	}
	writes, reads := sqlitePools(path, "FULL")
	_, err := writes.Exec(`INSERT INTO runs (id, tenant, turn_id, agent_id, conversation_id, ended, started_ns, ended_ns, stop_reason)
		VALUES ('run-1', 'default', 'turn-1', 'agent-1', 'conv-1', 1, 1000, 2000, 'end_turn');
		INSERT INTO messages (id, tenant, agent_id, conversation_id, seq, hidden, interrupted, created_ns, role, turn_id, run_id, step_id,
			client_key, otid, sender_id, name, call_id, status, context, parts)
		VALUES ('message-1', 'default', 'agent-1', 'conv-1', 1, 0, 0, 1000, 'user', '', '', '', '', '', '', '', '', '', '',
			'[{"kind":"text","text":"an old wedding"}]')`)
	if err := errors.Join(err, writes.Close(), reads.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run, err := s.Run(t.Context(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(0, 1000).UTC()
	want := &agent.Run{ID: "run-1", TurnID: "turn-1", AgentID: "agent-1", ConversationID: "conv-1", Ended: true,
		StopReason: agent.StopEndTurn, CreatedAt: start, StartedAt: start, EndedAt: time.Unix(0, 2000).UTC()}
	if diff := cmp.Diff(want, run); diff != "" {
		t.Error(diff)
	}
	hits, err := s.SearchMessages(t.Context(), SearchFilter{Query: "weddings", AgentID: "agent-1"})
	if err != nil || len(hits) != 1 || hits[0].Message.ID != "message-1" {
		t.Errorf("an old message: %v, %v", hits, err)
	}
}

func TestBackupOfForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	writes, reads := sqlitePools(path, "FULL")
	_, err := writes.Exec("CREATE TABLE theirs (a TEXT)")
	if err := errors.Join(err, writes.Close(), reads.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all := backups(t, path); len(all) != 1 {
		t.Errorf("backups %v", all)
	}
}

func TestRebind(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT 1":                             "SELECT 1",
		"a = ? AND b IN (?, ?)":                "a = $1 AND b IN ($2, $3)",
		`x LIKE ? ESCAPE '\' AND y = '?' || ?`: `x LIKE $1 ESCAPE '\' AND y = '?' || $2`,
		`"odd?" = ? OR z = 'it''s ?' OR ü = ?`: `"odd?" = $1 OR z = 'it''s ?' OR ü = $2`,
	} {
		if got := postgresDialect().rebind(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if got := sqliteDialect().rebind(in); got != in {
			t.Errorf("%q became %q for SQLite", in, got)
		}
	}
}
