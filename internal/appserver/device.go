package appserver

import (
	"mneme/internal/agent"
	"mneme/internal/tool"
	"mneme/protocol"
)

// compatVersion is the version of the reference server whose protocol this is:
// clients look at it to know what they may send.
const compatVersion = "0.32.18"

// deviceStatus shows what surrounds a runtime (spec/app-server-core.md section
// 5.9). All keys are always present. It does not block: what git says is at
// most 15 s old and read elsewhere.
func (d *Door) deviceStatus(s agent.State) *protocol.DeviceStatusUpdate {
	st := protocol.DeviceStatus{
		CurrentConnectionID:      "app-server",
		ConnectionName:           d.host,
		IsOnline:                 true,
		IsProcessing:             s.Processing,
		CurrentPermissionMode:    protocol.Mode(s.Mode),
		CurrentWorkingDirectory:  s.Cwd,
		CwdRevision:              int64(s.CwdRevision),
		GitContext:               d.git.context(s.Cwd),
		CurrentToolsetPreference: s.ToolsetPreference,
		AvailableToolsets:        d.toolsets,
		CurrentLoadedTools:       s.LoadedTools,
		Experiments:              experiments,
		MemoryDirectory:          s.MemoryDir,
		ReflectionSettings: &protocol.ReflectionSettings{
			AgentID: s.Scope.AgentID, Trigger: "step-count", StepCount: 25, Merge: "auto",
		},
	}
	if st.CurrentToolsetPreference == "" {
		st.CurrentToolsetPreference = string(protocol.ToolsetAuto)
	}
	if s.Toolset != "" {
		st.CurrentToolset = &s.Toolset
	}
	if c := shown(s); c != nil {
		st.PendingControlRequests = []protocol.PendingControl{{RequestID: requestPrefix + c.ID, Request: canUseTool(c)}}
	}
	for _, b := range s.Background {
		st.BackgroundProcesses = append(st.BackgroundProcesses, backgroundProcess(b))
	}
	return &protocol.DeviceStatusUpdate{DeviceStatus: st}
}

func backgroundProcess(b agent.Background) protocol.BackgroundProcess {
	p := protocol.BackgroundProcess{
		ProcessID: b.ID, Kind: "bash", Command: b.Command, Status: b.Status, ExitCode: protocol.OrNull(b.ExitCode),
	}
	if !b.StartedAt.IsZero() {
		ms := b.StartedAt.UnixMilli()
		p.StartedAtMS = &ms
	}
	return p
}

// toolsetInfos are the toolsets that can be chosen.
func toolsetInfos() []protocol.ToolsetInfo {
	var infos []protocol.ToolsetInfo
	for _, s := range tool.Sets() {
		infos = append(infos, protocol.ToolsetInfo{
			ID: protocol.Toolset(s.ID), DisplayName: s.DisplayName, Label: s.Label, Description: s.Description, IsFeatured: s.Featured,
		})
	}
	return infos
}

// experiments are the switches that clients know; none of them is built, so all
// are off.
var experiments = []protocol.Experiment{
	{ID: "artifacts", Label: "Artifacts", Description: "Documents that an agent shows beside the chat", Source: "default"},
	{ID: "conversation_titles", Label: "Conversation titles", Description: "Conversations get a title from their content", Source: "default"},
	{ID: "desktop_conversation_bootstrap", Label: "Desktop start", Description: "The desktop app opens with a prepared conversation", Source: "default"},
	{ID: "diffs", Label: "Diffs", Description: "Changes of files are shown as diffs", Source: "default"},
	{ID: "reflection_arena", Label: "Reflection arena", Description: "Two reflections are compared", Source: "default"},
	{ID: "tui_cron", Label: "Schedules in the terminal", Description: "Schedules can be edited in the terminal app", Source: "default"},
}
