package appserver

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

var memoryCommands = map[string]handler{
	"list_memory":        beside(answer(listMemory)),
	"memory_history":     beside(answer(memoryHistory)),
	"memory_file_at_ref": beside(answer(memoryFileAtRef)),
	"memory_commit_diff": beside(answer(memoryCommitDiff)),
	"read_memory_file":   beside(answer(readMemoryFile)),
	"write_memory_file":  beside(answer(writeMemoryFile)),
	"delete_memory_file": beside(answer(deleteMemoryFile)),
	"enable_memfs":       beside(answer(enableMemfs)),
}

// memoryChunk is how many entries one frame of a listing has.
const memoryChunk = 5

// listMemory answers in several frames, the last of which is done.
func listMemory(ctx context.Context, k *call, cmd *protocol.ListMemory) (*protocol.ListMemoryResponse, error) {
	resp := protocol.ListMemoryResponse{Done: true}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return &resp, err
	}
	snap, err := k.door.memory.Snapshot(ctx, ag.ID, "")
	if err != nil {
		return &resp, err
	}
	entries := snap.Entries()
	resp.Total, resp.MemfsEnabled, resp.MemfsInitialized = len(entries), true, true
	if len(entries) == 0 {
		return &resp, nil
	}
	for chunk := range slices.Chunk(entries, memoryChunk) {
		part := resp
		part.Entries = nil
		for _, e := range chunk {
			entry := memoryEntry(e)
			if cmd.IncludeReferences != nil && *cmd.IncludeReferences {
				entry.References = append([]string{}, snap.References(snap.File(e.Path))...)
			}
			part.Entries = append(part.Entries, entry)
		}
		entries = entries[len(chunk):]
		part.Done = len(entries) == 0
		k.ok(&part)
	}
	return nil, nil
}

// memoryEntry shows a file of a listing: of Markdown the text without the blank
// lines around it.
func memoryEntry(e memory.Entry) protocol.MemoryEntry {
	out := protocol.MemoryEntry{
		RelativePath: e.Path, IsSystem: e.System, Description: e.Description, Content: strings.TrimSpace(e.Content),
		Size: int(e.Size), Kind: string(e.Kind), MimeType: e.MediaType,
	}
	if e.Kind == memory.KindMarkdown {
		out.Size = utf8.RuneCountInString(out.Content)
	}
	return out
}

func memoryHistory(ctx context.Context, k *call, cmd *protocol.MemoryHistory) (*protocol.MemoryHistoryResponse, error) {
	resp := &protocol.MemoryHistoryResponse{}
	copyTo(&resp.FilePath, cmd.FilePath)
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	limit := 0
	copyTo(&limit, cmd.Limit)
	commits, err := k.door.memory.History(ctx, ag.ID, resp.FilePath, limit)
	for _, c := range commits {
		resp.Commits = append(resp.Commits, protocol.MemoryCommit{
			SHA: c.SHA, Message: c.Message, AuthorName: c.AuthorName, Timestamp: c.Time.UTC().Format("2006-01-02T15:04:05-07:00"),
		})
	}
	return resp, err
}

func memoryFileAtRef(ctx context.Context, k *call, cmd *protocol.MemoryFileAtRef) (*protocol.MemoryFileAtRefResponse, error) {
	resp := &protocol.MemoryFileAtRefResponse{FilePath: cmd.FilePath, Ref: cmd.Ref}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	data, err := k.door.memory.At(ctx, ag.ID, cmd.FilePath, cmd.Ref)
	if err != nil {
		return resp, err
	}
	text := string(data)
	resp.Content = &text
	return resp, nil
}

func memoryCommitDiff(ctx context.Context, k *call, cmd *protocol.MemoryCommitDiff) (*protocol.MemoryCommitDiffResponse, error) {
	resp := &protocol.MemoryCommitDiffResponse{SHA: cmd.SHA}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	diff, err := k.door.memory.Diff(ctx, ag.ID, cmd.SHA)
	if err == nil {
		resp.Diff = &diff
	}
	return resp, err
}

func readMemoryFile(ctx context.Context, k *call, cmd *protocol.ReadMemoryFile) (*protocol.ReadMemoryFileResponse, error) {
	resp := &protocol.ReadMemoryFileResponse{AgentID: cmd.AgentID, Path: cmd.Path, Encoding: cmd.Encoding}
	if resp.Encoding == "" {
		resp.Encoding = protocol.UTF8
	}
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return resp, err
	}
	path, err := memory.CleanPath(cmd.Path)
	if err != nil {
		return resp, err
	}
	resp.Path = path
	data, err := k.door.memory.Read(ctx, ag.ID, path)
	if err != nil {
		return resp, err
	}
	text := string(data)
	switch {
	case resp.Encoding == protocol.Base64:
		text = base64.StdEncoding.EncodeToString(data)
	case !utf8.Valid(data):
		return resp, agent.Invalid("path", "File is not valid UTF-8 text: %s", path)
	}
	resp.Content = &text
	return resp, nil
}

