package appserver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

// extensionCommands are mneme's own (spec/app-server-commands.md section 2.13).
var extensionCommands = map[string]handler{
	"memory_snapshot": beside(answer(memorySnapshot)),
	"memory_search":   beside(answer(memorySearch)),
	"watch_changes":   answer(watchChanges),
}

// extensions announces them.
func extensions() *protocol.Extensions {
	return &protocol.Extensions{MemorySnapshot: true, MemorySearch: true, EphemeralRuntime: true, ChangeEvents: true}
}

// memorySnapshot shows the files of one commit in one frame.
func memorySnapshot(ctx context.Context, k *call, cmd *protocol.MemorySnapshot) (*protocol.MemorySnapshotResponse, error) {
	resp := &protocol.MemorySnapshotResponse{}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	ref := ""
	copyTo(&ref, cmd.Ref)
	snap, err := k.door.memory.Snapshot(ctx, ag.ID, ref)
	if err != nil {
		return resp, err
	}
	files, err := chosen(snap, cmd.Paths)
	if err != nil {
		return resp, err
	}
	page, err := pageOf(files, cmd.Offset, cmd.Limit)
	if err != nil {
		return resp, err
	}
	if err := k.door.memory.Date(ctx, ag.ID, snap, page); err != nil {
		return resp, err
	}
	if snap.Commit != "" {
		resp.Commit = &snap.Commit
	}
	resp.Total = len(files)
	if cmd.Offset == nil {
		resp.Truncated = len(page) < len(files)
	} else {
		resp.Truncated = *cmd.Offset+len(page) < len(files)
	}
	withContent := cmd.Content == nil || *cmd.Content
	raw := cmd.Raw != nil && *cmd.Raw
	for _, f := range page {
		resp.Files = append(resp.Files, snapshotFile(f, withContent, raw))
	}
	return resp, nil
}

// chosen is the files that are shown, of those that paths name: files, or
// directories with all that is below. None means all.
func chosen(snap *memory.Snapshot, paths []string) ([]*memory.File, error) {
	var want []string
	for _, p := range paths {
		clean, err := memory.CleanPath(p)
		if err != nil {
			return nil, err
		}
		want = append(want, clean)
	}
	return slices.DeleteFunc(slices.Clone(snap.Files), func(f *memory.File) bool {
		named := len(paths) == 0 || slices.ContainsFunc(want, func(p string) bool {
			return f.Path == p || strings.HasPrefix(f.Path, p+"/")
		})
		return !named || !f.Served()
	}), nil
}

// pageOf cuts a list; nil means from the start and to the end.
func pageOf(files []*memory.File, offset, limit *int) ([]*memory.File, error) {
	from, to := 0, len(files)
	if offset != nil {
		if from = min(*offset, len(files)); *offset < 0 {
			return nil, agent.Invalid("offset", "offset must not be negative")
		}
	}
	if limit != nil {
		if *limit < 0 {
			return nil, agent.Invalid("limit", "limit must not be negative")
		}
		to = min(to, from+*limit)
	}
	return files[from:to], nil
}

// snapshotFile shows a file, its content byte for byte.
func snapshotFile(f *memory.File, withContent, raw bool) protocol.SnapshotFile {
	out := protocol.SnapshotFile{
		RelativePath: f.Path, IsSystem: f.Label() != "" || strings.HasPrefix(f.Path, "system/"),
		Kind: string(f.Kind), MimeType: memory.MediaType(f.Path), Size: int(f.Size), Tags: f.Tags(), ReadOnly: f.ReadOnly,
	}
	if f.Kind == memory.KindMarkdown {
		out.Size = f.Chars()
		if f.Limit != memory.DefaultLimit {
			out.Limit = &f.Limit
		}
	}
	if f.Description != "" {
		out.Description = &f.Description
	}
	if at := f.Updated(); !at.IsZero() {
		out.UpdatedAt = protocol.FormatTime(at)
	}
	if withContent {
		out.Content = &f.Body
		if raw {
			out.Content = &f.Text
		}
	}
	return out
}

// memorySearch ranks the newest commit's files.
func memorySearch(ctx context.Context, k *call, cmd *protocol.MemorySearch) (*protocol.MemorySearchResponse, error) {
	resp := &protocol.MemorySearchResponse{Mode: memory.ModeLexical}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	q := memory.Query{Text: cmd.Query}
	if cmd.TopK != nil {
		if q.TopK = *cmd.TopK; q.TopK == 0 {
			q.TopK = -1 // given, and not allowed
		}
	}
	q.Embedder, q.Model = k.door.roster.Embedder(ctx, ag, "")
	found, err := k.door.memory.Search(ctx, ag.ID, q)
	if err != nil {
		return resp, err
	}
	if found.Commit != "" {
		resp.Commit = &found.Commit
	}
	resp.Mode, resp.Warning = found.Mode, found.Warning
	for _, h := range found.Hits {
		hit := protocol.MemoryHit{ID: h.ID, Path: h.Path, URI: h.URI, Label: h.Label, Score: h.Score, Snippet: h.Snippet, Tags: h.Tags}
		if !h.Updated.IsZero() {
			hit.UpdatedAt = protocol.FormatTime(h.Updated)
		}
		resp.Results = append(resp.Results, hit)
	}
	return resp, nil
}

// watchChanges turns the change events of all agents on or off.
func watchChanges(_ context.Context, k *call, cmd *protocol.WatchChanges) (*protocol.WatchChangesResponse, error) {
	k.door.watchChanges(k.conn, cmd.Enabled)
	return &protocol.WatchChangesResponse{Enabled: cmd.Enabled}, nil
}

// watchChanges has a connection told of every change, or no longer. The door
// subscribes once for all that want it.
func (d *Door) watchChanges(c *conn, on bool) {
	d.mu.Lock()
	var leave func()
	if on {
		d.watchers[c] = true
		if d.leaveChanges == nil {
			d.leaveChanges = d.rt.Subscribe(agent.Scope{}, d.tellChange)
		}
	} else {
		delete(d.watchers, c)
		if len(d.watchers) == 0 && d.leaveChanges != nil {
			leave, d.leaveChanges = d.leaveChanges, nil
		}
	}
	d.mu.Unlock()
	c.mu.Lock()
	c.watching = on
	c.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// tellChange takes a change to those who watch. It runs in the goroutine that
// publishes.
func (d *Door) tellChange(ev *agent.Event) {
	p, ok := ev.Payload.(agent.Changed)
	if !ok {
		return
	}
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.watchers))
	d.mu.Unlock()
	if p.Change == agent.ChangeCommitted {
		for _, c := range conns {
			c.memoryUpdated(p.AgentID, p.Commit, p.Paths)
		}
		return
	}
	body, err := protocol.AppendEvent(nil, protocol.Runtime{}, changeEvent(p, ev.At))
	if err != nil {
		d.log.Error("encode change event", "err", err)
		return
	}
	fr := &frame{body: body}
	for _, c := range conns {
		c.send(fr)
	}
}

func changeEvent(p agent.Changed, at time.Time) protocol.EventBody {
	if p.ConversationID == "" {
		return &protocol.AgentsChanged{AgentID: p.AgentID, Change: string(p.Change), Timestamp: at.UnixMilli()}
	}
	return &protocol.ConversationsChanged{
		AgentID: p.AgentID, ConversationID: p.ConversationID, Change: string(p.Change), Timestamp: at.UnixMilli(),
	}
}
