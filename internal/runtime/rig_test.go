package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/prompt"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second // for what must happen, never a measure of speed

// models gives the same scripted model for every handle.
type models struct{ model llm.Model }

func (m models) Resolve(context.Context, string) (llm.Model, llm.Info, error) {
	return m.model, llm.Info{Handle: "fake/one", Name: "one", Context: 128000}, nil
}

// prompts is the least that a runtime needs: no memory, real history rules.
type prompts struct{}

func (prompts) Compile(_ context.Context, ag *agent.Agent, _ *agent.Conversation, _ int) (agent.Prompt, error) {
	return agent.Prompt{Text: ag.System}, nil
}
func (prompts) Revision(string) (string, error)                     { return "", nil }
func (prompts) Remind(context.Context, prompt.ReminderInput) string { return "" }
func (prompts) Notice(context.Context, *agent.Agent, string) (string, string, error) {
	return "", "", nil
}

// A rig is a runtime on a real database file with a scripted model.
type rig struct {
	t     testing.TB
	path  string
	model *fake.Model
	tools *tool.Box
	cfg   func(*runtime.Config)

	st    *store.Store
	m     *runtime.Manager
	agent *agent.Agent
	scope agent.Scope
	*recorder
}

type option func(*rig)

func withConfig(f func(*runtime.Config)) option { return func(r *rig) { r.cfg = f } }
func withTools(tools ...*tool.Tool) option {
	return func(r *rig) { r.tools = tool.NewBox(tools...) }
}

func setup(t testing.TB, model *fake.Model, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "mneme.db"), model: model, tools: tool.NewBox()}
	for _, o := range opts {
		o(r)
	}
	r.open()
	now := time.Now()
	r.agent = &agent.Agent{ID: agent.NewID("agent"), Name: "Ada", System: "Be brief.", Model: "fake/one",
		ModelSettings: json.RawMessage(`{}`), Toolset: "default", CreatedAt: now, UpdatedAt: now}
	own := &agent.Conversation{ID: agent.NewID("conv"), AgentID: r.agent.ID, Own: true, CreatedAt: now, UpdatedAt: now}
	if err := r.st.CreateAgent(t.Context(), r.agent, own); err != nil {
		t.Fatal(err)
	}
	r.scope = agent.Scope{AgentID: r.agent.ID, ConversationID: own.ID}
	r.watch()
	t.Cleanup(func() { r.close() })
	return r
}

