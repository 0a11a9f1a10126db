package runtime

import (
	"context"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/prompt"
	"mneme/internal/store"
)

// begin takes inputs into a new turn: one commit holds the inputs, the turn,
// its first run and step, and the messages. direct says that the inputs were
// sent just now and never queued. ack is called after the commit.
func (a *actor) begin(ins []*agent.Input, direct bool, ack func(Receipt)) (Receipt, error) {
	now := time.Now()
	first := ins[0]
	a.turn = &agent.Turn{
		ID: agent.NewID("turn"), AgentID: a.agent.ID, ConversationID: a.conv.ID,
		State: agent.TurnRunning, Door: first.Door, OnOrphan: first.OnOrphan, Logged: first.Logged,
		Origin: first.Origin, Options: first.Options, Mergeable: mergeable(first), StartedAt: now,
	}
	a.usage, a.attempt = agent.Usage{}, 0
	if a.eph != nil {
		a.eph.blocked = 0
	}
	c := &store.Change{Turns: []*agent.Turn{a.turn}}
	a.newRun(c, first.Run)
	a.run.CreatedAt = first.CreatedAt
	before := a.seq
	if err := a.refreshPrompt(c); err != nil {
		a.turn, a.run = nil, nil
		return Receipt{}, err
	}
	if a.agent.Autoclear() {
		c.HideThrough, a.lastTokens = before, 0
		a.history = slices.DeleteFunc(slices.Clone(a.history), func(m *agent.Message) bool { return m.Seq <= before })
	}
	var bad *agent.Error
	for _, in := range ins {
		if err := checkImages(in, first.Options.DropBadImages); err != nil && bad == nil {
			bad = err
		}
	}
	joined := a.join(ins, c)
	a.newStep(c, keysOf(ins))
	a.cancelsNow.Store(a.turn.OnOrphan == agent.OrphanCancelNow)
	if a.turn.Logged {
		a.log.start(a.run.ID, 0)
	}
	if err := a.commit(c); err != nil {
		return Receipt{}, err
	}
	r := Receipt{InputID: first.ID, Started: true, TurnID: a.turn.ID, RunID: a.run.ID, StepID: a.step.ID}
	ack(r)
	a.emitJoined(joined, direct)
	if !direct {
		a.emitQueue()
		a.emitLoop(agent.LoopIdle, nil, nil)
	}
	a.noteKeys(true)
	a.set(func(s *agent.State) { s.TurnID, s.Processing = a.turn.ID, true })
	a.emit(agent.TurnStarted{Door: a.turn.Door})
	a.emitLoop(agent.LoopSending, nil, nil)
	a.emitDevice(func(*agent.State) {})
	if bad != nil {
		a.fail(bad, false)
		return r, nil
	}
	a.ask()
	return r, nil
}

// newRun opens the next run of the turn as the door wants it.
func (a *actor) newRun(c *store.Change, spec agent.RunSpec) {
	now := time.Now()
	a.run = &agent.Run{
		ID: orDefault(spec.ID, agent.NewID("run")), TurnID: a.turn.ID, AgentID: a.agent.ID, ConversationID: a.conv.ID,
		Door: a.turn.Door, Spec: spec, CreatedAt: now, StartedAt: now,
	}
	a.run.Spec.ID = ""
	a.runUse, a.runLen = agent.Usage{}, 0
	c.Runs = append(c.Runs, a.run)
}

// newStep opens the next step of the turn. The message it will bring has its id
// already.
func (a *actor) newStep(c *store.Change, keys []string) {
	a.turn.Steps++
	a.step = &agent.Step{
		ID: agent.NewID("step"), RunID: a.run.ID, TurnID: a.turn.ID,
		AgentID: a.agent.ID, ConversationID: a.conv.ID,
		N: a.turn.Steps, State: agent.StepOpen, MessageID: agent.NewID("message"),
		ClientKeys: keys, StartedAt: time.Now(),
	}
	a.calls, a.results = nil, 0
	c.Steps = append(c.Steps, a.step)
	c.Turns = []*agent.Turn{a.turn}
}

// joinedMessage is a user message that joined the history, with its form on the
// sender's wire.
type joinedMessage struct {
	msg *agent.Message
	in  *agent.Input
	i   int
}

