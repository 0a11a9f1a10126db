package protocol_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mneme/protocol"
)

const conformance = "../test/conformance"

// TestGoldenFrames reads every frame that the reference sent as its typed form,
// writes it again, and checks that no key and no kind of value got lost.
func TestGoldenFrames(t *testing.T) {
	files, err := filepath.Glob(conformance + "/golden/*.json")
	if err != nil || len(files) < 100 {
		t.Fatalf("golden transcripts: %d files, %v", len(files), err)
	}
	checked := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var lanes map[string][]map[string]any
		if err := json.Unmarshal(data, &lanes); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, frames := range lanes {
			for i, frame := range frames {
				golden := filled(frame).(map[string]any)
				raw, err := json.Marshal(golden)
				if err != nil {
					t.Fatal(err)
				}
				got, kind, err := reencode(raw)
				if err != nil {
					t.Errorf("%s frame %d: %v", filepath.Base(file), i, err)
					continue
				}
				if got == nil {
					continue // a type that is not typed here
				}
				checked[kind]++
				var again map[string]any
				if err := json.Unmarshal(got, &again); err != nil {
					t.Fatalf("%s frame %d: %v", filepath.Base(file), i, err)
				}
				// The envelope is the connection's, not the body's.
				for _, problem := range missing("", golden, again) {
					t.Errorf("%s frame %d (%s): %s", filepath.Base(file), i, kind, problem)
				}
			}
		}
	}
	for _, kind := range []string{
		"stream_delta assistant_message", "stream_delta tool_return_message", "stream_delta loop_error",
		"stream_delta retry", "stream_delta slash_command_end", "stream_delta event_message",
		"update_device_status", "update_loop_status", "update_queue", "update_subagent_state",
		"control_request", "turn_finished", "file_ops", "memory_updated", "external_tool_call_request",
		"input_accepted", "runtime_start_response", "conversation_messages_list_response",
		"list_connect_providers_response", "list_memory_response", "update_model_response",
	} {
		if checked[kind] == 0 {
			t.Errorf("no golden frame of %s was checked", kind)
		}
	}
}

// reencode decodes a frame into its type and encodes it again. The kind is the
// frame's type, with the message_type of a delta.
func reencode(raw []byte) (out []byte, kind string, err error) {
	ev, err := protocol.DecodeEvent(raw)
	if err != nil {
		return nil, "", err
	}
	if ev.Body != nil {
		kind = ev.Type
		if s, ok := ev.Body.(*protocol.StreamDelta); ok {
			kind += " " + s.Delta.MessageType()
			if _, other := s.Delta.(*protocol.OtherDelta); other {
				return nil, "", fmt.Errorf("delta %s has no type", s.Delta.MessageType())
			}
		}
		out, err = protocol.AppendEvent(nil, ev.Runtime, ev.Body)
		return out, kind, err
	}
	for _, c := range protocol.Commands {
		if c.Response != ev.Type || c.NewResponse == nil {
			continue
		}
		body := c.NewResponse()
		if err := protocol.DecodeResponse(raw, body); err != nil {
			return nil, "", err
		}
		outcome, err := protocol.ReadOutcome(raw)
		if err != nil {
			return nil, "", err
		}
		id := "id"
		switch {
		case c.Name == "input":
			out, err = protocol.AppendFrame(nil, c.Response, &id, body)
		case outcome.OK:
			out, err = protocol.AppendResponse(nil, c.Response, &id, body)
		default:
			out, err = protocol.AppendFailure(nil, c.Response, &id, outcome.Error, body)
		}
		return out, ev.Type, err
	}
	return nil, "", nil
}

// filled replaces the placeholders of a transcript by values of their type.
func filled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = filled(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			if e != "<each>" {
				out = append(out, filled(e))
			}
		}
		return out
	case string:
		switch v {
		case "<number>":
			return 1
		case "<bool>":
			return true
		case "<array>":
			return []any{}
		case "<object>":
			return map[string]any{}
		case "<any>", "<null>":
			return nil
		}
	}
	return v
}

// missing lists what got lacks of golden: keys, and values of the same kind.
// A null may be anything.
func missing(path string, golden, got any) []string {
	switch golden := golden.(type) {
	case nil:
		return nil
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T, want an object", path, got)}
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(golden)) {
			e, ok := m[k]
			if !ok {
				out = append(out, path+"."+k+" is missing")
				continue
			}
			out = append(out, missing(path+"."+k, golden[k], e)...)
		}
		return out
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(golden) {
			return []string{fmt.Sprintf("%s is %v, want %v", path, got, golden)}
		}
		var out []string
		for i := range golden {
			out = append(out, missing(fmt.Sprintf("%s[%d]", path, i), golden[i], l[i])...)
		}
		return out
	case string:
		if got == golden || strings.HasSuffix(path, ".request_id") {
			return nil
		}
	case float64, bool:
		if got == golden {
			return nil
		}
	case int:
		if got == float64(golden) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %v, want %v", path, got, golden)}
}

// TestScenarioCommands decodes every command that the scenarios send.
func TestScenarioCommands(t *testing.T) {
	files, err := filepath.Glob(conformance + "/scenarios/*.json")
	if err != nil || len(files) < 100 {
		t.Fatalf("scenarios: %d files, %v", len(files), err)
	}
	bad := map[string]protocol.ErrorCode{ // what the reference leaves unanswered
		"no_such_command": protocol.UnknownType, "request_state": protocol.UnknownType,
		"change_mode": protocol.UnknownType, "cancel_run": protocol.UnknownType, "": protocol.InvalidFrame,
	}
	count := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		runtime := `{"agent_id":"agent-1","conversation_id":"conv-1"}`
		text := strings.NewReplacer(`"${rt}"`, runtime, `"${rt2}"`, runtime).Replace(string(data))
		var scenario struct {
			Steps []struct{ Send json.RawMessage }
		}
		if err := json.Unmarshal([]byte(text), &scenario); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, step := range scenario.Steps {
			if step.Send == nil {
				continue
			}
			count++
			f, cmd, err := protocol.DecodeCommand(step.Send)
			if code, isBad := bad[f.Type]; isBad {
				if de, ok := err.(*protocol.DecodeError); !ok || de.Code != code {
					t.Errorf("%s: %s: error %v, want code %s", filepath.Base(file), step.Send, err, code)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(file), step.Send, err)
				continue
			}
			again, err := protocol.AppendCommand(nil, f.RequestID, cmd)
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
				continue
			}
			var sent, encoded any
			if json.Unmarshal(step.Send, &sent) != nil || json.Unmarshal(again, &encoded) != nil {
				t.Fatalf("%s: %s", file, again)
			}
			for _, problem := range missing("", sent, encoded) {
				if problem == ".query.archive_status is missing" {
					continue // no such filter: an unknown field
				}
				t.Errorf("%s: %s: %s", filepath.Base(file), f.Type, problem)
			}
		}
	}
	if count < 300 {
		t.Errorf("only %d commands found", count)
	}
}
