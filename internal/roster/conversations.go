package roster

import (
	"context"
	"encoding/json"
	"time"

	"mneme/internal/agent"
)

// CreateConversation makes an empty conversation of an agent. Its system prompt
// is compiled at once if the spec says so, else before its first turn.
func (r *Roster) CreateConversation(ctx context.Context, spec ConversationSpec) (*agent.Conversation, error) {
	ag, err := r.Agent(ctx, spec.AgentID)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	conv := &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: ag.ID, Summary: spec.Summary, Hidden: spec.Hidden, Tags: cleanTags(spec.Tags),
		ContextLimit: max(spec.ContextLimit, 0), ForeignID: spec.ForeignID, CreatedAt: now, UpdatedAt: now,
		Description: spec.Description,
	}
	given, err := parseSettings(spec.ModelSettings)
	if err != nil {
		return nil, err
	}
	settings := merge(nil, given)
	if spec.Model != nil {
		handle := storedModel(*spec.Model)
		conv.Model = &handle
		if handle != Auto {
			settings = merge(r.modelDefaults(ctx, handle), settings)
		}
	}
	if limit, ok := takeContextLimit(settings); ok && conv.ContextLimit == 0 {
		conv.ContextLimit = limit
	}
	put(settings, spec.MaxTokens, nil)
	if len(settings) > 0 || !isNull(spec.ModelSettings) {
		if conv.ModelSettings, err = encode(settings); err != nil {
			return nil, err
		}
	}
	opening, err := r.opening(ctx, ag, conv, spec.Compiled, nil)
	if err != nil {
		return nil, err
	}
	if err := r.store.CreateConversation(ctx, conv, opening); err != nil {
		return nil, err
	}
	r.changed(conv.AgentID, conv.ID, agent.ChangeCreated)
	return conv, nil
}

// UpdateConversation changes a conversation. An agent's own cannot be changed.
func (r *Roster) UpdateConversation(ctx context.Context, id string, p ConversationPatch) (*agent.Conversation, error) {
	if id == agent.DefaultConversation {
		return nil, errOwn()
	}
	conv, err := r.Conversation(ctx, id)
	if err != nil {
		return nil, err
	}
	if conv.Own {
		return nil, errOwn()
	}
	return r.changeConversation(ctx, conv, func(conv *agent.Conversation) error { return p.apply(conv) })
}

func errOwn() error {
	return agent.Invalid("conversation_id", "Default conversation cannot be updated")
}

func (r *Roster) changeConversation(ctx context.Context, conv *agent.Conversation, change func(*agent.Conversation) error) (*agent.Conversation, error) {
	changed, err := r.store.UpdateConversation(ctx, conv.ID, func(conv *agent.Conversation) error {
		conv.UpdatedAt = time.Now().UTC()
		return change(conv)
	})
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, conversationNotFound(conv.ID)
	}
	if err != nil {
		return nil, err
	}
	r.runtime.ConversationChanged(ctx, agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID})
	r.changed(conv.AgentID, conv.ID, agent.ChangeUpdated)
	return changed, nil
}

func (p ConversationPatch) apply(conv *agent.Conversation) error {
	set(&conv.Summary, p.Summary)
	set(&conv.Description, p.Description)
	set(&conv.Hidden, p.Hidden)
	set(&conv.LastMessageAt, p.LastMessageAt)
	set(&conv.ContextLimit, p.ContextLimit)
	if p.Tags != nil {
		conv.Tags = cleanTags(*p.Tags)
	}
	if p.Archived != nil {
		if !*p.Archived {
			conv.ArchivedAt = time.Time{}
		} else if conv.ArchivedAt.IsZero() {
			conv.ArchivedAt = conv.UpdatedAt
		}
	}
	if p.Model != nil {
		conv.Model = nil
		if *p.Model != nil {
			handle := storedModel(**p.Model)
			conv.Model = &handle
		}
	}
	return p.applySettings(conv)
}

func (p ConversationPatch) applySettings(conv *agent.Conversation) error {
	if p.ModelSettings == nil && p.MaxTokens == nil {
		return nil
	}
	raw := conv.ModelSettings
	if p.ModelSettings != nil {
		raw = *p.ModelSettings
	}
	given, err := parseSettings(raw)
	if err != nil {
		return err
	}
	settings := merge(nil, given)
	if limit, ok := takeContextLimit(settings); ok && p.ContextLimit == nil {
		conv.ContextLimit = limit
	}
	if p.MaxTokens != nil {
		put(settings, *p.MaxTokens, nil)
	}
	if len(settings) == 0 && isNull(raw) {
		conv.ModelSettings = nil
		return nil
	}
	conv.ModelSettings, err = encode(settings)
	return err
}

// DeleteConversation removes a conversation; a turn at work is cancelled first.
// An agent's own goes only with the agent.
func (r *Roster) DeleteConversation(ctx context.Context, id string) error {
	conv, err := r.Conversation(ctx, id)
	if err != nil {
		return err
	}
	if conv.Own {
		return agent.Invalid("conversation_id", "Default conversation cannot be deleted")
	}
	if err := r.runtime.Drop(ctx, agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID}); err != nil {
		return err
	}
	err = r.store.DeleteConversation(ctx, conv.ID)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return conversationNotFound(id)
	}
	if err == nil {
		r.changed(conv.AgentID, conv.ID, agent.ChangeDeleted)
	}
	return err
}

// Recompile makes the system prompt of a conversation anew and returns it. With
// dryRun nothing is stored; otherwise it is CodeBusy while a turn runs.
func (r *Roster) Recompile(ctx context.Context, conversationID string, dryRun bool) (string, error) {
	conv, err := r.Conversation(ctx, conversationID)
	if err != nil {
		return "", err
	}
	ag, err := r.Agent(ctx, conv.AgentID)
	if err != nil {
		return "", err
	}
	count, err := r.store.MessageCount(ctx, conv.ID)
	if err != nil {
		return "", err
	}
	if dryRun {
		p, err := r.prompts.Compile(ctx, ag, conv, count)
		return p.Text, err
	}
	var text string
	err = r.runtime.Quiet(ctx, agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}, func() error {
		text, err = r.compileAnew(ctx, ag, conv, count)
		return err
	})
	return text, err
}

// SetModel gives a conversation another model, with the model's default settings
// under the given ones (an object or nil). For an agent's own conversation it is
// the agent's model that changes. appliedTo is "agent" or "conversation".
func (r *Roster) SetModel(ctx context.Context, scope agent.Scope, handle string, given json.RawMessage) (appliedTo string, err error) {
	conv, err := r.Conversation(ctx, scope.ConversationID)
	if err != nil {
		return "", err
	}
	over, err := parseSettings(given)
	if err != nil {
		return "", err
	}
	stored := storedModel(handle)
	if conv.Own {
		_, err := r.UpdateAgent(ctx, conv.AgentID, AgentPatch{Model: &stored, ModelSettings: over})
		return "agent", err
	}
	settings := merge(r.modelDefaults(ctx, stored), over)
	limit, _ := takeContextLimit(settings)
	raw, err := encode(settings)
	if err != nil {
		return "", err
	}
	_, err = r.changeConversation(ctx, conv, func(conv *agent.Conversation) error {
		conv.Model, conv.ModelSettings, conv.ContextLimit = &stored, raw, limit
		return nil
	})
	return "conversation", err
}
