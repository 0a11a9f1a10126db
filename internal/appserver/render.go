package appserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"mneme/internal/agent"
	"mneme/protocol"
)

// Names of the snapshots that replace each other.
const (
	snapLoop      = "update_loop_status"
	snapDevice    = "update_device_status"
	snapQueue     = "update_queue"
	snapSubagents = "update_subagent_state"
)

// A renderer turns the events of one conversation into frames. It keeps what
// the wire counts and names along a step. Not safe for concurrent use.
type renderer struct {
	feed *feed

	step string // the step that seq counts for
	seq  int64
	// The ids of the message being streamed, by part.
	message string
	first   int // index of its first text part, -1 = none yet
	part    int // the part that partID is for
	isText  bool
	partID  string

	failed   *agent.Error // of the step, told by loop_error already
	dequeued bool         // the turn took inputs from the queue
	queue    []agent.QueueItem
}

// event renders one event. Most give one frame, some give none.
func (r *renderer) event(ev *agent.Event) ([]*frame, error) {
	switch p := ev.Payload.(type) {
	case agent.TextDelta:
		return r.text(ev, p.Part, p.Text, false), nil
	case agent.ReasoningDelta:
		return r.text(ev, p.Part, p.Text, true), nil
	case agent.LoopChanged:
		return r.snapshot(ev, snapLoop, loopStatus(p.State))
	case agent.DeviceChanged:
		return r.snapshot(ev, snapDevice, r.feed.door.deviceStatus(p.State))
	case agent.QueueChanged:
		return r.queueChanged(ev, p)
	case agent.TurnFinished:
		return r.turnFinished(ev, p)
	case agent.StepFailed:
		return r.stepFailed(ev, p)
	case agent.AnswerStored:
		return r.answerStored(ev, p)
	case agent.CallAsked:
		if p.Call.Kind == agent.CallClientTool {
			return nil, nil
		}
		return r.one(ev, controlRequest(r.feed.rt, p.Call))
	case agent.FileChanged:
		return r.one(ev, &protocol.FileOps{Path: p.Path, Source: "agent", DocumentContent: &p.Content})
	}
	d := r.delta(ev)
	if d == nil {
		return nil, nil
	}
	return r.one(ev, &protocol.StreamDelta{Delta: d})
}

// delta renders the events that are a stream_delta; nil for all others.
func (r *renderer) delta(ev *agent.Event) protocol.Delta {
	switch p := ev.Payload.(type) {
	case agent.InputJoined:
		return userDelta(ev, p)
	case agent.CallMade:
		d := &protocol.ToolCallDelta{DeltaHead: r.streamHead(ev, callMessageID(ev.MessageID, p.Call.ID))}
		d.ToolCall = protocol.ToolCall{ToolCallID: p.Call.ID, Name: p.Call.Name, Arguments: p.Call.Arguments}
		return d
	case agent.CallsClassified:
		d := &protocol.ClassificationDelta{DeltaHead: r.lifeHead(ev)}
		d.AutoAllowedToolCallIDs, d.AutoDeniedToolCallIDs, d.UserInputToolCallIDs = p.Allowed, p.Denied, p.Ask
		return d
	case agent.CallRunning:
		d := &protocol.ToolStartDelta{DeltaHead: r.callHead(ev, p.Call)}
		d.ToolCallID, d.ToolName, d.ToolArgs = p.Call.ID, p.Call.Name, toolArgs(p.Call)
		return d
	case agent.CallEnded:
		d := &protocol.ToolEndDelta{DeltaHead: r.callHead(ev, p.Call)}
		d.ToolCallID, d.Status = p.Call.ID, string(callStatus(p.Call))
		return d
	case agent.CallOutput:
		return r.liveOutput(ev, p)
	case agent.CallReturned:
		return r.callReturned(ev, p)
	case agent.Retrying:
		return r.retrying(ev, p)
	case agent.Status:
		return &protocol.StatusDelta{DeltaHead: r.lifeHead(ev), Message: p.Message, Level: p.Level}
	}
	return nil
}

// one makes the frame of one event body.
func (r *renderer) one(ev *agent.Event, body protocol.EventBody) ([]*frame, error) {
	f, err := r.feed.frame(body, r.feed.door.rt.EventID(ev.N))
	if err != nil {
		return nil, err
	}
	if live, ok := ev.Payload.(agent.CallOutput); ok {
		f.snapshot = "output " + live.CallID
	}
	return []*frame{f}, nil
}

