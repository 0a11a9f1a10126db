package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/memory"
	"mneme/internal/prompt"
	"mneme/internal/runtime"
	"mneme/internal/sandbox"
	"mneme/internal/tool"
)

// An ephemeralRig is a rig with the real memory and tools, and places where the
// files of ephemeral runtimes are.
type ephemeralRig struct {
	*rig
	mem *memory.Memory
	tmp string // for the runtime's directories
	cwd string
}

func setupEphemeral(t *testing.T, model *fake.Model, grace time.Duration) *ephemeralRig {
	t.Helper()
	e := &ephemeralRig{tmp: t.TempDir(), cwd: t.TempDir()}
	t.Setenv("TMPDIR", e.tmp)
	e.mem = memory.New(filepath.Join(t.TempDir(), "memfs"), memory.Options{})
	shells := sandbox.New(0)
	e.rig = setup(t, model, withTools(tool.Builtin(tool.Kit{Shells: shells, Memory: e.mem})...), withConfig(func(c *runtime.Config) {
		c.Prompts, c.Memory, c.MemoryDir = &prompt.Builder{Memory: e.mem}, e.mem, e.mem.Dir
		c.BootDir, c.OrphanGrace = e.cwd, grace
	}))
	t.Cleanup(func() {
		e.rig.close()
		shells.Close()
		e.mem.Close()
	})
	return e
}

func (e *ephemeralRig) remember(path, text string) string {
	e.t.Helper()
	commit, _, err := e.mem.Write(e.t.Context(), memory.Author{}, e.agent.ID, []memory.FileChange{{Path: path, Content: []byte(text)}}, "test")
	if err != nil {
		e.t.Fatal(err)
	}
	return commit
}

// start opens an ephemeral runtime and watches it.
func (e *ephemeralRig) start() (agent.Scope, *recorder) {
	e.t.Helper()
	scope, err := e.m.OpenEphemeral(e.t.Context(), e.agent.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	rec := newRecorder(e.t)
	rec.leave = e.m.Subscribe(scope, rec.record)
	e.t.Cleanup(rec.leave)
	return scope, rec
}

func (e *ephemeralRig) say(scope agent.Scope, text string, change ...func(*agent.Input)) runtime.Receipt {
	e.t.Helper()
	in := e.input(text, change...)
	in.ConversationID = scope.ConversationID
	receipt, err := e.m.Submit(e.t.Context(), in, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return receipt
}

// gone waits until a runtime is no longer there, and its directory neither.
func (e *ephemeralRig) gone(scope agent.Scope) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		_, there := e.m.Ephemeral(scope.ConversationID)
		left, err := os.ReadDir(e.tmp)
		if err != nil {
			e.t.Fatal(err)
		}
		if !there && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("still there: %v, %v", there, left)
		}
	}
}

