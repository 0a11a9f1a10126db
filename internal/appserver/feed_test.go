package appserver

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/protocol"
)

// event makes an event of the feed's scope.
func (f *feed) event(n uint64, origin string, p agent.Payload) *agent.Event {
	return &agent.Event{
		N: n, Scope: f.scope, TurnID: "turn-1", StepID: "step-1", MessageID: "message-1",
		At: time.Unix(1, 0), Origin: origin, Payload: p,
	}
}

// kinds names frames by type and message_type.
func kinds(t *testing.T, bodies []string) (out []string) {
	t.Helper()
	for _, b := range bodies {
		var f struct {
			Type  string `json:"type"`
			Delta struct {
				Type string `json:"message_type"`
			} `json:"delta"`
		}
		if err := json.Unmarshal([]byte(b), &f); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		out = append(out, strings.TrimSuffix(f.Type+" "+f.Delta.Type, " "))
	}
	return out
}

func TestFeedRecipients(t *testing.T) {
	joined := func(direct bool) agent.Payload {
		return agent.InputJoined{Message: &agent.Message{ID: "message-0", Parts: []agent.Part{agent.Text("hi")}}, Direct: direct}
	}
	call := &agent.ToolCall{ID: "call-1", Name: "lookup", Input: json.RawMessage(`{"q":1}`)}
	tests := []struct {
		name    string
		payload agent.Payload
		want    map[string][]string
	}{
		{"a direct input is echoed to the others", joined(true), map[string][]string{
			"sender": nil, "other": {"stream_delta user_message"}, "tools": nil,
		}},
		{"a queued one to everybody", joined(false), map[string][]string{
			"sender": {"stream_delta user_message"}, "other": {"stream_delta user_message"}, "tools": nil,
		}},
		{"an external call goes to its owner", agent.ExternalCall{To: "tools", RequestID: "external-tool-1", Call: call}, map[string][]string{
			"sender": nil, "other": nil, "tools": {"external_tool_call_request"},
		}},
		{"a client tool that waits asks nobody", agent.CallAsked{Call: &agent.ToolCall{Kind: agent.CallClientTool}}, map[string][]string{
			"sender": nil, "other": nil, "tools": nil,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := testFeed()
			conns := map[string]*conn{"sender": f.testConn("sender", true), "other": f.testConn("other", true), "tools": f.testConn("tools", false)}
			f.handle(f.event(1, "sender", tt.payload))
			got := map[string][]string{}
			for name, c := range conns {
				got[name] = kinds(t, c.out.drain())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The same bytes are in every outbox.
func TestFeedEncodesOnce(t *testing.T) {
	f := testFeed()
	a, b := f.testConn("a", true), f.testConn("b", true)
	f.handle(f.event(1, "", agent.TextDelta{Text: "hello"}))
	fa, _, _ := a.out.next()
	fb, _, _ := b.out.next()
	if fa == nil || fa != fb {
		t.Errorf("frames %p and %p", fa, fb)
	}
}

func TestFeedLeavesOutRepeats(t *testing.T) {
	f := testFeed()
	c := f.testConn("a", true)
	state := agent.State{Scope: f.scope, Loop: agent.LoopIdle, Cwd: t.TempDir()}
	busy := state
	busy.Loop = agent.LoopSending
	n := uint64(0)
	for _, p := range []agent.Payload{
		agent.LoopChanged{State: state}, agent.DeviceChanged{State: state},
		agent.LoopChanged{State: state}, agent.DeviceChanged{State: state},
		agent.LoopChanged{State: busy}, agent.LoopChanged{State: state},
	} {
		n++
		f.handle(f.event(n, "", p))
	}
	want := []string{snapLoop, snapDevice, snapLoop, snapLoop}
	if diff := cmp.Diff(want, kinds(t, c.out.drain())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.door.work.Wait() // the git state of the directory is being read
}

// During a replay events wait, so that its snapshot, which may be older, cannot
// come behind them; the others are not held up.
func TestFeedHoldsEventsDuringReplay(t *testing.T) {
	f := testFeed()
	c, other := f.testConn("a", true), f.testConn("b", true)
	sub := f.subs[0]
	replay := sub.hold()
	second := sub.hold()
	f.handle(f.event(1, "", agent.TextDelta{Text: "new"}))
	if got := c.out.drain(); len(got) != 0 {
		t.Fatalf("came during the replay: %q", got)
	}
	if got := kinds(t, other.out.drain()); len(got) != 1 {
		t.Errorf("the other connection got %q", got)
	}
	replay([]*frame{plain(f, `{"type":"old"}`)})
	replay([]*frame{plain(f, `{"type":"once"}`)})
	if diff := cmp.Diff([]string{"old"}, kinds(t, c.out.drain())); diff != "" {
		t.Errorf("after the first replay, -want +got:\n%s", diff)
	}
	second(nil)
	if diff := cmp.Diff([]string{"stream_delta assistant_message"}, kinds(t, c.out.drain())); diff != "" {
		t.Errorf("after both, -want +got:\n%s", diff)
	}
}

// Nobody who has left makes an event do work.
func TestFeedWithoutSubscribers(t *testing.T) {
	f := testFeed()
	f.handle(f.event(1, "", agent.DeviceChanged{State: agent.State{Cwd: t.TempDir()}}))
	if f.door.git.dirs == nil || len(f.door.git.dirs) != 0 {
		t.Error("an event without subscribers was rendered")
	}
}

func TestRenderIDs(t *testing.T) {
	f := testFeed()
	c := f.testConn("a", true)
	type piece struct {
		id  string
		seq int64
	}
	events := []struct {
		payload agent.Payload
		want    piece
	}{
		{agent.ReasoningDelta{Part: 0, Text: "hm"}, piece{"message-1:reasoning:0", 1}},
		{agent.TextDelta{Part: 1, Text: "a"}, piece{"message-1", 2}},
		{agent.TextDelta{Part: 1, Text: "b"}, piece{"message-1", 3}},
		{agent.ReasoningDelta{Part: 2, Text: "hm"}, piece{"message-1:reasoning:2", 4}},
		{agent.TextDelta{Part: 3, Text: "c"}, piece{"message-1:assistant:3", 5}},
		{agent.CallMade{Call: agent.CallPart{ID: "call-1", Name: "Read"}}, piece{"message-1:tool:call-1", 6}},
	}
	for i, e := range events {
		f.handle(f.event(uint64(i), "", e.payload))
	}
	next := f.event(9, "", agent.TextDelta{Part: 0, Text: "d"})
	next.StepID, next.MessageID = "step-2", "message-2"
	f.handle(next)
	var got []piece
	for _, b := range c.out.drain() {
		ev, err := protocol.DecodeEvent([]byte(b))
		if err != nil {
			t.Fatal(err)
		}
		head := ev.Body.(*protocol.StreamDelta).Delta.Head()
		got = append(got, piece{head.ID, head.SeqID})
	}
	var want []piece
	for _, e := range events {
		want = append(want, e.want)
	}
	want = append(want, piece{"message-2", 1})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(piece{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLiveText(t *testing.T) {
	long := strings.Repeat("ä", 20_000)
	tests := []struct {
		name           string
		stdout, stderr []string
		want           string
	}{
		{"both, without blank lines", []string{"one", "", "two"}, []string{" ", "bad"}, "one\ntwo\nbad"},
		{"nothing", nil, nil, ""},
		{"the end of much, whole characters", []string{long}, []string{"x"}, strings.Repeat("ä", 14_999) + "\nx"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := liveText(tt.stdout, tt.stderr); got != tt.want {
				t.Errorf("got %d bytes, want %d", len(got), len(tt.want))
			}
		})
	}
}

func BenchmarkFanOut(b *testing.B) {
	for _, conns := range []int{1, 10, 100} {
		b.Run(map[int]string{1: "1", 10: "10", 100: "100"}[conns], func(b *testing.B) {
			f := testFeed()
			for range conns {
				f.testConn("c", true)
			}
			ev := f.event(1, "", agent.TextDelta{Text: "token "})
			b.ReportAllocs()
			for b.Loop() {
				f.handle(ev)
				for _, s := range f.subs {
					s.conn.out.next()
					s.conn.out.written()
				}
			}
		})
	}
}

func BenchmarkTextDelta(b *testing.B) {
	f := testFeed()
	ev := f.event(1, "", agent.TextDelta{Text: "token "})
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		fr := f.render.text(ev, 0, "token ", false)[0]
		buf = protocol.AppendEnvelope(buf[:0], fr.body, fr.typ, 1, ev.At, fr.event)
	}
}

func BenchmarkDecodeInput(b *testing.B) {
	data := []byte(`{"type":"input","request_id":"i1","runtime":{"agent_id":"agent-1","conversation_id":"conv-1"},"payload":{"kind":"create_message","messages":[{"role":"user","content":"What is the capital of France?","client_message_id":"cm-1"}]}}`)
	b.ReportAllocs()
	for b.Loop() {
		_, cmd, err := protocol.DecodeCommand(data)
		if err != nil {
			b.Fatal(err)
		}
		in := cmd.(*protocol.Input)
		if _, err := newInput(in, in.Payload.(*protocol.CreateMessage)); err != nil {
			b.Fatal(err)
		}
	}
}