// join moves inputs from the queue into the turn: their messages become part of
// the history with the commit of c.
func (a *actor) join(ins []*agent.Input, c *store.Change) []joinedMessage {
	var joined []joinedMessage
	for _, in := range ins {
		taken := *in
		taken.State, taken.TurnID, taken.Paused = agent.InputTaken, a.turn.ID, false
		taken.Run.ID = orDefault(taken.Run.ID, a.run.ID)
		c.Inputs = append(c.Inputs, &taken)
		if in.OnOrphan == agent.OrphanKeep {
			a.turn.OnOrphan = agent.OrphanKeep
		}
		if slices.Contains(a.queue, in) {
			a.dropped = append(a.dropped, agent.RemovedItem{ClientKey: inputKey(in), Disposition: "dequeued"})
		}
		for i := range in.Messages {
			joined = append(joined, joinedMessage{a.userMessage(&taken, i, c), &taken, i})
		}
	}
	a.queue = slices.DeleteFunc(slices.Clone(a.queue), func(in *agent.Input) bool { return slices.Contains(ins, in) })
	return joined
}

// userMessage turns message i of an input into a stored one.
func (a *actor) userMessage(in *agent.Input, i int, c *store.Change) *agent.Message {
	im := &in.Messages[i]
	msg := a.message(c, im.Role)
	if im.Role == agent.RoleSystem {
		msg.Role = agent.RoleNotice // from a client: shown to the model, listed nowhere
	}
	msg.Parts, msg.ClientKey, msg.OTID = im.Parts, im.ClientKey, im.OTID
	msg.SenderID, msg.Name = im.SenderID, im.Name
	msg.StepID = ""
	if msg.Role == agent.RoleUser {
		msg.Context = a.reminders()
	}
	return msg
}

// message appends an empty message to the history and to c.
func (a *actor) message(c *store.Change, role agent.Role) *agent.Message {
	a.seq++
	msg := &agent.Message{
		ID: agent.NewID("message"), AgentID: a.agent.ID, ConversationID: a.conv.ID,
		Seq: a.seq, Role: role, CreatedAt: time.Now(),
	}
	if a.turn != nil {
		msg.TurnID = a.turn.ID
	}
	if a.run != nil {
		msg.RunID = a.run.ID
	}
	if a.step != nil {
		msg.StepID = a.step.ID
	}
	c.Messages = append(c.Messages, msg)
	a.history = append(a.history, msg)
	return msg
}

// emitJoined announces user messages, and keeps out those without one.
func (a *actor) emitJoined(joined []joinedMessage, direct bool) {
	for _, j := range joined {
		ev := a.event(agent.InputJoined{Message: j.msg, Direct: direct, Raw: j.in.Messages[j.i].Raw})
		ev.MessageID, ev.Origin = j.msg.ID, j.in.Origin
		a.log.emit(ev)
	}
}

func keysOf(ins []*agent.Input) []string {
	var keys []string
	for _, in := range ins {
		if len(in.Messages) > 0 {
			keys = append(keys, inputKey(in))
		}
	}
	return keys
}

// reminders is what the harness has to tell the model in front of the next user
// message (spec/harness.md section 1.3).
func (a *actor) reminders() string {
	users := 0
	for _, m := range a.history {
		if m.Role == agent.RoleUser {
			users++
		}
	}
	in := prompt.ReminderInput{
		First: users == 1, // the message being made
		Agent: a.agent, WireConv: a.conv.WireID(), LastMessageAt: a.conv.LastMessageAt,
		Cwd: a.cwd(), CwdChanged: a.toldCwd != a.cwd(), Mode: a.mode(), PrevMode: a.toldMode,
	}
	if in.First {
		in.PrevMode = ""
	} else if !in.CwdChanged && in.Mode == in.PrevMode {
		return ""
	}
	a.toldCwd, a.toldMode = in.Cwd, in.Mode
	if a.eph != nil {
		in.MemoryDir = a.eph.dir
	}
	ctx, cancel := context.WithTimeout(a.m.work, commitTimeout)
	defer cancel()
	return a.m.cfg.Prompts.Remind(ctx, in)
}