// frame encodes an event of this feed. event is its stable id.
func (f *feed) frame(body protocol.EventBody, event string) (*frame, error) {
	b, err := protocol.AppendEvent(nil, f.rt, body)
	if err != nil {
		return nil, err
	}
	return &frame{typ: body.EventType(), body: b, event: event, feed: f}, nil
}

func (r *renderer) snapshot(ev *agent.Event, name string, body protocol.EventBody) ([]*frame, error) {
	frames, err := r.one(ev, body)
	if err == nil {
		frames[0].snapshot = name
	}
	return frames, err
}

// begin resets the counters when the event belongs to another step than the
// last one.
func (r *renderer) begin(ev *agent.Event) {
	if ev.StepID != r.step {
		r.step, r.seq, r.failed = ev.StepID, 0, nil
	}
}

// text renders one piece of streamed text, the hot path.
func (r *renderer) text(ev *agent.Event, part int, text string, reasoning bool) []*frame {
	r.begin(ev)
	r.seq++
	if ev.MessageID != r.message {
		r.message, r.first, r.part = ev.MessageID, -1, -1
	}
	if part != r.part || r.isText == reasoning {
		if !reasoning && r.first < 0 {
			r.first = part
		}
		r.part, r.isText = part, !reasoning
		r.partID = partID(ev.MessageID, part, r.first, reasoning)
	}
	d := &protocol.TextDelta{
		Runtime: r.feed.rt, ID: r.partID, Reasoning: reasoning, Text: text,
		Date: ev.At, RunID: ev.StepID, SeqID: r.seq,
	}
	return []*frame{{
		typ: "stream_delta", body: protocol.AppendTextDelta(make([]byte, 0, 448+len(text)), *d),
		event: r.feed.door.rt.EventID(ev.N), feed: r.feed, text: d,
	}}
}

// partID names the variant of a stored message that shows its part i
// (spec/app-server-commands.md section 1.6); first is its first text part.
func partID(message string, i, first int, reasoning bool) string {
	switch {
	case reasoning:
		return message + ":reasoning:" + strconv.Itoa(i)
	case i == first:
		return message
	}
	return message + ":assistant:" + strconv.Itoa(i)
}

// callMessageID names the variant that shows a tool call.
func callMessageID(message, call string) string { return message + ":tool:" + call }

// streamHead is the head of a delta that comes from the model's stream.
func (r *renderer) streamHead(ev *agent.Event, id string) protocol.DeltaHead {
	r.begin(ev)
	r.seq++
	return protocol.DeltaHead{
		ID: id, Date: protocol.FormatTime(ev.At), RunID: ev.StepID, SeqID: r.seq,
		AgentID: r.feed.rt.AgentID, ConversationID: r.feed.rt.ConversationID,
	}
}

// lifeHead is the head of a delta that tells about the loop.
func (r *renderer) lifeHead(ev *agent.Event) protocol.DeltaHead {
	return protocol.DeltaHead{ID: r.id("lifecycle", ev), Date: protocol.FormatTime(ev.At), RunID: ev.StepID}
}

// callHead is the head of the frames around a running tool: they carry the id
// of the call's own frame.
func (r *renderer) callHead(ev *agent.Event, c *agent.ToolCall) protocol.DeltaHead {
	return protocol.DeltaHead{
		ID: callMessageID(c.MessageID, c.ID), Date: protocol.FormatTime(ev.At), RunID: c.StepID,
	}
}

// id makes the id of a record that is not stored: the same on every connection.
func (r *renderer) id(prefix string, ev *agent.Event) string {
	return prefix + "-" + r.feed.door.rt.EventID(ev.N)
}

func (r *renderer) answerStored(ev *agent.Event, p agent.AnswerStored) ([]*frame, error) {
	usage := &protocol.UsageDelta{DeltaHead: r.streamHead(ev, r.id("usage", ev)), Usage: usageOf(p.Usage)}
	frames, err := r.one(ev, &protocol.StreamDelta{Delta: usage})
	if err != nil {
		return nil, err
	}
	stop, err := r.stopReason(ev, p.StopReason)
	return append(frames, stop...), err
}

func (r *renderer) stopReason(ev *agent.Event, reason agent.StopReason) ([]*frame, error) {
	r.begin(ev)
	r.seq++
	d := &protocol.StopReasonDelta{StopReason: protocol.StopReasonValue(reason)}
	d.RunID, d.SeqID = ev.StepID, r.seq
	return r.one(ev, &protocol.StreamDelta{Delta: d})
}

