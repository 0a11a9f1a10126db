package appserver

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/protocol"
)

const (
	defaultMessages = 50
	scanMessages    = 200 // rows read at a time
)

// listedRoles are the roles of messages that have something to show.
var listedRoles = []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary}

// A place is where one variant of a stored message stands in its conversation.
type place struct {
	seq   int64
	index int
}

func (p place) before(q place) bool { return p.seq < q.seq || p.seq == q.seq && p.index < q.index }

// A listing pages through the variants of a conversation's messages
// (spec/app-server-commands.md section 2.3.1).
type listing struct {
	store *store.Store
	conv  *agent.Conversation
	types []string // empty = all
}

func listMessages(ctx context.Context, k *call, cmd *protocol.ConversationMessagesList) (*protocol.ConversationMessagesListResponse, error) {
	q := protocol.MessageQuery{}
	copyTo(&q, cmd.Query)
	conv, err := k.door.findConversation(ctx, cmd.ConversationID, q.AgentID)
	if err != nil {
		return nil, err
	}
	limit := defaultMessages
	copyTo(&limit, q.Limit)
	if limit < 0 {
		return nil, agent.Invalid("limit", "query.limit must not be negative")
	}
	l := &listing{store: k.door.store, conv: conv, types: q.IncludeReturnMessageTypes}
	before, err := l.find(ctx, q.Before)
	if err != nil {
		return nil, err
	}
	after, err := l.find(ctx, q.After)
	if err != nil {
		return nil, err
	}
	desc := q.Order == nil || *q.Order != "asc"
	return l.page(ctx, limit, before, after, desc)
}

