package mcpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxMessage = 256 << 10 // bytes
	maxHeld    = 100       // turns that wait for a call to be repeated
	heartbeat  = 10 * time.Second
	// typing is how often a growing answer is told of.
	typing = 500 * time.Millisecond
)

func askTool() *tool {
	return &tool{
		name: "session_ask", title: "Ask an agent",
		about: "Ask an agent a question and get its answer: it thinks with its whole memory and may read files. It runs in a session of its own and can change nothing, so tell it facts to keep with memory_save instead. For passages from memory without an agent's thinking, memory_search is faster.",
		params: []param{
			agentParam(),
			{name: "message", kind: kindText, required: true, max: maxMessage, bytes: true, about: "The question, with all that the agent needs to know; it remembers no earlier question. At most 256 KiB."},
		},
		data:  `{"type":"object","required":["agent_id","agent_name","reply"],"properties":{` + agentIDs + `,"reply":{"type":"string"}}}`,
		hints: hints{readOnly: true, openWorld: true},
		long:  true,
		run:   askAgent,
	}
}

// An ask is a running turn of session_ask. It usually ends with the call that
// began it. Where the client must be asked for an approval and can only be asked
// by ending the call (the modern era), it is held until the call is repeated.
type ask struct {
	id    string
	agent *Agent
	stop  context.CancelCauseFunc

	waiting chan *pending // approvals, one at a time
	done    chan struct{} // closed when the turn has ended; then answer and err are set
	answer  *Answer
	err     error

	mu       sync.Mutex
	progress func(string) // of the call that follows the turn; guarded by mu
	latest   string       // what was told last, for a call that begins to follow; guarded by mu
	clock    *turnClock

	// Of a held turn, by whoever took it from asks:
	open    *pending
	expires *time.Timer
}

// pending is an approval that waits for its decision.
type pending struct {
	approval *Approval
	form     form
	reply    chan verdict // holds one
}

type verdict struct {
	decision Decision
	err      error
}

// turnClock ends a turn that takes too long. Waiting for a person does not count.
type turnClock struct {
	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration
	since time.Time
}

func newTurnClock(limit time.Duration, stop context.CancelCauseFunc) *turnClock {
	return &turnClock{timer: time.AfterFunc(limit, func() { stop(errTurnTimeout) }), left: limit, since: time.Now()}
}

func (t *turnClock) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer.Stop() {
		t.left -= time.Since(t.since)
	}
}

func (t *turnClock) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
	t.timer.Reset(max(t.left, 0))
}

// asks are the turns that are held.
type asks struct {
	mu   sync.Mutex
	held map[string]*ask
}

// forget forgets the turns that are held.
func (a *asks) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, held := range a.held {
		held.expires.Stop()
		delete(a.held, id)
	}
}

// hold keeps a turn until its call is repeated, for as long as the state that
// the client was given is good.
func (s *Server) hold(a *ask) error {
	s.asks.mu.Lock()
	defer s.asks.mu.Unlock()
	if len(s.asks.held) >= maxHeld {
		return fault(CodeApprovalRequired, "The turn asks for an approval, and too many turns wait for one already.")
	}
	if s.life.Err() != nil {
		return errStopping
	}
	s.asks.held[a.id] = a
	a.expires = time.AfterFunc(stateLife, func() {
		if s.take(a.id) != nil {
			a.stop(fault(CodeApprovalRequired, "Nobody answered the approval request in time."))
		}
	})
	return nil
}

// take ends the holding of a turn; nil = it is not held.
func (s *Server) take(id string) *ask {
	s.asks.mu.Lock()
	defer s.asks.mu.Unlock()
	a := s.asks.held[id]
	if a != nil {
		delete(s.asks.held, id)
		a.expires.Stop()
	}
	return a
}