func (r *renderer) stepFailed(ev *agent.Event, p agent.StepFailed) ([]*frame, error) {
	loop := &protocol.LoopErrorDelta{
		DeltaHead: r.lifeHead(ev), Message: p.Error.Message, StopReason: protocol.StopLLMAPIError,
		APIError: apiError(ev, p.Error),
	}
	frames, err := r.one(ev, &protocol.StreamDelta{Delta: loop})
	if err != nil {
		return nil, err
	}
	e := &protocol.ErrorDelta{
		DeltaHead: r.streamHead(ev, r.id("error", ev)),
		Message:   p.Error.Message, Detail: detail(p.Error), ErrorType: errorType, Retryable: p.Error.Retryable,
	}
	second, err := r.one(ev, &protocol.StreamDelta{Delta: e})
	if err != nil {
		return nil, err
	}
	stop, err := r.stopReason(ev, p.StopReason)
	r.failed = p.Error
	return append(append(frames, second...), stop...), err
}

// turnFinished renders the end of a turn: a failure is told once more, after
// it, as the reference does.
func (r *renderer) turnFinished(ev *agent.Event, p agent.TurnFinished) ([]*frame, error) {
	end := &protocol.TurnFinished{TurnID: ev.TurnID, StopReason: protocol.StopReasonValue(p.StopReason), RunID: ev.StepID}
	if p.Error != nil {
		end.Error = p.Error.Message
	}
	if p.WithUsage {
		u := usageOf(p.Usage)
		end.Usage = &u
	}
	frames, err := r.one(ev, end)
	if err != nil {
		return nil, err
	}
	if p.Error != nil {
		d := &protocol.LoopErrorDelta{
			DeltaHead: r.lifeHead(ev), Message: p.Error.Message,
			StopReason: protocol.StopReasonValue(p.StopReason), IsTerminal: true,
		}
		if r.failed != nil {
			d.APIError = apiError(ev, r.failed)
		}
		more, err := r.one(ev, &protocol.StreamDelta{Delta: d})
		if err != nil {
			return nil, err
		}
		frames = append(frames, more...)
	}
	if r.dequeued {
		more, err := r.snapshot(ev, snapQueue, queueUpdate(r.queue, nil))
		if err != nil {
			return nil, err
		}
		frames = append(frames, more...)
	}
	r.failed, r.dequeued = nil, false
	return frames, nil
}

// queueChanged renders the queue: what left it is told by a frame of its own,
// behind a snapshot.
func (r *renderer) queueChanged(ev *agent.Event, p agent.QueueChanged) ([]*frame, error) {
	r.queue = p.Queue
	frames, err := r.snapshot(ev, snapQueue, queueUpdate(p.Queue, nil))
	if err != nil || len(p.Removed) == 0 {
		return frames, err
	}
	for _, item := range p.Removed {
		r.dequeued = r.dequeued || item.Disposition == "dequeued"
	}
	more, err := r.one(ev, queueUpdate(p.Queue, p.Removed))
	return append(frames, more...), err
}

func (r *renderer) retrying(ev *agent.Event, p agent.Retrying) protocol.Delta {
	if len(p.Voided) == 0 && p.Reason != "restart" {
		data, err := json.Marshal(map[string]any{
			"attempt": p.Attempt, "max_attempts": p.Max, "delay_ms": p.Delay.Milliseconds(), "message": p.Message,
		})
		if err != nil {
			data = nil // numbers and a string always encode
		}
		return &protocol.EventDelta{DeltaHead: r.streamHead(ev, r.id("event", ev)), Kind: "retry", Data: data}
	}
	return &protocol.RetryDelta{
		DeltaHead: r.lifeHead(ev), Message: p.Message, Reason: p.Reason, StepID: ev.StepID,
		Attempt: p.Attempt, MaxAttempts: p.Max, DelayMS: p.Delay.Milliseconds(),
	}
}

