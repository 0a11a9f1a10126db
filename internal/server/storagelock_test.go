package server_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// A toolCaller is a model provider whose answers are tool calls, one list per
// request, and then a text.
type toolCaller struct {
	*httptest.Server
	mu    sync.Mutex
	steps [][]toolCall
	asked []string // the bodies of the requests
}

type toolCall struct {
	name string
	args map[string]any
}

func newToolCaller(t *testing.T, steps ...[]toolCall) *toolCaller {
	m := &toolCaller{steps: steps}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"caller","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", m.answer)
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

func (m *toolCaller) answer(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	n := len(m.asked)
	m.asked = append(m.asked, string(body))
	m.mu.Unlock()
	delta := map[string]any{"role": "assistant", "content": "Nothing could be written."}
	finish := "stop"
	if n < len(m.steps) {
		var calls []any
		for i, c := range m.steps[n] {
			args, _ := json.Marshal(c.args)
			calls = append(calls, map[string]any{"index": i, "id": fmt.Sprintf("call_%d_%d", n, i), "type": "function",
				"function": map[string]any{"name": c.name, "arguments": string(args)}})
		}
		delta, finish = map[string]any{"role": "assistant", "tool_calls": calls}, "tool_calls"
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, choice := range []map[string]any{{"index": 0, "delta": delta}, {"index": 0, "delta": map[string]any{}, "finish_reason": finish}} {
		chunk, _ := json.Marshal(map[string]any{"id": "x", "object": "chat.completion.chunk", "model": "caller", "choices": []any{choice}})
		fmt.Fprintf(w, "data: %s\n\n", chunk)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// fingerprint is everything that is stored below the directories: the digest of
// each file, and of a database each row.
func fingerprint(t *testing.T, dirs ...string) []string {
	t.Helper()
	var out []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dir, p)
			switch {
			case d.IsDir():
				out = append(out, rel+"/")
			case rel == "mneme.db":
				out = append(out, rows(t, p)...)
			case strings.HasPrefix(rel, "mneme.db"), rel == server.LockFile: // the database's own, see its rows
			default:
				data, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				out = append(out, fmt.Sprintf("%s %x", rel, sha256.Sum256(data)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// rows is the content of all tables of a database that is in use.
func rows(t *testing.T, path string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list := func(query string) (all []string) {
		found, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		columns, err := found.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for found.Next() {
			values, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				to[i] = &values[i]
			}
			if err := found.Scan(to...); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(values...))
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	var out []string
	for _, table := range list(`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%fts%' ORDER BY name`) {
		content := list(fmt.Sprintf("SELECT * FROM %q", table))
		slices.Sort(content)
		for _, row := range content {
			out = append(out, table+": "+row)
		}
	}
	return out
}

// Whatever the model tries in an ephemeral runtime, and whatever is searched,
// nothing changes: no row, no file of the state, no commit, no file of the
// working directory, and no temporary file is left.
func TestStorageLock(t *testing.T) {
	tmp, work := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	cfg := config(t)
	if err := os.WriteFile(filepath.Join(work, "notes.txt"), []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	evil := filepath.Join(work, "evil.txt")
	writes := []toolCall{
		{"memory", map[string]any{"command": "create", "reason": "r", "file_path": "system/evil.md", "description": "d", "file_text": "evil"}},
		{"memory", map[string]any{"command": "str_replace", "reason": "r", "file_path": "system/human.md", "old_string": "Bo", "new_string": "Evil"}},
		{"Bash", map[string]any{"command": "echo evil > " + evil + "; cd $MEMORY_DIR && echo evil > evil.md && git add -A && git commit -m evil"}},
		{"Write", map[string]any{"file_path": evil, "content": "evil"}},
		{"Write", map[string]any{"file_path": "$MEMORY_DIR/system/human.md", "content": "evil"}},
		{"Edit", map[string]any{"file_path": filepath.Join(work, "notes.txt"), "old_string": "notes", "new_string": "evil"}},
	}
	reads := []toolCall{
		{"Read", map[string]any{"file_path": "$MEMORY_DIR/system/human.md"}},
		{"Grep", map[string]any{"pattern": "notes", "path": work}},
		{"Read", map[string]any{"file_path": filepath.Join(cfg.Home, "mneme.db")}},
	}
	model := newToolCaller(t, writes, reads, writes[:2])
	srv, _ := start(t, cfg)
	c := dial(t, srv, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Call(ctx, c, &protocol.ConnectProvider{Target: "local", ProviderID: "openai-compatible", Fields: protocol.Map[string]{"baseUrl": model.URL + "/v1"}}); err != nil {
		t.Fatal(err)
	}
	name, handle := "Ada", "openai-compatible/caller"
	made, err := client.Call(ctx, c, &protocol.AgentCreate{Body: protocol.AgentBody{
		Name: &name, Model: &handle, MemoryBlocks: []protocol.MemoryBlock{{Label: "human", Value: "Name: Bo"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Agent.ID
	before := fingerprint(t, cfg.Home, work)

	unrestricted := protocol.RuntimeStart{AgentID: &id, Cwd: protocol.Some(work), Mode: "unrestricted"}
	rt, err := c.StartEphemeral(ctx, unrestricted)
	if err != nil {
		t.Fatal(err)
	}
	turn, err := rt.Send(ctx, "Write whatever you can.")
	if err != nil {
		t.Fatal(err)
	}
	result, err := turn.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if result.Text() != "Nothing could be written." || result.Finished.WritesBlocked == nil || *result.Finished.WritesBlocked != 8 {
		t.Errorf("%q, end %+v", result.Text(), result.Finished)
	}
	if found, err := c.MemorySearch(ctx, id, "What is the name?", 5); err != nil || len(found.Results) != 1 || *found.Commit != *result.Finished.MemoryCommit {
		t.Errorf("%+v %v", found, err)
	}
	if diff := cmp.Diff(before, fingerprint(t, cfg.Home, work)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	model.mu.Lock()
	last := model.asked[len(model.asked)-1]
	model.mu.Unlock()
	for _, want := range []string{"storage_locked: ", "Name: Bo", "notes.txt", "Permission denied: only the working directory and the memory can be read here"} {
		if !strings.Contains(last, want) {
			t.Errorf("the model was not told %q", want)
		}
	}

	c.Close() // the last that watches
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		left, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
	}
	if diff := cmp.Diff(before, fingerprint(t, cfg.Home, work)); diff != "" {
		t.Errorf("something was written at the end (-before +after):\n%s", diff)
	}
	// The comparison sees what an ordinary write does.
	c = dial(t, srv, "")
	if _, err := client.Call(ctx, c, &protocol.WriteMemoryFile{AgentID: id, Path: "a.md", Content: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(ctx, c, &protocol.ConversationCreate{Body: protocol.ConversationBody{AgentID: &id}}); err != nil {
		t.Fatal(err)
	}
	after := fingerprint(t, cfg.Home, work)
	for _, mark := range []string{"conversations: ", "memory/a.md ", "memory/.git/objects/pack/"} {
		has := func(list []string) (n int) {
			for _, line := range list {
				if strings.Contains(line, mark) {
					n++
				}
			}
			return n
		}
		if has(after) <= has(before) {
			t.Errorf("a write shows no %q", mark)
		}
	}
}
