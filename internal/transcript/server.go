package transcript

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/appserver"
	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/prompt"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// Patience is how long a test waits for what must happen. It measures nothing.
const Patience = 20 * time.Second

// Options change what Start builds. The zero value works.
type Options struct {
	Auth      auth.Options
	Origins   []string
	PingEvery time.Duration
	// OrphanGrace is how long a turn may be without watchers; 0 = the runtime's.
	OrphanGrace time.Duration
	// Database is the URL of the database; "" = one in memory.
	Database string
	// Tools are the built-in tools; nil = those of Tools.
	Tools  []*tool.Tool
	Logger *slog.Logger
}

// A Server is a whole App Server in this process, on a database in memory and a
// scripted model that answers for every handle. Its tools are those of Tools.
type Server struct {
	Dir     string // existing directory, the boot directory
	Store   *store.Store
	Memory  *memory.Memory
	Models  *llm.Catalogue
	Tools   *tool.Box
	Runtime *runtime.Manager
	Roster  *roster.Roster
	Door    *appserver.Door
	HTTP    *httptest.Server
	close   func()
}

// Start starts a server; the test's cleanup stops it.
func Start(t testing.TB, model llm.Model, o Options) *Server {
	t.Helper()
	ctx := context.Background()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := store.Open(ctx, cmp.Or(o.Database, ":memory:"), store.Options{Logger: o.Logger})
	check(err)
	check(st.TakeOver(ctx))
	checker, err := auth.New(o.Auth)
	check(err)
	guard, err := auth.NewGuard(o.Origins, nil, true)
	check(err)

	s := &Server{Dir: dir, Store: st}
	mem := memory.New(filepath.Join(dir, "memfs"), memory.Options{
		OnCommit: []func(string, string, []string){func(id, commit string, paths []string) {
			s.Runtime.Committed(id, commit, paths)
		}},
	})
	models := llm.New(llm.Config{Offline: model})
	if o.Tools == nil {
		o.Tools = Tools()
	}
	s.Memory, s.Models, s.Tools = mem, models, tool.NewBox(o.Tools...)
	prompts := &prompt.Builder{Memory: mem}
	s.Runtime = runtime.New(runtime.Config{
		Store: st, Models: models, Prompts: prompts, Tools: s.Tools, Logger: o.Logger,
		Mode: agent.ModeStandard, BootDir: dir, MemoryDir: mem.Dir, MemoryRoot: filepath.Join(dir, "memfs"),
		OutputDir: filepath.Join(dir, "output"), OrphanGrace: o.OrphanGrace, Memory: mem,
	})
	s.Roster = roster.New(roster.Config{Store: st, Memory: mem, Runtime: s.Runtime, Prompts: prompts, Models: models})
	s.Door = appserver.New(appserver.Config{
		Runtime: s.Runtime, Roster: s.Roster, Store: st, Memory: mem, Models: models,
		Auth: checker, Guard: guard, Logger: o.Logger, PingEvery: o.PingEvery,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", s.Door.Upgrade)
	mux.HandleFunc("/readyz", s.Door.Healthz)
	mux.HandleFunc("/app-server-info", s.Door.Info)
	s.HTTP = httptest.NewServer(mux)
	s.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		stopped, stop := context.WithCancel(ctx)
		stop() // turns are cut off at once
		s.Runtime.Close(stopped)
		if err := s.Door.Close(ctx); err != nil {
			t.Errorf("close door: %v", err)
		}
		s.HTTP.Close()
		models.Close()
		mem.Close()
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	t.Cleanup(s.close)
	return s
}

// Close stops the server now.
func (s *Server) Close() { s.close() }

// URL is the address of the socket.
func (s *Server) URL() string { return "ws" + strings.TrimPrefix(s.HTTP.URL, "http") + "/ws" }

// Tools are the tools of the server: echo answers its text, fail fails with it,
// wait waits until it is aborted, and AskUserQuestion asks. The first three take
// the names of built-in ones, so that they are in the default toolset.
func Tools() []*tool.Tool {
	text := func(c *tool.Call) string {
		var in struct {
			Text    string `json:"text"`
			Command string `json:"command"`
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			return err.Error()
		}
		return in.Text + in.Command
	}
	make := func(name string, run func(context.Context, *tool.Call) agent.ToolResult) *tool.Tool {
		return &tool.Tool{
			Def: agent.ToolDef{Name: name, Description: name, Parameters: json.RawMessage(`{"type":"object"}`)},
			Run: run,
		}
	}
	ask := make("AskUserQuestion", func(_ context.Context, c *tool.Call) agent.ToolResult {
		return agent.TextResult(agent.StatusSuccess, string(c.Input))
	})
	ask.Interactive = true
	return []*tool.Tool{
		ask,
		make("TaskCreate", func(_ context.Context, c *tool.Call) agent.ToolResult {
			return agent.TextResult(agent.StatusSuccess, text(c))
		}),
		make("TaskUpdate", func(_ context.Context, c *tool.Call) agent.ToolResult {
			return agent.TextResult(agent.StatusError, text(c))
		}),
		make("TaskStop", func(ctx context.Context, c *tool.Call) agent.ToolResult {
			<-ctx.Done()
			return agent.TextResult(agent.StatusError, "stopped")
		}),
	}
}
