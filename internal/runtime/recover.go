package runtime

import (
	"mneme/internal/agent"
	"mneme/internal/store"
)

// textLost is the result of a call that was running when the server died: it
// must not run again, since it may have done its work.
const textLost = "The server stopped while this tool was running. It may have run in part; check before you run it again."

// resume goes on with what the journal says, after a start or a reload.
func (a *actor) resume() {
	switch {
	case a.turn == nil:
		a.next()
	case a.turn.State == agent.TurnParked:
		// Rows only: it waits, and is shown again to whoever subscribes.
	default:
		if a.turn.Logged {
			a.resumeLog()
		}
		a.cancelsNow.Store(a.turn.OnOrphan == agent.OrphanCancelNow)
		a.resumeTurn()
	}
}

// resumeTurn reads the last row of a running turn and goes on from there.
func (a *actor) resumeTurn() {
	if a.step == nil {
		// A turn and its first step are written together; a database that was
		// edited by hand may still lack one.
		c := &store.Change{}
		a.newStep(c, nil)
		if a.commit(c) != nil {
			return
		}
	}
	a.noteKeys(false)
	switch a.step.State {
	case agent.StepOpen:
		a.askAgain()
	case agent.StepAnswered:
		a.settleLost()
	default:
		c := &store.Change{}
		done := a.step
		a.newStep(c, done.ClientKeys)
		if a.commit(c) != nil {
			return
		}
		a.noteKeys(false)
		a.ask()
	}
}

// askAgain asks an unanswered step once more. Its message gets a new id, and
// what was streamed under the old one is void.
func (a *actor) askAgain() {
	old := a.step.MessageID
	a.step.MessageID = agent.NewID("message")
	err := a.commitThen(&store.Change{Steps: []*agent.Step{a.step}}, func() {
		a.emit(agent.Retrying{
			Reason: "restart", Message: "The server was restarted; the model is asked again",
			Attempt: 1, Max: 1, Voided: []string{old},
		})
	})
	if err != nil {
		return
	}
	a.emitLoop(agent.LoopSending, nil, nil)
	a.ask()
}

// settleLost gives calls that were running a result that says so, and runs
// those that had not begun.
func (a *actor) settleLost() {
	c := &store.Change{}
	for _, call := range a.calls {
		switch {
		case call.State == agent.CallStarted:
			a.result(c, call, agent.TextResult(agent.StatusError, textLost))
		case call.State == agent.CallProposed:
			a.classify([]*agent.ToolCall{call})
			c.Calls = append(c.Calls, call)
		}
	}
	if len(a.pending()) > 0 {
		a.park(c)
		if a.commitThen(c, a.emitParked) == nil {
			a.log.off()
		}
		return
	}
	if len(c.Calls) > 0 && a.commit(c) != nil {
		return
	}
	a.execute()
}

// resumeLog goes on with the event log of a logged run.
func (a *actor) resumeLog() {
	seq, err := a.m.cfg.Store.LastEventSeq(a.m.work, a.run.ID)
	if err != nil {
		a.die(err)
		return
	}
	a.log.start(a.run.ID, seq)
}

// stateOf is the state of a conversation as the journal has it.
func (m *Manager) stateOf(snap *store.Snapshot) agent.State {
	m.mu.Lock()
	boot, rev := m.bootDir, m.cwdRev
	background := m.background[snap.Conversation.ID]
	m.mu.Unlock()
	conv := snap.Conversation
	s := agent.State{
		Scope: agent.Scope{AgentID: snap.Agent.ID, ConversationID: conv.ID},
		Own:   conv.Own, Loop: agent.LoopIdle,
		Mode: orDefault(conv.Mode, m.cfg.Mode), Cwd: orDefault(conv.Cwd, boot), CwdRevision: rev,
		ToolsetPreference: toolsetOf(snap.Agent, conv),
		StepKeys:          map[string][]string{},
		Background:        background,
	}
	if m.cfg.MemoryDir != nil {
		s.MemoryDir = m.cfg.MemoryDir(snap.Agent.ID)
	}
	for _, in := range snap.Queue {
		s.Queue = append(s.Queue, queueItem(in))
	}
	for _, st := range snap.Steps {
		if len(st.ClientKeys) > 0 {
			s.StepKeys[st.ID] = st.ClientKeys
		}
	}
	if snap.Turn == nil {
		return s
	}
	s.TurnID, s.Processing, s.Loop = snap.Turn.ID, true, agent.LoopSending
	if snap.Turn.State == agent.TurnParked {
		s.Loop = agent.LoopApproval
		if n := len(snap.Steps); n > 0 {
			s.Steps = []string{snap.Steps[n-1].ID}
		}
	}
	for _, call := range snap.Calls {
		if call.State == agent.CallWaiting {
			s.Pending = append(s.Pending, call)
		}
	}
	return s
}

func toolsetOf(ag *agent.Agent, conv *agent.Conversation) string {
	return orDefault(conv.Toolset, orDefault(ag.Toolset, "auto"))
}
