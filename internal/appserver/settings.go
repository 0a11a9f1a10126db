package appserver

import (
	"context"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
	"mneme/protocol"
)

var settingCommands = map[string]handler{
	"get_cwd_map":                beside(answer(cwdMap)),
	"set_boot_working_directory": answer(setBootDirectory),
}

// changeDeviceState changes mode and directory (spec/app-server-core.md section
// 8.2). It has no response: what is wrong is told as a loop_error.
func changeDeviceState(ctx context.Context, k *call, cmd *protocol.ChangeDeviceState) error {
	p := cmd.Payload
	if p.AgentID != nil || p.ConversationID != nil {
		rt := cmd.Runtime
		if p.AgentID != nil {
			rt.AgentID = *p.AgentID
		}
		if p.ConversationID != nil {
			rt.ConversationID = *p.ConversationID
		}
		k.sub, k.unknown = k.conn.subscribe(ctx, rt)
	}
	if k.sub == nil {
		return k.unknown // nothing is stored for what does not exist
	}
	ch, err := k.deviceChange(ctx, p)
	if err == nil {
		err = k.door.rt.ChangeSettings(ctx, k.sub.feed.scope, ch)
	}
	if err != nil {
		k.loopError(k.public(err).Message)
	}
	return nil
}

// deviceChange reads the payload. A directory that is missing changes nothing;
// then, as for an empty payload, the status is just shown again.
func (k *call) deviceChange(ctx context.Context, p protocol.DeviceStatePayload) (runtime.Change, error) {
	var ch runtime.Change
	if p.Mode != nil {
		mode, ok := agent.ParseMode(*p.Mode)
		if !ok {
			return ch, agent.Invalid("mode", "Unsupported permission mode: %s", *p.Mode)
		}
		ch.Mode = &mode
	}
	if p.Cwd == nil || *p.Cwd == "" {
		return ch, nil
	}
	state, err := k.door.rt.Status(ctx, k.sub.feed.scope)
	if err != nil {
		return ch, err
	}
	dir, err := k.door.directory(*p.Cwd, state.Cwd)
	if err != nil {
		if strings.HasPrefix(err.Error(), "ENOENT") {
			return ch, nil
		}
		return ch, err
	}
	ch.Cwd = &dir
	return ch, nil
}

// setBootDirectory changes the directory of runtimes without their own, until
// the server stops (spec/app-server-core.md section 8.3).
func setBootDirectory(ctx context.Context, k *call, cmd *protocol.SetBootWorkingDirectory) (*protocol.SetBootWorkingDirectoryResponse, error) {
	rt := k.door.rt
	path := strings.TrimSpace(cmd.Cwd)
	boot := rt.BootDir()
	dir, err := "", error(nil)
	if path == "" {
		err = agent.Invalid("cwd", "Working directory cannot be empty")
	} else {
		dir, err = k.door.directory(path, boot)
	}
	if err != nil || dir == "" { // refused, or the same as before
		return &protocol.SetBootWorkingDirectoryResponse{BootWorkingDirectory: boot, CwdRevision: int64(rt.CwdRevision())}, err
	}
	revision := rt.SetBootDir(dir)
	k.door.showBootDir(ctx, dir)
	return &protocol.SetBootWorkingDirectoryResponse{BootWorkingDirectory: dir, CwdRevision: int64(revision)}, nil
}

// showBootDir tells the watched runtimes that use the boot directory, before the
// command is answered. Live ones are told by the runtime too; the repeat is left
// out.
func (d *Door) showBootDir(ctx context.Context, dir string) {
	d.mu.Lock()
	var scopes []agent.Scope
	for scope := range d.feeds {
		scopes = append(scopes, scope)
	}
	d.mu.Unlock()
	for _, scope := range scopes {
		state, err := d.rt.Status(ctx, scope)
		if err == nil && state.Cwd == dir {
			d.rt.Notify(scope, agent.DeviceChanged{State: state})
		}
	}
}

// cwdMap lists the conversations that have a directory of their own.
func cwdMap(ctx context.Context, k *call, _ *protocol.GetCwdMap) (*protocol.GetCwdMapResponse, error) {
	boot := k.door.rt.BootDir()
	resp := &protocol.GetCwdMapResponse{CwdMap: protocol.Map[string]{}, BootWorkingDirectory: &boot}
	all, err := k.door.store.Conversations(ctx, store.ConversationFilter{IncludeHidden: true, IncludeOwn: true})
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		switch {
		case c.Cwd == "":
		case c.Own:
			resp.CwdMap["agent:"+c.AgentID+"::conversation:default"] = c.Cwd
		default:
			resp.CwdMap["conversation:"+c.ID] = c.Cwd
		}
	}
	return resp, nil
}

// updateToolset changes the toolset of a conversation from the next turn on.
func updateToolset(ctx context.Context, k *call, cmd *protocol.UpdateToolset) (*protocol.UpdateToolsetResponse, error) {
	if k.sub == nil {
		return nil, k.unknown
	}
	preference := string(cmd.ToolsetPreference)
	current := tool.NewBox().Resolve(preference)
	set, _ := tool.FindSet(current) // the decoder lets only known ones through
	text := "Switched toolset to " + set.DisplayName + " (manual override)."
	if preference == tool.SetAuto {
		text = "Toolset mode set to auto (currently " + set.DisplayName + ")."
	}
	if err := k.door.rt.ChangeSettingsQuietly(ctx, k.sub.feed.scope, runtime.Change{Toolset: &preference}); err != nil {
		return nil, err
	}
	if err := k.note(ctx, text); err != nil {
		return nil, err
	}
	return &protocol.UpdateToolsetResponse{
		Runtime: &k.sub.feed.rt, CurrentToolset: protocol.Some(current), CurrentToolsetPreference: &preference,
	}, nil
}

// note sends a status line and the state that it is about to all subscribers.
func (k *call) note(ctx context.Context, text string) error {
	scope := k.sub.feed.scope
	k.door.rt.Notify(scope, agent.Status{Level: "info", Message: text})
	state, err := k.door.rt.Status(ctx, scope)
	if err != nil {
		return err
	}
	k.door.rt.Notify(scope, agent.LoopChanged{State: state})
	k.door.rt.Notify(scope, agent.DeviceChanged{State: state})
	return nil
}
