package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

// extensions are those of the server; none for a stock one.
func (b *Bridge) extensions(ctx context.Context) (protocol.Extensions, error) {
	conn, err := b.connect(ctx)
	if err != nil || conn.mneme == nil {
		return protocol.Extensions{}, err
	}
	return *conn.mneme, nil
}

// Memory implements Backend.
func (b *Bridge) Memory(ctx context.Context, agentID string, v View) (*Memory, error) {
	x, err := b.extensions(ctx)
	switch {
	case err != nil:
		return nil, err
	case !x.MemorySnapshot:
		return b.stockMemory(ctx, agentID)
	}
	all, err := read(ctx, b, &protocol.MemorySnapshot{AgentID: agentID, Content: new(false)})
	if err != nil {
		return nil, err
	}
	m := &Memory{Snapshot: &memory.Snapshot{}, Times: map[string]time.Time{}}
	if all.Commit == nil {
		return m, nil
	}
	m.Commit = *all.Commit
	var core []string
	for _, f := range all.Files {
		file := fileOf(f.RelativePath, f.Kind, f.Size, f.Description, f.Tags)
		file.ReadOnly = f.ReadOnly
		if f.Limit != nil {
			file.Front["limit"], file.Limit = *f.Limit, *f.Limit
		}
		if t, err := protocol.ParseTime(f.UpdatedAt); err == nil {
			m.Times[f.RelativePath] = t
		}
		m.Files = append(m.Files, file)
		if file.Label() != "" {
			core = append(core, f.RelativePath)
		}
	}
	sortFiles(m.Files)
	if v != Core || len(core) == 0 {
		return m, nil
	}
	bodies, err := read(ctx, b, &protocol.MemorySnapshot{AgentID: agentID, Ref: all.Commit, Paths: core})
	if err != nil {
		return nil, err
	}
	for _, f := range bodies.Files {
		if file := m.File(f.RelativePath); file != nil && f.Content != nil {
			file.Body = *f.Content
		}
	}
	return m, nil
}

// fileOf is a file as an App Server lists it. Its size is kept as the size of a
// body that is not there.
func fileOf(p, kind string, size int, description *string, tags []string) *memory.File {
	f := &memory.File{Path: p, Kind: memory.Kind(kind), Mode: "100644", Size: int64(size), Limit: memory.DefaultLimit, Front: map[string]any{}, Oversized: true}
	if description != nil {
		f.Description = *description
	}
	if len(tags) > 0 {
		list := make([]any, len(tags))
		for i, t := range tags {
			list[i] = t
		}
		f.Front["tags"] = list
	}
	return f
}

func sortFiles(files []*memory.File) {
	slices.SortFunc(files, func(a, b *memory.File) int { return strings.Compare(a.Path, b.Path) })
}

// MemoryFile implements Backend.
func (b *Bridge) MemoryFile(ctx context.Context, agentID, p string) ([]byte, error) {
	if _, err := b.Agent(ctx, agentID); err != nil {
		return nil, err // a stock server would make a repository for anybody
	}
	clean, err := memory.CleanPath(p)
	if err != nil {
		return nil, err
	}
	cmd := &protocol.ReadMemoryFile{AgentID: agentID, Path: clean}
	image := !strings.HasPrefix(memory.MediaType(clean), "text/")
	if image {
		cmd.Encoding = protocol.Base64
	}
	r, err := read(ctx, b, cmd)
	if err != nil {
		if isAnswer(err) && explain(err).Code == CodeRefused {
			// Servers word it differently that a file is not there.
			err = agent.Errorf(agent.CodeNotFound, "there is no memory file %s", clean)
		}
		return nil, err
	}
	if r.Content == nil {
		return nil, agent.Errorf(agent.CodeNotFound, "there is no memory file %s", clean)
	}
	if image {
		return base64.StdEncoding.DecodeString(*r.Content)
	}
	return []byte(*r.Content), nil
}

// MemoryHistory implements Backend.
func (b *Bridge) MemoryHistory(ctx context.Context, agentID, p string) ([]memory.Commit, error) {
	return b.history(ctx, agentID, p, memory.DefaultHistory)
}

func (b *Bridge) history(ctx context.Context, agentID, p string, limit int) ([]memory.Commit, error) {
	cmd := &protocol.MemoryHistory{AgentID: agentID, Limit: &limit}
	if p != "" {
		clean, err := memory.CleanPath(p) // a stock server never answers for paths outside
		if err != nil {
			return nil, err
		}
		cmd.FilePath = &clean
	}
	r, err := read(ctx, b, cmd)
	if err != nil {
		return nil, err
	}
	list := make([]memory.Commit, len(r.Commits))
	for i, c := range r.Commits {
		list[i] = memory.Commit{SHA: c.SHA, Message: c.Message, AuthorName: c.AuthorName}
		if t, err := protocol.ParseTime(c.Timestamp); err == nil {
			list[i].Time = t
		}
	}
	return list, nil
}

// head is the newest commit of an agent's memory; "" = there is none.
func (b *Bridge) head(ctx context.Context, agentID string) (string, error) {
	list, err := b.history(ctx, agentID, "", 1)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0].SHA, nil
}

