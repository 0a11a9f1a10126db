package protocol_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
)

func ptr[T any](v T) *T { return &v }

func TestParseHeader(t *testing.T) {
	f, err := protocol.Parse([]byte(` {"x":{"type":"no"},"type":"sync","request_id":"","runtime":{"agent_id":null,"conversation_id":"c","more":1}} `))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != "sync" || f.RequestID == nil || *f.RequestID != "" {
		t.Errorf("type %q, request_id %v", f.Type, f.RequestID)
	}
	if diff := cmp.Diff(&protocol.Runtime{ConversationID: "c"}, f.Runtime); diff != "" {
		t.Error(diff)
	}
	// Escaped keys, repeated keys (the last counts), brackets and quotes in strings.
	f, err = protocol.Parse([]byte(`{"a":"}\"]\\","ty\u0070e":"x","type":"sy\u006ec","b":[["{"]],"request_id":"1","request_id":"2"}`))
	if err != nil || f.Type != "sync" || *f.RequestID != "2" {
		t.Errorf("got %q %v %v", f.Type, f.RequestID, err)
	}
	f, err = protocol.Parse([]byte("{\"type\":\"a\xffb\"}"))
	if err != nil || f.Type != "a\uFFFDb" {
		t.Errorf("invalid UTF-8: %q, %v", f.Type, err)
	}
}

