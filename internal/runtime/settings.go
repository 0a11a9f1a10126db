package runtime

import (
	"context"
	"encoding/json"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// A Change sets what a conversation remembers about how to run. nil = unchanged.
type Change struct {
	Mode    *agent.Mode
	Cwd     *string // an absolute, existing directory; "" = the boot directory
	Toolset *string
}

// Status is a snapshot of a runtime. It never starts an actor.
func (m *Manager) Status(ctx context.Context, scope agent.Scope) (agent.State, error) {
	if a := m.live(scope.ConversationID); a != nil {
		if s := a.snapshot(); s.Scope.ConversationID != "" {
			return s, nil
		}
	}
	snap, err := m.cfg.Store.LoadState(ctx, scope.ConversationID)
	if err != nil {
		return agent.State{}, err
	}
	return m.stateOf(snap), nil
}

// ChangeSettings stores new settings and publishes them the way
// change_device_state does (spec/app-server-core.md sections 5.11 and 8.2): a
// mode holds at once, a directory from the next turn on.
func (m *Manager) ChangeSettings(ctx context.Context, scope agent.Scope, ch Change) error {
	return m.change(ctx, scope, ch, false)
}

// ChangeSettingsQuietly is ChangeSettings without a word: the door tells the
// watchers in its own order.
func (m *Manager) ChangeSettingsQuietly(ctx context.Context, scope agent.Scope, ch Change) error {
	return m.change(ctx, scope, ch, true)
}

func (m *Manager) change(ctx context.Context, scope agent.Scope, ch Change, quiet bool) error {
	_, err := ask(ctx, m, scope, func(a *actor) (struct{}, error) {
		return struct{}{}, a.change(ch, quiet)
	})
	return err
}

func (a *actor) change(ch Change, quiet bool) error {
	conv := *a.conv
	if a.pendingCwd != nil {
		conv.Cwd = *a.pendingCwd // as it is stored
	}
	stored := conv.Cwd
	if ch.Mode != nil {
		conv.Mode = *ch.Mode
	}
	if ch.Cwd != nil {
		conv.Cwd = *ch.Cwd
	}
	if ch.Toolset != nil {
		conv.Toolset = *ch.Toolset
	}
	cwdMoves := conv.Cwd != stored
	if conv.Mode != a.conv.Mode || cwdMoves || conv.Toolset != a.conv.Toolset {
		if err := a.commit(&store.Change{Conversation: &conv}); err != nil {
			return err
		}
	}
	running := a.turn != nil
	old := a.conv.Cwd
	a.conv, a.rules = &conv, nil
	if running {
		a.keepCwd(old)
	}
	rev := a.m.CwdRevision()
	if cwdMoves {
		rev = a.m.bumpCwd()
	}
	update := func(s *agent.State) {
		s.Mode, s.Cwd, s.CwdRevision, s.ToolsetPreference = a.mode(), a.cwd(), rev, toolsetOf(a.agent, a.conv)
	}
	if quiet {
		a.set(update)
		return nil
	}
	before := a.snapshot()
	if !running {
		a.emitLoop(agent.LoopCommand, nil, nil)
	}
	if ch.Mode != nil {
		a.emit(agent.LoopChanged{State: a.snapshot()})
	}
	a.emitDevice(update)
	if !running {
		a.emitLoop(before.Loop, before.Steps, before.Executing)
	}
	return nil
}

// keepCwd leaves the running turn in the directory that it began in; another
// one that the row names waits for its end.
func (a *actor) keepCwd(dir string) {
	a.pendingCwd = nil
	if next := a.conv.Cwd; next != dir {
		a.pendingCwd, a.conv.Cwd = &next, dir
	}
}

// applyPendingCwd lets a directory that was set during the turn take effect.
func (a *actor) applyPendingCwd() {
	if a.pendingCwd != nil {
		conv := *a.conv
		conv.Cwd = *a.pendingCwd
		a.conv, a.pendingCwd, a.rules = &conv, nil, nil
	}
}

func (a *actor) mode() agent.Mode { return orDefault(a.conv.Mode, a.m.cfg.Mode) }
func (a *actor) cwd() string      { return orDefault(a.conv.Cwd, a.m.BootDir()) }

// BootDir is the working directory of conversations without their own.
func (m *Manager) BootDir() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootDir
}