// find returns the place of a cursor; nil for no cursor.
func (l *listing) find(ctx context.Context, id *string) (*place, error) {
	if id == nil {
		return nil, nil
	}
	unknown := agent.Errorf(agent.CodeNotFound, "Message %s not found", *id)
	base, _, _ := strings.Cut(*id, ":")
	m, err := l.store.MessageByID(ctx, base)
	if agent.CodeOf(err) == agent.CodeNotFound || err == nil && m.ConversationID != l.conv.ID {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	for i, v := range l.variants(m) {
		if v.ID == *id && l.wants(v) {
			return &place{m.Seq, i}, nil
		}
	}
	return nil, unknown
}

func (l *listing) wants(m protocol.Message) bool {
	return len(l.types) == 0 || slices.Contains(l.types, m.MessageType)
}

// page collects one page between two cursors.
func (l *listing) page(ctx context.Context, limit int, before, after *place, desc bool) (*protocol.ConversationMessagesListResponse, error) {
	resp := &protocol.ConversationMessagesListResponse{}
	if limit == 0 {
		return resp, nil
	}
	start, end := before, after
	if !desc {
		start, end = after, before
	}
	var oldest place
	for v, err := range l.walk(ctx, start, desc) {
		if err != nil {
			return nil, err
		}
		if end != nil && (v.at == *end || v.at.before(*end) == desc) {
			break
		}
		if len(resp.Messages) == 0 || desc {
			oldest, resp.NextBefore = v.at, &v.message.ID
		}
		resp.Messages = append(resp.Messages, v.message)
		if len(resp.Messages) == limit {
			break
		}
	}
	if len(resp.Messages) < limit {
		return resp, nil
	}
	for _, err := range l.walk(ctx, &oldest, true) {
		resp.HasMore = err == nil
		return resp, err
	}
	return resp, nil
}

// A variant is one listed message with its place.
type variant struct {
	at      place
	message protocol.Message
}

// walk yields the variants on one side of a place, which is not among them, in
// order; without a place all of them.
func (l *listing) walk(ctx context.Context, from *place, desc bool) iter.Seq2[variant, error] {
	return func(yield func(variant, error) bool) {
		f := store.MessageFilter{ConversationID: l.conv.ID, Roles: listedRoles, Limit: scanMessages, Desc: desc}
		if from != nil { // the rest of the cursor's own message comes first
			if desc {
				f.BeforeSeq = from.seq + 1
			} else {
				f.AfterSeq = from.seq - 1
			}
		}
		for {
			rows, err := l.store.Messages(ctx, f)
			if err != nil {
				yield(variant{}, err)
				return
			}
			for _, m := range rows {
				if !l.yieldAll(m, from, desc, yield) {
					return
				}
			}
			if len(rows) < scanMessages {
				return
			}
			f.BeforeSeq, f.AfterSeq = 0, rows[len(rows)-1].Seq
			if desc {
				f.BeforeSeq, f.AfterSeq = f.AfterSeq, 0
			}
		}
	}
}

// yieldAll yields the wanted variants of one message.
func (l *listing) yieldAll(m *agent.Message, from *place, desc bool, yield func(variant, error) bool) bool {
	all := l.variants(m)
	for n := range all {
		i := n
		if desc {
			i = len(all) - 1 - n
		}
		at := place{m.Seq, i}
		if from != nil && (at == *from || at.before(*from) != desc) || !l.wants(all[i]) {
			continue
		}
		if !yield(variant{at, all[i]}, nil) {
			return false
		}
	}
	return true
}

// variants shows a stored message as this door does (spec/app-server-commands.md
// section 4.3): an answer once per part, their dates a millisecond apart.
func (l *listing) variants(m *agent.Message) []protocol.Message {
	head := protocol.Message{
		ID: m.ID, Date: protocol.FormatTime(m.CreatedAt), AgentID: m.AgentID, ConversationID: l.conv.WireID(),
	}
	switch m.Role {
	case agent.RoleUser:
		head.MessageType, head.Role = "user_message", "user"
		head.Content = protocol.Parts(wireParts(m.Parts)...)
		if head.OTID = m.ClientKey; head.OTID == "" {
			head.OTID = m.OTID
		}
	case agent.RoleTool:
		head.MessageType, head.ToolCallID, head.Status = "tool_return_message", m.CallID, string(m.Status)
		head.ToolReturn = toolReturn(m.Parts)
	case agent.RoleSummary:
		text := agent.TextOf(m.Parts)
		head.MessageType, head.Summary, head.CompactionStats = "summary_message", &text, compactionStats(m)
	case agent.RoleAssistant:
		return answerVariants(head, m)
	default:
		return nil
	}
	return []protocol.Message{head}
}

// toolReturn is text, or a list of parts if there are images.
func toolReturn(parts []agent.Part) protocol.Content {
	if slices.ContainsFunc(parts, func(p agent.Part) bool { return p.Kind == agent.PartImage }) {
		return protocol.Parts(wireParts(parts)...)
	}
	return protocol.Text(returnText(parts))
}

func answerVariants(head protocol.Message, m *agent.Message) []protocol.Message {
	first := slices.IndexFunc(m.Parts, func(p agent.Part) bool { return p.Kind == agent.PartText })
	var out []protocol.Message
	for i, p := range m.Parts {
		v := head
		v.Date = protocol.FormatTime(m.CreatedAt.Add(time.Duration(len(out)) * time.Millisecond))
		switch p.Kind {
		case agent.PartText:
			v.MessageType, v.Role, v.Interrupted = "assistant_message", "assistant", m.Interrupted
			v.ID = partID(m.ID, i, first, false)
			v.Content = protocol.Parts(protocol.TextPart(p.Text))
		case agent.PartReasoning:
			v.MessageType, v.Reasoning = "reasoning_message", &p.Text
			v.ID = partID(m.ID, i, first, true)
		case agent.PartToolCall:
			v.MessageType = "approval_request_message"
			v.ID = callMessageID(m.ID, p.Call.ID)
			call := toolCall(*p.Call)
			v.ToolCall = &call
		default:
			continue
		}
		out = append(out, v)
	}
	return out
}
