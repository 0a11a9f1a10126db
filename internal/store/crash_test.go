package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// crashEnv makes the test binary the process that is killed: its value is the
// directory of the database.
const crashEnv = "MNEME_STORE_CRASH_DIR"

const crashWriters = 4

// writeUntilKilled writes changes from several conversations and prints each one
// that was acknowledged. It never returns.
func writeUntilKilled(dir string) {
	if err := crashWriter(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func crashWriter(dir string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, filepath.Join(dir, "mneme.db"), store.Options{})
	if err != nil {
		return err
	}
	if err := s.TakeOver(ctx); err != nil {
		return err
	}
	failed := make(chan error)
	var out sync.Mutex
	for range crashWriters {
		a, own := &agent.Agent{ID: agent.NewID("agent")}, &agent.Conversation{ID: agent.NewID("conv"), Own: true}
		own.AgentID = a.ID
		if err := s.CreateAgent(ctx, a, own); err != nil {
			return err
		}
		lease, err := s.Acquire(ctx, own.ID)
		if err != nil {
			return err
		}
		go func() {
			turn := &agent.Turn{ID: agent.NewID("turn"), AgentID: a.ID, ConversationID: own.ID, State: agent.TurnRunning}
			for n := int64(1); ; n++ {
				turn.Steps = int(n)
				if err := s.Commit(ctx, lease, crashChange(turn, n)); err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Println("done", own.ID, n)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// crashChange has rows in four tables: all of them or none must be found.
func crashChange(turn *agent.Turn, n int64) *store.Change {
	msg := func(seq int64) *agent.Message {
		return &agent.Message{ID: agent.NewID("message"), AgentID: turn.AgentID, ConversationID: turn.ConversationID, Seq: seq,
			Role: agent.RoleUser, Parts: []agent.Part{agent.Text(strings.Repeat("x", 3000))}}
	}
	return &store.Change{
		Turns:    []*agent.Turn{turn},
		Messages: []*agent.Message{msg(2*n - 1), msg(2 * n)},
		Inputs:   []*agent.Input{{ID: agent.NewID("input"), AgentID: turn.AgentID, ConversationID: turn.ConversationID, State: agent.InputQueued}},
		Events:   []store.RunEvent{{RunID: turn.ID, Seq: n, Data: []byte("{}")}},
	}
}

// TestKill kills a writing process several times. After each the file is whole,
// everything that was acknowledged is there, and no change is there in part.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	acknowledged := map[string]int64{}
	for i := range 4 {
		killWriter(t, dir, time.Duration(80+60*i)*time.Millisecond, acknowledged)
		s := open(t, filepath.Join(dir, "mneme.db"), store.Options{})
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		for conv, n := range acknowledged {
			checkWhole(t, s, conv, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acknowledged) < 4 { // on a busy machine not every writer gets to its first commit
		t.Errorf("%d conversations were written", len(acknowledged))
	}
}

func checkWhole(t *testing.T, s *store.Store, conv string, acknowledged int64) {
	t.Helper()
	snap, err := s.Load(t.Context(), conv)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Turn == nil {
		t.Fatalf("conversation %s has no turn, %d changes were acknowledged", conv, acknowledged)
	}
	n := int64(snap.Turn.Steps)
	events, err := s.Events(t.Context(), snap.Turn.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n < acknowledged || n > acknowledged+1 {
		t.Errorf("%d changes are there, %d were acknowledged", n, acknowledged)
	}
	if int64(len(snap.Context)) != 2*n || snap.LastSeq != 2*n || int64(len(snap.Queue)) != n || int64(len(events)) != n {
		t.Errorf("after %d changes: %d messages up to %d, %d inputs, %d events",
			n, len(snap.Context), snap.LastSeq, len(snap.Queue), len(events))
	}
}

// killWriter lets a process write for a while after its first acknowledgement,
// kills it and adds what it had acknowledged.
func killWriter(t *testing.T, dir string, after time.Duration, acknowledged map[string]int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	lines := 0
	for scan := bufio.NewScanner(out); scan.Scan(); lines++ {
		if timer == nil {
			timer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		var conv string
		var n int64
		// The last line may be cut: it counts as not said.
		if _, err := fmt.Sscanf(scan.Text(), "done %s %d", &conv, &n); err != nil || len(conv) != len("conv-")+36 {
			continue
		}
		acknowledged[conv] = max(acknowledged[conv], n)
	}
	err = cmd.Wait()
	if lines == 0 || err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("writer: %v after %d lines\n%s", err, lines, stderr.String())
	}
}
