package mcpserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/protocol"
)

// Parts are the pieces of a mneme in the same process that an Embedded works on.
// All but Logger are required.
type Parts struct {
	Roster  *roster.Roster
	Runtime *runtime.Manager
	Store   *store.Store
	Memory  *memory.Memory
	Models  *llm.Catalogue
	Version string
	URL     string       // of the App Server, as bridge_health tells it
	Logger  *slog.Logger // nil = silent
}

// Embedded is the Backend of a mneme in the same process.
type Embedded struct {
	Parts
	dir       string // of turns; "" = the server's
	embedding string // of agents without one; "" = none
}

// NewEmbedded makes the Backend. A default working directory that does not exist
// is left to the server.
func NewEmbedded(cfg *Config, p Parts) *Embedded {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Embedded{Parts: p, dir: cfg.Dir, embedding: cfg.Embedding}
	if info, err := os.Stat(cfg.Dir); !cfg.DirGiven && (err != nil || !info.IsDir()) {
		e.dir = ""
	}
	return e
}

// Watch implements Backend.
func (e *Embedded) Watch(tell func(Change)) (stop func()) {
	return e.Runtime.Subscribe(agent.Scope{}, func(ev *agent.Event) {
		p, ok := ev.Payload.(agent.Changed)
		switch {
		case !ok || p.ConversationID != "":
		case p.Change == agent.ChangeCommitted:
			tell(Change{AgentID: p.AgentID, Commit: p.Commit, Paths: p.Paths})
		default:
			tell(Change{AgentID: p.AgentID, Agent: string(p.Change)})
		}
	})
}

// Info implements Backend.
func (e *Embedded) Info(context.Context) Info {
	return Info{Configured: true, URL: e.URL, Version: e.Version, Protocol: 1, Embeddings: true}
}

// Models implements Backend, in the form of the App Server's list_models.
func (e *Embedded) Models(ctx context.Context) (*protocol.ListModelsResponse, error) {
	infos, err := e.Parts.Models.List(ctx, false)
	if err != nil {
		return nil, err
	}
	byDefault, _ := e.Parts.Models.Default(ctx) // none is marked where there is none
	names := map[string]int{}
	for _, i := range infos {
		names[i.Name]++
	}
	resp, handles := &protocol.ListModelsResponse{}, protocol.List[string]{}
	for _, i := range infos {
		entry := protocol.ModelEntry{ID: i.Name, Handle: i.Handle, Label: i.Label, UpdateArgs: &protocol.UpdateArgs{
			ProviderType: i.ProviderType, ContextWindow: i.Context, MaxOutputTokens: i.MaxOutput, ParallelToolCalls: true,
		}}
		if names[i.Name] > 1 {
			entry.ID = i.Handle
		}
		if entry.Label == "" {
			entry.Label = i.Name
		}
		if i.Handle == byDefault {
			entry.IsDefault = new(true)
		}
		resp.Entries, handles = append(resp.Entries, entry), append(handles, i.Handle)
	}
	resp.AvailableHandles = protocol.Some(handles)
	return resp, nil
}

// Agents implements Backend.
func (e *Embedded) Agents(ctx context.Context) ([]Agent, error) {
	rows, err := e.Store.Agents(ctx, store.AgentFilter{IncludeHidden: true})
	if err != nil {
		return nil, err
	}
	list := make([]Agent, len(rows))
	shown := map[string]string{}
	for i, row := range rows {
		handle, ok := shown[row.Model]
		if !ok {
			handle = e.handle(ctx, row.Model)
			shown[row.Model] = handle
		}
		list[i] = summary(row, handle)
	}
	return list, nil
}

// handle is the model that a stored one stands for now.
func (e *Embedded) handle(ctx context.Context, model string) string {
	if _, info, err := e.Parts.Models.Resolve(ctx, model); err == nil {
		return info.Handle
	}
	return model // unknown ones are just shown
}

