package rest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// agentFields are the fields that a new agent and a change of one have in common
// (spec/rest.md section 11.1). Fields that this server has no use for are not
// here: they are ignored.
type agentFields struct {
	Name            optional[string]            `json:"name"`
	Description     optional[string]            `json:"description"`
	System          optional[string]            `json:"system"`
	Model           optional[string]            `json:"model"`
	ModelSettings   optional[object]            `json:"model_settings"`
	ContextLimit    optional[int]               `json:"context_window_limit"`
	MaxTokens       optional[int]               `json:"max_tokens"`
	Parallel        optional[bool]              `json:"parallel_tool_calls"`
	Compaction      optional[object]            `json:"compaction_settings"`
	ResponseFormat  optional[object]            `json:"response_format"`
	Metadata        optional[object]            `json:"metadata"`
	Tags            optional[[]string]          `json:"tags"`
	Hidden          optional[bool]              `json:"hidden"`
	ToolIDs         optional[[]string]          `json:"tool_ids"`
	ToolRules       optional[[]toolRule]        `json:"tool_rules"`
	BlockIDs        optional[[]string]          `json:"block_ids"`
	Secrets         optional[map[string]string] `json:"secrets"`
	Environment     optional[map[string]string] `json:"tool_exec_environment_variables"`
	Embedding       optional[string]            `json:"embedding"`
	Autoclear       optional[bool]              `json:"message_buffer_autoclear"`
	EnableSleeptime optional[bool]              `json:"enable_sleeptime"`
	Timezone        optional[string]            `json:"timezone"`
	MaxFilesOpen    optional[int]               `json:"max_files_open"`
	FileViewLimit   optional[int]               `json:"per_file_view_window_char_limit"`
	ProjectID       optional[string]            `json:"project_id"`
	TemplateID      optional[string]            `json:"template_id"`
	BaseTemplateID  optional[string]            `json:"base_template_id"`
	IdentityIDs     optional[[]string]          `json:"identity_ids"`
}

// An agentCreate is the body of a new agent.
type agentCreate struct {
	agentFields
	AgentType    optional[string]        `json:"agent_type"`
	MemoryBlocks optional[[]blockCreate] `json:"memory_blocks"`
	Tools        optional[[]string]      `json:"tools"`
	BaseTools    optional[bool]          `json:"include_base_tools"`
	Initial      optional[[]initial]     `json:"initial_message_sequence"`
}

// An initial is a message that the agent's own conversation begins with.
type initial struct {
	Role     string           `json:"role"`
	Content  json.RawMessage  `json:"content"`
	Name     optional[string] `json:"name"`
	OTID     optional[string] `json:"otid"`
	SenderID optional[string] `json:"sender_id"`
}

// An agentPatch is the body of a change: an absent field is left as it is, null
// clears it where there can be nothing.
type agentPatch struct {
	agentFields
	MessageIDs optional[[]string] `json:"message_ids"`
}

// agentTypes are the types that clients know. They are stored and shown; all
// agents work alike.
var agentTypes = []string{
	"memgpt_agent", "memgpt_v2_agent", "letta_v1_agent", "react_agent", "workflow_agent",
	"split_thread_agent", "sleeptime_agent", "voice_convo_agent", "voice_sleeptime_agent",
}

const maxName = 512 // characters of an agent's name

// checkName applies the rule for names: letters of any script, digits, space and
// a few signs.
func checkName(name string) error {
	wrong := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" _-'", r)
	}
	switch {
	case strings.TrimSpace(name) == "":
		return unprocessable("body.name", "An agent's name must not be empty")
	case utf8.RuneCountInString(name) > maxName:
		return unprocessable("body.name", "An agent's name has at most %d characters", maxName)
	}
	if i := strings.IndexFunc(name, wrong); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return unprocessable("body.name", "An agent's name has letters, digits, spaces, _, - and ' only, not %q", r)
	}
	return nil
}

func (f *agentFields) check() error {
	if name := f.Name.Ptr(); name != nil {
		if err := checkName(*name); err != nil {
			return err
		}
	}
	for field, n := range map[string]optional[int]{
		"context_window_limit": f.ContextLimit, "max_tokens": f.MaxTokens,
		"max_files_open": f.MaxFilesOpen, "per_file_view_window_char_limit": f.FileViewLimit,
	} {
		if v := n.Ptr(); v != nil && *v < 1 {
			return unprocessable("body."+field, "Input should be greater than 0")
		}
	}
	if _, err := settingsMap(json.RawMessage(f.ModelSettings.Value), "body.model_settings"); err != nil {
		return err
	}
	if err := checkFormat(f.ResponseFormat.Value); err != nil {
		return err
	}
	if err := checkCompaction(f.Compaction.Value); err != nil {
		return err
	}
	return f.checkLists()
}

func (f *agentFields) checkLists() error {
	if i := slices.IndexFunc(f.ToolRules.Value, func(r toolRule) bool { return r == nil }); i >= 0 {
		return unprocessable("body.tool_rules."+strconv.Itoa(i), "Input should be an object")
	}
	if _, err := f.rules(); err != nil {
		return err
	}
	for i, id := range f.BlockIDs.Value {
		if !isID("block", id) {
			return unprocessable("body.block_ids."+strconv.Itoa(i), "%s is not an id of the form block-<uuid4>", quoted(id))
		}
	}
	for i, id := range f.ToolIDs.Value {
		if !isID("tool", id) {
			return unprocessable("body.tool_ids."+strconv.Itoa(i), "%s is not an id of the form tool-<uuid4>", quoted(id))
		}
	}
	for _, secrets := range []optional[map[string]string]{f.Secrets, f.Environment} {
		if _, empty := secrets.Value[""]; empty {
			return unprocessable("body.secrets", "A secret must have a name")
		}
	}
	return nil
}

