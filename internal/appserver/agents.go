package appserver

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/roster"
	"mneme/internal/store"
	"mneme/protocol"
)

var agentCommands = map[string]handler{
	"agent_list":     beside(answer(listAgents)),
	"agent_retrieve": beside(answer(retrieveAgent)),
	"agent_create":   beside(answer(createAgent)),
	"agent_update":   beside(answer(updateAgent)),
	"agent_delete":   beside(answer(deleteAgent)),
}

const (
	defaultAgentName = "Letta Code"
	memoryTag        = "git-memory-enabled"
	// originTag marks agents that are driven over this door: apps list them by it.
	// It shows once the agent has been at work.
	originTag   = "origin:letta-code"
	defaultPage = 20 // agents or conversations of a list without limit
)

func listAgents(ctx context.Context, k *call, cmd *protocol.AgentList) (*protocol.AgentListResponse, error) {
	f := store.AgentFilter{Page: store.Page{Limit: defaultPage}}
	if q := cmd.Query; q != nil {
		f.Tags = q.Tags
		copyTo(&f.IncludeHidden, q.IncludeHidden)
		if q.QueryText != nil {
			f.Query = *q.QueryText
		}
		if q.After != nil {
			f.After = *q.After
		}
		if q.Limit != nil {
			f.Limit = *q.Limit
		}
	}
	resp := &protocol.AgentListResponse{}
	if f.Limit < 0 {
		return resp, agent.Invalid("limit", "query.limit must not be negative")
	}
	if f.Limit == 0 { // to the store 0 is no limit
		return resp, nil
	}
	agents, err := k.door.store.Agents(ctx, f)
	if err != nil {
		return resp, err
	}
	parked, err := k.door.parked(ctx)
	if err != nil {
		return resp, err
	}
	for _, ag := range agents {
		st, err := k.door.renderAgent(ctx, ag, parked)
		if err != nil {
			return resp, err
		}
		resp.Agents = append(resp.Agents, *st)
	}
	return resp, nil
}

func retrieveAgent(ctx context.Context, k *call, cmd *protocol.AgentRetrieve) (*protocol.AgentRetrieveResponse, error) {
	ag, err := k.door.roster.Agent(ctx, cmd.AgentID)
	if err != nil {
		return nil, err
	}
	st, err := k.door.agentState(ctx, ag)
	return &protocol.AgentRetrieveResponse{Agent: st}, err
}

func createAgent(ctx context.Context, k *call, cmd *protocol.AgentCreate) (*protocol.AgentCreateResponse, error) {
	ag, err := k.door.roster.CreateAgent(ctx, agentSpec(&cmd.Body, true))
	if err != nil {
		return nil, err
	}
	st, err := k.door.agentState(ctx, ag)
	return &protocol.AgentCreateResponse{Agent: st}, err
}

func updateAgent(ctx context.Context, k *call, cmd *protocol.AgentUpdate) (*protocol.AgentUpdateResponse, error) {
	ag, err := k.door.roster.UpdateAgent(ctx, cmd.AgentID, agentPatch(&cmd.Body))
	if err != nil {
		return nil, err
	}
	st, err := k.door.agentState(ctx, ag)
	return &protocol.AgentUpdateResponse{Agent: st}, err
}

func deleteAgent(ctx context.Context, k *call, cmd *protocol.AgentDelete) (*protocol.AgentDeleteResponse, error) {
	return &protocol.AgentDeleteResponse{AgentID: cmd.AgentID}, k.door.roster.DeleteAgent(ctx, cmd.AgentID)
}

// agentSpec translates the body of a new agent. memfs tags it as one whose
// memory is a repository.
func agentSpec(b *protocol.AgentBody, memfs bool) roster.AgentSpec {
	spec := roster.AgentSpec{
		Name: defaultAgentName, Description: b.Description.Value, ModelSettings: settingsMap(b.ModelSettings),
		ParallelCalls: b.ParallelToolCalls, Tags: slices.Clone(b.Tags), Hidden: b.Hidden, Toolset: string(protocol.ToolsetAuto),
	}
	if b.Name != nil && *b.Name != "" {
		spec.Name = *b.Name
	}
	copyTo(&spec.System, b.System)
	copyTo(&spec.Model, b.Model)
	copyTo(&spec.ContextLimit, b.ContextWindowLimit)
	copyTo(&spec.MaxTokens, b.MaxTokens)
	if b.CompactionSettings.Value != nil {
		spec.Compaction = json.RawMessage(*b.CompactionSettings.Value)
	}
	if memfs && !slices.Contains(spec.Tags, memoryTag) {
		spec.Tags = append(spec.Tags, memoryTag)
	}
	if !slices.Contains(spec.Tags, originTag) {
		spec.Tags = append(spec.Tags, originTag)
	}
	if b.Embedding != nil {
		if extra, err := json.Marshal(map[string]string{"embedding": *b.Embedding}); err == nil {
			spec.Extra = extra
		}
	}
	for _, m := range b.MemoryBlocks {
		spec.Blocks = append(spec.Blocks, roster.BlockSpec{Label: m.Label, Value: m.Value, Description: m.Description})
	}
	return spec
}

