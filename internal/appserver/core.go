package appserver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/protocol"
)

var coreCommands = map[string]handler{
	"app_server_info":               overtaking(answer(serverInfo), always),
	"runtime_start":                 startHandler(),
	"sync":                          answer(syncRuntime),
	"input":                         overtaking(silent(input), isApproval),
	"message":                       silent(legacyMessage),
	"abort_message":                 overtaking(answer(abort), always),
	"remove_queue_item":             answer(removeQueued),
	"resume_queue":                  answer(resumeQueue),
	"change_device_state":           silent(changeDeviceState),
	"runtime_external_tools_update": answer(updateExternalTools),
	"external_tool_call_response":   overtaking(silent(externalResult), always),
	"pong":                          overtaking(silent(func(context.Context, *call, *protocol.Pong) error { return nil }), always),
}

func serverInfo(_ context.Context, k *call, _ *protocol.AppServerInfo) (*protocol.AppServerInfoResponse, error) {
	return k.door.info(), nil
}

// startHandler keeps runtime_start in order with what follows it, unless it
// makes an agent: that takes long, and nobody can name the agent before the
// answer.
func startHandler() handler {
	h := answer(startRuntime)
	h.detached = func(cmd protocol.Command) bool { return cmd.(*protocol.RuntimeStart).CreateAgent != nil }
	return h
}

// startRuntime opens a runtime: it makes what is missing, applies the settings,
// subscribes, and replays the state (spec/app-server-core.md section 3).
func startRuntime(ctx context.Context, k *call, cmd *protocol.RuntimeStart) (*protocol.RuntimeStartResponse, error) {
	resp := &protocol.RuntimeStartResponse{}
	if err := k.checkStart(cmd); err != nil {
		return resp, err
	}
	change, err := k.door.startChange(cmd)
	if err != nil {
		return resp, err
	}
	ag, conv, err := k.findRows(ctx, cmd, resp)
	if err != nil {
		return resp, errors.Join(err, k.showRows(ctx, resp, ag, conv))
	}
	sub := k.enter(wireRuntime(conv), ag, conv, true)
	replay := sub.hold()
	defer replay(nil)
	if err := sub.feed.setExecution(ctx, cmd.ExecutionSettings); err != nil {
		return resp, err
	}
	if change != (runtime.Change{}) {
		if err := k.door.rt.ChangeSettingsQuietly(ctx, sub.feed.scope, change); err != nil {
			return resp, err
		}
		state, err := k.door.rt.Status(ctx, sub.feed.scope)
		if err != nil {
			return resp, err
		}
		k.door.rt.Notify(sub.feed.scope, agent.DeviceChanged{State: state}) // for those who watch already
	}
	k.door.rt.SetExternal(k.id, sub.feed.scope, externalGroups(cmd.ExternalTools))
	if err := k.showRows(ctx, resp, ag, conv); err != nil {
		return resp, err
	}
	resp.Runtime, resp.ExecutionSettings = &sub.feed.rt, cmd.ExecutionSettings
	forced := cmd.ForceDeviceStatus == nil || *cmd.ForceDeviceStatus
	snapshot, err := sub.snapshot(ctx, forced)
	if err != nil {
		return resp, err
	}
	if cmd.WaitForReplay != nil && *cmd.WaitForReplay {
		replay(snapshot)
	}
	k.ok(resp)
	replay(snapshot)
	return nil, nil
}

// checkStart refuses what is wrong in itself.
func (k *call) checkStart(cmd *protocol.RuntimeStart) error {
	if err := cmd.Check(); err != nil {
		return agent.Errorf(agent.CodeInvalid, "%s", err.Error())
	}
	switch {
	case isEphemeral(cmd):
		return checkEphemeral(cmd)
	case cmd.WorkspaceSandbox != nil:
		return agent.Errorf(agent.CodeNotBuilt, "workspace_sandbox is not available on this server yet")
	case cmd.AgentID == nil && cmd.CreateAgent == nil && cmd.ConversationID == nil:
		if b := cmd.CreateConversation.Body; b == nil || b.Model.Value == nil || b.System == nil {
			return agent.Errorf(agent.CodeInvalid, "Agent-free conversation creation requires body.model and body.system")
		}
		return agent.Errorf(agent.CodeNotBuilt, "Conversations without an agent are not available on this server")
	}
	return nil
}