// CwdRevision grows with every change of a working directory in this process.
func (m *Manager) CwdRevision() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cwdRev
}

func (m *Manager) bumpCwd() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cwdRev++
	return m.cwdRev
}

// SetBootDir changes the boot directory, an absolute path, until the server
// stops. Live conversations without their own directory hear of it.
func (m *Manager) SetBootDir(dir string) (revision int) {
	m.mu.Lock()
	changed := m.bootDir != dir
	m.bootDir = dir
	if changed {
		m.cwdRev++
	}
	revision = m.cwdRev
	var live []*actor
	for _, a := range m.actors {
		live = append(live, a)
	}
	m.mu.Unlock()
	for _, a := range live {
		if changed {
			a.post(func(a *actor) {
				if a.conv.Cwd == "" {
					a.emitDevice(func(s *agent.State) { s.Cwd, s.CwdRevision = a.cwd(), revision })
				}
			})
		}
	}
	return revision
}

// env is where the turn's tools run.
func (a *actor) env() *tool.Env {
	if a.rules == nil {
		a.rules = a.readRules()
	}
	rules := *a.rules
	if allowed := a.turn.Options.Allowed; len(allowed) > 0 {
		rules.Allow = append(slices.Clone(rules.Allow), allowed...)
	}
	e := &tool.Env{
		Scope: a.scope, WireConv: a.conv.WireID(), AgentName: a.agent.Name, Cwd: a.cwd(),
		MemoryRoot: a.m.cfg.MemoryRoot, OutputDir: a.m.cfg.OutputDir, SkillDirs: a.m.cfg.SkillDirs,
		Mode: a.mode(), Rules: &rules, Headless: a.turn.Options.Headless, Disallowed: a.turn.Options.Disallowed, Log: a.m.log,
	}
	if a.m.cfg.MemoryDir != nil {
		e.MemoryDir = a.m.cfg.MemoryDir(a.agent.ID)
	}
	if a.eph != nil {
		e.MemoryDir, e.OutputDir, e.Confined = a.eph.dir, "", true
	}
	return e
}

// readRules gathers the permission rules that hold in the working directory.
func (a *actor) readRules() *tool.Rules {
	rules := tool.LoadRules(a.cwd(), a.m.log)
	rules.Allow = append(rules.Allow, a.conv.Rules...)
	if a.eph == nil {
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		saved, err := a.m.cfg.Store.ProjectRules(ctx, a.cwd())
		if err != nil {
			a.m.log.Warn("saved permission rules not read", "err", err) // then more is asked, not less
		}
		rules.Allow = append(rules.Allow, saved...)
	}
	return rules
}

// tools is what the current turn may call.
func (a *actor) tools() ([]*tool.Tool, error) {
	o := a.turn.Options
	sel := tool.Selection{
		Preference: toolsetOf(a.agent, a.conv), Base: o.ToolsetBase, Include: o.ToolsetInclude,
		Allowlist: o.Allowlist, ExcludeInteractive: o.ExcludeInteractive || o.Headless,
		External: a.m.externals.visible(a.scope, a.turn.Origin, o.ExternalScopes),
		Attached: a.attached(),
	}
	if a.eph != nil {
		sel.ReadOnly, sel.External, sel.Attached = true, nil, append(sel.Attached, a.m.readers()...)
	}
	for _, def := range o.ClientTools {
		sel.Client = append(sel.Client, &tool.Tool{Def: def})
	}
	return a.m.cfg.Tools.Select(sel)
}

// attached are the tools that belong to the agent, on every door.
func (a *actor) attached() []*tool.Tool {
	if len(a.agent.Tools) == 0 {
		return nil
	}
	tools := a.m.cfg.Tools.Attached(a.agent.Tools)
	for i, t := range tools {
		if a.hasRule(ruleApproval, t.Def.Name) {
			asking := *t
			asking.Approval = tool.ApprovalRequired
			tools[i] = &asking
		}
	}
	return tools
}

// noteTools shows watchers which tools the turn was given.
func (a *actor) noteTools(names []string) {
	if s := a.snapshot(); slices.Equal(s.LoadedTools, names) && s.Toolset != "" {
		return
	}
	set := a.m.cfg.Tools.Resolve(orDefault(a.turn.Options.ToolsetBase, toolsetOf(a.agent, a.conv)))
	a.emitDevice(func(s *agent.State) { s.LoadedTools, s.Toolset = names, set })
}