func TestDecodeErrors(t *testing.T) {
	const rt = `"runtime":{"agent_id":"a","conversation_id":"c"}`
	for _, test := range []struct {
		frame string
		code  protocol.ErrorCode
		want  string
	}{
		{``, "invalid_json", "frame is not valid JSON: it is empty"},
		{`not json`, "invalid_json", "frame is not valid JSON: invalid character 'o' in literal null (expecting 'u')"},
		{`{"type":"sync"`, "invalid_json", "frame is not valid JSON: unexpected end of JSON input"},
		{strings.Repeat("[", 20000), "invalid_json", "frame is not valid JSON: invalid character '[' exceeded max depth"},
		{`[1,2]`, "invalid_frame", "frame must be a JSON object, not an array"},
		{`null`, "invalid_frame", "frame must be a JSON object, not null"},
		{`"x"`, "invalid_frame", "frame must be a JSON object, not a string"},
		{`{"hello":1}`, "invalid_frame", "frame must have a type"},
		{`{"type":7}`, "invalid_frame", "type must be a string, not a number"},
		{`{"type":"nope"}`, "unknown_type", `unknown command type "nope"`},
		{`{"type":"` + strings.Repeat("é", 80) + `"}`, "unknown_type", `unknown command type "` + strings.Repeat("é", 50) + `…"`},
		{`{"type":"runtime_start"}`, "invalid_field", "runtime_start.request_id is required and must be a string"},
		{`{"type":"runtime_start","request_id":5}`, "invalid_field", "runtime_start.request_id must be a string, not a number"},
		{`{"type":"app_server_info","request_id":""}`, "invalid_field", "app_server_info.request_id must be a non-empty string"},
		{`{"type":"input","request_id":"",` + rt + `}`, "invalid_field", "input.request_id must be a non-empty string"},
		{`{"type":"sync","request_id":null,` + rt + `}`, "invalid_field", "sync.request_id must be a string, not null"},
		{`{"type":"runtime_start","request_id":"r","mode":"default"}`, "invalid_field", `runtime_start.mode must be one of standard, acceptEdits, unrestricted, strict, not "default"`},
		{`{"type":"runtime_start","request_id":"r","mode":1}`, "invalid_field", `runtime_start.mode must be one of standard, acceptEdits, unrestricted, strict, not a number`},
		{`{"type":"runtime_start","request_id":"r","agent_id":null}`, "invalid_field", "runtime_start.agent_id must be a string, not null"},
		{`{"type":"runtime_start","request_id":"r","create_agent":{}}`, "invalid_field", "runtime_start.create_agent.body is required and must be an object"},
		{`{"type":"runtime_start","request_id":"r","create_agent":{"body":[]}}`, "invalid_field", "runtime_start.create_agent.body must be an object, not an array"},
		{`{"type":"runtime_start","request_id":"r","create_agent":{"body":{"tags":["a",1]}}}`, "invalid_field", "runtime_start.create_agent.body.tags[1] must be a string, not a number"},
		{`{"type":"runtime_start","request_id":"r","client_info":{"title":"x"}}`, "invalid_field", "runtime_start.client_info.name is required and must be a string"},
		{`{"type":"runtime_start","request_id":"r","skill_sources":["agent","moon"]}`, "invalid_field", `runtime_start.skill_sources must hold only bundled, global, agent, project, not "moon"`},
		{`{"type":"runtime_start","request_id":"r","external_tools":[{"tools":[{"name":"x","parameters":{}}]}]}`, "invalid_field", "runtime_start.external_tools[0].tools[0].description is required and must be a string"},
		{`{"type":"runtime_start","request_id":"r","external_tools":[{"tools":[{"name":"x","description":"","parameters":[]}]}]}`, "invalid_field", "runtime_start.external_tools[0].tools[0].parameters must be an object, not an array"},
		{`{"type":"runtime_start","request_id":"r","external_tools":{}}`, "invalid_field", "runtime_start.external_tools must be an array of objects, not an object"},
		{`{"type":"runtime_start","request_id":"r","execution_settings":{"allowed_tools":[],"disallowed_tools":[]}}`, "invalid_field", "runtime_start.execution_settings.disable_memory_guard is required and must be a boolean"},
		{`{"type":"runtime_start","request_id":"r","execution_settings":{"allowed_tools":[],"disallowed_tools":[],"disable_memory_guard":true,"max_turns":0}}`, "invalid_field", "runtime_start.execution_settings.max_turns must be a positive integer"},
		{`{"type":"runtime_start","request_id":"r","wait_for_replay":"yes"}`, "invalid_field", "runtime_start.wait_for_replay must be a boolean, not a string"},
		{`{"type":"sync"}`, "invalid_field", "sync.runtime is required and must be an object"},
		{`{"type":"sync","runtime":{"conversation_id":"c"}}`, "invalid_field", "sync.runtime.agent_id must be a non-empty string or null"},
		{`{"type":"sync","runtime":{"agent_id":"","conversation_id":"c"}}`, "invalid_field", "sync.runtime.agent_id must be a non-empty string or null"},
		{`{"type":"sync","runtime":{"agent_id":"a","conversation_id":""}}`, "invalid_field", "sync.runtime.conversation_id must be a non-empty string"},
		{`{"type":"sync",` + rt + `,"recover_approvals":"x"}`, "invalid_field", "sync.recover_approvals must be a boolean, not a string"},
		{`{"type":"remove_queue_item","request_id":"r","item_id":"q","runtime":{"agent_id":null,"conversation_id":"c"}}`, "invalid_field", "remove_queue_item.runtime.agent_id must be a string, not null"},
		{`{"type":"execute_command","request_id":"r","runtime":{"agent_id":null,"conversation_id":"c"}}`, "invalid_field", "execute_command.runtime.agent_id must be a string, not null"},
		{`{"type":"change_device_state",` + rt + `,"payload":{"cwd":null}}`, "invalid_field", "change_device_state.payload.cwd must be a string, not null"},
		{`{"type":"update_toolset","request_id":"r",` + rt + `,"toolset_preference":"vim"}`, "invalid_field", `update_toolset.toolset_preference must be one of auto, letta, none, default, codex, not "vim"`},
		{`{"type":"update_model","request_id":"r",` + rt + `,"payload":{}}`, "invalid_field", "update_model.payload.model_id or model_handle is required"},
		{`{"type":"update_model","request_id":"r",` + rt + `,"payload":{"model_id":"m","reasoning_effort":"huge"}}`, "invalid_field", `update_model.payload.reasoning_effort must be one of none, minimal, low, medium, high, xhigh, max, not "huge"`},
		{`{"type":"list_connect_providers","request_id":"r","target":"api"}`, "invalid_field", `list_connect_providers.target must be "local", not "api"`},
		{`{"type":"connect_provider","request_id":"r","target":"local","provider_id":"p","fields":{"apiKey":1}}`, "invalid_field", "connect_provider.fields.apiKey must be a string, not a number"},
		{`{"type":"runtime_external_tools_update","request_id":"r","updates":[{"runtimes":[],"external_tools":[]}]}`, "invalid_field", "runtime_external_tools_update.updates[0].runtimes must hold at least one runtime"},
		{`{"type":"runtime_external_tools_update","request_id":"r","updates":[{"runtimes":[{"agent_id":"a","conversation_id":"c"},{"agent_id":"a","conversation_id":"c"}],"external_tools":[]}]}`, "invalid_field", "runtime_external_tools_update.updates[0].runtimes[1].conversation_id must not be listed twice"},
		{`{"type":"external_tool_call_response","request_id":"r"}`, "invalid_field", "external_tool_call_response.result or error is required"},
		{`{"type":"external_tool_call_response","request_id":"r","result":{"content":["x"]}}`, "invalid_field", "external_tool_call_response.result.content must hold only objects, not a string"},
		{`{"type":"read_memory_file","request_id":"r","agent_id":"a","path":"p","encoding":"utf16"}`, "invalid_field", `read_memory_file.encoding must be one of utf8, base64, not "utf16"`},
		{`{"type":"agent_list","request_id":"r","query":[]}`, "invalid_field", "agent_list.query must be an object, not an array"},
		{`{"type":"agent_list","request_id":"r","query":{"limit":1e300}}`, "invalid_field", "agent_list.query.limit must be a number between -2^53 and 2^53"},
		{`{"type":"agent_update","request_id":"r","agent_id":"a","body":{"name":5}}`, "invalid_field", "agent_update.body.name must be a string, not a number"},
		{`{"type":"message","agentId":"a"}`, "invalid_field", "message.messages is required and must be an array"},
		{`{"type":"message","agentId":"a","messages":[3]}`, "invalid_field", "Protocol violation: input.payload.messages[0] must be an object, not a number"},
	} {
		_, _, err := protocol.DecodeCommand([]byte(test.frame))
		var de *protocol.DecodeError
		if !errors.As(err, &de) {
			t.Errorf("%.80s: error %v", test.frame, err)
			continue
		}
		if de.Code != test.code || de.Message != test.want {
			t.Errorf("%.80s:\n got %s %s\nwant %s %s", test.frame, de.Code, de.Message, test.code, test.want)
		}
	}
}

