package protocol

import "errors"

// A Mode is a permission mode: which tool calls ask
// (spec/app-server-core.md section 4.5).
type Mode string

// The permission modes.
const (
	ModeStandard     Mode = "standard"
	ModeAcceptEdits  Mode = "acceptEdits"
	ModeUnrestricted Mode = "unrestricted"
	ModeStrict       Mode = "strict"
)

var modes = []Mode{ModeStandard, ModeAcceptEdits, ModeUnrestricted, ModeStrict}

// A SkillSource is a place where skills are looked for.
type SkillSource string

// The skill sources.
const (
	SkillsBundled SkillSource = "bundled"
	SkillsGlobal  SkillSource = "global"
	SkillsAgent   SkillSource = "agent"
	SkillsProject SkillSource = "project"
)

var skillSources = []SkillSource{SkillsBundled, SkillsGlobal, SkillsAgent, SkillsProject}

// RuntimeStart opens a runtime and subscribes the connection to it
// (spec/app-server-core.md section 3).
type RuntimeStart struct {
	AgentID                *string             `json:"agent_id,omitempty"`
	CreateAgent            *CreateAgent        `json:"create_agent,omitempty"`
	ConversationID         *string             `json:"conversation_id,omitempty"`
	CreateConversation     *CreateConversation `json:"create_conversation,omitempty"`
	ConversationSourceTags []string            `json:"conversation_source_tags,omitzero"`
	// Cwd: missing keeps the directory, null resets it to the boot directory.
	Cwd                  Optional[string]   `json:"cwd,omitzero"`
	Mode                 Mode               `json:"mode,omitempty"` // empty = keep
	SkillSources         []SkillSource      `json:"skill_sources,omitzero"`
	PreserveSkillSources *bool              `json:"preserve_skill_sources,omitempty"`
	WorkspaceSandbox     *WorkspaceSandbox  `json:"workspace_sandbox,omitempty"`
	ExecutionSettings    *ExecutionSettings `json:"execution_settings,omitempty"`
	ClientInfo           *ClientInfo        `json:"client_info,omitempty"`
	RecoverApprovals     *bool              `json:"recover_approvals,omitempty"`   // nil = true
	ForceDeviceStatus    *bool              `json:"force_device_status,omitempty"` // nil = true
	WaitForReplay        *bool              `json:"wait_for_replay,omitempty"`     // nil = false: response first
	// ExternalTools replaces this connection's registration for the runtime;
	// nil removes it.
	ExternalTools []ToolGroup `json:"external_tools,omitzero"`
	TeleportID    *string     `json:"teleport_id,omitempty"`
	// Ephemeral is a mneme extension (spec/app-server-commands.md section 2.13).
	Ephemeral *bool `json:"ephemeral,omitempty"`
}

// CreateAgent is runtime_start.create_agent.
type CreateAgent struct {
	Body      AgentBody `json:"body"`
	PinGlobal *bool     `json:"pin_global,omitempty"` // nil = true
	Memfs     *bool     `json:"memfs,omitempty"`      // nil = true
}

// CreateConversation is runtime_start.create_conversation.
type CreateConversation struct {
	Body *ConversationBody `json:"body,omitempty"`
}

// WorkspaceSandbox confines a runtime's directory.
type WorkspaceSandbox struct {
	Root          string `json:"root"`
	IsolationRoot string `json:"isolation_root"`
}

// ClientInfo says who connects. It has no effect.
type ClientInfo struct {
	Name    string  `json:"name"`
	Title   *string `json:"title,omitempty"`
	Version *string `json:"version,omitempty"`
}

// ExecutionSettings is the headless mode of a runtime: what would ask is denied
// (spec/app-server-core.md section 3.5).
type ExecutionSettings struct {
	AllowedTools       List[string] `json:"allowed_tools"`
	DisallowedTools    List[string] `json:"disallowed_tools"`
	DisableMemoryGuard bool         `json:"disable_memory_guard"`
	Tools              *string      `json:"tools,omitempty"`
	PreloadSkills      []string     `json:"preload_skills,omitzero"`
	MaxTurns           *int         `json:"max_turns,omitempty"`
	AgentRole          *string      `json:"agent_role,omitempty"` // "subagent"
	ParentAgentID      *string      `json:"parent_agent_id,omitempty"`
	TranscriptPath     *string      `json:"transcript_path,omitempty"`
	MemoryDirectory    *string      `json:"memory_directory,omitempty"`
}

