package protocol_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
)

// TestCommandsMatchReference compares the table with the reference's list of
// commands, which is kept in testdata.
func TestCommandsMatchReference(t *testing.T) {
	data, err := os.ReadFile("testdata/commands.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Command, Group     string
		Response           *string
		Required, Optional []string
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 103 {
		t.Fatalf("reference list has %d commands, want 103", len(list))
	}
	seen := map[string]bool{}
	for _, want := range list {
		seen[want.Command] = true
		got, ok := protocol.Lookup(want.Command)
		if !ok {
			t.Errorf("%s: not in the table", want.Command)
			continue
		}
		response := ""
		if want.Response != nil {
			response = *want.Response
		}
		if want.Command == "message" {
			response = "" // it cannot carry a request_id, so nothing acknowledges it
		}
		if got.Response != response || got.Group != want.Group {
			t.Errorf("%s: response %q group %q, want %q %q", want.Command, got.Response, got.Group, response, want.Group)
		}
		slices.Sort(want.Required)
		slices.Sort(want.Optional)
		required, optional := fieldsOf(got)
		if diff := cmp.Diff(want.Required, required); diff != "" {
			t.Errorf("%s required fields (-reference +table):\n%s", want.Command, diff)
		}
		if diff := cmp.Diff(want.Optional, optional); diff != "" {
			t.Errorf("%s optional fields (-reference +table):\n%s", want.Command, diff)
		}
	}
	for _, c := range protocol.Commands {
		if !seen[c.Name] && c.Group != "extension" {
			t.Errorf("%s is neither of the reference nor an extension", c.Name)
		}
		if c.Doc == "" || c.Name == "" {
			t.Errorf("%q has no name or doc", c.Name)
		}
	}
}

// fieldsOf lists a command's fields, from its type if it has one. Fields that
// only mneme or only some clients know are left out.
func fieldsOf(c protocol.CommandInfo) (required, optional []string) {
	required, optional = []string{}, []string{}
	add := func(name string, opt bool) {
		if opt {
			optional = append(optional, name)
		} else {
			required = append(required, name)
		}
	}
	switch c.RequestID {
	case protocol.RequestIDRequired, protocol.RequestIDNonEmpty:
		add("request_id", false)
	case protocol.RequestIDOptional, protocol.RequestIDOptionalNonEmpty:
		add("request_id", true)
	}
	if c.New == nil {
		if c.Runtime != protocol.RuntimeNone {
			add("runtime", false)
		}
		for _, f := range c.Fields {
			name, opt := strings.CutSuffix(f, "?")
			add(name, opt)
		}
	} else {
		typ := reflect.TypeOf(c.New()).Elem()
		for i := range typ.NumField() {
			name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "-" || c.Name == "runtime_start" && name == "ephemeral" {
				continue
			}
			add(name, strings.Contains(options, "omit"))
		}
		if c.Name == "message" {
			add("conversation_id", true) // another spelling of conversationId
		}
	}
	slices.Sort(required)
	slices.Sort(optional)
	return required, optional
}

func TestCommandTypes(t *testing.T) {
	names := map[string]bool{}
	for _, c := range protocol.Commands {
		if names[c.Name] {
			t.Errorf("%s is listed twice", c.Name)
		}
		names[c.Name] = true
		if c.New == nil {
			if c.Status == protocol.Built {
				t.Errorf("%s is built but has no typed body", c.Name)
			}
			continue
		}
		cmd := c.New()
		if cmd.CommandType() != c.Name {
			t.Errorf("%s makes a %s", c.Name, cmd.CommandType())
		}
		if (c.NewResponse == nil) != (c.Response == "") {
			t.Errorf("%s: response %q and its type do not agree", c.Name, c.Response)
		}
		// The response of the table is the one that the command's method makes.
		if m := reflect.ValueOf(cmd).MethodByName("NewResponse"); m.IsValid() {
			if got, want := m.Call(nil)[0].Type(), reflect.TypeOf(c.NewResponse()); got != want {
				t.Errorf("%s: NewResponse makes %s, the table %s", c.Name, got, want)
			}
		} else if c.NewResponse != nil {
			t.Errorf("%s has a response but no NewResponse", c.Name)
		}
		if hasRuntime := reflect.ValueOf(cmd).Elem().FieldByName("Runtime").IsValid(); hasRuntime != (c.Runtime != protocol.RuntimeNone) {
			t.Errorf("%s: runtime rule and field do not agree", c.Name)
		}
	}
}

// TestBuilt pins what this server builds, so that a change is deliberate.
func TestBuilt(t *testing.T) {
	var built []string
	for _, c := range protocol.Commands {
		if c.Status == protocol.Built {
			built = append(built, c.Name)
		}
	}
	want := strings.Fields(`
		runtime_start input sync abort_message change_device_state resume_queue remove_queue_item
		runtime_external_tools_update external_tool_call_response pong message app_server_info
		agent_list agent_retrieve agent_create agent_update agent_delete
		conversation_list conversation_retrieve conversation_create conversation_update
		conversation_recompile conversation_fork conversation_messages_list
		list_models list_connect_providers connect_provider disconnect_provider update_model update_toolset
		list_memory memory_history memory_file_at_ref memory_commit_diff
		read_memory_file write_memory_file delete_memory_file enable_memfs
		get_cwd_map set_boot_working_directory
		memory_snapshot memory_search watch_changes`)
	if diff := cmp.Diff(want, built); diff != "" {
		t.Errorf("built commands (-want +got):\n%s", diff)
	}
}