// A frame that cannot be used can still be answered.
func TestErrorKeepsHeader(t *testing.T) {
	f, cmd, err := protocol.DecodeCommand([]byte(`{"type":"runtime_start","request_id":"r1","mode":"x"}`))
	if cmd != nil || err == nil || f.Type != "runtime_start" || f.RequestID == nil || *f.RequestID != "r1" {
		t.Fatalf("got %+v %v %v", f, cmd, err)
	}
	info, _ := protocol.Lookup(f.Type)
	out, err := protocol.AppendFailure(nil, info.Response, f.RequestID, err.Error(), info.NewResponse())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"runtime_start_response","request_id":"r1","success":false,` +
		`"error":"runtime_start.mode must be one of standard, acceptEdits, unrestricted, strict, not \"x\"",` +
		`"runtime":null,"agent":null,"conversation":null,"created":{"agent":false,"conversation":false}}`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

func TestInputPayloadErrors(t *testing.T) {
	both := func(s string) [2]string { return [2]string{s, s} }
	create := func(fields string) string { return `{"kind":"create_message","messages":[]` + fields + `}` }
	for _, test := range []struct {
		payload string
		want    [2]string // loop_error, acknowledgement
	}{
		{`5`, both("Protocol violation: input.payload must be an object")},
		{`{"kind":"create_message"}`, both("Protocol violation: input.kind=create_message requires payload.messages[]")},
		{create(`,"image_failure_mode":"x"`), both("Protocol violation: input.payload.image_failure_mode must be strict or drop")},
		{create(`,"client_tool_allowlist":["a",1]`), both("Protocol violation: input.payload.client_tool_allowlist must be string[]")},
		{create(`,"client_toolset":{"base":"vim"}`), both("Protocol violation: input.payload.client_toolset must contain an optional valid base and string[] include")},
		{create(`,"client_toolset":"none"`), both("Protocol violation: input.payload.client_toolset must contain an optional valid base and string[] include")},
		{create(`,"external_tool_scope_ids":"a"`), both("Protocol violation: input.payload.external_tool_scope_ids must be string[]")},
		{create(`,"exclude_interactive_tools":1`), both("Protocol violation: input.payload.exclude_interactive_tools must be boolean")},
		{create(`,"keep_running":1`), both("Protocol violation: input.payload.keep_running must be boolean")},
		{create(`,"response_format":1`), [2]string{"", "response_format must be an object"}},
		{create(`,"response_format":{"type":"text"}`), [2]string{"", "response_format.type must be json_schema"}},
		{create(`,"response_format":{"type":"json_schema","json_schema":[]}`), [2]string{"", "response_format.json_schema must be an object"}},
		{create(`,"response_format":{"type":"json_schema","json_schema":{"schema":1}}`), [2]string{"", "response_format.json_schema.schema must be an object"}},
		{`{"kind":"create_message","messages":[{"type":"approval"}]}`, [2]string{
			"Protocol violation: approval payloads are not allowed in input.kind=create_message. Use input.kind=approval_response.",
			"Approval payloads require approval_response"}},
		{`{"kind":"create_message","messages":[1]}`, both("Protocol violation: input.payload.messages[0] must be an object, not a number")},
		{`{"kind":"create_message","messages":[{"role":"user"}]}`, both("Protocol violation: input.payload.messages[0].content is required and must be a string or an array of parts")},
		{`{"kind":"create_message","messages":[{"role":"user","content":[{"type":"text"}]}]}`, both("Protocol violation: input.payload.messages[0].content[0] must have a string text")},
		{`{"kind":"create_message","messages":[{"role":"robot","content":""}]}`, both(`Protocol violation: input.payload.messages[0].role must be one of user, system, not "robot"`)},
		{`{"kind":"create_message","messages":[{"role":"user","content":"","client_message_id":7}]}`, both("Protocol violation: input.payload.messages[0].client_message_id must be a string, not a number")},
		{`{"kind":"dance"}`, both("Unsupported input payload kind: dance")},
		{`{}`, both("Unsupported input payload kind: undefined")},
		{`{"kind":7}`, both("Unsupported input payload kind: 7")},
		{`{"kind":"approval_response","request_id":"p"}`, both("Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or payload.error")},
		{`{"kind":"approval_response","decision":{"behavior":"allow"}}`, both("Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or payload.error")},
		{`{"kind":"approval_response","request_id":"p","decision":{"behavior":"deny"}}`, both("Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or payload.error")},
		{`{"kind":"approval_response","request_id":"p","decision":{"behavior":"allow","updated_input":[]}}`, both("Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or payload.error")},
	} {
		f, in, err := protocol.DecodeInput([]byte(`{"type":"input","request_id":"i1","runtime":{"agent_id":"a","conversation_id":"c"},"payload":` + test.payload + `}`))
		var pe *protocol.PayloadError
		if !errors.As(err, &pe) || in != nil {
			t.Errorf("%s: got %v, %v", test.payload, in, err)
			continue
		}
		if diff := cmp.Diff(test.want, [2]string{pe.Loop, pe.Ack}); diff != "" {
			t.Errorf("%s:\n%s", test.payload, diff)
		}
		if *f.RequestID != "i1" || pe.Runtime != (protocol.Runtime{AgentID: "a", ConversationID: "c"}) {
			t.Errorf("%s: header is lost", test.payload)
		}
	}
	// With a bad runtime it is a bad frame, not a bad payload.
	_, _, err := protocol.DecodeInput([]byte(`{"type":"input","runtime":{},"payload":5}`))
	if _, ok := err.(*protocol.DecodeError); !ok {
		t.Errorf("bad runtime: %T %v", err, err)
	}
}

func TestDecodeBodies(t *testing.T) {
	for _, test := range []struct {
		frame string
		want  protocol.Command
	}{
		{`{"type":"runtime_start","request_id":"r","agent_id":"a","cwd":null,"mode":"strict","unknown":[1,{}],
		   "create_conversation":{},"external_tools":[],"client_info":{"name":"n"},"wait_for_replay":true}`,
			&protocol.RuntimeStart{AgentID: ptr("a"), Cwd: protocol.Null[string](), Mode: protocol.ModeStrict,
				CreateConversation: &protocol.CreateConversation{}, ExternalTools: []protocol.ToolGroup{},
				ClientInfo: &protocol.ClientInfo{Name: "n"}, WaitForReplay: ptr(true)}},
		{`{"type":"runtime_start","request_id":"r","create_agent":{"body":{"name":"N","description":null,"model":null,"limit":{}},"pin_global":false}}`,
			&protocol.RuntimeStart{CreateAgent: &protocol.CreateAgent{PinGlobal: ptr(false),
				Body: protocol.AgentBody{Name: ptr("N"), Description: protocol.Null[string]()}}}},
		{`{"type":"input","runtime":{"agent_id":"a","conversation_id":"c","acting_user_id":"u"},"payload":{"kind":"create_message",
		   "messages":[{"role":"user","content":"hi","client_message_id":"cm","otid":"o"},{"role":"system","content":[{"type":"text","text":"x"}]}],
		   "client_tool_allowlist":[],"client_toolset":{"base":"none"},"keep_running":true,"image_failure_mode":"drop"}}`,
			&protocol.Input{Runtime: protocol.Runtime{AgentID: "a", ConversationID: "c"}, ActingUserID: "u",
				Payload: &protocol.CreateMessage{
					Messages: []protocol.InputMessage{
						{Role: "user", Content: protocol.Text("hi"), ClientMessageID: "cm", OTID: "o"},
						{Role: "system", Content: protocol.Parts(protocol.TextPart("x"))},
					},
					KeepRunning: ptr(true), ClientToolAllowlist: []string{}, ClientToolset: &protocol.ClientToolset{Base: "none"},
					ImageFailureMode: protocol.ImageDrop,
				}}},
		{`{"type":"input","runtime":{"agent_id":"a","conversation_id":"c"},"payload":{"kind":"approval_response","request_id":"p",
		   "decision":{"behavior":"allow","updated_input":{"b":[1]},"selected_permission_suggestion_ids":["s"]}}}`,
			&protocol.Input{Runtime: protocol.Runtime{AgentID: "a", ConversationID: "c"},
				Payload: &protocol.ApprovalResponse{RequestID: "p", Decision: &protocol.Decision{Behavior: protocol.Allow,
					UpdatedInput: protocol.Some(protocol.Object(`{"b":[1]}`)), SelectedPermissionSuggestionIDs: []string{"s"}}}}},
		{`{"type":"input","runtime":{"agent_id":"a","conversation_id":"c"},"payload":{"kind":"approval_response","request_id":"p","decision":{"behavior":"deny","message":""}}}`,
			&protocol.Input{Runtime: protocol.Runtime{AgentID: "a", ConversationID: "c"},
				Payload: &protocol.ApprovalResponse{RequestID: "p", Decision: &protocol.Decision{Behavior: protocol.Deny, Message: ptr("")}}}},
		{`{"type":"abort_message","runtime":{"agent_id":null,"conversation_id":"c"},"run_id":null}`,
			&protocol.AbortMessage{Runtime: protocol.Runtime{ConversationID: "c"}, RunID: protocol.Null[string]()}},
		{`{"type":"agent_list","request_id":"","query":{"limit":2.9,"tags":["t"],"after":null}}`,
			&protocol.AgentList{Query: &protocol.AgentQuery{Limit: ptr(2), Tags: []string{"t"}}}},
		{`{"type":"conversation_update","request_id":"r","conversation_id":"c","body":{"archived":null,"summary":null,"model":"m"}}`,
			&protocol.ConversationUpdate{ConversationID: "c", Body: protocol.ConversationBody{Archived: ptr(false),
				Summary: protocol.Null[string](), Model: protocol.Some("m")}}},
		{`{"type":"message","agentId":"a","messages":[{"role":"user","content":"x"}],"conversation_id":"c","clientToolAllowlist":5,"clientToolset":{"base":"letta"}}`,
			&protocol.LegacyMessage{AgentID: "a", ConversationID: "c", Messages: []protocol.InputMessage{{Role: "user", Content: protocol.Text("x")}},
				ClientToolset: &protocol.ClientToolset{Base: "letta"}}},
		{`{"type":"pong","x":1}`, &protocol.Pong{}},
	} {
		_, got, err := protocol.DecodeCommand([]byte(test.frame))
		if err != nil {
			t.Errorf("%.60s: %v", test.frame, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%.60s (-want +got):\n%s", test.frame, diff)
		}
	}
}

func TestLegacyMessageIsAnInput(t *testing.T) {
	_, cmd, err := protocol.DecodeCommand([]byte(`{"type":"message","agentId":"a","messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	in := cmd.(*protocol.LegacyMessage).Input()
	if in.Runtime != (protocol.Runtime{AgentID: "a", ConversationID: "default"}) {
		t.Errorf("runtime %+v", in.Runtime)
	}
}

