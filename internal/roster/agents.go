package roster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/store"
)

// CreateAgent makes an agent with its own conversation and its memory blocks, or
// nothing at all.
func (r *Roster) CreateAgent(ctx context.Context, spec AgentSpec) (*agent.Agent, error) {
	ag, err := r.newAgent(ctx, spec)
	if err != nil {
		return nil, err
	}
	core, blocks, err := r.newCore(ctx, spec)
	if err != nil {
		return nil, err
	}
	own := &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: ag.ID, Own: true,
		CreatedAt: ag.CreatedAt, UpdatedAt: ag.CreatedAt,
	}
	forget := func() error { return r.memory.Delete(context.WithoutCancel(ctx), ag.ID) }
	if len(blocks) > 0 {
		if core.Commit, err = r.memory.Blocks(ctx, memory.Author{Name: ag.Name}, ag.ID, blocks); err != nil {
			return nil, undo(err, forget)
		}
	}
	opening, err := r.opening(ctx, ag, own, spec.Compiled, spec.Initial)
	if err == nil {
		opening.Core = core
		err = r.store.CreateAgent(ctx, ag, own, opening)
	}
	if err != nil {
		return nil, undo(err, forget)
	}
	r.changed(ag.ID, "", agent.ChangeCreated)
	return ag, nil
}

// newAgent makes the row of a spec.
func (r *Roster) newAgent(ctx context.Context, spec AgentSpec) (*agent.Agent, error) {
	now := time.Now().UTC()
	ag := &agent.Agent{
		ID: agent.NewID("agent"), Name: cmp.Or(spec.Name, "Agent"), Description: spec.Description, System: spec.System,
		Model: storedModel(spec.Model), ContextLimit: max(spec.ContextLimit, 0), Tags: cleanTags(spec.Tags), Hidden: spec.Hidden,
		Metadata: spec.Metadata, Toolset: cmp.Or(spec.Toolset, "auto"), ForeignID: spec.ForeignID, CreatedAt: now, UpdatedAt: now,
		Tools: spec.Tools, ToolRules: orNone(spec.ToolRules), Extra: orNone(spec.Extra),
	}
	var err error
	if ag.Compaction, err = checkCompaction(spec.Compaction, spec.AnyCompaction); err != nil {
		return nil, err
	}
	if isNull(ag.Metadata) {
		ag.Metadata = nil
	}
	settings := merge(nil, spec.ModelSettings)
	if ag.Model != Auto {
		settings = merge(r.modelDefaults(ctx, ag.Model), settings)
	}
	if limit, ok := takeContextLimit(settings); ok && ag.ContextLimit == 0 {
		ag.ContextLimit = limit
	}
	put(settings, spec.MaxTokens, spec.ParallelCalls)
	ag.ModelSettings, err = encode(settings)
	return ag, err
}