func writeMemoryFile(ctx context.Context, k *call, cmd *protocol.WriteMemoryFile) (*protocol.WriteMemoryFileResponse, error) {
	resp := &protocol.WriteMemoryFileResponse{AgentID: cmd.AgentID, Path: cmd.Path}
	data := []byte(cmd.Content)
	if cmd.Encoding == protocol.Base64 {
		var err error
		if data, err = base64.StdEncoding.DecodeString(cmd.Content); err != nil {
			return resp, agent.Invalid("content", "write_memory_file: content is not valid base64")
		}
	}
	message := "Update memory file "
	commit, changed, err := k.changeMemory(ctx, cmd.AgentID, memory.FileChange{Path: cmd.Path, Content: data, Force: true}, message, cmd.CommitMessage)
	if err == nil && changed {
		resp.Committed, resp.CommitSHA = true, commit
	}
	return resp, err
}

func deleteMemoryFile(ctx context.Context, k *call, cmd *protocol.DeleteMemoryFile) (*protocol.DeleteMemoryFileResponse, error) {
	resp := &protocol.DeleteMemoryFileResponse{AgentID: cmd.AgentID, Path: cmd.Path}
	message := "Delete memory file "
	commit, changed, err := k.changeMemory(ctx, cmd.AgentID, memory.FileChange{Path: cmd.Path, Delete: true, Force: true}, message, cmd.CommitMessage)
	if err == nil && changed {
		resp.Committed, resp.CommitSHA = true, commit
	}
	return resp, err
}

// changeMemory commits one change of a client, who owns the agent and may change
// read-only files too. The sender hears memory_updated before its answer.
func (k *call) changeMemory(ctx context.Context, agentID string, c memory.FileChange, prefix string, message *string) (string, bool, error) {
	ag, err := k.door.roster.Agent(ctx, agentID)
	if err != nil {
		return "", false, err
	}
	path, err := memory.CleanPath(c.Path)
	if err != nil {
		var e *agent.Error
		if errors.As(err, &e) {
			err = &agent.Error{Code: e.Code, Field: e.Field, Message: k.frame.Type + ": " + e.Message}
		}
		return "", false, err
	}
	c.Path = path
	text := prefix + path
	if message != nil && *message != "" {
		text = *message
	}
	commit, changed, err := k.door.memory.Write(ctx, memory.Author{Name: ag.Name}, ag.ID, []memory.FileChange{c}, text)
	if err == nil && changed {
		k.memoryUpdated(ag.ID, commit, []string{path})
	}
	return commit, changed, err
}

// enableMemfs names the memory directory: every agent has one, made at its first
// write.
func enableMemfs(ctx context.Context, k *call, cmd *protocol.EnableMemfs) (*protocol.EnableMemfsResponse, error) {
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return nil, err
	}
	k.ok(&protocol.EnableMemfsResponse{MemoryDirectory: k.door.memory.Dir(ag.ID)})
	k.memoryUpdated(ag.ID, "", []string{"*"})
	return nil, nil
}

// A memoryFeed is the door's subscription to the memory changes of one agent,
// for the connections that are subscribed to a runtime of it.
type memoryFeed struct {
	leave func()
	conns map[*conn]bool // guarded by the door's mutex
}

// watchMemory has the connection told of memory changes of an agent.
func (d *Door) watchMemory(c *conn, agentID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.memories[agentID]
	if m == nil {
		m = &memoryFeed{conns: map[*conn]bool{}}
		d.memories[agentID] = m
		m.leave = d.rt.Subscribe(agent.Scope{AgentID: agentID}, func(ev *agent.Event) {
			if p, ok := ev.Payload.(agent.MemoryChanged); ok {
				d.tellMemory(m, agentID, p)
			}
		})
	}
	m.conns[c] = true
}

func (d *Door) tellMemory(m *memoryFeed, agentID string, p agent.MemoryChanged) {
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(m.conns))
	d.mu.Unlock()
	for _, c := range conns {
		c.memoryUpdated(agentID, p.Commit, p.Paths)
	}
}

// unwatchMemory ends what watchMemory began.
func (d *Door) unwatchMemory(c *conn) {
	var leave []func()
	d.mu.Lock()
	for id, m := range d.memories {
		delete(m.conns, c)
		if len(m.conns) == 0 {
			delete(d.memories, id)
			leave = append(leave, m.leave)
		}
	}
	d.mu.Unlock()
	for _, f := range leave {
		f()
	}
}

// keepCommits is how many commits a connection remembers having been told of.
const keepCommits = 16

// memoryUpdated tells of a commit, once; a commit of "" is always told.
func (c *conn) memoryUpdated(agentID, commit string, paths []string) {
	c.mu.Lock()
	known := commit != "" && slices.Contains(c.commits, commit)
	if commit != "" && !known {
		c.commits = append(c.commits, commit)
		if len(c.commits) > keepCommits {
			c.commits = slices.Delete(c.commits, 0, 1)
		}
	}
	named := c.watching
	c.mu.Unlock()
	if known {
		return
	}
	ev := &protocol.MemoryUpdated{AffectedPaths: paths, Timestamp: time.Now().UnixMilli(), AgentID: agentID}
	if named {
		ev.Commit = commit
	}
	body, err := protocol.AppendEvent(nil, protocol.Runtime{}, ev)
	if err != nil {
		c.door.log.Error("encode memory_updated", "err", err)
		return
	}
	c.send(&frame{body: body})
}