// open starts a server on the database as a new process would.
func (r *rig) open() {
	r.t.Helper()
	st, err := store.Open(context.Background(), r.path, store.Options{Owner: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := st.TakeOver(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	cfg := runtime.Config{
		Store: st, Models: models{r.model}, Prompts: prompts{}, Tools: r.tools,
		Mode: agent.ModeUnrestricted, BootDir: filepath.Dir(r.path),
	}
	if r.cfg != nil {
		r.cfg(&cfg)
	}
	r.st, r.m = st, runtime.New(cfg)
}

func (r *rig) watch() {
	r.recorder = newRecorder(r.t)
	r.recorder.leave = r.m.Subscribe(r.scope, r.recorder.record)
}

// close stops the server at once: what still hangs is cut off.
func (r *rig) close() {
	r.recorder.leave()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.m.Close(ctx)
	r.st.Close()
}

// restart stops the server at once, as a drain time of zero does, and starts
// another on the same state.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.open()
	r.watch()
	if err := r.m.Recover(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// crash abandons the server without a word and starts another on the same
// state. What the old one still does must not count.
func (r *rig) crash() {
	r.t.Helper()
	oldM, oldSt, leave := r.m, r.st, r.recorder.leave
	// A process that is dead takes no lease any more: let the old actor be loaded.
	if _, err := oldM.RemoveQueued(r.t.Context(), r.scope, "none", func(bool) {}); err != nil {
		r.t.Fatal(err)
	}
	r.open()
	r.t.Cleanup(func() {
		leave()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		oldM.Close(ctx)
		oldSt.Close()
	})
	r.watch()
	if err := r.m.Recover(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// input makes an input of one text.
func (r *rig) input(text string, change ...func(*agent.Input)) *agent.Input {
	in := &agent.Input{
		AgentID: r.scope.AgentID, ConversationID: r.scope.ConversationID, Door: agent.DoorAppServer,
		Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}}},
	}
	for _, f := range change {
		f(in)
	}
	return in
}

func key(k string) func(*agent.Input) {
	return func(in *agent.Input) { in.Key, in.Messages[0].ClientKey = k, k }
}

func (r *rig) submit(text string, change ...func(*agent.Input)) runtime.Receipt {
	r.t.Helper()
	receipt, err := r.m.Submit(r.t.Context(), r.input(text, change...), nil)
	if err != nil {
		r.t.Fatalf("submit %q: %v", text, err)
	}
	return receipt
}

// turn submits and waits for the end of the turn.
func (r *rig) turn(text string) agent.TurnFinished {
	r.t.Helper()
	n := r.count("turn_finished")
	r.submit(text)
	return r.finished(n + 1)
}

// finished waits for the nth end of a turn.
func (r *rig) finished(n int) agent.TurnFinished {
	r.t.Helper()
	return r.nth("turn_finished", n).Payload.(agent.TurnFinished)
}

// history lists the stored messages as "role: text", with marks for what is special.
func (r *rig) history() []string {
	r.t.Helper()
	msgs, err := r.st.Messages(r.t.Context(), store.MessageFilter{ConversationID: r.scope.ConversationID, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, m := range msgs {
		if m.Role == agent.RoleSystem {
			continue
		}
		line := fmt.Sprintf("%s: %s", m.Role, agent.TextOf(m.Parts))
		for _, c := range m.Calls() {
			line += fmt.Sprintf("[%s %s]", c.Name, c.Arguments)
		}
		if m.Role == agent.RoleApproval {
			line += string(m.Stats)
		}
		if m.Interrupted {
			line += " (interrupted)"
		}
		out = append(out, line)
	}
	return out
}

// sent lists what the model saw in its nth request, from 1.
func (r *rig) sent(n int) []string {
	r.t.Helper()
	reqs := r.model.Requests()
	if len(reqs) < n {
		r.t.Fatalf("%d requests were made, want at least %d", len(reqs), n)
	}
	var out []string
	for _, m := range reqs[n-1].Messages {
		line := fmt.Sprintf("%s: %s", m.Role, agent.TextOf(m.Parts))
		for _, c := range m.Calls() {
			line += "[" + c.Name + "]"
		}
		out = append(out, line)
	}
	return out
}

// A recorder keeps the events of one scope.
type recorder struct {
	t       testing.TB
	leave   func()
	mu      sync.Mutex
	events  []*agent.Event
	changed chan struct{}
}

func newRecorder(t testing.TB) *recorder { return &recorder{t: t, changed: make(chan struct{})} }

func (r *recorder) record(ev *agent.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) count(kind string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if ev.Payload.Kind() == kind {
			n++
		}
	}
	return n
}

// wait returns the first event for which f holds.
func (r *recorder) wait(what string, f func(*agent.Event) bool) *agent.Event {
	r.t.Helper()
	deadline := time.After(patience)
	for seen := 0; ; {
		r.mu.Lock()
		events, changed := r.events, r.changed
		r.mu.Unlock()
		for ; seen < len(events); seen++ {
			if f(events[seen]) {
				return events[seen]
			}
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("no %s came; got %v", what, r.kinds())
		}
	}
}

// nth waits for the nth event of a kind, from 1.
func (r *recorder) nth(kind string, n int) *agent.Event {
	r.t.Helper()
	i := 0
	return r.wait(fmt.Sprintf("%s number %d", kind, n), func(ev *agent.Event) bool {
		if ev.Payload.Kind() == kind {
			i++
		}
		return i == n
	})
}

// kinds lists the events so far, loop changes by their status, deltas joined.
func (r *recorder) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, ev := range r.events {
		s := ev.Payload.Kind()
		if l, ok := ev.Payload.(agent.LoopChanged); ok {
			s = string(l.State.Loop)
		}
		if n := len(out); n > 0 && out[n-1] == s {
			continue
		}
		out = append(out, s)
	}
	return out
}
