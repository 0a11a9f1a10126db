package protocol_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
)

var at = time.Date(2026, 11, 30, 18, 28, 37, 387_654_321, time.FixedZone("", 3600))

func TestAppendString(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", `""`},
		{"plain", `"plain"`},
		{"a\"b\\c\nd\re\tf\x00g\x1f", `"a\"b\\c\nd\re\tf\u0000g\u001f"`},
		{"<script>&amp;</script>", `"<script>&amp;</script>"`},
		{"día 😀 \u2028", "\"día 😀 \u2028\""},
		{"a\xffb\xc3", "\"a\uFFFDb\uFFFD\""},
		{"\xed\xa0\x80", "\"\uFFFD\uFFFD\uFFFD\""}, // half a surrogate pair
	} {
		if got := string(protocol.AppendString(nil, test.in)); got != test.want {
			t.Errorf("%q: got %s, want %s", test.in, got, test.want)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\x00é\xff😀")
	f.Fuzz(func(t *testing.T, s string) {
		out := protocol.AppendString([]byte("x"), s)[1:]
		var got string
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if want := string([]rune(s)); got != want { // each wrong byte becomes U+FFFD
			t.Errorf("got %q, want %q", got, want)
		}
		if !utf8.Valid(out) {
			t.Errorf("%q is not UTF-8", out)
		}
	})
}

// TestTextDelta checks the fast encoder against the general one.
func TestTextDelta(t *testing.T) {
	rt := protocol.Runtime{AgentID: "agent-1", ConversationID: "default"}
	head := protocol.DeltaHead{ID: "message-1", Date: "2026-11-30T17:28:37.387Z", AgentID: "agent-1",
		ConversationID: "default", RunID: "step-1", SeqID: 3}
	fast := protocol.TextDelta{Runtime: rt, ID: "message-1", Text: "a \"<b>\"\n", Date: at, RunID: "step-1", SeqID: 3}
	for _, test := range []struct {
		reasoning bool
		subagent  string
		delta     protocol.Delta
	}{
		{false, "", &protocol.AssistantDelta{DeltaHead: head, Content: protocol.Parts(protocol.TextPart(fast.Text))}},
		{true, "", &protocol.ReasoningDelta{DeltaHead: head, Reasoning: fast.Text}},
		{false, "subagent-1", &protocol.AssistantDelta{DeltaHead: head, Content: protocol.Parts(protocol.TextPart(fast.Text))}},
	} {
		fast.Reasoning, fast.SubagentID = test.reasoning, test.subagent
		slow, err := protocol.AppendEvent(nil, rt, &protocol.StreamDelta{Delta: test.delta, SubagentID: test.subagent})
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(protocol.AppendTextDelta(nil, fast), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(slow, &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("fast and general encoding differ (-general +fast):\n%s", diff)
		}
	}
}

func TestAppendEnvelope(t *testing.T) {
	rt := protocol.Runtime{AgentID: "a", ConversationID: "c"}
	body, err := protocol.AppendEvent(nil, rt, &protocol.TurnFinished{TurnID: "turn-1", StopReason: protocol.StopEndTurn})
	if err != nil {
		t.Fatal(err)
	}
	got := string(protocol.AppendEnvelope(nil, body, "turn_finished", 7, at, "0a1b"))
	want := `{"type":"turn_finished","turn_id":"turn-1","stop_reason":"end_turn","runtime":{"agent_id":"a","conversation_id":"c"},` +
		`"event_seq":7,"emitted_at":"2026-11-30T17:28:37.387Z","idempotency_key":"turn_finished:7:0a1b"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	ev, err := protocol.DecodeEvent([]byte(got))
	if err != nil {
		t.Fatal(err)
	}
	wantEvent := protocol.Event{Type: "turn_finished", Runtime: rt, Seq: 7, EmittedAt: at.UTC().Truncate(time.Millisecond),
		Key: "turn_finished:7:0a1b", Body: &protocol.TurnFinished{TurnID: "turn-1", StopReason: "end_turn"}, Raw: []byte(got)}
	if diff := cmp.Diff(wantEvent, ev); diff != "" {
		t.Error(diff)
	}
}

func TestResponses(t *testing.T) {
	id := "r\"1"
	for _, test := range []struct {
		name string
		make func() ([]byte, error)
		want string
	}{
		{"success", func() ([]byte, error) {
			return protocol.AppendResponse(nil, "agent_list_response", &id, &protocol.AgentListResponse{})
		}, `{"type":"agent_list_response","request_id":"r\"1","success":true,"agents":[]}`},
		{"no request id, no fields", func() ([]byte, error) {
			return protocol.AppendResponse(nil, "x_response", nil, &protocol.ExternalToolsUpdateResponse{})
		}, `{"type":"x_response","success":true}`},
		{"failure", func() ([]byte, error) {
			return protocol.AppendFailure(nil, "list_models_response", &id, "<no>", &protocol.ListModelsResponse{})
		}, `{"type":"list_models_response","request_id":"r\"1","success":false,"error":"<no>","entries":[]}`},
		{"failure without body", func() ([]byte, error) {
			return protocol.AppendFailure(nil, "read_file_response", &id, "no", nil)
		}, `{"type":"read_file_response","request_id":"r\"1","success":false,"error":"no"}`},
		{"acknowledgement", func() ([]byte, error) {
			return protocol.AppendFrame(nil, "input_accepted", &id, &protocol.InputAccepted{
				Runtime: protocol.Runtime{ConversationID: "c"}, Accepted: true, Disposition: protocol.Started, TurnID: "turn-1"})
		}, `{"type":"input_accepted","request_id":"r\"1","runtime":{"agent_id":null,"conversation_id":"c"},"accepted":true,"disposition":"started","turn_id":"turn-1"}`},
		{"bare event", func() ([]byte, error) {
			return protocol.AppendEvent(nil, protocol.Runtime{}, &protocol.ErrorEvent{Code: "invalid_json", Error: "no"})
		}, `{"type":"error","code":"invalid_json","error":"no"}`},
		{"later", func() ([]byte, error) {
			return protocol.AppendCommand(nil, &id, &protocol.Later{Type: "read_file", Raw: []byte(`{"path":"x"}`)})
		}, `{"type":"read_file","request_id":"r\"1","path":"x"}`},
	} {
		got, err := test.make()
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n got %s\nwant %s", test.name, err, got, test.want)
		}
	}
	if _, err := protocol.AppendFrame(nil, "x", nil, []int{1}); err == nil {
		t.Error("a body that is no object was accepted")
	}
	if _, err := protocol.AppendCommand(nil, nil, &protocol.Later{Type: "x", Raw: []byte(`{`)}); err == nil {
		t.Error("fields that are not JSON were accepted")
	}
}

func TestReadOutcome(t *testing.T) {
	for _, test := range []struct {
		frame string
		want  protocol.Outcome
	}{
		{`{"success":true}`, protocol.Outcome{OK: true}},
		{`{"success":false,"error":"no"}`, protocol.Outcome{Error: "no"}},
		{`{"success":false}`, protocol.Outcome{}},
		{`{"accepted":false,"error":"full"}`, protocol.Outcome{Error: "full"}},
		{`{"accepted":true}`, protocol.Outcome{OK: true}},
		{`{"success":false,"error":{"code":"not_connected","message":"none"}}`, protocol.Outcome{Error: "none"}},
		{`{"success":true,"error":null}`, protocol.Outcome{OK: true}},
		{`{"type":"terminal_spawned"}`, protocol.Outcome{OK: true}},
	} {
		got, err := protocol.ReadOutcome([]byte(test.frame))
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v", test.frame, got, err)
		}
	}
}

// Every event and delta type survives being written and read.
func TestEventTypes(t *testing.T) {
	seen := map[string]bool{}
	bodies := []protocol.EventBody{}
	for _, e := range protocol.Events {
		if body := e.New(); body.EventType() != "stream_delta" {
			bodies = append(bodies, body)
		}
	}
	for _, make := range protocol.Deltas {
		bodies = append(bodies, &protocol.StreamDelta{Delta: make()})
	}
	for _, body := range bodies {
		raw, err := protocol.AppendEvent(nil, protocol.Runtime{AgentID: "a", ConversationID: "c"}, body)
		if err != nil {
			t.Errorf("%T: %v", body, err)
			continue
		}
		ev, err := protocol.DecodeEvent(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		name := ev.Type
		if s, ok := ev.Body.(*protocol.StreamDelta); ok {
			name += " " + s.Delta.MessageType()
			if got, want := reflect.TypeOf(s.Delta), reflect.TypeOf(body.(*protocol.StreamDelta).Delta); got != want {
				t.Errorf("%s is read as %s, want %s", name, got, want)
			}
		} else if reflect.TypeOf(ev.Body) != reflect.TypeOf(body) {
			t.Errorf("%s is read as %T", name, ev.Body)
		}
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		again, err := protocol.AppendEvent(nil, ev.Runtime, ev.Body)
		if err != nil || string(again) != string(raw) {
			t.Errorf("%s: %v\n%s\n%s", name, err, raw, again)
		}
	}
	for _, name := range strings.Fields(`assistant_message reasoning_message user_message approval_request_message
		tool_return_message usage_statistics stop_reason error_message event_message summary_message
		approval_classification_end client_tool_start client_tool_end status retry loop_error
		slash_command_start slash_command_end command_start command_end`) {
		if !seen["stream_delta "+name] {
			t.Errorf("delta %s has no type", name)
		}
	}
}

func TestUnknownEvents(t *testing.T) {
	ev, err := protocol.DecodeEvent([]byte(`{"type":"from_the_future","x":1,"event_seq":3}`))
	if err != nil || ev.Body != nil || ev.Type != "from_the_future" || ev.Seq != 3 {
		t.Errorf("got %+v, %v", ev, err)
	}
	raw := `{"type":"stream_delta","delta":{"message_type":"hologram","id":"x","depth":3}}`
	ev, err = protocol.DecodeEvent([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	d, ok := ev.Body.(*protocol.StreamDelta).Delta.(*protocol.OtherDelta)
	if !ok || d.Type != "hologram" || d.ID != "x" {
		t.Fatalf("got %+v", ev.Body)
	}
	again, err := protocol.AppendEvent(nil, protocol.Runtime{}, ev.Body)
	if err != nil || string(again) != raw {
		t.Errorf("%v\n%s", err, again)
	}
	if ev, err := protocol.DecodeEvent([]byte(`{"type":"update_queue","queue":7}`)); err == nil || ev.Raw == nil {
		t.Errorf("a known type that cannot be read: %+v, %v", ev, err)
	}
}

func TestContent(t *testing.T) {
	for _, test := range []struct {
		raw    string
		isText bool
		text   string
		parts  int
	}{
		{`"h\u0069 <b>"`, true, "hi <b>", 1},
		{`""`, true, "", 1},
		{`[]`, false, "", 0},
		{`[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},{"type":"text","text":"b"}]`, false, "ab", 3},
		{`[{"type":"hologram","x":[1,2]}]`, false, "", 1},
		{`[{"type":"image","source":{"type":"url","url":"http://x"}}]`, false, "", 1},
	} {
		var c protocol.Content
		if err := json.Unmarshal([]byte(test.raw), &c); err != nil {
			t.Errorf("%s: %v", test.raw, err)
			continue
		}
		if c.IsText() != test.isText || c.Text() != test.text || len(c.Parts()) != test.parts {
			t.Errorf("%s: text %v %q, %d parts", test.raw, c.IsText(), c.Text(), len(c.Parts()))
		}
		if out, err := protocol.Marshal(c); err != nil || string(out) != test.raw {
			t.Errorf("%s is written as %s, %v", test.raw, out, err)
		}
		made := protocol.Parts(c.Parts()...)
		if c.IsText() {
			made = protocol.Text(c.Text())
		}
		if !made.Equal(c) {
			t.Errorf("%s: not equal to the same content made by hand", test.raw)
		}
	}
	image := protocol.Parts(protocol.ImagePart("image/png", "aGk="))
	want := `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]`
	if string(image.Raw()) != want {
		t.Errorf("got %s", image.Raw())
	}
	for _, bad := range []string{`5`, `null`, `{}`, `[1]`, `[{}]`, `[{"type":1}]`, `[{"type":"text","text":1}]`} {
		var c protocol.Content
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if (protocol.Content{}).IsZero() == false || protocol.Text("").IsZero() || protocol.Parts().IsZero() == false {
		t.Error("IsZero")
	}
}

// What a client sent comes back as valid UTF-8 without HTML escaping, also
// through raw bytes.
func TestMarshalIsClean(t *testing.T) {
	_, in, err := protocol.DecodeInput([]byte("{\"type\":\"input\",\"runtime\":{\"agent_id\":\"a\",\"conversation_id\":\"c\"}," +
		"\"payload\":{\"kind\":\"create_message\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<\xff>\"}]}]}}"))
	if err != nil {
		t.Fatal(err)
	}
	content := in.Payload.(*protocol.CreateMessage).Messages[0].Content
	out, err := protocol.AppendEvent(nil, in.Runtime, &protocol.QueueUpdate{Queue: []protocol.QueueItem{{Content: content}}})
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(out) || !strings.Contains(string(out), "<\uFFFD>") {
		t.Errorf("got %q", out)
	}
	out, err = protocol.Marshal(protocol.Object("{\"a\":\"\xff\"}"))
	if err != nil || string(out) != "{\"a\":\"\uFFFD\"}" {
		t.Errorf("got %q, %v", out, err)
	}
}

func BenchmarkAppendTextDelta(b *testing.B) {
	d := protocol.TextDelta{
		Runtime: protocol.Runtime{AgentID: "agent-0b54f6f0-6c1d-4b61-8f9e-0d6a5d9a1c11", ConversationID: "conv-0b54f6f0-6c1d-4b61-8f9e-0d6a5d9a1c12"},
		ID:      "message-0b54f6f0-6c1d-4b61-8f9e-0d6a5d9a1c13", Text: " twenty \"characters\"", Date: at, RunID: "step-0b54f6f0-6c1d-4b61-8f9e-0d6a5d9a1c14", SeqID: 123,
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = protocol.AppendTextDelta(dst[:0], d)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkAppendEnvelope(b *testing.B) {
	body := protocol.AppendTextDelta(nil, protocol.TextDelta{Runtime: protocol.Runtime{AgentID: "a", ConversationID: "c"}, ID: "m", Text: "hello", Date: at, RunID: "s", SeqID: 1})
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = protocol.AppendEnvelope(dst[:0], body, "stream_delta", 123456, at, "0b54f6f0-6c1d-4b61-8f9e-0d6a5d9a1c11")
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecodeCommand(b *testing.B) {
	for name, frame := range map[string]string{
		"input":         `{"type":"input","request_id":"i1","runtime":{"agent_id":"agent-1","conversation_id":"conv-1"},"payload":{"kind":"create_message","messages":[{"role":"user","content":"hello there","client_message_id":"cm-1"}]}}`,
		"runtime_start": `{"type":"runtime_start","request_id":"r","agent_id":"agent-1","conversation_id":"conv-1","cwd":"/tmp","mode":"standard","client_info":{"name":"n"},"wait_for_replay":true}`,
		"image 10 MiB":  `{"type":"input","request_id":"i1","runtime":{"agent_id":"agent-1","conversation_id":"conv-1"},"payload":{"kind":"create_message","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("QUJD", 10<<18) + `"}}]}]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			data := []byte(frame)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := protocol.DecodeCommand(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