func askAgent(ctx context.Context, c *call) (any, error) {
	if c.req.Params.RequestState == "" {
		ag, err := c.agent(ctx)
		if err != nil {
			return nil, err
		}
		return c.follow(ctx, c.begin(ctx, ag))
	}
	st, err := c.states.open(ctx, c.req)
	if err != nil {
		return nil, err
	}
	a := c.take(st.Ask)
	if a == nil {
		return nil, errState
	}
	p := a.open
	r := given(c.req)
	if r == nil { // asked again: the call brought no answer
		return c.pass(ctx, a, p)
	}
	a.open = nil
	c.settle(p, r)
	return c.follow(ctx, a)
}

// begin starts the turn. Its context has the values of the call's, but not its
// end: follow sees to that.
func (c *call) begin(ctx context.Context, ag *Agent) *ask {
	a := &ask{id: rand.Text(), agent: ag, waiting: make(chan *pending), done: make(chan struct{}), progress: func(string) {}}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	a.stop = stop
	a.clock = newTurnClock(c.cfg.TurnTimeout, stop)
	stopped := context.AfterFunc(c.late, func() { stop(errStopping) })
	q := Question{AgentID: ag.ID, Text: c.args.text("message")}
	lists := c.req.ProtocolVersion() >= "2025-11-25"
	h := AskHandler{
		Progress: func(what string) {
			a.mu.Lock()
			tell := a.progress
			a.latest = what
			a.mu.Unlock()
			tell(what)
		},
		Approve: func(ctx context.Context, ap *Approval) (Decision, error) {
			a.clock.pause()
			defer a.clock.resume()
			return a.ask(ctx, &pending{approval: ap, form: formFor(ag.Name, ap, lists), reply: make(chan verdict, 1)})
		},
	}
	c.work.run(func() {
		defer stop(nil)
		defer stopped()
		defer close(a.done)
		a.answer, a.err = c.backend.Ask(run, q, h)
		a.clock.pause()
		if a.err != nil && run.Err() != nil && !isAnswer(a.err) {
			a.err = context.Cause(run)
		}
	})
	return a
}

// ask waits for somebody to decide.
func (a *ask) ask(ctx context.Context, p *pending) (Decision, error) {
	select {
	case a.waiting <- p:
	case <-ctx.Done():
		return Decision{}, context.Cause(ctx)
	}
	select {
	case r := <-p.reply:
		return r.decision, r.err
	case <-ctx.Done():
		return Decision{}, context.Cause(ctx)
	}
}

// follow stays with the turn until it has ended, or until it must be held.
func (c *call) follow(ctx context.Context, a *ask) (any, error) {
	teller := c.tellProgress(ctx, a)
	defer teller.stop()
	for {
		select {
		case <-a.done:
			return c.finish(a)
		case p := <-a.waiting:
			if held, err := c.decide(ctx, a, p); held != nil || err != nil {
				return held, err
			}
		case <-ctx.Done():
			a.stop(context.Cause(ctx))
			<-a.done
			return nil, context.Cause(ctx)
		}
	}
}

// decide has an approval decided: by the person in front of the client, or by
// nobody, which ends the turn. It returns what the client is asked in the modern
// era.
func (c *call) decide(ctx context.Context, a *ask, p *pending) (any, error) {
	switch {
	case !canElicit(c.req):
		p.reply <- verdict{err: fault(CodeApprovalRequired, "The turn needs an approval for %s, and this client cannot ask for one. The turn was ended.", p.approval.Tool)}
	case isModern(c.req):
		return c.pass(ctx, a, p)
	default:
		r, err := c.req.Session.Elicit(ctx, p.form.params)
		if ctx.Err() != nil {
			return nil, nil // follow sees to it
		}
		if err != nil {
			c.log.Debug("elicitation failed", "err", err)
			r = &mcp.ElicitResult{Action: "cancel"}
		}
		c.settle(p, r)
	}
	return nil, nil
}