// A ToolGroup is a set of external tools: tools that run in the client. Tools
// of a group with a scope are offered only to inputs that name the scope.
type ToolGroup struct {
	ScopeID *string            `json:"scope_id,omitempty"`
	Tools   List[ExternalTool] `json:"tools"`
}

// An ExternalTool is the definition of a tool that runs in the client.
type ExternalTool struct {
	Name        string  `json:"name"`
	Label       *string `json:"label,omitempty"`
	Description string  `json:"description"`
	Parameters  Object  `json:"parameters"` // JSON Schema of the input
}

// CommandType returns "runtime_start".
func (*RuntimeStart) CommandType() string { return "runtime_start" }

// NewResponse makes the empty response.
func (*RuntimeStart) NewResponse() *RuntimeStartResponse { return new(RuntimeStartResponse) }

func (c *RuntimeStart) decode(o *object) {
	c.AgentID = o.optStr("agent_id")
	if o.has("create_agent") {
		a := o.child("create_agent")
		c.CreateAgent = &CreateAgent{PinGlobal: a.optBool("pin_global"), Memfs: a.optBool("memfs")}
		c.CreateAgent.Body.read(a.child("body"))
	}
	c.ConversationID = o.optStr("conversation_id")
	if o.has("create_conversation") {
		n := o.child("create_conversation")
		c.CreateConversation = new(CreateConversation)
		if n.has("body") {
			c.CreateConversation.Body = new(ConversationBody)
			c.CreateConversation.Body.read(n.child("body"))
		}
	}
	c.ConversationSourceTags = o.optStrings("conversation_source_tags")
	c.Cwd = o.nullableStr("cwd")
	c.Mode = optOneOf(o, "mode", modes)
	c.SkillSources = readSkillSources(o, "skill_sources")
	c.PreserveSkillSources = o.optBool("preserve_skill_sources")
	if o.has("workspace_sandbox") {
		w := o.child("workspace_sandbox")
		c.WorkspaceSandbox = &WorkspaceSandbox{Root: w.str("root"), IsolationRoot: w.str("isolation_root")}
	}
	if o.has("execution_settings") {
		c.ExecutionSettings = readExecutionSettings(o.child("execution_settings"))
	}
	if o.has("client_info") {
		i := o.child("client_info")
		c.ClientInfo = &ClientInfo{Name: i.str("name"), Title: i.optStr("title"), Version: i.optStr("version")}
	}
	c.RecoverApprovals = o.optBool("recover_approvals")
	c.ForceDeviceStatus = o.optBool("force_device_status")
	c.WaitForReplay = o.optBool("wait_for_replay")
	if o.has("external_tools") {
		c.ExternalTools = readToolGroups(o, "external_tools")
	}
	c.TeleportID = o.optStr("teleport_id")
	c.Ephemeral = o.optBool("ephemeral")
}

// Check reports which rule of combining the fields is broken, with the wire's
// text (spec/app-server-core.md section 3.2, first five rows).
func (c *RuntimeStart) Check() error {
	switch {
	case c.AgentID != nil && *c.AgentID == "":
		return errors.New("runtime_start agent_id must be a non-empty string")
	case c.ConversationID != nil && *c.ConversationID == "":
		return errors.New("runtime_start conversation_id must be a non-empty string")
	case c.AgentID != nil && c.CreateAgent != nil:
		return errors.New("runtime_start agent_id cannot be combined with create_agent")
	case c.AgentID == nil && c.CreateAgent == nil && c.ConversationID == nil && c.CreateConversation == nil:
		return errors.New("runtime_start requires an agent or conversation")
	case c.ConversationID != nil && c.CreateConversation != nil:
		return errors.New("runtime_start conversation_id cannot be combined with create_conversation")
	}
	return nil
}

func readSkillSources(o *object, name string) []SkillSource {
	list := o.optStrings(name)
	if list == nil {
		return nil
	}
	out := make([]SkillSource, len(list))
	for i, s := range list {
		out[i] = SkillSource(s)
		known := false
		for _, k := range skillSources {
			known = known || k == out[i]
		}
		if !known {
			o.fail(name, "must hold only %s, not %q", joined(skillSources), clip(s))
		}
	}
	return out
}

