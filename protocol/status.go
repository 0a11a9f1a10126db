package protocol

// DeviceStatusUpdate is update_device_status: a snapshot
// (spec/app-server-core.md section 5.9).
type DeviceStatusUpdate struct {
	DeviceStatus DeviceStatus `json:"device_status"`
}

// EventType returns "update_device_status".
func (*DeviceStatusUpdate) EventType() string { return "update_device_status" }

// DeviceStatus is what surrounds a runtime: directory, mode, tools, skills.
type DeviceStatus struct {
	CurrentConnectionID      string                  `json:"current_connection_id"` // "app-server"
	ConnectionName           string                  `json:"connection_name"`
	IsOnline                 bool                    `json:"is_online"`
	IsProcessing             bool                    `json:"is_processing"`
	CurrentPermissionMode    Mode                    `json:"current_permission_mode"`
	CurrentWorkingDirectory  string                  `json:"current_working_directory"`
	CwdRevision              int64                   `json:"cwd_revision"`
	GitContext               *GitContext             `json:"git_context"`
	LettaCodeVersion         *string                 `json:"letta_code_version"`
	CurrentToolset           *string                 `json:"current_toolset"`
	CurrentToolsetPreference string                  `json:"current_toolset_preference"`
	AvailableToolsets        List[ToolsetInfo]       `json:"available_toolsets"`
	CurrentLoadedTools       List[string]            `json:"current_loaded_tools"`
	CurrentAvailableSkills   List[SkillInfo]         `json:"current_available_skills"`
	BackgroundProcesses      List[BackgroundProcess] `json:"background_processes"`
	PendingControlRequests   List[PendingControl]    `json:"pending_control_requests"`
	Experiments              List[Experiment]        `json:"experiments"`
	MemoryDirectory          string                  `json:"memory_directory"`
	ShouldDoctor             bool                    `json:"should_doctor"`
	SupportedCommands        List[string]            `json:"supported_commands"`
	ModCommands              []Object                `json:"mod_commands,omitempty"`
	ReflectionSettings       *ReflectionSettings     `json:"reflection_settings"`
}

// GitContext is the git state of the directory.
type GitContext struct {
	Branch         *string      `json:"branch"`
	RecentBranches List[string] `json:"recent_branches"`
}

// ToolsetInfo describes a toolset that can be chosen.
type ToolsetInfo struct {
	ID          Toolset `json:"id"`
	DisplayName string  `json:"display_name"`
	Label       string  `json:"label"`
	Description string  `json:"description"`
	IsFeatured  bool    `json:"is_featured"`
}

// SkillInfo describes a skill that the agent can load.
type SkillInfo struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Path        string      `json:"path"`
	Source      SkillSource `json:"source"`
}

// A BackgroundProcess runs beside the turn. Kind decides which fields are set:
// "bash" has Command, StartedAtMS (may be null) and ExitCode; "agent_task" has
// TaskType, Description, SubagentID and Error; "monitor" has Description,
// Source and Persistent.
type BackgroundProcess struct {
	ProcessID   string           `json:"process_id"`
	Kind        string           `json:"kind"`
	Command     string           `json:"command,omitempty"`
	TaskType    string           `json:"task_type,omitempty"`
	Description string           `json:"description,omitempty"`
	Source      string           `json:"source,omitempty"` // "command" or "websocket"
	StartedAtMS *int64           `json:"started_at_ms"`
	Status      string           `json:"status"`
	ExitCode    Optional[int]    `json:"exit_code,omitzero"`
	SubagentID  Optional[string] `json:"subagent_id,omitzero"`
	Error       string           `json:"error,omitempty"`
	Persistent  *bool            `json:"persistent,omitempty"`
}

// PendingControl is a [ControlRequest] that waits for its answer.
type PendingControl struct {
	RequestID string     `json:"request_id"`
	Request   CanUseTool `json:"request"`
}

// An Experiment is a switch for a feature.
type Experiment struct {
	ID          string `json:"id"`
	Label       string `json:"label"`
	Description string `json:"description"`
	EnvVar      string `json:"envVar,omitempty"`
	Enabled     bool   `json:"enabled"`
	Source      string `json:"source"` // override, env or default
	Override    *bool  `json:"override"`
}

// ReflectionSettings say when an agent reflects.
type ReflectionSettings struct {
	AgentID           string `json:"agent_id"`
	Trigger           string `json:"trigger"` // off, step-count or compaction-event
	StepCount         int    `json:"step_count"`
	Merge             string `json:"merge"` // auto or explicit
	MergeInstructions string `json:"merge_instructions"`
}
