package rest_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/prompt"
	"mneme/internal/rest"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
	"mneme/internal/transcript"
)

// A life is a server on a database file that can be stopped and started again.
type life struct {
	*rig
	dir    string
	model  llm.Model
	tools  []*tool.Tool
	change func(*rest.Config)

	st     *store.Store
	rt     *runtime.Manager
	mem    *memory.Memory
	models *llm.Catalogue
	server *httptest.Server
	open   bool
}

func live(t testing.TB, model llm.Model, change ...func(*life)) *life {
	t.Helper()
	l := &life{rig: &rig{t: t, header: http.Header{}}, dir: t.TempDir(), model: model, tools: transcript.Tools()}
	for _, f := range change {
		f(l)
	}
	l.start()
	t.Cleanup(l.stop)
	return l
}

func (l *life) start() {
	l.t.Helper()
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			l.t.Fatal(err)
		}
	}
	var err error
	l.st, err = store.Open(ctx, filepath.Join(l.dir, "mneme.db"), store.Options{Owner: "test"})
	check(err)
	check(l.st.TakeOver(ctx))
	l.mem = memory.New(filepath.Join(l.dir, "memfs"), memory.Options{})
	l.models = llm.New(llm.Config{Offline: l.model})
	prompts := &prompt.Builder{Memory: l.mem}
	box := tool.NewBox(l.tools...)
	l.rt = runtime.New(runtime.Config{
		Store: l.st, Models: l.models, Prompts: prompts, Tools: box, Mode: agent.ModeStandard,
		BootDir: l.dir, MemoryDir: l.mem.Dir, MemoryRoot: filepath.Join(l.dir, "memfs"), OutputDir: filepath.Join(l.dir, "output"),
	})
	people := roster.New(roster.Config{Store: l.st, Memory: l.mem, Runtime: l.rt, Prompts: prompts, Models: l.models})
	checker, err := auth.New(auth.Options{})
	check(err)
	sealer, err := auth.NewSealer(bytes.Repeat([]byte{7}, 32))
	check(err)
	cfg := rest.Config{
		Runtime: l.rt, Roster: people, Store: l.st, Memory: l.mem, Models: l.models, Auth: checker, Tools: box, Sealer: sealer, System: systemText,
		Logger: slog.New(slog.NewTextHandler(l.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if l.change != nil {
		l.change(&cfg)
	}
	l.Door = rest.New(cfg)
	l.Door.Start()
	l.server = httptest.NewServer(l.Door)
	l.url, l.http = l.server.URL, l.server.Client()
	l.open = true
	check(l.rt.Recover(ctx))
}

// stop ends the server at once: what still runs is cut off and goes on later.
func (l *life) stop() {
	if !l.open {
		return
	}
	l.open = false
	ctx, cancel := context.WithTimeout(context.Background(), transcript.Patience)
	defer cancel()
	now, cut := context.WithCancel(ctx)
	cut()
	l.rt.Close(now)
	if err := l.Door.Close(ctx); err != nil {
		l.t.Errorf("close the door: %v", err)
	}
	l.server.CloseClientConnections()
	l.server.Close()
	l.models.Close()
	l.mem.Close()
	if err := l.st.Close(); err != nil {
		l.t.Errorf("close the store: %v", err)
	}
}

func (l *life) restart() {
	l.t.Helper()
	l.stop()
	l.start()
}

// armed makes an agent that has the built-in tools of the test as well, and rules
// for them.
func (l *life) armed(rules ...map[string]any) string {
	l.t.Helper()
	a := l.agent(map[string]any{"include_base_tools": false, "tool_rules": rules})
	_, err := l.st.UpdateAgent(l.t.Context(), a, func(ag *agent.Agent) error {
		ag.Toolset = "default"
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// allowed makes a conversation in which the tools run without being asked about.
func (l *life) allowed(agentID string, tools ...string) string {
	l.t.Helper()
	conv := l.conversation(agentID)
	_, err := l.st.UpdateConversation(l.t.Context(), conv, func(c *agent.Conversation) error {
		c.Rules = tools
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return conv
}