// refreshPrompt compiles the system prompt where there is none or the agent's
// system text changed, and adds a notice where the memory moved on
// (spec/harness.md section 1.2).
func (a *actor) refreshPrompt(c *store.Change) error {
	if a.eph != nil {
		a.prompt = a.eph.prompt // its memory stays as it was
		return nil
	}
	ctx, cancel := context.WithTimeout(a.m.work, commitTimeout)
	defer cancel()
	hash := hashOf(a.agent.System)
	if a.prompt == nil || a.prompt.RawHash != hash {
		p, err := a.m.cfg.Prompts.Compile(ctx, a.agent, a.conv, len(a.history))
		if err != nil {
			return err
		}
		p.ConversationID, p.RawHash = a.conv.ID, hash
		msg := a.message(c, agent.RoleSystem)
		msg.Parts, msg.TurnID, msg.RunID, msg.StepID = []agent.Part{agent.Text(p.Text)}, "", "", ""
		a.prompt, c.Prompt = &p, &p
		return nil
	}
	rev, err := a.m.cfg.Prompts.Revision(a.agent.ID)
	if err != nil || rev == a.prompt.NoticedAt {
		return err
	}
	text, rev, err := a.m.cfg.Prompts.Notice(ctx, a.agent, a.prompt.NoticedAt)
	if err != nil {
		return err
	}
	p := *a.prompt
	p.NoticedAt = rev
	a.prompt, c.Prompt = &p, &p
	if text != "" {
		a.notice(c, text)
	}
	return nil
}

// notice appends a text that only the model sees.
func (a *actor) notice(c *store.Change, text string) {
	a.message(c, agent.RoleNotice).Parts = []agent.Part{agent.Text(text)}
}

// next begins the turn that is due when the conversation is free: the oldest of
// the queued and the waiting inputs.
func (a *actor) next() {
	if a.dead != nil || a.turn != nil || a.compacting != nil || a.stopping() {
		return
	}
	a.dropWaiting()
	batch := a.batch()
	if len(a.waiting) > 0 && (len(batch) == 0 || a.waiting[0].in.CreatedAt.Before(batch[0].CreatedAt)) {
		w := a.waiting[0]
		a.waiting = a.waiting[1:]
		w.in.Started = true
		r, err := a.begin([]*agent.Input{w.in}, true, w.ack)
		w.finish(r, err)
		return
	}
	if len(batch) > 0 {
		if _, err := a.begin(batch, false, func(Receipt) {}); err != nil && a.dead == nil {
			a.die(err)
		}
	}
}

// ending is how a turn ends.
type ending struct {
	stop agent.StopReason
	err  *agent.Error
	// change holds rows to be committed with the end; nil = none.
	change *store.Change
	// before is published after the commit, ahead of the idle status; may be nil.
	before func()
	// after is published behind the idle status; may be nil.
	after func()
}

// end ends the turn: one commit, the closing events, and the next turn.
func (a *actor) end(e ending) {
	now := time.Now()
	c := e.change
	if c == nil {
		c = &store.Change{}
	}
	a.turn.State, a.turn.StopReason, a.turn.Error, a.turn.EndedAt = agent.TurnEnded, e.stop, e.err, now
	c.Turns = []*agent.Turn{a.turn}
	open := !a.run.Ended
	if open || e.stop == agent.StopCancelled { // what waited is cancelled as well
		a.run.Ended, a.run.StopReason, a.run.Error, a.run.EndedAt = true, e.stop, e.err, now
		c.Runs = []*agent.Run{a.run}
	}
	if a.step.State != agent.StepDone && a.step.State != agent.StepVoid {
		a.step.State, a.step.EndedAt = agent.StepDone, now
		if a.step.StopReason == "" {
			a.step.StopReason = e.stop
		}
		c.Steps = []*agent.Step{a.step}
	}
	a.applyPendingCwd()
	conv := *a.conv
	conv.UpdatedAt, conv.LastMessageAt = now, now
	a.conv, c.Conversation, c.RunEnded = &conv, &conv, now
	err := a.commitThen(c, func() {
		if e.before != nil {
			e.before()
		}
		a.set(func(s *agent.State) { s.TurnID, s.Processing, s.Pending = "", false, nil })
		a.emitLoop(agent.LoopIdle, nil, nil)
		a.emitDevice(func(s *agent.State) { s.Cwd = a.cwd() })
		if e.after != nil {
			e.after()
		}
		if open {
			a.emit(agent.RunEnded{StopReason: e.stop, Error: e.err, Usage: a.runUse, Steps: a.runLen})
		}
		a.emit(agent.TurnFinished{StopReason: e.stop, Error: e.err, Usage: a.usage, WithUsage: a.turn.Options.WithUsage, Ephemeral: a.ephemeralEnd()})
	})
	if err != nil {
		return
	}
	a.log.off()
	a.turn, a.run, a.step, a.calls = nil, nil, nil, nil
	a.cancelsNow.Store(false)
	a.next()
}