func readExecutionSettings(o *object) *ExecutionSettings {
	s := &ExecutionSettings{
		AllowedTools:       o.strings("allowed_tools"),
		DisallowedTools:    o.strings("disallowed_tools"),
		DisableMemoryGuard: o.boolean("disable_memory_guard"),
		Tools:              o.optStr("tools"),
		PreloadSkills:      o.optStrings("preload_skills"),
		MaxTurns:           o.optInt("max_turns"),
		AgentRole:          o.optStr("agent_role"),
		ParentAgentID:      o.optStr("parent_agent_id"),
		TranscriptPath:     o.optStr("transcript_path"),
		MemoryDirectory:    o.optStr("memory_directory"),
	}
	if s.MaxTurns != nil && *s.MaxTurns < 1 {
		o.fail("max_turns", "must be a positive integer")
	}
	if s.AgentRole != nil && *s.AgentRole != "subagent" {
		o.fail("agent_role", `must be "subagent"`)
	}
	return s
}

func readToolGroups(o *object, name string) []ToolGroup {
	groups := []ToolGroup{}
	for g := range o.objects(name) {
		group := ToolGroup{ScopeID: g.optStr("scope_id"), Tools: []ExternalTool{}}
		for t := range g.objects("tools") {
			group.Tools = append(group.Tools, ExternalTool{
				Name:        t.nonEmpty("name"),
				Label:       t.optStr("label"),
				Description: t.str("description"),
				Parameters:  t.raw("parameters"),
			})
		}
		groups = append(groups, group)
	}
	return groups
}

// RuntimeStartResponse answers [RuntimeStart]. A failure has what was resolved
// and made before it.
type RuntimeStartResponse struct {
	Runtime           *Runtime           `json:"runtime"`
	Agent             *AgentState        `json:"agent"`
	Conversation      *Conversation      `json:"conversation"`
	Created           Created            `json:"created"`
	ExecutionSettings *ExecutionSettings `json:"execution_settings,omitempty"` // echo
	// MemoryCommit is set for an ephemeral runtime: what its memory shows.
	MemoryCommit *string `json:"memory_commit,omitempty"`
}

// Created says what a runtime_start really made.
type Created struct {
	Agent        bool `json:"agent"`
	Conversation bool `json:"conversation"`
}

// Sync asks for the replay of a runtime's state, and subscribes to it
// (spec/app-server-core.md section 7.3).
type Sync struct {
	Runtime               Runtime `json:"runtime"`
	RecoverApprovals      *bool   `json:"recover_approvals,omitempty"`   // nil = true
	ForceDeviceStatus     *bool   `json:"force_device_status,omitempty"` // nil = false
	ResumeInterruptedTurn *bool   `json:"resume_interrupted_turn,omitempty"`
}

// CommandType returns "sync".
func (*Sync) CommandType() string { return "sync" }

// NewResponse makes the empty response.
func (*Sync) NewResponse() *SyncResponse { return new(SyncResponse) }

func (c *Sync) decode(o *object) {
	c.Runtime = o.runtime("runtime", false)
	c.RecoverApprovals = o.optBool("recover_approvals")
	c.ForceDeviceStatus = o.optBool("force_device_status")
	c.ResumeInterruptedTurn = o.optBool("resume_interrupted_turn")
}

// SyncResponse answers [Sync].
type SyncResponse struct {
	Runtime Runtime `json:"runtime"`
}

// AbortMessage aborts the turn of a runtime (spec/app-server-core.md section
// 5.6).
type AbortMessage struct {
	Runtime Runtime `json:"runtime"`
	// RunID is a step, run or turn id; missing or null = whatever is active.
	RunID Optional[string] `json:"run_id,omitzero"`
}

// CommandType returns "abort_message".
func (*AbortMessage) CommandType() string { return "abort_message" }

// NewResponse makes the empty response.
func (*AbortMessage) NewResponse() *AbortMessageResponse { return new(AbortMessageResponse) }

func (c *AbortMessage) decode(o *object) {
	c.Runtime = o.runtime("runtime", false)
	c.RunID = o.nullableStr("run_id")
}

// AbortMessageResponse answers [AbortMessage].
type AbortMessageResponse struct {
	Runtime Runtime `json:"runtime"`
	Aborted bool    `json:"aborted"` // false: nothing to abort
}

// RemoveQueueItem removes a queued input (spec/app-server-core.md section 4.4).
type RemoveQueueItem struct {
	Runtime Runtime `json:"runtime"`
	ItemID  string  `json:"item_id"`
}

// CommandType returns "remove_queue_item".
func (*RemoveQueueItem) CommandType() string { return "remove_queue_item" }

// NewResponse makes the empty response.
func (*RemoveQueueItem) NewResponse() *RemoveQueueItemResponse { return new(RemoveQueueItemResponse) }