// startChange reads the settings of a runtime_start. A directory that cannot be
// used is an error before anything is made.
func (d *Door) startChange(cmd *protocol.RuntimeStart) (runtime.Change, error) {
	var ch runtime.Change
	if cmd.Mode != "" {
		mode := agent.Mode(cmd.Mode)
		ch.Mode = &mode
	}
	if !cmd.Cwd.Set {
		return ch, nil
	}
	dir := ""
	if cmd.Cwd.Value != nil {
		var err error
		if dir, err = d.directory(*cmd.Cwd.Value, ""); err != nil {
			return ch, err
		}
	}
	ch.Cwd = &dir
	return ch, nil
}

// directory resolves a working directory as a client wrote it: relative to base,
// or to the process's where base is empty. The boot directory becomes "".
func (d *Door) directory(path, base string) (string, error) {
	abs := path
	if base != "" && !filepath.IsAbs(path) {
		abs = filepath.Join(base, path)
	}
	abs, err := filepath.Abs(abs)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", agent.Invalid("cwd", "ENOENT: no such file or directory, realpath '%s'", abs)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", agent.Invalid("cwd", "Not a directory: %s", abs)
	}
	d.git.refresh(real)
	if real == d.rt.BootDir() {
		return "", nil
	}
	return real, nil
}

func isEphemeral(cmd *protocol.RuntimeStart) bool { return cmd.Ephemeral != nil && *cmd.Ephemeral }

// checkEphemeral refuses what a runtime that leaves nothing behind cannot have.
func checkEphemeral(cmd *protocol.RuntimeStart) error {
	switch {
	case cmd.AgentID == nil:
		return agent.Invalid("agent_id", "runtime_start with ephemeral requires agent_id")
	case cmd.ConversationID != nil || cmd.CreateConversation != nil || len(cmd.ConversationSourceTags) > 0:
		return agent.Invalid("ephemeral", "runtime_start ephemeral cannot be combined with a conversation")
	case len(cmd.ExternalTools) > 0:
		return agent.Invalid("external_tools", "An ephemeral runtime only has tools that read, so it takes no external tools")
	case cmd.WorkspaceSandbox != nil:
		return agent.Errorf(agent.CodeNotBuilt, "workspace_sandbox is not available on this server yet")
	}
	return nil
}

// findRows is startRows, or opens an ephemeral runtime, whose rows are its own.
func (k *call) findRows(ctx context.Context, cmd *protocol.RuntimeStart, resp *protocol.RuntimeStartResponse) (*agent.Agent, *agent.Conversation, error) {
	if !isEphemeral(cmd) {
		return k.startRows(ctx, cmd, resp)
	}
	ag, err := k.door.roster.Agent(ctx, *cmd.AgentID)
	if err != nil {
		return nil, nil, err
	}
	scope, err := k.door.rt.OpenEphemeral(ctx, ag.ID)
	if err != nil {
		return ag, nil, err
	}
	e, ok := k.door.rt.Ephemeral(scope.ConversationID)
	if !ok {
		return ag, nil, agent.Errorf(agent.CodeShutdown, "The server is stopping")
	}
	if e.Commit != "" {
		resp.MemoryCommit = &e.Commit
	}
	return e.Agent, e.Conversation, nil
}

