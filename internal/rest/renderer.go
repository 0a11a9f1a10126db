package rest

import (
	"time"

	"mneme/internal/agent"
)

// A chunk is one item of a stream: a variant, or one of the items that streams
// have besides messages.
type chunk interface {
	number(n int)
	kind() string
}

// A renderer turns the events of one run into the chunks of its stream. It is a
// pure function of the events and the view: the same events give the same chunks,
// whether they come from the runtime or from the run's log. Non-streaming answers
// are gathered from it too. Not safe for concurrent use.
type renderer struct {
	view   view
	run    string
	logged bool // chunks are numbered
	last   int  // number of the last chunk
	events int  // chunks so far that no stored message stands behind

	out []chunk // of the event at hand

	// The answer that is being streamed.
	message string
	next    int  // index of the next variant of it
	part    int  // the part that index is for; -1 = none
	index   int  // of part
	calls   bool // its calls have an index
	shown   bool // deltas of it went out
	hidden  bool // its beginning was missed: it is shown when it is stored

	answer  *agent.Message // stored, but its calls are not classified yet
	returns []*agent.Message
	order   map[string]int // places of calls in their step

	context *int // tokens in the context, as far as a provider said
	ended   *ending

	// skip names stored messages that were shown already, to who came late: answers
	// by id, results by step.
	skip map[string]bool
}

// An ending is how a run ended.
type ending struct {
	stop  string
	err   *agent.Error // nil = it did not fail
	usage *usageChunk
}

func newRenderer(v view, runID string, logged bool) *renderer {
	return &renderer{view: v, run: runID, logged: logged, part: -1}
}

// joinLate tells the renderer that it begins in the middle of a run whose stored
// messages were shown: answers by id, results by step.
func (r *renderer) joinLate(shown map[string]bool) { r.skip, r.hidden = shown, true }

// ping is the first chunk of a stream that wants pings.
func (r *renderer) ping(at time.Time) chunk {
	p := r.keepAlive(at)
	p.ID = "ping-" + stableUUID(r.run, typePing)
	if r.logged {
		r.last++
		p.number(r.last)
	}
	return p
}

// keepAlive is a ping in between: it repeats the last number.
func (r *renderer) keepAlive(at time.Time) *pingChunk {
	p := &pingChunk{head{ID: "ping-" + agent.NewUUID(), Date: chunkDate(at), Type: typePing, RunID: new(r.run)}}
	if r.logged && r.last > 0 {
		p.number(r.last)
	}
	return p
}

// event renders one event of the run. The chunks are valid until the next call.
func (r *renderer) event(ev *agent.Event) []chunk {
	r.out = r.out[:0]
	if r.ended != nil {
		return nil // nothing belongs to a run behind its end
	}
	switch p := ev.Payload.(type) {
	case agent.TextDelta:
		r.delta(ev, p.Part, p.Text, false)
	case agent.ReasoningDelta:
		r.delta(ev, p.Part, p.Text, true)
	case agent.CallReturned:
		r.callReturned(p)
		return r.out
	case agent.CallEnded, agent.CallOutput:
		return r.out
	case agent.CallMade:
		r.callMade(ev, p)
	case agent.StepStarted:
		r.flush()
		r.begin(ev.MessageID)
		r.hidden = false
	case agent.AnswerStored:
		r.flush()
		r.answerStored(p)
	case agent.CallsClassified:
		r.classified(p)
	case agent.Retrying:
		r.flush()
		r.retrying(ev, p)
	case agent.Compacting:
		r.flush()
		r.notice(ev, "compaction", map[string]any{
			"trigger": triggerName(p.Trigger), "context_token_estimate": p.Tokens, "context_window": p.Window,
		}, r.view.Compaction)
	case agent.Compacted:
		r.flush()
		if r.view.Compaction {
			r.emit(summaryMessage(p.Message))
		}
	case agent.RunEnded:
		r.flush()
		r.end(p)
	}
	return r.out
}

// emit adds a variant to the stream, if the view has it.
func (r *renderer) emit(v variant) {
	if h := v.base(); r.view.wants(h.Type) {
		h.RunID = new(r.run)
		r.add(v.(chunk))
	}
}

func (r *renderer) add(c chunk) {
	if r.logged {
		r.last++
		c.number(r.last)
	}
	r.out = append(r.out, c)
}

// begin resets what is known of the answer that streams.
func (r *renderer) begin(message string) {
	if r.message != message {
		r.message, r.next, r.part, r.calls, r.shown = message, 0, -1, false, false
	}
}

// delta renders a piece of text or reasoning.
func (r *renderer) delta(ev *agent.Event, part int, piece string, reasoning bool) {
	if piece == "" {
		return
	}
	r.begin(ev.MessageID)
	if r.part != part {
		r.part, r.index = part, r.next
		r.next++
	}
	if !r.view.Tokens || r.hidden {
		return
	}
	r.shown = true
	h := head{ID: ev.MessageID, Date: chunkDate(ev.At), OTID: new(variantOTID(ev.MessageID, r.index)), StepID: text(ev.StepID)}
	switch {
	case reasoning:
		h.Type = typeReasoning
		r.emit(&reasoningVariant{head: h, Source: "reasoner_model", Reasoning: piece})
	case r.view.SpeakTool != "":
		h.Type = typeReasoning
		r.emit(&reasoningVariant{head: h, Source: "non_reasoner_model", Reasoning: piece})
	default:
		h.Type = typeAssistant
		r.emit(&assistantVariant{head: h, Content: piece})
	}
}