// newCore makes the core memory of a new agent: links to new and to existing blocks,
// and the files that they are. It checks all of them before anything is written. An
// agent without blocks has none.
func (r *Roster) newCore(ctx context.Context, spec AgentSpec) (*store.CoreMemory, []memory.Block, error) {
	if len(spec.Blocks)+len(spec.BlockIDs) == 0 {
		return nil, nil, nil
	}
	core, now := &store.CoreMemory{}, time.Now().UTC() // a nanosecond apart, to keep their order
	var files []memory.Block
	add := func(b *agent.Block, asked string, filed bool) error {
		for _, l := range core.Links {
			if l.Label == b.Label {
				return agent.Errorf(agent.CodeConflict, "two memory blocks have the label %q", asked)
			}
		}
		f := memory.Block{Label: b.Label, Value: b.Value, Limit: b.Limit, ReadOnly: b.ReadOnly}
		if b.Description != nil {
			f.Description = *b.Description
		}
		text, err := f.Text()
		if err != nil {
			return err
		}
		files = append(files, f)
		core.Links = append(core.Links, &store.BlockLink{
			Block: b, Label: b.Label, AttachedAt: now.Add(time.Duration(len(files))), Digest: digestOf(text), Version: b.Version, Filed: filed,
		})
		return nil
	}
	for i, id := range spec.BlockIDs {
		if slices.Contains(spec.BlockIDs[:i], id) {
			continue
		}
		b, err := r.Block(ctx, id)
		if err == nil {
			err = add(b, b.Label, false)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, s := range spec.Blocks {
		b, err := newBlock(s)
		if err == nil {
			err = add(b, s.Label, true)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return core, files, nil
}

// cleanTags drops empty and repeated tags; the order stays.
func cleanTags(tags []string) []string {
	var out []string
	for _, t := range tags {
		if t = strings.TrimSpace(t); t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// UpdateAgent changes an agent. With nothing to change it returns it as it is.
func (r *Roster) UpdateAgent(ctx context.Context, id string, p AgentPatch) (*agent.Agent, error) {
	ag, err := r.Agent(ctx, id)
	if err != nil {
		return nil, err
	}
	var compaction json.RawMessage
	if p.Compaction != nil {
		if compaction, err = checkCompaction(*p.Compaction, p.AnyCompaction); err != nil {
			return nil, err
		}
	}
	var defaults map[string]json.RawMessage
	if p.BlockIDs != nil {
		if err := r.SetAgentBlocks(ctx, ag.ID, *p.BlockIDs); err != nil {
			return nil, err
		}
	}
	if p.Model != nil && storedModel(*p.Model) != Auto {
		defaults = r.modelDefaults(ctx, storedModel(*p.Model))
	}
	ag, err = r.store.UpdateAgent(ctx, ag.ID, func(ag *agent.Agent) error {
		set(&ag.Name, p.Name)
		set(&ag.System, p.System)
		set(&ag.Description, p.Description)
		set(&ag.Hidden, p.Hidden)
		set(&ag.Toolset, p.Toolset)
		if p.Tags != nil {
			ag.Tags = cleanTags(*p.Tags)
		}
		if p.Compaction != nil {
			ag.Compaction = compaction
		}
		if p.Metadata != nil {
			if ag.Metadata = *p.Metadata; isNull(ag.Metadata) {
				ag.Metadata = nil
			}
		}
		set(&ag.Tools, p.Tools)
		if p.ToolRules != nil {
			ag.ToolRules = orNone(*p.ToolRules)
		}
		if err := changeExtra(ag, p.Extra); err != nil {
			return err
		}
		ag.UpdatedAt = time.Now().UTC()
		return changeModel(ag, p, defaults)
	})
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, agentNotFound(id)
	}
	if err != nil {
		return nil, err
	}
	r.runtime.AgentChanged(ctx, ag.ID)
	r.changed(ag.ID, "", agent.ChangeUpdated)
	return ag, nil
}

// changeModel applies the part of a patch that concerns the model: another model
// starts with its own defaults, which win over settings of the same name; for
// the same one the settings are merged.
func changeModel(ag *agent.Agent, p AgentPatch, defaults map[string]json.RawMessage) error {
	settings, err := parseSettings(ag.ModelSettings)
	if err != nil {
		return err
	}
	if p.Model != nil && storedModel(*p.Model) != ag.Model {
		ag.Model, ag.ContextLimit = storedModel(*p.Model), 0
		settings = merge(merge(nil, p.ModelSettings), defaults)
	} else {
		settings = merge(settings, p.ModelSettings)
	}
	if limit, ok := takeContextLimit(settings); ok {
		ag.ContextLimit = limit
	}
	set(&ag.ContextLimit, p.ContextLimit)
	if p.MaxTokens != nil {
		put(settings, *p.MaxTokens, nil)
	}
	put(settings, 0, p.ParallelCalls)
	ag.ModelSettings, err = encode(settings)
	return err
}

// changeExtra merges fields that only REST knows into the agent's.
func changeExtra(ag *agent.Agent, over map[string]json.RawMessage) error {
	if over == nil {
		return nil
	}
	fields := map[string]json.RawMessage{}
	if ag.Extra != nil {
		if err := json.Unmarshal(ag.Extra, &fields); err != nil {
			return fmt.Errorf("read the extra fields of %s: %w", ag.ID, err)
		}
	}
	raw, err := encode(merge(fields, over))
	ag.Extra = raw
	return err
}

// orNone makes null nothing.
func orNone(raw json.RawMessage) json.RawMessage {
	if isNull(raw) {
		return nil
	}
	return raw
}

// set stores *v where v is given.
func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// DeleteAgent removes an agent with all its conversations and its memory. Its
// running turns are cancelled first.
func (r *Roster) DeleteAgent(ctx context.Context, id string) error {
	ag, err := r.Agent(ctx, id)
	if err != nil {
		return err
	}
	all, err := r.store.Conversations(ctx, store.ConversationFilter{AgentID: ag.ID, IncludeHidden: true, IncludeOwn: true})
	if err != nil {
		return err
	}
	for _, conv := range all {
		if err := r.runtime.Drop(ctx, agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}); err != nil {
			return err
		}
	}
	unlock, err := r.cores.lock(ctx, ag.ID) // nobody writes a memory that goes
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.store.DeleteAgent(ctx, ag.ID); err != nil {
		if agent.CodeOf(err) == agent.CodeNotFound {
			return agentNotFound(id)
		}
		return err
	}
	r.see(ag.ID, "")
	// The agent is gone now. Files that cannot be removed are of no use to
	// anybody, and no reason to call the deletion failed.
	if err := r.memory.Delete(context.WithoutCancel(ctx), ag.ID); err != nil {
		r.log.Warn("memory of a deleted agent is left behind", "agent", ag.ID, "err", err)
	}
	r.changed(ag.ID, "", agent.ChangeDeleted)
	return nil
}