// liveOutput renders the whole output so far of a running tool.
func (r *renderer) liveOutput(ev *agent.Event, p agent.CallOutput) protocol.Delta {
	text := liveText(p.Stdout, p.Stderr)
	d := &protocol.ToolReturnDelta{
		DeltaHead: protocol.DeltaHead{
			ID: "synthetic-tool-return-stream-" + p.CallID, Date: protocol.FormatTime(ev.At), RunID: ev.StepID,
		},
		Status: string(agent.StatusSuccess), ToolCallID: p.CallID, ToolReturn: protocol.Text(text),
	}
	ret := protocol.ToolReturn{ToolCallID: p.CallID, Status: d.Status, ToolReturn: d.ToolReturn}
	if len(p.Stdout) > 0 {
		ret.Stdout = p.Stdout
	}
	if len(p.Stderr) > 0 {
		ret.Stderr = p.Stderr
	}
	d.ToolReturns = []protocol.ToolReturn{ret}
	return d
}

// liveText is stdout and stderr without blank lines, at most its last 30,000
// bytes.
func liveText(stdout, stderr []string) string {
	const most = 30_000
	var b strings.Builder
	for _, lines := range [][]string{stdout, stderr} {
		for _, l := range lines {
			if strings.TrimSpace(l) == "" {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(l)
		}
	}
	text := b.String()
	if len(text) > most {
		text = strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

func (r *renderer) callReturned(ev *agent.Event, p agent.CallReturned) protocol.Delta {
	d := &protocol.ToolReturnDelta{
		DeltaHead: protocol.DeltaHead{ID: p.Message.ID, Date: protocol.FormatTime(ev.At), RunID: p.Call.StepID},
		Status:    string(callStatus(p.Call)), ToolCallID: p.Call.ID, ToolReturn: protocol.Text(returnText(p.Message.Parts)),
	}
	d.ToolReturns = []protocol.ToolReturn{{ToolCallID: p.Call.ID, Status: d.Status, ToolReturn: d.ToolReturn}}
	return d
}

// returnText shows a tool's result as text: an image is shown as the JSON of
// its part.
func returnText(parts []agent.Part) string {
	var out []string
	for _, p := range parts {
		switch p.Kind {
		case agent.PartText:
			out = append(out, p.Text)
		case agent.PartImage:
			if b, err := protocol.Marshal(protocol.ImagePart(p.MediaType, p.Data)); err == nil {
				out = append(out, string(b))
			}
		}
	}
	return strings.Join(out, "\n")
}

func userDelta(ev *agent.Event, p agent.InputJoined) protocol.Delta {
	m := p.Message
	d := &protocol.UserDelta{
		DeltaHead:   protocol.DeltaHead{ID: m.ID, Date: protocol.FormatTime(ev.At)},
		Content:     content(p.Raw, m.Parts),
		OTID:        m.OTID,
		CreatedByID: m.SenderID,
	}
	if m.ClientKey != "" {
		d.OTID = m.ClientKey
	}
	return d
}

// content is the wire form of a message's parts: as it was sent, where that is
// known.
func content(raw json.RawMessage, parts []agent.Part) protocol.Content {
	if raw != nil {
		var c protocol.Content
		if c.UnmarshalJSON(raw) == nil {
			return c
		}
	}
	return protocol.Parts(wireParts(parts)...)
}

// wireParts shows texts and images.
func wireParts(parts []agent.Part) []protocol.Part {
	out := []protocol.Part{}
	for _, p := range parts {
		switch p.Kind {
		case agent.PartText:
			out = append(out, protocol.TextPart(p.Text))
		case agent.PartImage:
			out = append(out, protocol.ImagePart(p.MediaType, p.Data))
		}
	}
	return out
}

// toolArgs shows the arguments that a tool gets: the model's own text, unless a
// person changed them.
func toolArgs(c *agent.ToolCall) string {
	if len(c.Input) == 0 || string(c.Input) == c.Arguments {
		return c.Arguments
	}
	var b bytes.Buffer
	if json.Compact(&b, c.Input) != nil {
		return c.Arguments
	}
	return b.String()
}

func callStatus(c *agent.ToolCall) agent.CallStatus {
	if c.Result == nil {
		return agent.StatusError // withdrawn: it will not run
	}
	return c.Result.Status
}

func usageOf(u agent.Usage) protocol.Usage {
	return protocol.Usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Total(), ContextTokens: u.Total(),
		CachedInputTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
	}
}

// errorType is the type of all model errors on this wire.
const errorType = "llm_error"

func apiError(ev *agent.Event, e *agent.Error) *protocol.APIError {
	return &protocol.APIError{
		MessageType: "error_message", Message: e.Message, ErrorType: errorType, RunID: ev.StepID, Detail: detail(e),
	}
}

func detail(e *agent.Error) string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Message
}
