package protocol

// AppServerInfo asks what the server is (spec/app-server-core.md section 2).
type AppServerInfo struct{}

// CommandType returns "app_server_info".
func (*AppServerInfo) CommandType() string { return "app_server_info" }

// NewResponse makes the empty response.
func (*AppServerInfo) NewResponse() *AppServerInfoResponse { return new(AppServerInfoResponse) }

func (*AppServerInfo) decode(*object) {}

// AppServerInfoResponse answers [AppServerInfo].
type AppServerInfoResponse struct {
	Backend          string       `json:"backend"` // "local" or "api"
	LettaCodeVersion string       `json:"letta_code_version"`
	ProtocolVersion  int          `json:"protocol_version"`
	Capabilities     Capabilities `json:"capabilities"`
}

// Capabilities says which parts of the protocol a server has.
type Capabilities struct {
	AgentManagement            bool `json:"agent_management"`
	ConversationManagement     bool `json:"conversation_management"`
	MemoryManagement           bool `json:"memory_management"`
	RuntimeStart               bool `json:"runtime_start"`
	LaunchSubagent             bool `json:"launch_subagent"`
	RuntimeWorkspaceSandbox    bool `json:"runtime_workspace_sandbox"`
	RuntimeExternalToolsUpdate bool `json:"runtime_external_tools_update"`
	StructuredOutputs          bool `json:"structured_outputs"`
	SplitChannels              bool `json:"split_channels"`
	// Mneme announces the extension commands; nil on any other server.
	Mneme *Extensions `json:"mneme,omitempty"`
}

// Extensions are mneme's extension commands (spec/app-server-commands.md
// section 2.13). A client sends one only where it is announced.
type Extensions struct {
	MemorySnapshot   bool `json:"memory_snapshot"`
	MemorySearch     bool `json:"memory_search"`
	EphemeralRuntime bool `json:"ephemeral_runtime"`
	ChangeEvents     bool `json:"change_events"`
}

// ChangeDeviceState changes the mode or directory of a runtime. It gets no
// response (spec/app-server-core.md section 8.2).
type ChangeDeviceState struct {
	Runtime Runtime            `json:"runtime"`
	Payload DeviceStatePayload `json:"payload"`
}

// DeviceStatePayload is what [ChangeDeviceState] changes. Its ids override the
// runtime's.
type DeviceStatePayload struct {
	Mode           *string `json:"mode,omitempty"` // any string: the server judges it
	Cwd            *string `json:"cwd,omitempty"`
	AgentID        *string `json:"agent_id,omitempty"`
	ConversationID *string `json:"conversation_id,omitempty"`
}

// CommandType returns "change_device_state".
func (*ChangeDeviceState) CommandType() string { return "change_device_state" }

func (c *ChangeDeviceState) decode(o *object) {
	c.Runtime = o.runtime("runtime", false)
	p := o.child("payload")
	c.Payload = DeviceStatePayload{
		Mode:           p.optStr("mode"),
		Cwd:            p.optStr("cwd"),
		AgentID:        p.optStr("agent_id"),
		ConversationID: p.optStr("conversation_id"),
	}
}

// SetBootWorkingDirectory changes the directory that runtimes without their own
// use (spec/app-server-core.md section 8.3).
type SetBootWorkingDirectory struct {
	Cwd string `json:"cwd"`
}

// CommandType returns "set_boot_working_directory".
func (*SetBootWorkingDirectory) CommandType() string { return "set_boot_working_directory" }

// NewResponse makes the empty response.
func (*SetBootWorkingDirectory) NewResponse() *SetBootWorkingDirectoryResponse {
	return new(SetBootWorkingDirectoryResponse)
}

func (c *SetBootWorkingDirectory) decode(o *object) { c.Cwd = o.str("cwd") }

// SetBootWorkingDirectoryResponse answers [SetBootWorkingDirectory]; a failure
// has the current values.
type SetBootWorkingDirectoryResponse struct {
	BootWorkingDirectory string `json:"boot_working_directory"`
	CwdRevision          int64  `json:"cwd_revision"`
}

// GetCwdMap asks for the directories of all conversations that have their own.
type GetCwdMap struct{}

// CommandType returns "get_cwd_map".
func (*GetCwdMap) CommandType() string { return "get_cwd_map" }

// NewResponse makes the empty response.
func (*GetCwdMap) NewResponse() *GetCwdMapResponse { return new(GetCwdMapResponse) }

func (*GetCwdMap) decode(*object) {}

