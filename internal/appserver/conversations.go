package appserver

import (
	"context"
	"encoding/json"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/roster"
	"mneme/internal/store"
	"mneme/protocol"
)

var conversationCommands = map[string]handler{
	"conversation_list":          beside(answer(listConversations)),
	"conversation_retrieve":      beside(answer(retrieveConversation)),
	"conversation_create":        beside(answer(createConversation)),
	"conversation_update":        beside(answer(updateConversation)),
	"conversation_recompile":     beside(answer(recompileConversation)),
	"conversation_fork":          beside(answer(forkConversation)),
	"conversation_messages_list": beside(answer(listMessages)),
}

func listConversations(ctx context.Context, k *call, cmd *protocol.ConversationList) (*protocol.ConversationListResponse, error) {
	f := store.ConversationFilter{Page: store.Page{Limit: defaultPage}}
	if q := cmd.Query; q != nil {
		copyTo(&f.AgentID, q.AgentID)
		copyTo(&f.SummarySearch, q.SummarySearch)
		copyTo(&f.After, q.After)
		copyTo(&f.Limit, q.Limit)
		copyTo(&f.IncludeHidden, q.IncludeHidden)
	}
	resp := &protocol.ConversationListResponse{}
	if f.Limit < 0 {
		return resp, agent.Invalid("limit", "query.limit must not be negative")
	}
	if f.Limit == 0 {
		return resp, nil
	}
	all, err := k.door.store.Conversations(ctx, f)
	if err != nil {
		return resp, err
	}
	for _, conv := range all {
		c, err := k.door.conversation(ctx, conv)
		if err != nil {
			return resp, err
		}
		resp.Conversations = append(resp.Conversations, *c)
	}
	return resp, nil
}

func retrieveConversation(ctx context.Context, k *call, cmd *protocol.ConversationRetrieve) (*protocol.ConversationRetrieveResponse, error) {
	conv, err := k.door.roster.Conversation(ctx, cmd.ConversationID)
	if err != nil {
		return nil, err
	}
	c, err := k.door.conversation(ctx, conv)
	return &protocol.ConversationRetrieveResponse{Conversation: c}, err
}

func createConversation(ctx context.Context, k *call, cmd *protocol.ConversationCreate) (*protocol.ConversationCreateResponse, error) {
	if cmd.Body.AgentID == nil {
		return nil, agent.Invalid("agent_id", "body.agent_id is required")
	}
	conv, err := k.door.roster.CreateConversation(ctx, conversationSpec(&cmd.Body))
	if err != nil {
		return nil, err
	}
	c, err := k.door.conversation(ctx, conv)
	return &protocol.ConversationCreateResponse{Conversation: c}, err
}

func updateConversation(ctx context.Context, k *call, cmd *protocol.ConversationUpdate) (*protocol.ConversationUpdateResponse, error) {
	patch, err := conversationPatch(&cmd.Body)
	if err != nil {
		return nil, err
	}
	conv, err := k.door.roster.UpdateConversation(ctx, cmd.ConversationID, patch)
	if err != nil {
		return nil, err
	}
	c, err := k.door.conversation(ctx, conv)
	return &protocol.ConversationUpdateResponse{Conversation: c}, err
}

func recompileConversation(ctx context.Context, k *call, cmd *protocol.ConversationRecompile) (*protocol.ConversationRecompileResponse, error) {
	var agentID *string
	dry := false
	if cmd.Body != nil {
		agentID = cmd.Body.AgentID
		copyTo(&dry, cmd.Body.DryRun)
	}
	conv, err := k.door.findConversation(ctx, cmd.ConversationID, agentID)
	if err != nil {
		return nil, err
	}
	text, err := k.door.roster.Recompile(ctx, conv.ID, dry)
	if err != nil {
		return nil, err
	}
	return &protocol.ConversationRecompileResponse{Result: &text}, nil
}