// rules are the given rules, checked.
func (f *agentFields) rules() (json.RawMessage, error) {
	if f.ToolRules.Ptr() == nil {
		return nil, nil
	}
	raw, err := json.Marshal(f.ToolRules.Value)
	if err != nil {
		return nil, err
	}
	return checkRules(raw)
}

// checkFormat checks a response format.
func checkFormat(raw object) error {
	if raw == nil {
		return nil
	}
	var f struct {
		Type   string `json:"type"`
		Schema object `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return unprocessable("body.response_format", "The object does not fit: %v", err)
	}
	switch f.Type {
	case "text", "json_object":
		return nil
	case "json_schema":
		if f.Schema == nil {
			return unprocessable("body.response_format.json_schema", "Field required")
		}
		return nil
	}
	return unprocessable("body.response_format.type", "%s is not one of text, json_schema, json_object", quoted(f.Type))
}

// compactionModes are the modes of compaction.
var compactionModes = []string{"all", "sliding_window", "self_compact_all", "self_compact_sliding_window"}

// checkCompaction checks settings of compaction.
func checkCompaction(raw object) error {
	if raw == nil {
		return nil
	}
	var c compactionSettings
	if err := json.Unmarshal(raw, &c); err != nil {
		return within(unmarshalFault(err), "body", "body.compaction_settings")
	}
	switch {
	case !slices.Contains(compactionModes, c.Mode):
		return unprocessable("body.compaction_settings.mode", "%s is not one of %s", quoted(c.Mode), strings.Join(compactionModes, ", "))
	case c.Share != nil && (*c.Share <= 0 || *c.Share > 1):
		return unprocessable("body.compaction_settings.sliding_window_percentage", "Input should be above 0 and at most 1")
	case c.ClipChars != nil && *c.ClipChars < 0:
		return unprocessable("body.compaction_settings.clip_chars", "Input should not be negative")
	}
	return nil
}

func (b *agentCreate) check() error {
	if kind := b.AgentType.Ptr(); kind != nil && !slices.Contains(agentTypes, *kind) {
		return unprocessable("body.agent_type", "%s is not one of %s", quoted(*kind), strings.Join(agentTypes, ", "))
	}
	for i := range b.MemoryBlocks.Value {
		if err := b.MemoryBlocks.Value[i].checkAt("body.memory_blocks." + strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return b.agentFields.check()
}

// extra are the given fields that only REST knows, by their names; null where one
// is to be cleared.
func (f *agentFields) extra() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	var fault error
	put := func(name string, set bool, v any) {
		if !set {
			return
		}
		raw, err := json.Marshal(v)
		if err != nil && fault == nil {
			fault = err
		}
		out[name] = raw
	}
	put("embedding", f.Embedding.Set, f.Embedding.Ptr())
	put("response_format", f.ResponseFormat.Set, f.ResponseFormat.Ptr())
	put("message_buffer_autoclear", f.Autoclear.Set, f.Autoclear.Ptr())
	put("enable_sleeptime", f.EnableSleeptime.Set, f.EnableSleeptime.Ptr())
	put("timezone", f.Timezone.Set, f.Timezone.Ptr())
	put("max_files_open", f.MaxFilesOpen.Set, f.MaxFilesOpen.Ptr())
	put("per_file_view_window_char_limit", f.FileViewLimit.Set, f.FileViewLimit.Ptr())
	put("project_id", f.ProjectID.Set, f.ProjectID.Ptr())
	put("template_id", f.TemplateID.Set, f.TemplateID.Ptr())
	put("base_template_id", f.BaseTemplateID.Set, f.BaseTemplateID.Ptr())
	put("identity_ids", f.IdentityIDs.Set, f.IdentityIDs.Ptr())
	return out, fault
}

// secrets are the given secrets under either name; given is false if there are
// none.
func (f *agentFields) secrets() (all map[string]string, given bool) {
	if f.Secrets.Set {
		return f.Secrets.Value, true
	}
	return f.Environment.Value, f.Environment.Set
}

// modelSettings are the given settings of the model, with the response format. What
// has a parameter of its own is taken out.
func (f *agentFields) modelSettings() (settings map[string]json.RawMessage, parallel *bool, err error) {
	settings, err = settingsMap(json.RawMessage(f.ModelSettings.Value), "body.model_settings")
	if err != nil {
		return nil, nil, err
	}
	parallel = f.Parallel.Ptr()
	if raw := notNull(settings[keyParallel]); raw != nil && parallel == nil {
		parallel = new(string(raw) == "true")
	}
	delete(settings, keyParallel)
	if f.ResponseFormat.Set {
		if settings == nil {
			settings = map[string]json.RawMessage{}
		}
		settings[keyFormat] = json.RawMessage("null")
		if f.ResponseFormat.Value != nil {
			settings[keyFormat] = json.RawMessage(f.ResponseFormat.Value)
		}
	}
	return settings, parallel, nil
}

// within moves the place that a 422 names.
func within(err error, from, to string) error {
	h, ok := err.(*httpError)
	if !ok {
		return err
	}
	if v, ok := h.Body.(validation); ok {
		v.Detail = to + strings.TrimPrefix(v.Detail, from)
		h.Body = v
	}
	return h
}
