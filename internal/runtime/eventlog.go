package runtime

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

const (
	logDelay     = 10 * time.Millisecond // how long events of logged runs are gathered
	logRetention = 24 * time.Hour
)

// An eventLog publishes an actor's events. Those of a logged turn are first
// written to the run's log, at most 10 ms later, and published after the
// commit: nobody ever holds a position that the log does not have.
type eventLog struct {
	a *actor

	mu        sync.Mutex // guards the rest; emit is called by workers too
	on        bool
	seq       int64
	run       string
	pending   []loggedEvent
	scheduled bool
}

type loggedEvent struct {
	ev  *agent.Event
	row store.RunEvent // Kind "" = published in order, but not stored
}

func (l *eventLog) init(a *actor) { l.a = a }

// start begins logging for run, whose log holds seq entries; off ends it.
func (l *eventLog) start(run string, seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.run, l.seq = true, run, seq
}

func (l *eventLog) off() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
}

func (l *eventLog) active() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on
}

func (l *eventLog) emit(ev *agent.Event) {
	l.mu.Lock()
	if !l.on {
		l.mu.Unlock()
		l.a.m.bus.Publish(ev)
		return
	}
	defer l.mu.Unlock()
	le := loggedEvent{ev: ev}
	switch ev.Payload.(type) {
	case agent.LoopChanged, agent.DeviceChanged, agent.QueueChanged:
		// States of the moment: a log of them has no use.
	default:
		if data, err := encodeEvent(ev); err == nil {
			l.seq++
			ev.Seq = l.seq
			le.row = store.RunEvent{
				RunID: l.run, Seq: l.seq, Kind: ev.Payload.Kind(), Data: data,
				At: ev.At, Expires: ev.At.Add(logRetention),
			}
		}
	}
	l.pending = append(l.pending, le)
	if !l.scheduled {
		l.scheduled = true
		time.AfterFunc(logDelay, func() { l.a.post((*actor).flushLog) })
	}
}

// take hands out what waits to be stored and published.
func (l *eventLog) take() (events []loggedEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, l.pending = l.pending, nil
	l.scheduled = false
	return events
}

func (l *eventLog) publish(events []loggedEvent) {
	for _, e := range events {
		l.a.m.bus.Publish(e.ev)
	}
}

// flushLog commits and publishes what the log has gathered.
func (a *actor) flushLog() {
	a.log.mu.Lock()
	n := len(a.log.pending)
	a.log.mu.Unlock()
	if n > 0 {
		a.commit(&store.Change{})
	}
}

// record is an event as the log keeps it.
type record struct {
	TurnID    string          `json:"turn_id,omitempty"`
	RunID     string          `json:"run_id,omitempty"`
	StepID    string          `json:"step_id,omitempty"`
	MessageID string          `json:"message_id,omitempty"`
	At        time.Time       `json:"at"`
	Payload   json.RawMessage `json:"payload"`
}

func encodeEvent(ev *agent.Event) ([]byte, error) {
	payload, err := json.Marshal(ev.Payload)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record{ev.TurnID, ev.RunID, ev.StepID, ev.MessageID, ev.At, payload})
}

// DecodeEvent gives an event of a run's log back. Its Scope and N are not kept.
func DecodeEvent(row store.RunEvent) (*agent.Event, error) {
	var r record
	if err := json.Unmarshal(row.Data, &r); err != nil {
		return nil, fmt.Errorf("read entry %d of run %s: %w", row.Seq, row.RunID, err)
	}
	decode, known := payloads[row.Kind]
	if !known {
		return nil, fmt.Errorf("read entry %d of run %s: unknown kind %q", row.Seq, row.RunID, row.Kind)
	}
	p, err := decode(r.Payload)
	if err != nil {
		return nil, fmt.Errorf("read entry %d of run %s: %w", row.Seq, row.RunID, err)
	}
	return &agent.Event{
		Seq: row.Seq, TurnID: r.TurnID, RunID: r.RunID, StepID: r.StepID, MessageID: r.MessageID, At: r.At, Payload: p,
	}, nil
}

// payloads read what a log can hold, by kind.
var payloads = map[string]func([]byte) (agent.Payload, error){
	"turn_started":     payload[agent.TurnStarted],
	"input_joined":     payload[agent.InputJoined],
	"step_started":     payload[agent.StepStarted],
	"text_delta":       payload[agent.TextDelta],
	"reasoning_delta":  payload[agent.ReasoningDelta],
	"call_made":        payload[agent.CallMade],
	"answer_stored":    payload[agent.AnswerStored],
	"calls_classified": payload[agent.CallsClassified],
	"call_asked":       payload[agent.CallAsked],
	"call_settled":     payload[agent.CallSettled],
	"call_running":     payload[agent.CallRunning],
	"call_output":      payload[agent.CallOutput],
	"call_ended":       payload[agent.CallEnded],
	"call_returned":    payload[agent.CallReturned],
	"external_call":    payload[agent.ExternalCall],
	"file_changed":     payload[agent.FileChanged],
	"retrying":         payload[agent.Retrying],
	"compacting":       payload[agent.Compacting],
	"compacted":        payload[agent.Compacted],
	"step_failed":      payload[agent.StepFailed],
	"status":           payload[agent.Status],
	"run_ended":        payload[agent.RunEnded],
	"turn_finished":    payload[agent.TurnFinished],
}

func payload[T agent.Payload](data []byte) (agent.Payload, error) {
	var p T
	err := json.Unmarshal(data, &p)
	return p, err
}