func TestRuntimeStartCheck(t *testing.T) {
	for _, test := range []struct{ frame, want string }{
		{`{"type":"runtime_start","request_id":"r"}`, "runtime_start requires an agent or conversation"},
		{`{"type":"runtime_start","request_id":"r","agent_id":""}`, "runtime_start agent_id must be a non-empty string"},
		{`{"type":"runtime_start","request_id":"r","agent_id":"a","conversation_id":""}`, "runtime_start conversation_id must be a non-empty string"},
		{`{"type":"runtime_start","request_id":"r","agent_id":"a","create_agent":{"body":{}}}`, "runtime_start agent_id cannot be combined with create_agent"},
		{`{"type":"runtime_start","request_id":"r","conversation_id":"c","create_conversation":{}}`, "runtime_start conversation_id cannot be combined with create_conversation"},
		{`{"type":"runtime_start","request_id":"r","agent_id":"a"}`, ""},
	} {
		_, cmd, err := protocol.DecodeCommand([]byte(test.frame))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := cmd.(*protocol.RuntimeStart).Check(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.frame, got, test.want)
		}
	}
}

// Later commands keep their bytes, and what the server sends of them again has
// its header once.
func TestLater(t *testing.T) {
	f, cmd, err := protocol.DecodeCommand([]byte(`{"type":"read_file","request_id":"r","path":"/x","new_in_some_version":{"a":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := protocol.AppendCommand(nil, f.RequestID, cmd)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"read_file","request_id":"r","path":"/x","new_in_some_version":{"a":1}}`; string(out) != want {
		t.Errorf("got %s", out)
	}
}

func TestTooManyFields(t *testing.T) {
	frame := `{"type":"sync"` + strings.Repeat(`,"a":1`, 5000) + `}`
	if _, err := protocol.Parse([]byte(frame)); err == nil || err.Error() != "object has too many fields" {
		t.Errorf("error %v", err)
	}
}

// FuzzDecode checks that no input panics, and that what is accepted survives
// being written and read again.
func FuzzDecode(f *testing.F) {
	seeds, err := filepath.Glob("testdata/frames/*.json")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, cmd, err := protocol.DecodeCommand(data)
		if err != nil {
			if err.Error() == "" {
				t.Error("error without text")
			}
			return
		}
		once, err := protocol.AppendCommand(nil, frame.RequestID, cmd)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		frame2, cmd2, err := protocol.DecodeCommand(once)
		if err != nil {
			t.Fatalf("own encoding is refused: %v\n%s", err, once)
		}
		twice, err := protocol.AppendCommand(nil, frame2.RequestID, cmd2)
		if err != nil {
			t.Fatal(err)
		}
		if string(once) != string(twice) {
			t.Errorf("not stable:\n%s\n%s", once, twice)
		}
		if _, err := protocol.DecodeEvent(once); err != nil && frame.Runtime != nil {
			t.Errorf("an event reader fails on it: %v", err)
		}
	})
}
