package tool_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/sandbox"
	"mneme/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a set of built-in tools in a directory of its own.
type rig struct {
	t      *testing.T
	root   string // holds the directories below
	env    *tool.Env
	tools  []*tool.Tool
	shells *sandbox.Shells
	host   *host
	memory *notebook
}

const (
	agentID = "agent-1"
	otherID = "agent-2"
)

func newRig(t *testing.T, opts ...func(*rig)) *rig {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, root: root, shells: sandbox.New(0), host: &host{}, memory: &notebook{}}
	r.env = &tool.Env{
		Scope: agent.Scope{AgentID: agentID, ConversationID: "conv-1"}, WireConv: "default",
		Cwd: r.path("work"), MemoryRoot: r.path("memfs"), MemoryDir: r.path("memfs/agent-1/memory"),
		OutputDir: r.path("outputs"), SkillDirs: []string{r.path("skills")}, Mode: agent.ModeStandard,
		BaseEnv: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.path("home"), "MNEME_TOKEN=secret"},
	}
	for _, dir := range []string{"work/sub", "memfs/agent-1/memory/system", "memfs/agent-2/memory/system", "home", "outside", "extra", "skills/s/scripts", "outputs/agent-1"} {
		if err := os.MkdirAll(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, opt := range opts {
		opt(r)
	}
	r.tools = tool.Builtin(tool.Kit{Shells: r.shells, Memory: r.memory})
	t.Cleanup(func() {
		if err := r.shells.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.root, name) }

func (r *rig) file(name, content string) string {
	r.t.Helper()
	path := r.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) content(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// in makes the input of a call from pairs of names and values.
func in(pairs ...any) json.RawMessage {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func (r *rig) call(name string, input json.RawMessage) *tool.Call {
	return &tool.Call{ID: "call-1", Name: name, Input: input, Env: r.env, Host: r.host}
}

// do runs a tool and returns its text.
func (r *rig) do(name string, pairs ...any) (status agent.CallStatus, text string) {
	r.t.Helper()
	res := r.run(name, in(pairs...))
	return res.Status, agent.TextOf(res.Parts)
}

func (r *rig) run(name string, input json.RawMessage) agent.ToolResult {
	r.t.Helper()
	var got agent.ToolResult
	err := tool.Run(r.t.Context(), []tool.Scheduled{{Tool: tool.Find(r.tools, name), Known: tool.Names(r.tools), Call: r.call(name, input)}},
		func(int) error { return nil }, func(_ int, res agent.ToolResult) error { got = res; return nil })
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) decide(name string, input json.RawMessage) tool.Decision {
	return tool.Decide(tool.Find(r.tools, name), r.call(name, input))
}

// A host remembers what tools tell it.
type host struct {
	mu         sync.Mutex
	notices    []string
	changes    [][2]string
	background []agent.Background
}

func (h *host) Enqueue(_ context.Context, _ agent.Scope, kind, text string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = append(h.notices, kind+"\n"+text)
	return nil
}

func (h *host) FileChanged(_ agent.Scope, path, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, [2]string{path, content})
}

func (h *host) SetBackground(_ agent.Scope, list []agent.Background) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.background = list
}

func (h *host) noticed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notices
}

// A notebook takes memory operations.
type notebook struct {
	ops []memory.Op
	err error
}

func (n *notebook) Apply(_ context.Context, agentID string, op memory.Op) (string, error) {
	n.ops = append(n.ops, op)
	return "0123456789abcdef", n.err
}