func (c *RemoveQueueItem) decode(o *object) {
	c.Runtime = o.runtime("runtime", true)
	c.ItemID = o.str("item_id")
}

// RemoveQueueItemResponse answers [RemoveQueueItem]; success says whether the
// item was there.
type RemoveQueueItemResponse struct {
	ItemID string `json:"item_id"`
}

// ResumeQueue releases the inputs that an abort paused.
type ResumeQueue struct {
	Runtime Runtime `json:"runtime"`
}

// CommandType returns "resume_queue".
func (*ResumeQueue) CommandType() string { return "resume_queue" }

// NewResponse makes the empty response.
func (*ResumeQueue) NewResponse() *ResumeQueueResponse { return new(ResumeQueueResponse) }

func (c *ResumeQueue) decode(o *object) { c.Runtime = o.runtime("runtime", false) }

// ResumeQueueResponse answers [ResumeQueue].
type ResumeQueueResponse struct {
	Runtime Runtime `json:"runtime"`
	Resumed int     `json:"resumed"` // inputs released
}

// ExternalToolsUpdate replaces this connection's external tools of some
// runtimes (spec/app-server-core.md section 8.1).
type ExternalToolsUpdate struct {
	Updates List[ToolsUpdate] `json:"updates"`
}

// A ToolsUpdate replaces the tools of its runtimes; no tools removes them.
type ToolsUpdate struct {
	Runtimes      List[Runtime]   `json:"runtimes"`
	ExternalTools List[ToolGroup] `json:"external_tools"`
}

// CommandType returns "runtime_external_tools_update".
func (*ExternalToolsUpdate) CommandType() string { return "runtime_external_tools_update" }

// NewResponse makes the empty response.
func (*ExternalToolsUpdate) NewResponse() *ExternalToolsUpdateResponse {
	return new(ExternalToolsUpdateResponse)
}

func (c *ExternalToolsUpdate) decode(o *object) {
	c.Updates = []ToolsUpdate{}
	seen := map[Runtime]bool{}
	for u := range o.objects("updates") {
		up := ToolsUpdate{Runtimes: []Runtime{}}
		for r := range u.objects("runtimes") {
			rt := r.runtimeFields(true)
			if seen[rt] {
				r.fail("conversation_id", "must not be listed twice")
			}
			seen[rt] = true
			up.Runtimes = append(up.Runtimes, rt)
		}
		if len(up.Runtimes) == 0 {
			u.fail("runtimes", "must hold at least one runtime")
		}
		up.ExternalTools = readToolGroups(u, "external_tools")
		c.Updates = append(c.Updates, up)
	}
}

// ExternalToolsUpdateResponse answers [ExternalToolsUpdate].
type ExternalToolsUpdateResponse struct{}

// ExternalToolCallResponse answers an [ExternalToolCallRequest] with its
// request_id. It has either a result or an error, and gets no response.
type ExternalToolCallResponse struct {
	Result *ToolResult `json:"result,omitempty"`
	Error  *string     `json:"error,omitempty"`
}

// A ToolResult is what an external tool returned.
type ToolResult struct {
	// Content holds parts as MCP has them: {type:"text",text} and
	// {type:"image",data,mimeType}; other types are dropped by the server.
	Content List[Object] `json:"content"`
	IsError *bool        `json:"is_error,omitempty"`
}

// TextResult makes a result of one text.
func TextResult(text string) *ToolResult {
	dst := append([]byte(nil), `{"type":"text","text":`...)
	return &ToolResult{Content: []Object{append(AppendString(dst, text), '}')}}
}

// CommandType returns "external_tool_call_response".
func (*ExternalToolCallResponse) CommandType() string { return "external_tool_call_response" }

func (c *ExternalToolCallResponse) decode(o *object) {
	if o.has("error") {
		c.Error = o.optStr("error")
	}
	if o.has("result") {
		r := o.child("result")
		c.Result = &ToolResult{Content: []Object{}, IsError: r.optBool("is_error")}
		raw := r.list("content")
		if raw == nil {
			return
		}
		for _, e := range elements(raw) {
			if e[0] != '{' {
				r.fail("content", "must hold only objects, not %s", kindOf(e))
				return
			}
			c.Result.Content = append(c.Result.Content, Object(e))
		}
	}
	if c.Result == nil && c.Error == nil {
		o.fail("result", "or error is required")
	}
}

// Pong is the answer of old clients to a heartbeat. It gets no response.
type Pong struct{}

// CommandType returns "pong".
func (*Pong) CommandType() string { return "pong" }

func (*Pong) decode(*object) {}