// summary is a row as tools look at it.
func summary(row *agent.Agent, handle string) Agent {
	a := Agent{ID: row.ID, Name: row.Name, Model: handle, Tags: row.Tags, CreatedAt: row.CreatedAt}
	if row.Description != nil {
		a.Description = *row.Description
	}
	a.Hidden = row.Hidden != nil && *row.Hidden || row.Hidden == nil && slices.Contains(row.Tags, subagentTag)
	return a
}

// Agent implements Backend.
func (e *Embedded) Agent(ctx context.Context, id string) (*Agent, error) {
	row, err := e.Roster.Agent(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.show(ctx, row)
}

// show is a row with its record, which is that of the App Server
// (spec/app-server-commands.md section 4.1).
func (e *Embedded) show(ctx context.Context, row *agent.Agent) (*Agent, error) {
	own, err := e.Store.OwnConversation(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	ids, err := e.Store.ContextIDs(ctx, own.ID)
	if err != nil {
		return nil, err
	}
	config := protocol.LLMConfig{Model: row.Model, ModelEndpoint: "https://example.invalid/v1", ContextWindow: 128_000}
	handle := row.Model
	if _, info, err := e.Parts.Models.Resolve(ctx, row.Model); err == nil {
		handle, config.Model = info.Handle, info.Name
		if info.ProviderType != "" {
			config.ModelEndpointType = &info.ProviderType
		}
	}
	if row.ContextLimit > 0 {
		config.ContextWindow = row.ContextLimit
	}
	st := protocol.AgentState{
		ID: row.ID, Name: row.Name, Description: row.Description, System: row.System, Tags: row.Tags, Model: handle,
		ModelSettings: protocol.Object(row.ModelSettings), Hidden: row.Hidden, MessageIDs: ids, InContextMessageIDs: ids, LLMConfig: config,
		CreatedAt: protocol.FormatTime(row.CreatedAt), UpdatedAt: protocol.FormatTime(row.UpdatedAt),
		LastRunCompletion: protocol.FormatTime(row.UpdatedAt),
	}
	if !own.LastMessageAt.IsZero() {
		st.LastRunCompletion = protocol.FormatTime(own.LastMessageAt)
	}
	if row.Compaction != nil {
		st.CompactionSettings = protocol.Some(protocol.Object(row.Compaction))
	}
	a := summary(row, handle)
	a.Record, err = protocol.Marshal(st)
	return &a, err
}

// defaultName is an agent's that was given none, as on the App Server.
const defaultName = "Letta Code"

// CreateAgent implements Backend.
func (e *Embedded) CreateAgent(ctx context.Context, b protocol.AgentBody) (*Agent, error) {
	spec := roster.AgentSpec{Name: defaultName, Description: b.Description.Value, Tags: slices.Clone(b.Tags), Toolset: string(protocol.ToolsetAuto)}
	if b.Name != nil {
		spec.Name = *b.Name
	}
	if b.Model != nil {
		spec.Model = *b.Model
	}
	if !slices.Contains(spec.Tags, memoryTag) {
		spec.Tags = append(spec.Tags, memoryTag)
	}
	if b.Embedding != nil {
		extra, err := json.Marshal(map[string]string{"embedding": *b.Embedding})
		if err != nil {
			return nil, err
		}
		spec.Extra = extra
	}
	for _, m := range b.MemoryBlocks {
		spec.Blocks = append(spec.Blocks, roster.BlockSpec{Label: m.Label, Value: m.Value, Description: m.Description})
	}
	row, err := e.Roster.CreateAgent(ctx, spec)
	if err != nil {
		return nil, err
	}
	return e.show(ctx, row)
}

// UpdateAgent implements Backend.
func (e *Embedded) UpdateAgent(ctx context.Context, id string, b protocol.AgentBody) (*Agent, error) {
	p := roster.AgentPatch{Name: b.Name, System: b.System, Model: b.Model, ContextLimit: b.ContextWindowLimit}
	if b.ModelSettings != nil {
		if err := json.Unmarshal(b.ModelSettings, &p.ModelSettings); err != nil {
			return nil, agent.Invalid("modelSettings", "modelSettings must be an object")
		}
	}
	if b.Description.Set {
		p.Description = &b.Description.Value
	}
	if b.Tags != nil {
		p.Tags = &b.Tags
	}
	if b.Hidden != nil {
		p.Hidden = &b.Hidden
	}
	row, err := e.Roster.UpdateAgent(ctx, id, p)
	if err != nil {
		return nil, err
	}
	return e.show(ctx, row)
}

// DeleteAgent implements Backend.
func (e *Embedded) DeleteAgent(ctx context.Context, id string) error {
	return e.Roster.DeleteAgent(ctx, id)
}

// Memory implements Backend.
func (e *Embedded) Memory(ctx context.Context, agentID string, v View) (*Memory, error) {
	snap, err := e.Parts.Memory.Snapshot(ctx, agentID, "")
	if err != nil {
		return nil, err
	}
	if v == Dated {
		if err := e.Parts.Memory.Date(ctx, agentID, snap, snap.Files); err != nil {
			return nil, err
		}
	}
	return &Memory{Snapshot: snap}, nil
}

// MemoryFile implements Backend: the file as the newest commit has it.
func (e *Embedded) MemoryFile(ctx context.Context, agentID, path string) ([]byte, error) {
	snap, err := e.Parts.Memory.Snapshot(ctx, agentID, "")
	if err != nil {
		return nil, err
	}
	f := snap.File(path)
	switch {
	case f == nil || !f.Served():
		return nil, agent.Errorf(agent.CodeNotFound, "there is no memory file %s", path)
	case f.Kind == memory.KindMarkdown && !f.Oversized:
		return []byte(f.Text), nil
	}
	return e.Parts.Memory.At(ctx, agentID, path, snap.Commit)
}

// MemoryHistory implements Backend.
func (e *Embedded) MemoryHistory(ctx context.Context, agentID, path string) ([]memory.Commit, error) {
	return e.Parts.Memory.History(ctx, agentID, path, memory.DefaultHistory)
}

// Search implements Backend.
func (e *Embedded) Search(ctx context.Context, agentID, query string, topK int) (*SearchResult, error) {
	row, err := e.Roster.Agent(ctx, agentID)
	if err != nil {
		return nil, err
	}
	q := memory.Query{Text: query, TopK: topK}
	q.Embedder, q.Model = e.Roster.Embedder(ctx, row, e.embedding)
	found, err := e.Parts.Memory.Search(ctx, agentID, q)
	if err != nil {
		return nil, err
	}
	return &SearchResult{Mode: found.Mode, Results: hits(found.Hits), Warning: found.Warning}, nil
}

// hits are results in the form that is shown.
func hits(list []memory.Hit) []protocol.MemoryHit {
	out := make([]protocol.MemoryHit, len(list))
	for i, h := range list {
		out[i] = protocol.MemoryHit{
			ID: h.ID, Path: h.Path, URI: h.URI, Label: h.Label, Score: h.Score, Snippet: h.Snippet, Tags: h.Tags, UpdatedAt: timeOf(h.Updated),
		}
	}
	return out
}

// Save implements Backend.
func (e *Embedded) Save(ctx context.Context, agentID string, item memory.Item) (memory.Saved, error) {
	return e.Parts.Memory.Save(ctx, memory.Author{}, agentID, item)
}

// DeleteItem implements Backend.
func (e *Embedded) DeleteItem(ctx context.Context, agentID, ref string) (memory.Removed, error) {
	return e.Parts.Memory.DeleteItem(ctx, memory.Author{}, agentID, ref)
}

// WriteFile implements Backend.
func (e *Embedded) WriteFile(ctx context.Context, agentID, path, content, message string) error {
	_, _, err := e.Parts.Memory.Write(ctx, memory.Author{}, agentID, []memory.FileChange{{Path: path, Content: []byte(content)}}, message)
	return err
}