func forkConversation(ctx context.Context, k *call, cmd *protocol.ConversationFork) (*protocol.ConversationForkResponse, error) {
	body := protocol.ForkBody{}
	copyTo(&body, cmd.Body)
	var owner *string // for "default" agent_id says whose it is, else who gets the copy
	home := ""
	if cmd.ConversationID == agent.DefaultConversation {
		owner = body.AgentID.Value
	} else {
		copyTo(&home, body.AgentID.Value)
	}
	conv, err := k.door.findConversation(ctx, cmd.ConversationID, owner)
	if err != nil {
		return nil, err
	}
	upTo := ""
	copyTo(&upTo, body.MessageID)
	fork, err := k.door.roster.Fork(ctx, conv.ID, upTo, home, body.Hidden)
	if err != nil {
		return nil, err
	}
	return &protocol.ConversationForkResponse{Conversation: &protocol.ForkedConversation{ID: fork.ID}}, nil
}

// findConversation finds a conversation by the id that clients know: "default"
// needs its agent, any other may have one that is not looked at.
func (d *Door) findConversation(ctx context.Context, id string, agentID *string) (*agent.Conversation, error) {
	if id != agent.DefaultConversation {
		return d.roster.Conversation(ctx, id)
	}
	if agentID == nil || *agentID == "" {
		return nil, agent.Invalid("agent_id", "The conversation default needs agent_id")
	}
	_, conv, err := d.roster.Resolve(ctx, *agentID, id)
	return conv, err
}

func conversationSpec(b *protocol.ConversationBody) roster.ConversationSpec {
	spec := roster.ConversationSpec{
		Summary: b.Summary.Value, Model: b.Model.Value, Hidden: b.Hidden, Tags: slices.Clone(b.Tags),
	}
	copyTo(&spec.AgentID, b.AgentID)
	copyTo(&spec.ContextLimit, b.ContextWindowLimit)
	copyTo(&spec.MaxTokens, b.MaxTokens)
	if b.ModelSettings.Value != nil {
		spec.ModelSettings = json.RawMessage(*b.ModelSettings.Value)
	}
	return spec
}

func conversationPatch(b *protocol.ConversationBody) (roster.ConversationPatch, error) {
	p := roster.ConversationPatch{Archived: b.Archived, ContextLimit: b.ContextWindowLimit, MaxTokens: b.MaxTokens}
	if b.Summary.Set {
		p.Summary = &b.Summary.Value
	}
	if b.Model.Set {
		p.Model = &b.Model.Value
	}
	if b.Hidden != nil {
		p.Hidden = &b.Hidden
	}
	if b.Tags != nil {
		p.Tags = &b.Tags
	}
	if b.ModelSettings.Set {
		raw := json.RawMessage("null")
		if b.ModelSettings.Value != nil {
			raw = json.RawMessage(*b.ModelSettings.Value)
		}
		p.ModelSettings = &raw
	}
	if b.LastMessageAt != nil {
		at, err := protocol.ParseTime(*b.LastMessageAt)
		if err != nil {
			return p, agent.Invalid("last_message_at", "body.last_message_at must be an ISO 8601 time")
		}
		p.LastMessageAt = &at
	}
	return p, nil
}

// conversation shows a conversation (spec/app-server-commands.md section 4.2).
func (d *Door) conversation(ctx context.Context, c *agent.Conversation) (*protocol.Conversation, error) {
	ids, err := d.store.ContextIDs(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	out := &protocol.Conversation{
		ID: c.WireID(), AgentID: c.AgentID, Archived: !c.ArchivedAt.IsZero(), Summary: c.Summary, InContextMessageIDs: ids,
		CreatedAt: protocol.FormatTime(c.CreatedAt), UpdatedAt: protocol.FormatTime(c.UpdatedAt), Hidden: c.Hidden,
	}
	if out.Archived {
		at := protocol.FormatTime(c.ArchivedAt)
		out.ArchivedAt = &at
	}
	if !c.LastMessageAt.IsZero() {
		at := protocol.FormatTime(c.LastMessageAt)
		out.LastMessageAt = &at
	}
	if c.Model != nil {
		out.Model = protocol.Some(*c.Model)
	}
	if c.ModelSettings != nil {
		out.ModelSettings = protocol.Some(protocol.Object(c.ModelSettings))
	}
	if c.ContextLimit > 0 {
		out.ContextWindowLimit = &c.ContextLimit
	}
	if len(c.Tags) > 0 {
		out.Tags = c.Tags
	}
	return out, nil
}