// startRows finds or makes the agent and the conversation; resp.Created tells
// what was made.
func (k *call) startRows(ctx context.Context, cmd *protocol.RuntimeStart, resp *protocol.RuntimeStartResponse) (*agent.Agent, *agent.Conversation, error) {
	agentID := ""
	var ag *agent.Agent
	var err error
	switch {
	case cmd.CreateAgent != nil:
		spec := agentSpec(&cmd.CreateAgent.Body, cmd.CreateAgent.Memfs == nil || *cmd.CreateAgent.Memfs)
		if ag, err = k.door.roster.CreateAgent(ctx, spec); err != nil {
			return nil, nil, err
		}
		agentID, resp.Created.Agent = ag.ID, true
	case cmd.AgentID != nil:
		if ag, err = k.door.roster.Agent(ctx, *cmd.AgentID); err != nil {
			return nil, nil, err
		}
		agentID = ag.ID
	}
	if cmd.ConversationID != nil {
		found, conv, err := k.door.roster.Resolve(ctx, agentID, *cmd.ConversationID)
		if err != nil {
			return ag, nil, err
		}
		conv, err = k.tagSource(ctx, conv, cmd.ConversationSourceTags)
		return found, conv, err
	}
	spec := roster.ConversationSpec{AgentID: agentID}
	if c := cmd.CreateConversation; c != nil && c.Body != nil {
		spec = conversationSpec(c.Body)
		spec.AgentID = agentID
	}
	conv, err := k.door.roster.CreateConversation(ctx, spec)
	if err != nil {
		return ag, nil, err
	}
	resp.Created.Conversation = true
	conv, err = k.tagSource(ctx, conv, cmd.ConversationSourceTags)
	return ag, conv, err
}

