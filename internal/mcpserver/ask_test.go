package mcpserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/store"
)

// saying answers every request with a text.
func saying(text string) func() llm.Model {
	return func() llm.Model {
		return fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text(text)} })
	}
}

func TestAsk(t *testing.T) {
	eachMode(t, saying("the cat is grey"), func(t *testing.T, r *rig) {
		id := r.agent("vole")
		o := r.must("session_ask", map[string]any{"agent_id": "vole", "message": "what about the cat?"})
		if o.text(t, "reply") != "the cat is grey" || o.text(t, "agent_id") != id || o.text(t, "agent_name") != "vole" {
			t.Errorf("asked: %s", o.raw)
		}
		storage, _ := o.meta["letta/storage"].(map[string]any)
		if storage["locked"] != true || storage["writes_blocked"] != 0.0 || o.meta["letta/usage"] == nil {
			t.Errorf("side facts %v", o.meta)
		}
	})
}

func TestAskCutsReply(t *testing.T) {
	r := start(t, saying("äöü and more")(), "STREAM_MAX_CHARS", "3")
	r.agent("vole")
	o := r.must("session_ask", map[string]any{"agent_id": "vole", "message": "well?"})
	if o.text(t, "reply") != "äöü" || o.meta["letta/truncated"] != true {
		t.Errorf("cut: %s %v", o.raw, o.meta)
	}
}

func TestAskFails(t *testing.T) {
	eachMode(t, func() llm.Model {
		return fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Status(400, "no credit\nleft")} })
	}, func(t *testing.T, r *rig) {
		r.agent("vole")
		o := r.tool("session_ask", map[string]any{"agent_id": "vole", "message": "well?"})
		if o.code() != "model_error" || !strings.Contains(o.Error.Message, "no credit left") {
			t.Errorf("a provider that fails: %s", o.raw)
		}
	})
}

// A stuckModel begins to answer and goes on when it is let, or is cancelled.
type stuckModel struct {
	gate    chan struct{}
	running atomic.Int64 // requests that wait
}

func newStuck() *stuckModel { return &stuckModel{gate: make(chan struct{})} }

func (s *stuckModel) model() llm.Model {
	wait := fake.Do(func(ctx context.Context, _ *llm.Request) error {
		s.running.Add(1)
		defer s.running.Add(-1)
		select {
		case <-s.gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text("let me "), wait, fake.Text("see")} })
}

// atRest waits until no request waits.
func (s *stuckModel) atRest(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for s.running.Load() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("a turn still runs")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAskTimesOut(t *testing.T) {
	stuck := newStuck()
	eachMode(t, stuck.model, func(t *testing.T, r *rig) {
		r.agent("vole")
		o := r.tool("session_ask", map[string]any{"agent_id": "vole", "message": "well?"})
		if o.code() != "turn_timeout" {
			t.Errorf("a turn without end: %s", o.raw)
		}
		stuck.atRest(t)
	}, "TURN_TIMEOUT_MS", "300")
}

// In the modern era the end of the connection is the end of the call.
func TestModernDisconnectCancels(t *testing.T) {
	stuck := newStuck()
	eachMode(t, stuck.model, func(t *testing.T, r *rig) {
		r.agent("vole")
		body, headers := r.request("tools/call", map[string]any{
			"name": "session_ask", "arguments": map[string]any{"agent_id": "vole", "message": "well?"}, "_meta": map[string]any{"progressToken": "p"},
		})
		ctx, cancel := context.WithCancel(t.Context())
		resp := r.open(ctx, "POST", "/mcp", body, headers...)
		defer resp.Body.Close()
		if line := readUntil(t, resp.Body, "writing"); !strings.Contains(line, "progress") {
			t.Errorf("progress: %s", line)
		}
		cancel()
		stuck.atRest(t)
	})
}

// In the legacy era it is not: the answer can be had later.
func TestLegacyDisconnectAndResume(t *testing.T) {
	stuck := newStuck()
	r := start(t, stuck.model())
	r.agent("vole")
	session := r.session("2025-11-25", "")
	call := func(id int, from string) (context.CancelFunc, string) {
		ctx, cancel := context.WithCancel(t.Context())
		body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"session_ask","arguments":{"agent_id":"vole","message":"well?"},"_meta":{"progressToken":%d}}}`, id, id)
		resp := r.open(ctx, "POST", "/mcp", body, "Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-11-25")
		t.Cleanup(func() { resp.Body.Close() })
		return cancel, readUntil(t, resp.Body, from)
	}
	cancel, seen := call(7, "writing")
	last := lastEventID(seen)
	cancel()
	close(stuck.gate)
	get := r.open(t.Context(), "GET", "/mcp", nil, "Mcp-Session-Id", session, "Last-Event-ID", last, "MCP-Protocol-Version", "2025-11-25")
	defer get.Body.Close()
	rest := readUntil(t, get.Body, `"id":7`)
	if !strings.Contains(rest, "let me see") || strings.Contains(rest, last) {
		t.Errorf("after %s came %s", last, rest)
	}
	if a := r.do("GET", "/mcp", nil, "Mcp-Session-Id", session, "Last-Event-ID", "nope_3"); a.status != 400 {
		t.Errorf("an unknown event: %d %s", a.status, a.body)
	}
	other := r.session("2025-11-25", "")
	if a := r.do("GET", "/mcp", nil, "Mcp-Session-Id", other, "Last-Event-ID", last); a.status != 400 {
		t.Errorf("an event of another session: %d %s", a.status, a.body)
	}
}

func TestLegacyCancel(t *testing.T) {
	stuck := newStuck()
	eachMode(t, stuck.model, func(t *testing.T, r *rig) {
		r.agent("vole")
		session := r.session("2025-11-25", "")
		body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"session_ask","arguments":{"agent_id":"vole","message":"well?"},"_meta":{"progressToken":1}}}`)
		resp := r.open(t.Context(), "POST", "/mcp", body, "Mcp-Session-Id", session)
		defer resp.Body.Close()
		readUntil(t, resp.Body, "writing")
		if a := r.legacy(session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`); a.status != 202 {
			t.Errorf("cancel: %d %s", a.status, a.body)
		}
		if rest := readUntil(t, resp.Body, ""); strings.Contains(rest, `"id":7`) {
			t.Errorf("a cancelled call was answered: %s", rest)
		}
		stuck.atRest(t)
	})
}

func TestDeleteSessionCancels(t *testing.T) {
	stuck := newStuck()
	r := start(t, stuck.model())
	r.agent("vole")
	session := r.session("2025-11-25", "")
	body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"session_ask","arguments":{"agent_id":"vole","message":"well?"},"_meta":{"progressToken":1}}}`)
	resp := r.open(t.Context(), "POST", "/mcp", body, "Mcp-Session-Id", session)
	defer resp.Body.Close()
	readUntil(t, resp.Body, "writing")
	if a := r.do("DELETE", "/mcp", nil, "Mcp-Session-Id", session); a.status != 204 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	stuck.atRest(t)
	if a := r.legacy(session, ping); a.status != 404 {
		t.Errorf("a deleted session: %d", a.status)
	}
}