func agentPatch(b *protocol.AgentBody) roster.AgentPatch {
	p := roster.AgentPatch{
		Name: b.Name, System: b.System, Model: b.Model, ModelSettings: settingsMap(b.ModelSettings),
		ContextLimit: b.ContextWindowLimit, MaxTokens: b.MaxTokens, ParallelCalls: b.ParallelToolCalls,
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
	if b.CompactionSettings.Set {
		raw := json.RawMessage("null")
		if b.CompactionSettings.Value != nil {
			raw = json.RawMessage(*b.CompactionSettings.Value)
		}
		p.Compaction = &raw
	}
	return p
}

func copyTo[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// settingsMap splits an object into its fields; nil for none.
func settingsMap(o protocol.Object) map[string]json.RawMessage {
	if o == nil {
		return nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(o, &m) != nil {
		return nil // the decoder let only objects through
	}
	return m
}

// parked lists the calls that wait, by agent: the one asked first.
func (d *Door) parked(ctx context.Context) (map[string]*agent.ToolCall, error) {
	turns, err := d.store.ParkedTurns(ctx)
	if err != nil {
		return nil, err
	}
	calls := map[string]*agent.ToolCall{}
	for _, t := range turns {
		if len(t.Calls) > 0 && calls[t.Turn.AgentID] == nil {
			calls[t.Turn.AgentID] = t.Calls[0]
		}
	}
	return calls, nil
}

func (d *Door) agentState(ctx context.Context, ag *agent.Agent) (*protocol.AgentState, error) {
	parked, err := d.parked(ctx)
	if err != nil {
		return nil, err
	}
	return d.renderAgent(ctx, ag, parked)
}

// renderAgent shows an agent (spec/app-server-commands.md section 4.1).
func (d *Door) renderAgent(ctx context.Context, ag *agent.Agent, parked map[string]*agent.ToolCall) (*protocol.AgentState, error) {
	own, err := d.store.OwnConversation(ctx, ag.ID)
	if err != nil {
		return nil, err
	}
	ids, err := d.store.ContextIDs(ctx, own.ID)
	if err != nil {
		return nil, err
	}
	config, handle := d.llmConfig(ctx, ag)
	st := &protocol.AgentState{
		ID: ag.ID, Name: ag.Name, Description: ag.Description, System: ag.System, Tags: ag.Tags,
		Model: handle, ModelSettings: modelSettings(ag.ModelSettings, ag.ContextLimit), Hidden: ag.Hidden,
		MessageIDs: ids, InContextMessageIDs: ids, LLMConfig: config,
		CreatedAt: protocol.FormatTime(ag.CreatedAt), UpdatedAt: protocol.FormatTime(ag.UpdatedAt),
		LastRunCompletion: protocol.FormatTime(ag.UpdatedAt),
	}
	if ag.LastRunAt.IsZero() && parked[ag.ID] == nil {
		st.Tags = slices.DeleteFunc(slices.Clone(ag.Tags), func(t string) bool { return t == originTag })
	}
	if !own.LastMessageAt.IsZero() {
		st.LastRunCompletion = protocol.FormatTime(own.LastMessageAt)
	}
	if ag.Compaction != nil {
		st.CompactionSettings = protocol.Some(protocol.Object(ag.Compaction))
	}
	if c := parked[ag.ID]; c != nil {
		conversation := c.ConversationID
		if conversation == own.ID {
			conversation = agent.DefaultConversation
		}
		st.PendingApproval = &protocol.PendingApproval{
			RequestID: requestPrefix + c.ID, ConversationID: conversation, Kind: string(c.Kind),
			ToolName: c.Name, ToolCallID: c.ID, Input: inputObject(c.Input),
		}
	}
	return st, nil
}

// llmConfig describes the agent's model, and names it by its handle: "auto" is
// shown as what it stands for now. The window is the agent's limit, or the
// default: what the model itself has is told by list_models.
func (d *Door) llmConfig(ctx context.Context, ag *agent.Agent) (protocol.LLMConfig, string) {
	const defaultWindow = 128_000
	handle := ag.Model
	_, name, ok := strings.Cut(handle, "/")
	if !ok {
		name = handle
	}
	c := protocol.LLMConfig{Model: name, ModelEndpoint: "https://example.invalid/v1", ContextWindow: defaultWindow}
	if _, info, err := d.models.Resolve(ctx, ag.Model); err == nil {
		handle, c.Model = info.Handle, info.Name
		if info.ProviderType != "" {
			c.ModelEndpointType = &info.ProviderType
		}
	} // an unknown model fails in the turn; here it is just shown
	if ag.ContextLimit > 0 {
		c.ContextWindow = ag.ContextLimit
	}
	var s struct {
		MaxTokens       *int    `json:"max_tokens"`
		ReasoningEffort *string `json:"reasoning_effort"`
		EnableReasoner  *bool   `json:"enable_reasoner"`
	}
	if json.Unmarshal(ag.ModelSettings, &s) == nil {
		c.MaxTokens, c.ReasoningEffort, c.EnableReasoner = s.MaxTokens, s.ReasoningEffort, s.EnableReasoner
	}
	return c, handle
}

// modelSettings shows stored settings with the context limit, which has a
// column of its own.
func modelSettings(raw json.RawMessage, limit int) protocol.Object {
	if limit <= 0 {
		return protocol.Object(raw)
	}
	m := settingsMap(protocol.Object(raw))
	if m == nil {
		m = map[string]json.RawMessage{}
	}
	if b, err := json.Marshal(limit); err == nil {
		m["context_window_limit"] = b
	}
	b, err := protocol.Marshal(m)
	if err != nil {
		return protocol.Object(raw)
	}
	return b
}
