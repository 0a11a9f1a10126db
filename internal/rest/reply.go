package rest

import (
	"context"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/internal/store"
)

// answer settles the calls that the turn waits for and goes on with it.
func (s *sending) answer(ctx context.Context) (runtime.Receipt, error) {
	p := &s.body.parsed
	options := s.options()
	reply := runtime.Reply{
		Answers: map[string]runtime.Answer{}, Messages: p.messages, Key: p.key, Door: agent.DoorREST,
		Run: s.spec(), Options: &options, Logged: s.logged,
	}
	if p.key != "" {
		reply.Digest = p.digest()
	}
	limit := s.resultLimit(ctx)
	for _, a := range p.reply.answers {
		call := a.call
		if a.old {
			call = s.callOf(ctx, a.call)
		}
		reply.Answers[call] = answerOf(a, limit)
	}
	return s.d.rt.AnswerAll(ctx, s.scope, reply, nil)
}

// denialPrefix begins what the model sees of a call that a person denied.
const denialPrefix = "Error: request to call tool denied."

const denialReason = denialPrefix + " User reason: "

func answerOf(a callAnswer, limit int) runtime.Answer {
	switch {
	case a.result != nil:
		return runtime.Answer{Result: shorten(a.result, limit)}
	case a.allow:
		return runtime.Answer{Allow: true}
	case a.reason == "":
		return runtime.Answer{Message: denialPrefix}
	}
	return runtime.Answer{Message: denialReason + a.reason}
}

// callOf gives the call that the deprecated form of an approval means: it may name
// the approval request instead, where only one call waits.
func (s *sending) callOf(ctx context.Context, id string) string {
	state, err := s.d.rt.Status(ctx, s.scope)
	if err != nil || len(state.Pending) != 1 {
		return id
	}
	only := state.Pending[0]
	if id == requestID(only.MessageID) || id == only.MessageID {
		return only.ID
	}
	return id
}

// resultLimit is how long the texts of a client tool's result may be, in
// characters (spec/rest.md section 7).
func (s *sending) resultLimit(ctx context.Context) int {
	const least = 5000
	window := s.ag.ContextLimit
	if conv, err := s.d.store.Conversation(ctx, s.scope.ConversationID); err == nil && conv.ContextLimit > 0 {
		window = conv.ContextLimit
	}
	if window == 0 {
		if _, info, err := s.d.models.Resolve(ctx, s.ag.Model); err == nil {
			window = info.Context
		}
	}
	return max(least, window*8/10)
}

// shorten cuts the texts of a result to limit characters in all.
func shorten(res *agent.ToolResult, limit int) *agent.ToolResult {
	out := *res
	out.Parts = slices.Clone(res.Parts)
	left := limit
	for i, p := range out.Parts {
		if p.Kind != agent.PartText || len(p.Text) <= left {
			left -= len(p.Text)
			continue
		}
		if runes := []rune(p.Text); len(runes) > left {
			left = max(left, 0)
			out.Parts[i].Text = string(runes[:left]) + "\n[The result was cut here: it has " + itoa(len(runes)) + " characters, of which " + itoa(left) + " are shown.]"
			left = 0
		}
	}
	return &out
}

// replayed says that the answers repeat results that the model has already: those
// of one step among the last messages of the context (spec/rest.md section 6.4).
func (s *sending) replayed(ctx context.Context) (bool, error) {
	const last = 10
	msgs, err := s.d.store.Messages(ctx, store.MessageFilter{
		ConversationID: s.scope.ConversationID, VisibleOnly: true, SkipInterrupted: true, Desc: true, Limit: 5 * last,
		Roles: []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary},
	})
	if err != nil {
		return false, err
	}
	var want []string
	for _, a := range s.body.parsed.reply.answers {
		want = append(want, a.call)
	}
	slices.Sort(want)
	seen := 0
	for i := 0; i < len(msgs) && seen < last; seen++ {
		step := msgs[i].StepID
		if msgs[i].Role != agent.RoleTool {
			i++
			continue
		}
		var got []string
		for ; i < len(msgs) && msgs[i].Role == agent.RoleTool && msgs[i].StepID == step; i++ {
			got = append(got, msgs[i].CallID)
		}
		if slices.Sort(got); slices.Equal(got, want) || subset(want, got) {
			return true, nil
		}
	}
	return false, nil
}

// subset says whether all of a, which is not empty, are in b: calls of a step that
// needed no answer have results beside those that did.
func subset(a, b []string) bool {
	return len(a) > 0 && !slices.ContainsFunc(a, func(v string) bool { return !slices.Contains(b, v) })
}