// pass holds the turn and asks the client to bring the answer.
func (c *call) pass(ctx context.Context, a *ask, p *pending) (any, error) {
	a.mu.Lock()
	a.progress = func(string) {}
	a.mu.Unlock()
	a.open = p
	if err := c.hold(a); err != nil {
		a.stop(err)
		<-a.done
		return nil, err
	}
	return needsInput(p.form.params, c.states.seal(ctx, c.req, a.id)), nil
}

// settle passes a person's answer on.
func (c *call) settle(p *pending, r *mcp.ElicitResult) {
	if d, ok := p.form.decision(r); ok {
		p.reply <- verdict{decision: d}
		return
	}
	p.reply <- verdict{err: fault(CodeApprovalRequired, "The turn needed an approval for %s, which was not given. The turn was ended.", p.approval.Tool)}
}

// finish is the tool's answer for a turn that has ended.
func (c *call) finish(a *ask) (any, error) {
	if a.err != nil {
		return nil, agentGone(a.err)
	}
	text := a.answer.Reply
	if most := c.cfg.MaxReply; most > 0 {
		if runes := []rune(text); len(runes) > most {
			text = string(runes[:most])
			c.note("truncated", true)
			c.note("total", len(runes))
		}
	}
	c.note("storage", a.answer.Storage)
	if a.answer.Usage != nil {
		c.note("usage", a.answer.Usage)
	}
	for _, w := range a.answer.Warnings {
		c.warn(w)
	}
	return struct {
		AgentID   string `json:"agent_id"`
		AgentName string `json:"agent_name"`
		Reply     string `json:"reply"`
	}{a.agent.ID, a.agent.Name, text}, nil
}

// A teller sends the progress of a turn to the client that follows it.
type teller struct {
	quit chan struct{}
	gone chan struct{}
	news chan string // holds the latest
}

// tellProgress follows a turn for a client that wants to know. Without a token
// only the log hears of tools.
func (c *call) tellProgress(ctx context.Context, a *ask) *teller {
	t := &teller{quit: make(chan struct{}), gone: make(chan struct{}), news: make(chan string, 1)}
	a.mu.Lock()
	a.progress = t.put
	if a.latest != "" { // it was told before anybody followed
		t.put(a.latest)
	}
	a.mu.Unlock()
	go func() {
		defer close(t.gone)
		t.run(ctx, c)
	}()
	return t
}

// put keeps the latest news.
func (t *teller) put(what string) {
	for {
		select {
		case t.news <- what:
			return
		default:
		}
		select {
		case <-t.news:
		default:
		}
	}
}

func (t *teller) stop() {
	close(t.quit)
	<-t.gone
}

// run sends the news, and the last of them again when nothing was sent for a
// while: clients take silence for death.
func (t *teller) run(ctx context.Context, c *call) {
	token := c.req.Params.GetProgressToken()
	n, last := 0.0, "thinking"
	send := func() {
		if token == nil {
			return
		}
		n++
		err := c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: last})
		if err != nil {
			c.log.Debug("progress not sent", "err", err)
		}
	}
	send()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case what := <-t.news:
			if what == last {
				continue
			}
			last = what
			send()
			beat.Reset(heartbeat)
			t.logTool(ctx, c, what)
			select { // pieces of an answer come faster than anybody reads
			case <-time.After(typing):
			case <-t.quit:
				return
			}
		case <-beat.C:
			send()
		case <-t.quit:
			return
		}
	}
}

// logTool is a log message of the protocol, for clients that want such.
func (t *teller) logTool(ctx context.Context, c *call, what string) {
	const prefix = "tool: "
	if len(what) <= len(prefix) || what[:len(prefix)] != prefix {
		return
	}
	err := c.req.Session.Log(ctx, &mcp.LoggingMessageParams{ //nolint:staticcheck // deprecated, but part of every version we serve
		Level: "info", Logger: "session_ask", Data: fmt.Sprintf("%s uses %s", c.args.text("agent_id"), what[len(prefix):]),
	})
	if err != nil {
		c.log.Debug("log message not sent", "err", err)
	}
}