// digest is a digest of all files below a directory.
func digestOf(t testing.TB, dirs ...string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			sum := sha256.Sum256(data)
			sums[path] = hex.EncodeToString(sum[:])
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return sums
}

// What session_ask and memory_search do leaves nothing behind, whatever the model
// tries.
func TestStorageLock(t *testing.T) {
	tries := []fake.Step{
		fake.Call("memory", `{"command":"create","file_path":"system/evil.md","description":"x","file_text":"x","reason":"x"}`),
		fake.Call("Write", `{"file_path":"evil.txt","content":"x"}`),
		fake.Call("Edit", `{"file_path":"kept.txt","old_string":"kept","new_string":"lost"}`),
		fake.Call("Bash", `{"command":"echo x > evil.txt","description":"x"}`),
		fake.Call("Read", `{"file_path":"kept.txt"}`),
	}
	eachMode(t, func() llm.Model {
		n := 0
		return fake.NewFunc(func(*llm.Request) fake.Answer {
			if n++; n%2 == 1 {
				return tries
			}
			return fake.Answer{fake.Text("I tried")}
		})
	}, func(t *testing.T, r *rig) {
		id := r.agent("vole")
		r.must("memory_save", map[string]any{"agent_id": id, "text": "the cat is grey"})
		if err := os.WriteFile(filepath.Join(r.app.Dir, "kept.txt"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.must("memory_search", map[string]any{"agent_id": id, "query": "cat"}) // the index is made
		before, rows := digestOf(t, r.app.Dir), r.rows(id)
		r.must("memory_search", map[string]any{"agent_id": id, "query": "grey cat"})
		o := r.must("session_ask", map[string]any{"agent_id": id, "message": "write!"})
		if o.text(t, "reply") != "I tried" {
			t.Errorf("asked: %s", o.raw)
		}
		if diff := cmp.Diff(before, digestOf(t, r.app.Dir)); diff != "" {
			t.Errorf("files have changed: %s", diff)
		}
		if diff := cmp.Diff(rows, r.rows(id)); diff != "" && !r.stock {
			t.Errorf("rows have changed: %s", diff)
		}
		storage, _ := o.meta["letta/storage"].(map[string]any)
		if storage["locked"] != true || storage["writes_blocked"].(float64) < 3 || storage["commit_before"] != storage["commit_after"] {
			t.Errorf("storage %v", storage)
		}
		if w := fmt.Sprint(o.meta["letta/warnings"]); r.stock != strings.Contains(w, "conversation") {
			t.Errorf("warnings %s", w)
		}
	})
}

// rows is what the store shows of an agent: itself, its conversations, how many
// messages they hold.
func (r *rig) rows(id string) []string {
	r.t.Helper()
	ctx := r.t.Context()
	ag, err := r.app.Store.Agent(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := json.Marshal(ag)
	if err != nil {
		r.t.Fatal(err)
	}
	out := []string{string(raw)}
	all, err := r.app.Store.Conversations(ctx, store.ConversationFilter{AgentID: id, IncludeHidden: true, IncludeOwn: true})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range all {
		n, err := r.app.Store.MessageCount(ctx, c.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, fmt.Sprint(c.ID, c.UpdatedAt, n))
	}
	return out
}
