package roster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// compile makes the system prompt of a conversation that holds count messages.
func (r *Roster) compile(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, count int) (*agent.Prompt, error) {
	p, err := r.prompts.Compile(ctx, ag, conv, count)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(ag.System)) // as the runtime does, to see a later change
	p.ConversationID, p.RawHash = conv.ID, hex.EncodeToString(hash[:])
	return &p, nil
}

// systemMessage is the message that a compiled prompt is listed as.
func systemMessage(ag *agent.Agent, p *agent.Prompt, seq int64) *agent.Message {
	return &agent.Message{
		ID: agent.NewID("message"), AgentID: ag.ID, ConversationID: p.ConversationID, Seq: seq,
		Role: agent.RoleSystem, Parts: []agent.Part{agent.Text(p.Text)}, CreatedAt: time.Now().UTC(),
	}
}

// opening is what a new conversation holds: its system message if it is to be
// compiled at once, and then what was said before.
func (r *Roster) opening(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, compiled bool, said []agent.InputMessage) (o store.Opening, err error) {
	if compiled {
		if o.Prompt, err = r.compile(ctx, ag, conv, len(said)); err != nil {
			return o, err
		}
		o.Messages = append(o.Messages, systemMessage(ag, o.Prompt, 1))
	}
	for _, m := range said {
		o.Messages = append(o.Messages, &agent.Message{
			ID: agent.NewID("message"), AgentID: ag.ID, ConversationID: conv.ID, Seq: int64(len(o.Messages) + 1),
			Role: m.Role, Parts: m.Parts, ClientKey: m.ClientKey, OTID: m.OTID, SenderID: m.SenderID, Name: m.Name,
			CreatedAt: time.Now().UTC(),
		})
	}
	return o, nil
}

// compileAnew stores a freshly compiled system prompt under a lease of its own. The
// actor on whose behalf it runs reads the conversation afresh afterwards.
func (r *Roster) compileAnew(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, count int) (text string, err error) {
	p, err := r.compile(ctx, ag, conv, count)
	if err != nil {
		return "", err
	}
	lease, err := r.store.Acquire(ctx, conv.ID)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.store.Release(context.WithoutCancel(ctx), lease)) }()
	seq, err := r.store.LastSeq(ctx, conv.ID)
	if err != nil {
		return "", err
	}
	return p.Text, r.store.Commit(ctx, lease, &store.Change{
		Prompt: p, Messages: []*agent.Message{systemMessage(ag, p, seq+1)},
	})
}

// ForkContext makes a conversation of the same agent that goes on from what the
// model sees of another one, up to and including the message upTo ("" = all of it).
// It has a fresh system message, the model and the settings of the original, and no
// summary. A message that is not in the context of the original is CodeInvalid.
func (r *Roster) ForkContext(ctx context.Context, conversationID, upTo string, hidden *bool) (*agent.Conversation, error) {
	from, err := r.Conversation(ctx, conversationID)
	if err != nil {
		return nil, err
	}
	ag, err := r.Agent(ctx, from.AgentID)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	conv := &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: ag.ID, Model: from.Model, ModelSettings: from.ModelSettings,
		ContextLimit: from.ContextLimit, Hidden: hidden, CreatedAt: now, UpdatedAt: now,
	}
	opening, err := r.opening(ctx, ag, conv, true, nil)
	if err != nil {
		return nil, err
	}
	err = r.store.ForkContext(ctx, from.ID, upTo, conv, opening)
	if agent.CodeOf(err) == agent.CodeNotFound && upTo != "" {
		return nil, agent.Invalid("message_id", "Message %s is not in the context of the conversation", upTo)
	}
	if err != nil {
		return nil, err
	}
	r.changed(conv.AgentID, conv.ID, agent.ChangeCreated)
	return conv, nil
}
