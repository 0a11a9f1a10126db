package appserver

import (
	"encoding/json"
	"strconv"

	"mneme/internal/agent"
	"mneme/internal/runtime"
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
	case agent.Retrying:
		return r.retry(ev, p)
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
		d.ToolCall = toolCall(p.Call)
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
	case agent.Compacting:
		return r.compacting(ev, p)
	case agent.Compacted:
		return r.compacted(ev, p.Message)
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

// compacting tells that a turn sums up what no longer fits. Who asks for a
// compaction hears of it by the answer only.
func (r *renderer) compacting(ev *agent.Event, p agent.Compacting) protocol.Delta {
	if p.Trigger == runtime.TriggerManual {
		return nil
	}
	data, err := json.Marshal(map[string]string{"trigger": p.Trigger})
	if err != nil {
		data = nil // a string always encodes
	}
	return &protocol.EventDelta{DeltaHead: r.streamHead(ev, r.id("event", ev)), Kind: "compaction", Data: data}
}

func (r *renderer) compacted(ev *agent.Event, m *agent.Message) protocol.Delta {
	stats := compactionStats(m)
	if stats != nil && stats.Trigger == runtime.TriggerManual {
		return nil
	}
	return &protocol.SummaryDelta{
		DeltaHead: r.streamHead(ev, m.ID), Summary: agent.TextOf(m.Parts), CompactionStats: stats,
	}
}

// compactionStats reads what a compaction did; nil = not known.
func compactionStats(m *agent.Message) *protocol.CompactionStats {
	stats := new(protocol.CompactionStats)
	if len(m.Stats) == 0 || json.Unmarshal(m.Stats, stats) != nil {
		return nil
	}
	return stats
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

func usageOf(u agent.Usage) protocol.Usage {
	return protocol.Usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Total(), ContextTokens: u.Total(),
		CachedInputTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
	}
}