func args(v map[string]any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// A model that tries to write in every way it knows changes nothing.
func TestEphemeralWritesAreBlocked(t *testing.T) {
	target := filepath.Join(t.TempDir(), "evil.txt")
	model := fake.New(
		fake.Answer{
			fake.Call("memory", args(map[string]any{"command": "create", "reason": "r", "file_path": "system/evil.md", "description": "d", "file_text": "evil"})),
			fake.Call("Bash", args(map[string]any{"command": "echo evil > " + target})),
			fake.Call("Write", args(map[string]any{"file_path": target, "content": "evil"})),
			fake.Call("Edit", args(map[string]any{"file_path": target, "old_string": "", "new_string": "evil"})),
			fake.Call("no_such_tool", "{}"),
		},
		fake.Answer{fake.Text("so be it")},
		fake.Answer{fake.Text("again")},
	)
	e := setupEphemeral(t, model, 0)
	before := e.remember("system/human.md", "Ada")
	scope, rec := e.start()
	e.say(scope, "write!")
	end := rec.nth("turn_finished", 1).Payload.(agent.TurnFinished)
	want := &agent.EphemeralEnd{WritesBlocked: 4, MemoryCommit: before}
	if diff := cmp.Diff(want, end.Ephemeral); diff != "" || end.StopReason != agent.StopEndTurn {
		t.Errorf("%s: %s", end.StopReason, diff)
	}
	results := 0
	for _, m := range e.model.Requests()[1].Messages {
		if m.Role == agent.RoleTool {
			results++
			text := agent.TextOf(m.Parts)
			if !strings.HasPrefix(text, "storage_locked: ") && !strings.HasPrefix(text, "Tool not found: no_such_tool") || m.Status != agent.StatusError {
				t.Errorf("%s gave %s %q", m.Name, m.Status, text)
			}
		}
	}
	if results != 5 {
		t.Errorf("%d results", results)
	}
	for _, def := range e.model.Requests()[0].Tools {
		if !slices.Contains([]string{"AskUserQuestion", "Read", "Glob", "Grep"}, def.Name) {
			t.Errorf("%s is offered", def.Name)
		}
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("a file was written")
	}
	if head, _ := e.mem.Head(e.agent.ID); head != before {
		t.Error("the memory was written")
	}
	// The count is the turn's.
	after := e.remember("system/human.md", "Ada Lovelace")
	e.say(scope, "and now?")
	end = rec.nth("turn_finished", 2).Payload.(agent.TurnFinished)
	if diff := cmp.Diff(&agent.EphemeralEnd{MemoryCommit: after}, end.Ephemeral); diff != "" {
		t.Error(diff)
	}
}

// Tools read the commit that the runtime began with, and the working directory,
// and nothing else.
func TestEphemeralReadsItsCommit(t *testing.T) {
	model := fake.New()
	e := setupEphemeral(t, model, 0)
	secret := filepath.Join(t.TempDir(), "secret.txt")
	for p, text := range map[string]string{filepath.Join(e.cwd, "here.txt"): "in the directory", secret: "outside"} {
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(e.cwd, "link.txt")); err != nil {
		t.Fatal(err)
	}
	first := e.remember("reference/note.md", "the first version")
	model.Add(
		fake.Answer{
			fake.CallID("c1", "Read", args(map[string]any{"file_path": "$MEMORY_DIR/reference/note.md"})),
			fake.CallID("c2", "Read", args(map[string]any{"file_path": "here.txt"})),
			fake.CallID("c3", "Glob", args(map[string]any{"pattern": "**/*.md", "path": "$MEMORY_DIR"})),
			fake.CallID("c4", "Read", args(map[string]any{"file_path": secret})),
			fake.CallID("c5", "Read", args(map[string]any{"file_path": "link.txt"})),
			fake.CallID("c6", "Glob", args(map[string]any{"pattern": filepath.Dir(secret) + "/*"})),
			fake.CallID("c7", "Glob", args(map[string]any{"pattern": filepath.Dir(secret) + "/*", "path": "$MEMORY_DIR"})),
			fake.CallID("c8", "Grep", args(map[string]any{"pattern": "outside", "path": "/"})),
			fake.CallID("c9", "Read", args(map[string]any{"file_path": filepath.Join(e.mem.Dir(e.agent.ID), "reference/note.md")})),
		},
		fake.Answer{fake.Text("ok")},
	)
	scope, rec := e.start()
	e.remember("reference/note.md", "the second version")
	if info, ok := e.m.Ephemeral(scope.ConversationID); !ok || info.Commit != first || info.Agent.ID != e.agent.ID {
		t.Errorf("%+v %v", info, ok)
	}
	e.say(scope, "read")
	rec.nth("turn_finished", 1)
	got := map[string]string{}
	for _, m := range e.model.Requests()[1].Messages {
		if m.Role == agent.RoleTool {
			got[m.CallID] = agent.TextOf(m.Parts)
		}
	}
	const confined, foreign = "Permission denied: only the working directory", "Permission denied: this path belongs to the memory"
	for i, want := range []string{"the first version", "in the directory", "note.md", confined, confined, confined, confined, foreign, confined} {
		if text := got[fmt.Sprint("c", i+1)]; !strings.Contains(text, want) {
			t.Errorf("call %d gave %q, want %q", i+1, text, want)
		}
	}
	if text := e.model.Requests()[0].System; !strings.Contains(text, "note.md") {
		t.Errorf("system prompt %q", text)
	}
}

// Without a watcher it is gone after the grace, whatever it does.
func TestEphemeralEndsWithItsWatchers(t *testing.T) {
	reached := make(chan struct{})
	e := setupEphemeral(t, fake.New(fake.Answer{fake.Signal(reached), fake.Hang()}, fake.Answer{fake.Call("AskUserQuestion", args(map[string]any{
		"questions": []any{map[string]any{"question": "q?", "header": "h", "options": []any{map[string]any{"label": "a", "description": ""}, map[string]any{"label": "b", "description": ""}}}},
	}))}), 50*time.Millisecond)
	e.remember("a.md", "a")

	nobody, err := e.m.OpenEphemeral(t.Context(), e.agent.ID)
	if err != nil {
		t.Fatal(err)
	}
	e.gone(nobody)
	if _, err := e.m.Submit(t.Context(), e.input("late", func(in *agent.Input) { in.ConversationID = nobody.ConversationID }), nil); agent.CodeOf(err) != agent.CodeNotFound {
		t.Errorf("input for a runtime that is gone: %v", err)
	}

	idle, rec := e.start()
	time.Sleep(120 * time.Millisecond) // more than the grace: somebody watches
	if _, ok := e.m.Ephemeral(idle.ConversationID); !ok {
		t.Fatal("gone though it is watched")
	}
	rec.leave()
	e.gone(idle)

	busy, rec := e.start()
	e.say(busy, "hang", func(in *agent.Input) { in.OnOrphan = agent.OrphanKeep })
	e.say(busy, "queued")
	<-reached
	rec.leave()
	e.gone(busy)

	parked, rec := e.start()
	e.say(parked, "ask")
	rec.nth("call_asked", 1)
	rec.leave()
	e.gone(parked)
	if n := len(e.model.Requests()); n != 2 {
		t.Errorf("%d requests: something went on", n)
	}
}

// A repeated key is the same input, as in a stored conversation.
func TestEphemeralKeys(t *testing.T) {
	e := setupEphemeral(t, fake.New(fake.Answer{fake.Text("one")}), 0)
	scope, rec := e.start()
	first := e.say(scope, "hello", key("k1"))
	rec.nth("turn_finished", 1)
	again := e.say(scope, "hello", key("k1"))
	if !again.Duplicate || again.TurnID != first.TurnID || again.RunID != first.RunID {
		t.Errorf("%+v, first %+v", again, first)
	}
	in := e.input("other", key("k1"))
	in.ConversationID = scope.ConversationID
	if _, err := e.m.Submit(t.Context(), in, nil); agent.CodeOf(err) != agent.CodeConflict {
		t.Errorf("same key, other text: %v", err)
	}
}

// Many at once are side by side; the server's end ends them all.
func TestEphemeralsSideBySide(t *testing.T) {
	e := setupEphemeral(t, fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text("hi")} }), 0)
	e.remember("a.md", "a")
	for i := range 20 {
		scope, rec := e.start()
		e.say(scope, fmt.Sprint("hello ", i))
		rec.nth("turn_finished", 1)
	}
	if left, _ := os.ReadDir(e.tmp); len(left) != 20 {
		t.Errorf("%d directories", len(left))
	}
	e.rig.close()
	if left, _ := os.ReadDir(e.tmp); len(left) != 0 {
		t.Errorf("%d directories are left", len(left))
	}
}