// maxOutput is the output limit of a request: the agent's setting, or the
// model's own.
func maxOutput(settings json.RawMessage, info llm.Info) int {
	var s struct {
		MaxTokens int `json:"max_tokens"`
	}
	if len(settings) > 0 && json.Unmarshal(settings, &s) == nil && s.MaxTokens > 0 {
		return s.MaxTokens
	}
	return info.MaxOutput
}

// AgentChanged lets live conversations of an agent see its new row.
func (m *Manager) AgentChanged(ctx context.Context, agentID string) {
	m.mu.Lock()
	var live []*actor
	for _, a := range m.actors {
		live = append(live, a)
	}
	m.mu.Unlock()
	for _, a := range live {
		a.post(func(a *actor) {
			if a.agent == nil || a.agent.ID != agentID || a.eph != nil {
				return
			}
			ag, err := a.m.cfg.Store.Agent(a.m.work, agentID)
			if err != nil {
				a.die(err)
				return
			}
			a.agent = ag
		})
	}
}

// ConversationChanged lets a live conversation see its new row.
func (m *Manager) ConversationChanged(ctx context.Context, scope agent.Scope) {
	if a := m.live(scope.ConversationID); a != nil {
		a.post(func(a *actor) {
			conv, err := a.m.cfg.Store.Conversation(a.m.work, a.scope.ConversationID)
			if err != nil {
				a.die(err)
				return
			}
			dir := a.conv.Cwd
			a.conv, a.rules = conv, nil
			if a.turn != nil {
				a.keepCwd(dir)
			}
		})
	}
}

// Quiet runs f while no turn of the conversation runs; the conversation is read
// afresh afterwards. It is CodeBusy if a turn runs. f must not call the Manager.
func (m *Manager) Quiet(ctx context.Context, scope agent.Scope, f func() error) error {
	_, err := ask(ctx, m, scope, func(a *actor) (struct{}, error) {
		if a.turn != nil && a.turn.State == agent.TurnRunning {
			return struct{}{}, a.busyError()
		}
		if err := f(); err != nil {
			return struct{}{}, err
		}
		if err := a.load(); err != nil {
			a.die(err)
			return struct{}{}, err
		}
		return struct{}{}, nil
	})
	return err
}

// Drop ends the actor of a conversation that is about to be deleted; a turn at
// work is cancelled first.
func (m *Manager) Drop(ctx context.Context, scope agent.Scope) error {
	if m.live(scope.ConversationID) == nil {
		return nil
	}
	_, err := ask(ctx, m, scope, func(a *actor) (struct{}, error) {
		if a.turn != nil {
			a.abort(true, func() {})
		}
		a.die(agent.Errorf(agent.CodeNotFound, "Conversation %s not found", a.conv.WireID()))
		return struct{}{}, nil
	})
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil
	}
	return err
}

// Enqueue implements tool.Host: a notification starts a turn, or joins one.
func (m *Manager) Enqueue(ctx context.Context, scope agent.Scope, kind, text string) error {
	_, err := m.Submit(ctx, &agent.Input{
		AgentID: scope.AgentID, ConversationID: scope.ConversationID,
		Door: agent.DoorNotification, Kind: kind, Source: kind,
		IfBusy: agent.BusyQueue, OnOrphan: agent.OrphanKeep,
		Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}}},
	}, nil)
	return err
}

// FileChanged implements tool.Host.
func (m *Manager) FileChanged(scope agent.Scope, path, content string) {
	m.Notify(scope, agent.FileChanged{Path: path, Content: content})
}

// SetBackground implements tool.Host: the list of processes that outlived their
// call is part of the device state.
func (m *Manager) SetBackground(scope agent.Scope, list []agent.Background) {
	m.mu.Lock()
	if len(list) == 0 {
		delete(m.background, scope.ConversationID)
	} else {
		m.background[scope.ConversationID] = list
	}
	m.mu.Unlock()
	if a := m.live(scope.ConversationID); a != nil {
		a.post(func(a *actor) { a.emitDevice(func(s *agent.State) { s.Background = list }) })
	}
}