// GetCwdMapResponse answers [GetCwdMap].
type GetCwdMapResponse struct {
	// CwdMap keys are `conversation:<id>` or
	// `agent:<id>::conversation:default`.
	CwdMap               Map[string] `json:"cwd_map"`
	BootWorkingDirectory *string     `json:"boot_working_directory"`
}

// A Toolset is a named set of built-in tools.
type Toolset string

// The toolsets.
const (
	ToolsetAuto    Toolset = "auto"
	ToolsetLetta   Toolset = "letta"
	ToolsetNone    Toolset = "none"
	ToolsetDefault Toolset = "default"
	ToolsetCodex   Toolset = "codex"
)

var toolsets = []Toolset{ToolsetAuto, ToolsetLetta, ToolsetNone, ToolsetDefault, ToolsetCodex}

// UpdateToolset changes the toolset of a conversation
// (spec/app-server-core.md section 8.4).
type UpdateToolset struct {
	Runtime           Runtime `json:"runtime"`
	ToolsetPreference Toolset `json:"toolset_preference"`
}

// CommandType returns "update_toolset".
func (*UpdateToolset) CommandType() string { return "update_toolset" }

// NewResponse makes the empty response.
func (*UpdateToolset) NewResponse() *UpdateToolsetResponse { return new(UpdateToolsetResponse) }

func (c *UpdateToolset) decode(o *object) {
	c.Runtime = o.runtime("runtime", false)
	c.ToolsetPreference = oneOf(o, "toolset_preference", toolsets)
}

// UpdateToolsetResponse answers [UpdateToolset]. The fields are missing in a
// failure.
type UpdateToolsetResponse struct {
	Runtime                  *Runtime         `json:"runtime,omitempty"`
	CurrentToolset           Optional[string] `json:"current_toolset,omitzero"`
	CurrentToolsetPreference *string          `json:"current_toolset_preference,omitempty"`
}

// A ReasoningEffort says how much a model may think.
type ReasoningEffort string

// The reasoning efforts.
const (
	EffortNone    ReasoningEffort = "none"
	EffortMinimal ReasoningEffort = "minimal"
	EffortLow     ReasoningEffort = "low"
	EffortMedium  ReasoningEffort = "medium"
	EffortHigh    ReasoningEffort = "high"
	EffortXHigh   ReasoningEffort = "xhigh"
	EffortMax     ReasoningEffort = "max"
)

var efforts = []ReasoningEffort{EffortNone, EffortMinimal, EffortLow, EffortMedium, EffortHigh, EffortXHigh, EffortMax}

// UpdateModel changes the model of a conversation, or of the agent for its own
// conversation (spec/app-server-commands.md section 2.4).
type UpdateModel struct {
	Runtime Runtime            `json:"runtime"`
	Payload UpdateModelPayload `json:"payload"`
}

// UpdateModelPayload names the model: by id, by handle, or both.
type UpdateModelPayload struct {
	ModelID         *string                   `json:"model_id,omitempty"`
	ModelHandle     *string                   `json:"model_handle,omitempty"`
	ReasoningEffort Optional[ReasoningEffort] `json:"reasoning_effort,omitzero"`
}

// CommandType returns "update_model".
func (*UpdateModel) CommandType() string { return "update_model" }

// NewResponse makes the empty response.
func (*UpdateModel) NewResponse() *UpdateModelResponse { return new(UpdateModelResponse) }

func (c *UpdateModel) decode(o *object) {
	c.Runtime = o.runtime("runtime", false)
	p := o.child("payload")
	c.Payload.ModelID = p.optStr("model_id")
	c.Payload.ModelHandle = p.optStr("model_handle")
	switch {
	case p.isNull("reasoning_effort"):
		c.Payload.ReasoningEffort = Null[ReasoningEffort]()
	case p.has("reasoning_effort"):
		c.Payload.ReasoningEffort = Some(oneOf(p, "reasoning_effort", efforts))
	}
	if c.Payload.ModelID == nil && c.Payload.ModelHandle == nil {
		p.fail("model_id", "or model_handle is required")
	}
}

// UpdateModelResponse answers [UpdateModel]. A failure has the runtime and what
// was asked for.
type UpdateModelResponse struct {
	Runtime       *Runtime         `json:"runtime,omitempty"`
	AppliedTo     string           `json:"applied_to,omitempty"` // "agent" or "conversation"
	ModelID       *string          `json:"model_id,omitempty"`
	ModelHandle   *string          `json:"model_handle,omitempty"`
	ModelSettings Optional[Object] `json:"model_settings,omitzero"`
}