// Search implements Backend.
func (b *Bridge) Search(ctx context.Context, agentID, query string, topK int) (*SearchResult, error) {
	x, err := b.extensions(ctx)
	switch {
	case err != nil:
		return nil, err
	case !x.MemorySearch:
		return b.stockSearch(ctx, agentID, memory.Query{Text: query, TopK: topK})
	}
	r, err := read(ctx, b, &protocol.MemorySearch{AgentID: agentID, Query: query, TopK: &topK})
	if err != nil {
		return nil, err
	}
	return &SearchResult{Mode: r.Mode, Results: r.Results, Warning: r.Warning}, nil
}

// rawFiles is a snapshot of files as they are stored, front matter and all: what
// plans are made with. No paths mean all files of a mneme; a stock server is asked
// for each.
func (b *Bridge) rawFiles(ctx context.Context, agentID string, paths []string) (*memory.Snapshot, error) {
	r, err := read(ctx, b, &protocol.MemorySnapshot{AgentID: agentID, Paths: paths, Raw: new(true)})
	if err != nil {
		return nil, err
	}
	texts, commit := map[string]string{}, ""
	for _, f := range r.Files {
		if f.Content != nil {
			texts[f.RelativePath] = *f.Content
		}
	}
	if r.Commit != nil {
		commit = *r.Commit
	}
	return memory.NewSnapshot(commit, texts), nil
}

// Save implements Backend.
func (b *Bridge) Save(ctx context.Context, agentID string, item memory.Item) (memory.Saved, error) {
	unlock, err := b.saving.lock(ctx, agentID)
	if err != nil {
		return memory.Saved{}, err
	}
	defer unlock()
	snap, err := b.itemFiles(ctx, agentID, memory.ItemID(item.Text))
	if err != nil {
		return memory.Saved{}, err
	}
	saved, changes, err := item.Plan(snap, time.Now())
	if err != nil {
		return memory.Saved{}, err
	}
	commit, err := b.apply(ctx, agentID, changes, "Save "+clip(line(item.Text), 60))
	if err != nil {
		return memory.Saved{}, err
	}
	return saved.At(cmp.Or(commit, snap.Commit)), nil
}

// itemFiles is a snapshot of the files that may be a saved item.
func (b *Bridge) itemFiles(ctx context.Context, agentID, id string) (*memory.Snapshot, error) {
	x, err := b.extensions(ctx)
	if err != nil {
		return nil, err
	}
	if !x.MemorySnapshot {
		return b.stockItem(ctx, agentID, id)
	}
	digits := strings.TrimPrefix(id, itemPrefix)
	return b.rawFiles(ctx, agentID, []string{savedDir + digits[:2]})
}

// apply makes changes, of which there is one at most, and returns the commit; ""
// = nothing changed.
func (b *Bridge) apply(ctx context.Context, agentID string, changes []memory.FileChange, message string) (string, error) {
	commit := ""
	for _, c := range changes {
		var sha string
		if c.Delete {
			r, err := write(ctx, b, &protocol.DeleteMemoryFile{AgentID: agentID, Path: c.Path, CommitMessage: &message})
			if err != nil {
				return "", err
			}
			sha = r.CommitSHA
		} else {
			r, err := write(ctx, b, &protocol.WriteMemoryFile{AgentID: agentID, Path: c.Path, Content: string(c.Content), CommitMessage: &message})
			if err != nil {
				return "", err
			}
			sha = r.CommitSHA
		}
		if sha != "" {
			commit = sha
			b.seen(agentID, sha)
			b.changed(Change{AgentID: agentID, Commit: sha, Paths: []string{c.Path}})
		}
	}
	return commit, nil
}

// WriteFile implements Backend.
func (b *Bridge) WriteFile(ctx context.Context, agentID, p, content, message string) error {
	_, err := b.apply(ctx, agentID, []memory.FileChange{{Path: p, Content: []byte(content)}}, message)
	return err
}

// DeleteItem implements Backend.
func (b *Bridge) DeleteItem(ctx context.Context, agentID, ref string) (memory.Removed, error) {
	unlock, err := b.saving.lock(ctx, agentID)
	if err != nil {
		return memory.Removed{}, err
	}
	defer unlock()
	x, err := b.extensions(ctx)
	if err != nil {
		return memory.Removed{}, err
	}
	var snap *memory.Snapshot
	if x.MemorySnapshot {
		snap, err = b.rawFiles(ctx, agentID, nil)
	} else {
		snap, ref, err = b.stockFind(ctx, agentID, ref)
	}
	if err != nil {
		return memory.Removed{}, err
	}
	removed, changes, err := snap.PlanDelete(ref)
	if err != nil {
		return memory.Removed{}, err
	}
	commit, err := b.apply(ctx, agentID, changes, "Delete "+clip(line(ref), 60))
	if err != nil {
		return memory.Removed{}, err
	}
	if commit == "" {
		return memory.Removed{}, agent.Errorf(agent.CodeNotFound, "%s is gone already", removed.Path)
	}
	return removed.At(commit), nil
}

// seen notes the newest commit that we know of.
func (b *Bridge) seen(agentID, commit string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.mneme == nil {
		b.heads[agentID] = commit
	}
}