// tagSource notes where a conversation comes from. Its channel is then no
// longer named in the summary.
func (k *call) tagSource(ctx context.Context, conv *agent.Conversation, tags []string) (*agent.Conversation, error) {
	all := slices.Clone(conv.Tags)
	for _, t := range tags {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	if conv.Own || len(all) == len(conv.Tags) {
		return conv, nil
	}
	patch := roster.ConversationPatch{Tags: &all}
	if conv.Summary != nil {
		if cut := cutSource(*conv.Summary, tags); cut != *conv.Summary {
			p := &cut
			patch.Summary = &p
		}
	}
	return k.door.roster.UpdateConversation(ctx, conv.ID, patch)
}

// sourcePrefixes are what tags say in summaries.
var sourcePrefixes = map[string]string{
	"channel:slack": "[Slack] ", "channel:discord": "[Discord] ", "channel:telegram": "[Telegram] ", "origin:schedule": "[Schedule] ",
}

func cutSource(summary string, tags []string) string {
	for _, t := range tags {
		if p := sourcePrefixes[t]; p != "" && len(summary) >= len(p) && strings.EqualFold(summary[:len(p)], p) {
			return summary[len(p):]
		}
	}
	return summary
}

// showRows puts what was found or made into the response.
func (k *call) showRows(ctx context.Context, resp *protocol.RuntimeStartResponse, ag *agent.Agent, conv *agent.Conversation) error {
	if ag != nil {
		st, err := k.door.agentState(ctx, ag)
		if err != nil {
			return err
		}
		resp.Agent = st
	}
	if conv != nil {
		c, err := k.door.conversation(ctx, conv)
		if err != nil {
			return err
		}
		resp.Conversation = c
	}
	return nil
}

// snapshot renders the state of the runtime: the question that waits, device,
// loop, queue, subagents. The device status is left out if it is not forced and
// the connection has it already.
func (s *subscription) snapshot(ctx context.Context, forced bool) ([]*frame, error) {
	f := s.feed
	state, err := f.door.rt.Status(ctx, f.scope)
	if err != nil {
		return nil, err
	}
	f.door.git.refresh(state.Cwd)
	var bodies []protocol.EventBody
	if c := shown(state); c != nil {
		bodies = append(bodies, controlRequest(f.rt, c))
	}
	bodies = append(bodies, f.door.deviceStatus(state))
	return f.snapshots(append(bodies, loopStatus(state), queueUpdate(state.Queue, nil), &protocol.SubagentUpdate{}), func(fr *frame) bool {
		return fr.typ == snapDevice && !forced && bytes.Equal(fr.body, s.lastDevice())
	})
}

// snapshots encodes the frames of a replay but those that skip says.
func (f *feed) snapshots(bodies []protocol.EventBody, skip func(*frame) bool) ([]*frame, error) {
	var frames []*frame
	for _, b := range bodies {
		fr, err := f.frame(b, agent.NewUUID())
		if err != nil {
			return nil, err
		}
		if fr.typ != "control_request" {
			fr.snapshot = fr.typ
		}
		if !skip(fr) {
			frames = append(frames, fr)
		}
	}
	return frames, nil
}

// syncRuntime replays the state and subscribes. A runtime that does not exist
// is idle (spec/app-server-core.md section 7.3); nothing is made for it.
func syncRuntime(ctx context.Context, k *call, cmd *protocol.Sync) (*protocol.SyncResponse, error) {
	if k.sub == nil {
		return k.syncNothing(cmd)
	}
	replay := k.sub.hold()
	defer replay(nil)
	snapshot, err := k.sub.snapshot(ctx, cmd.ForceDeviceStatus != nil && *cmd.ForceDeviceStatus)
	if err != nil {
		return nil, err
	}
	replay(snapshot)
	return &protocol.SyncResponse{Runtime: k.sub.feed.rt}, nil
}

// syncNothing replays what is true of every runtime that does not exist.
func (k *call) syncNothing(cmd *protocol.Sync) (*protocol.SyncResponse, error) {
	resp := &protocol.SyncResponse{Runtime: cmd.Runtime}
	if code := agent.CodeOf(k.unknown); code != agent.CodeNotFound && code != agent.CodeInvalid {
		return resp, k.unknown
	}
	if cmd.Runtime.AgentID == "" {
		return resp, nil
	}
	f := &feed{door: k.door, rt: cmd.Runtime}
	frames, err := f.snapshots([]protocol.EventBody{
		loopStatus(agent.State{Loop: agent.LoopIdle}), &protocol.QueueUpdate{}, &protocol.SubagentUpdate{},
	}, func(*frame) bool { return false })
	k.conn.send(frames...)
	return resp, err
}

// updateExternalTools replaces the tools that this connection runs for some
// runtimes. It does not subscribe; runtimes that do not exist are skipped.
func updateExternalTools(ctx context.Context, k *call, cmd *protocol.ExternalToolsUpdate) (*protocol.ExternalToolsUpdateResponse, error) {
	for _, u := range cmd.Updates {
		groups := externalGroups(u.ExternalTools)
		for _, rt := range u.Runtimes {
			sub, err := k.join(ctx, rt, false)
			switch agent.CodeOf(err) {
			case "":
				k.door.rt.SetExternal(k.id, sub.feed.scope, groups)
			case agent.CodeNotFound, agent.CodeInvalid:
			default:
				return nil, err
			}
		}
	}
	return &protocol.ExternalToolsUpdateResponse{}, nil
}

func externalGroups(groups []protocol.ToolGroup) []runtime.ExternalGroup {
	var out []runtime.ExternalGroup
	for _, g := range groups {
		eg := runtime.ExternalGroup{}
		if g.ScopeID != nil {
			eg.ScopeID = *g.ScopeID
		}
		for _, t := range g.Tools {
			def := agent.ToolDef{Name: t.Name, Description: t.Description, Parameters: bytes.Clone(t.Parameters)}
			if t.Label != nil {
				def.Label = *t.Label
			}
			eg.Tools = append(eg.Tools, def)
		}
		out = append(out, eg)
	}
	return out
}

// externalResult takes the answer of an external tool (spec/app-server-core.md
// section 5.5).
func externalResult(_ context.Context, k *call, cmd *protocol.ExternalToolCallResponse) error {
	if k.frame.RequestID == nil || !k.door.rt.AnswerExternal(k.id, *k.frame.RequestID, toolResult(cmd)) {
		return agent.Errorf(agent.CodeNotPending, "No external tool call of this connection waits for this answer")
	}
	return nil
}

func toolResult(cmd *protocol.ExternalToolCallResponse) agent.ToolResult {
	if cmd.Result == nil {
		return agent.TextResult(agent.StatusError, "External tool execution error: "+*cmd.Error)
	}
	res := agent.ToolResult{Status: agent.StatusSuccess}
	if cmd.Result.IsError != nil && *cmd.Result.IsError {
		res.Status = agent.StatusError
	}
	for _, raw := range cmd.Result.Content {
		p, ok := mcpPart(raw)
		if !ok {
			continue
		}
		if n := len(res.Parts); n > 0 && p.Kind == agent.PartText && res.Parts[n-1].Kind == agent.PartText {
			res.Parts[n-1].Text += "\n" + p.Text
			continue
		}
		res.Parts = append(res.Parts, p)
	}
	if len(res.Parts) == 0 {
		res.Parts = []agent.Part{agent.Text("[]")}
	}
	return res
}

func now() string { return protocol.FormatTime(time.Now()) }