// callMade gives a call its index. It is shown once it is known whether it waits.
func (r *renderer) callMade(ev *agent.Event, p agent.CallMade) {
	r.begin(ev.MessageID)
	switch {
	case r.view.SpeakTool != "" && p.Call.Name == r.view.SpeakTool:
		r.next++
	case !r.calls:
		r.calls = true
		r.next++
	}
}

// answerStored takes a finished answer. One with calls waits for the rules.
func (r *renderer) answerStored(p agent.AnswerStored) {
	if p.Usage.Reported {
		r.context = new(p.Usage.Total())
	}
	if p.Message == nil || r.skip[p.Message.ID] {
		return
	}
	r.answer = p.Message
	if len(p.Message.Calls()) == 0 {
		r.showAnswer(func(string) bool { return false })
	}
}

func (r *renderer) classified(p agent.CallsClassified) {
	if r.answer == nil {
		return
	}
	asked := map[string]bool{}
	for _, id := range p.Ask {
		asked[id] = true
	}
	r.showAnswer(func(id string) bool { return asked[id] })
}

// showAnswer shows what of the stored answer was not streamed.
func (r *renderer) showAnswer(waited func(string) bool) {
	m := r.answer
	r.answer = nil
	streamed := r.view.Tokens && !r.hidden && r.message == m.ID
	for _, s := range r.view.layout(m.Parts) {
		p := s.parts[0]
		if streamed && p.Kind != agent.PartToolCall && p.Text != "" {
			continue
		}
		for _, v := range r.view.span(m, s, waited) {
			if call, ok := v.(*callVariant); ok && r.view.Tokens {
				r.callDeltas(call)
				continue
			}
			r.emit(v)
		}
	}
}

// callDeltas shows calls as a token stream does: name first, then arguments.
func (r *renderer) callDeltas(v *callVariant) {
	for _, c := range v.Calls.([]wireCall) {
		name := callDelta{Name: new(c.Name), ID: c.ID}
		args := callDelta{Arguments: new(c.Arguments), ID: c.ID}
		for _, d := range []callDelta{name, args} {
			r.emit(&callVariant{head: v.head, Call: d, Calls: d})
		}
	}
}

// callReturned gathers the results of a step: they are one message, shown when
// all have come, which is at the next event of another kind.
func (r *renderer) callReturned(p agent.CallReturned) {
	if p.Message == nil || r.skip[p.Call.StepID] {
		return
	}
	if r.order == nil {
		r.order = map[string]int{}
	}
	r.order[p.Call.ID] = p.Call.Index
	r.returns = append(r.returns, p.Message)
}

// settle shows the results that have come, without waiting for another event.
func (r *renderer) settle() []chunk {
	r.out = r.out[:0]
	r.flush()
	return r.out
}

func (r *renderer) flush() {
	if len(r.returns) == 0 {
		return
	}
	order := r.order
	if v := r.view.returns(newGroup(r.returns, func(id string) int { return order[id] })); v != nil {
		r.emit(v)
	}
	r.returns, r.order = nil, nil
}

// retrying tells that messages of which something may have been shown are void.
func (r *renderer) retrying(ev *agent.Event, p agent.Retrying) {
	r.notice(ev, "restart", map[string]any{"voided": orEmpty(p.Voided)}, p.Reason == "restart" || len(p.Voided) > 0 && r.shown)
	r.shown = false
}

// notice adds an event message. It is counted even where it is not shown, so that
// its id depends on the events alone.
func (r *renderer) notice(ev *agent.Event, event string, data map[string]any, show bool) {
	r.events++
	if !show {
		return
	}
	r.emit(&eventVariant{
		head:  head{ID: stableUUID(r.run, event, itoa(r.events)), Date: chunkDate(ev.At), Type: typeEvent},
		Event: event, Data: data,
	})
}

// end adds the one closing sequence that every run has: the reason, then the
// usage or the error.
func (r *renderer) end(p agent.RunEnded) {
	stop, failure := outcome(p.StopReason, p.Error)
	r.ended = &ending{stop: stop, err: failure, usage: r.usage(p)}
	reason := &stopChunk{Type: typeStop, Reason: stop}
	if r.logged {
		reason.RunID, r.ended.usage.RunID = new(r.run), new(r.run)
	}
	r.add(reason)
	if failure != nil {
		r.add(errorOf(r.run, failure))
		return
	}
	r.add(r.ended.usage)
}

func (r *renderer) usage(p agent.RunEnded) *usageChunk {
	u := usageOf(p.Usage, p.Steps)
	u.RunIDs, u.Context = []string{r.run}, r.context
	return u
}

// usageOf renders token counts; what the provider did not report is null.
func usageOf(u agent.Usage, steps int) *usageChunk {
	c := &usageChunk{Type: typeUsage, Completion: u.Output, Prompt: u.Input, Total: u.Total(), Steps: steps}
	if u.Reported {
		c.CacheRead, c.CacheWrite, c.Reasoning = new(u.CacheRead), new(u.CacheWrite), new(u.Reasoning)
	}
	return c
}
