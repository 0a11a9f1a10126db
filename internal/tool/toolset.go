package tool

// The ids of the toolsets. SetAuto is a preference, not a set of tools.
const (
	SetAuto    = "auto"
	SetDefault = "default"
	SetCodex   = "codex"
	SetLetta   = "letta"
	SetNone    = "none"
)

// A Set is a named group of tools, as clients are shown it
// (`available_toolsets`).
type Set struct {
	ID          string
	DisplayName string // in status lines: "Switched toolset to Codex …"
	Label       string
	Description string
	Featured    bool
	// Tools are the model-facing names in order. Those that this build does not
	// have are left out of turns.
	Tools []string
}

// Sets lists the toolsets in the order clients show them, auto first.
func Sets() []Set {
	return []Set{
		{
			ID: SetAuto, DisplayName: "Auto", Label: "Auto", Featured: true,
			Description: "The toolset that suits the model",
		},
		{
			ID: SetLetta, DisplayName: "Letta", Label: "Letta",
			Description: "Terminal sessions, file tools and memory",
			Tools: []string{
				"AskUserQuestion", "EnterWorktree", "ExitWorktree", "SetWorkingDirectory", "memory", "Agent",
				"SendAgentMessage", "Monitor", "TaskStop", "Skill", "Workflow", "exec_command", "write_stdin",
				"Read", "Edit", "Write", "ViewImage", "UpdatePlan",
			},
		},
		{
			ID: SetNone, DisplayName: "None", Label: "None",
			Description: "No built-in tools; external tools stay",
		},
		{
			ID: SetDefault, DisplayName: "Claude", Label: "Claude", Featured: true,
			Description: "Shell, file tools and memory, in the shape Claude models know",
			Tools: []string{
				"AskUserQuestion", "Bash", "Monitor", "EnterWorktree", "ExitWorktree", "SetWorkingDirectory",
				"Edit", "TaskStop", "memory", "Read", "Skill", "Workflow", "Agent", "SendAgentMessage",
				"TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "Write",
			},
		},
		{
			ID: SetCodex, DisplayName: "Codex", Label: "Codex", Featured: true,
			Description: "Terminal sessions and patches, in the shape GPT models know",
			Tools: []string{
				"AskUserQuestion", "EnterWorktree", "ExitWorktree", "SetWorkingDirectory", "memory_apply_patch",
				"Agent", "SendAgentMessage", "Monitor", "TaskStop", "Skill", "Workflow", "exec_command",
				"write_stdin", "ViewImage", "ApplyPatch", "UpdatePlan",
			},
		},
	}
}

// FindSet returns the toolset of that id.
func FindSet(id string) (Set, bool) {
	for _, s := range Sets() {
		if s.ID == id {
			return s, true
		}
	}
	return Set{}, false
}

// ParseSet accepts the ids of toolsets and the names older clients stored.
func ParseSet(s string) (id string, ok bool) {
	switch s {
	case "codex_snake":
		return SetCodex, true
	case "gemini", "gemini_snake":
		return SetAuto, true
	}
	set, ok := FindSet(s)
	return set.ID, ok
}
