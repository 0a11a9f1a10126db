package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func testAgents(t *testing.T, s *store.Store) {
	a, own := newAgent("Ada")
	a.Description, a.ContextLimit, a.Tags, a.Hidden = ptr(""), 1000, []string{"a", "b\"c"}, ptr(false)
	a.ModelSettings, a.Compaction, a.Metadata = []byte(`{"x": "<1>"}`), []byte(`{"mode":"all"}`), []byte(`{"k":1}`)
	a.Tools, a.ToolRules, a.Extra = []string{"memory", "web_search"}, []byte(`[{"type":"exit_loop"}]`), []byte(`{"hidden":"<"}`)
	a.ForeignID, a.UpdatedAt, a.LastRunAt = "agent-local-1", at(1), at(2)
	ctx := t.Context()
	ok(t, s.CreateAgent(ctx, a, own))
	same(t, "agent", must(s.Agent(ctx, a.ID))(t), a)
	same(t, "agent by its foreign id", must(s.Agent(ctx, "agent-local-1"))(t), a)
	same(t, "own conversation", must(s.OwnConversation(ctx, a.ID))(t), own)
	for _, id := range []string{"", "agent-none"} {
		_, err := s.Agent(ctx, id)
		wantCode(t, err, agent.CodeNotFound)
		_, err = s.OwnConversation(ctx, id)
		wantCode(t, err, agent.CodeNotFound)
		wantCode(t, s.DeleteAgent(ctx, id), agent.CodeNotFound)
	}
	// Nothing of a failed creation is kept.
	again, c := newAgent("Eve")
	again.ForeignID = a.ForeignID
	wantCode(t, s.CreateAgent(ctx, again, c), agent.CodeConflict)
	again, c = newAgent("Eve")
	again.ID = a.ID
	wantCode(t, s.CreateAgent(ctx, again, c), agent.CodeConflict)
	if _, err := s.Conversation(ctx, c.ID); agent.CodeOf(err) != agent.CodeNotFound {
		t.Errorf("conversation of a refused agent: %v", err)
	}
	same(t, "agent", must(s.Agent(ctx, a.ID))(t), a)
}

// agents creates agents named by a list; edit may change each one.
func agents(t *testing.T, s *store.Store, n int, edit func(i int, a *agent.Agent)) []*agent.Agent {
	t.Helper()
	var all []*agent.Agent
	for i := range n {
		a, own := newAgent(fmt.Sprint("Agent ", i))
		edit(i, a)
		ok(t, s.CreateAgent(t.Context(), a, own))
		all = append(all, a)
	}
	return all
}

func testAgentList(t *testing.T, s *store.Store) {
	all := agents(t, s, 8, func(i int, a *agent.Agent) {
		a.CreatedAt = at(i)
		switch i {
		case 0:
			a.Tags, a.LastRunAt = []string{"x", "y"}, at(100)
		case 1:
			a.Tags, a.LastRunAt = []string{"x"}, at(50)
		case 2:
			a.Hidden = ptr(true)
		case 3:
			a.Tags = []string{"role:subagent"}
		case 4:
			a.Tags, a.Hidden = []string{"role:subagent", "X"}, ptr(false)
		case 5:
			a.Description = ptr("100% ÄRGER_x")
		case 6:
			a.Model = "OpenAI/GPT-Ω"
		}
	})
	for _, c := range []struct {
		name   string
		filter store.AgentFilter
		want   []int
	}{
		{"default", store.AgentFilter{}, []int{0, 1, 7, 6, 5, 4}},
		{"ascending", store.AgentFilter{Page: store.Page{Asc: true}}, []int{4, 5, 6, 7, 1, 0}},
		{"by creation", store.AgentFilter{Order: store.AgentsByCreation}, []int{7, 6, 5, 4, 1, 0}},
		{"oldest first", store.AgentFilter{Order: store.AgentsByCreation, Page: store.Page{Asc: true, Limit: 2}}, []int{0, 1}},
		{"hidden too", store.AgentFilter{IncludeHidden: true, Order: store.AgentsByCreation, Page: store.Page{Asc: true}}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"tag", store.AgentFilter{Tags: []string{"x"}}, []int{0, 1}},
		{"all tags", store.AgentFilter{Tags: []string{"x", "y"}}, []int{0}},
		{"any tag", store.AgentFilter{Tags: []string{"y", "X"}, AnyTag: true}, []int{0, 4}},
		{"name", store.AgentFilter{Name: "Agent 6"}, []int{6}},
		{"name, other case", store.AgentFilter{Name: "agent 6"}, nil},
		{"ids", store.AgentFilter{IDs: []string{all[6].ID, all[1].ID}}, []int{1, 6}},
		{"no such tag", store.AgentFilter{Tags: []string{"x", "z"}}, nil},
		{"query name", store.AgentFilter{Query: "aGENT 7"}, []int{7}},
		{"query description", store.AgentFilter{Query: "ärger"}, []int{5}},
		{"query is no pattern", store.AgentFilter{Query: "100% ärger_"}, []int{5}},
		{"query is no pattern", store.AgentFilter{Query: "%"}, []int{5}},
		{"query is no pattern", store.AgentFilter{Query: "Agent_7"}, nil},
		{"query model", store.AgentFilter{Query: "openai/gpt-ω"}, []int{6}},
		{"query id", store.AgentFilter{Query: all[4].ID}, []int{4}},
		{"query over fields", store.AgentFilter{Query: "Agent 5100%"}, nil},
		{"limit", store.AgentFilter{Page: store.Page{Limit: 3}}, []int{0, 1, 7}},
		{"after", store.AgentFilter{Page: store.Page{After: all[1].ID, Limit: 2}}, []int{7, 6}},
		{"after, ascending", store.AgentFilter{Page: store.Page{After: all[7].ID, Asc: true}}, []int{1, 0}},
	} {
		var want []string
		for _, i := range c.want {
			want = append(want, all[i].ID)
		}
		same(t, c.name, ids(must(s.Agents(t.Context(), c.filter))(t), agentID), append([]string{}, want...))
	}
	_, err := s.Agents(t.Context(), store.AgentFilter{Page: store.Page{After: "agent-none"}})
	wantCode(t, err, agent.CodeNotFound)
}

func testAgentPaging(t *testing.T, s *store.Store) {
	all := agents(t, s, 23, func(i int, a *agent.Agent) {
		a.CreatedAt, a.UpdatedAt = at(i/3), at(i/7) // many equal keys
		if i > 4 {
			a.LastRunAt = at(i / 5)
		}
	})
	list := func(order store.AgentOrder, p store.Page) []string {
		return ids(must(s.Agents(t.Context(), store.AgentFilter{Order: order, Page: p}))(t), agentID)
	}
	for _, order := range []store.AgentOrder{store.AgentsByLastRun, store.AgentsByCreation, store.AgentsByUpdate, store.AgentsByCompletion} {
		for _, asc := range []bool{false, true} {
			whole := list(order, store.Page{Asc: asc})
			same(t, "number", len(whole), len(all))
			bothWays(t, fmt.Sprint(order, " ", asc), whole, asc, func(p store.Page) []string { return list(order, p) })
			if order == store.AgentsByCompletion && !slices.Contains(whole[18:], all[0].ID) {
				t.Errorf("an agent that never ran is not among the last: %v", whole)
			}
		}
	}
	// A cursor's row may move: who knows where it was goes on from there.
	order, value := store.AgentsByUpdate, at(2).UnixNano()
	whole := list(order, store.Page{})
	i := slices.Index(whole, all[14].ID)
	_, err := s.UpdateAgent(t.Context(), all[14].ID, func(a *agent.Agent) error { a.UpdatedAt = at(100); return nil })
	ok(t, err)
	same(t, "after the old place", list(order, store.Page{After: all[14].ID, AfterValue: &value}), whole[i+1:])
	same(t, "before the old place", list(order, store.Page{Before: all[14].ID, BeforeValue: &value}), append([]string{all[14].ID}, whole[:i]...))
	same(t, "after the new place", len(list(order, store.Page{After: all[14].ID})), len(whole)-1)
}

// bothWays pages through a listing from either end and compares with the whole.
func bothWays(t *testing.T, what string, whole []string, asc bool, list func(store.Page) []string) {
	t.Helper()
	p := store.Page{Asc: asc, Limit: 4}
	var forward, backward []string
	for page := list(p); len(page) > 0; page = list(p) {
		forward = append(forward, page...)
		p.After = page[len(page)-1]
	}
	same(t, what+" forward", forward, whole)
	p.After, p.Before = "", whole[len(whole)-1]
	backward = append(backward, p.Before)
	for page := list(p); len(page) > 0; page = list(p) {
		backward = append(slices.Clone(page), backward...)
		p.Before = page[0]
	}
	same(t, what+" backward", backward, whole)
	same(t, what+" between", list(store.Page{Asc: asc, Limit: 2, After: whole[1], Before: whole[5]}), whole[2:4])
}

func testAgentNames(t *testing.T, s *store.Store) {
	names := []string{"Ada", "ada", "Twin", "Twin", "Ödön"}
	all := agents(t, s, len(names), func(i int, a *agent.Agent) { a.Name = names[i] })
	ctx := t.Context()
	same(t, "by name", must(s.AgentByName(ctx, "Ada"))(t), all[0])
	same(t, "by name", must(s.AgentByName(ctx, "ada"))(t), all[1])
	_, err := s.AgentByName(ctx, "Twin")
	wantCode(t, err, agent.CodeConflict)
	_, err = s.AgentByName(ctx, "ADA")
	wantCode(t, err, agent.CodeNotFound)
	same(t, "any case", len(must(s.AgentsNamed(ctx, "ADA"))(t)), 2)
	same(t, "any case", must(s.AgentsNamed(ctx, "öDÖN"))(t), all[4:])
	must(s.UpdateAgent(ctx, all[0].ID, func(a *agent.Agent) error { a.Name = "Grace"; return nil }))(t)
	same(t, "old name", must(s.AgentsNamed(ctx, "ADA"))(t), all[1:2])
}

func testUpdateAgent(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	sc.commit(&store.Change{RunEnded: at(7)})
	got := must(s.UpdateAgent(ctx, sc.agent.ID, func(a *agent.Agent) error {
		a.ID, a.CreatedAt, a.LastRunAt = "agent-other", at(99), at(99) // not for us to change
		a.Name, a.Tags, a.Hidden, a.Description, a.System = "Bea", []string{"t"}, ptr(true), ptr("d"), "sys"
		return nil
	}))(t)
	want := *sc.agent
	want.Name, want.Tags, want.Hidden, want.Description, want.System, want.LastRunAt = "Bea", []string{"t"}, ptr(true), ptr("d"), "sys", at(7)
	same(t, "result", got, &want)
	same(t, "stored", must(s.Agent(ctx, sc.agent.ID))(t), &want)

	refused := errors.New("refused")
	if _, err := s.UpdateAgent(ctx, sc.agent.ID, func(a *agent.Agent) error { a.Name = "no"; return refused }); !errors.Is(err, refused) {
		t.Errorf("error of the function: %v", err)
	}
	same(t, "stored", must(s.Agent(ctx, sc.agent.ID))(t), &want)
	_, err := s.UpdateAgent(ctx, "agent-none", func(*agent.Agent) error { return nil })
	wantCode(t, err, agent.CodeNotFound)

	// No change is lost among many at once.
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := s.UpdateAgent(context.Background(), sc.agent.ID, func(a *agent.Agent) error { a.ContextLimit++; return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	same(t, "counter", must(s.Agent(ctx, sc.agent.ID))(t).ContextLimit, 20)
}

func testConversations(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	c := newConversation(sc.agent.ID)
	c.Summary, c.ArchivedAt, c.Hidden, c.Tags, c.Model = ptr("sum"), at(1), ptr(true), []string{"t"}, ptr("m/x")
	c.Description = ptr("about")
	c.ModelSettings, c.ContextLimit, c.ForeignID, c.Mode = []byte(`{"a": 1}`), 9, "local-conv-1", agent.ModeAcceptEdits
	c.Cwd, c.Toolset, c.Rules, c.LastMessageAt = "/tmp", "none", []string{"r"}, at(3)
	ok(t, s.CreateConversation(ctx, c))
	same(t, "conversation", must(s.Conversation(ctx, c.ID))(t), c)
	same(t, "by foreign id", must(s.Conversation(ctx, "local-conv-1"))(t), c)
	wantCode(t, s.CreateConversation(ctx, c), agent.CodeConflict)
	own := newConversation(sc.agent.ID)
	own.Own = true
	wantCode(t, s.CreateConversation(ctx, own), agent.CodeConflict)
	wantCode(t, s.CreateConversation(ctx, newConversation("agent-none")), agent.CodeNotFound)
	_, err := s.Conversation(ctx, "conv-none")
	wantCode(t, err, agent.CodeNotFound)

	got := must(s.UpdateConversation(ctx, c.ID, func(c *agent.Conversation) error {
		c.AgentID, c.Own, c.ID = "x", true, "y" // not for us to change
		c.Summary, c.Hidden, c.Model, c.Tags, c.ArchivedAt = nil, nil, nil, nil, at(0)
		return nil
	}))(t)
	want := *c
	want.Summary, want.Hidden, want.Model, want.Tags, want.ArchivedAt = nil, nil, nil, nil, at(0)
	same(t, "result", got, &want)
	same(t, "stored", must(s.Conversation(ctx, c.ID))(t), &want)
	_, err = s.UpdateConversation(ctx, "conv-none", func(*agent.Conversation) error { return nil })
	wantCode(t, err, agent.CodeNotFound)
	wantCode(t, s.DeleteConversation(ctx, "conv-none"), agent.CodeNotFound)
}

func testConversationList(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	other := newScene(t, s)
	var all []*agent.Conversation
	for i := range 6 {
		c := newConversation(sc.agent.ID)
		c.CreatedAt, c.UpdatedAt = at(i), at(i)
		switch i {
		case 0:
			c.LastMessageAt = at(100)
		case 1:
			c.Hidden = ptr(true)
		case 2:
			c.Summary, c.ArchivedAt = ptr("Über_uns"), at(9)
		case 3:
			c.UpdatedAt, c.LastMessageAt = at(200), at(1) // a message counts, however old
		case 4:
			c.AgentID = other.agent.ID
		}
		ok(t, s.CreateConversation(t.Context(), c))
		all = append(all, c)
	}
	all = append(all, sc.conv)
	for _, c := range []struct {
		name   string
		filter store.ConversationFilter
		want   []int
	}{
		{"of an agent", store.ConversationFilter{AgentID: sc.agent.ID}, []int{0, 5, 2, 3}},
		{"of all", store.ConversationFilter{}, []int{0, 5, 4, 2, 3}},
		{"hidden too", store.ConversationFilter{AgentID: sc.agent.ID, IncludeHidden: true, Page: store.Page{Limit: 20}}, nil},
		{"own too", store.ConversationFilter{AgentID: sc.agent.ID, IncludeOwn: true}, []int{0, 5, 2, 3, 6}},
		{"search", store.ConversationFilter{SummarySearch: "üBER_"}, []int{2}},
		{"search id", store.ConversationFilter{SummarySearch: all[5].ID}, []int{5}},
		{"search is no pattern", store.ConversationFilter{SummarySearch: "ber%"}, []int{}},
		{"unknown agent", store.ConversationFilter{AgentID: "agent-none"}, []int{}},
		{"archived", store.ConversationFilter{Archived: ptr(true)}, []int{2}},
		{"not archived", store.ConversationFilter{Archived: ptr(false)}, []int{0, 5, 4, 3}},
		{"by creation", store.ConversationFilter{Order: store.ConversationsByCreation}, []int{5, 4, 3, 2, 0}},
		{"oldest first", store.ConversationFilter{Order: store.ConversationsByCreation, Page: store.Page{Asc: true, Before: all[3].ID}}, []int{0, 2}},
		{"after", store.ConversationFilter{AgentID: sc.agent.ID, Page: store.Page{After: all[5].ID, Limit: 1}}, []int{2}},
	} {
		got := ids(must(s.Conversations(t.Context(), c.filter))(t), conversationID)
		if c.want == nil { // 1 and 3 are as old as each other: their ids decide
			same(t, c.name, len(got), 5)
			same(t, c.name, count(got, all[1].ID), 1)
			continue
		}
		want := []string{}
		for _, i := range c.want {
			want = append(want, all[i].ID)
		}
		same(t, c.name, got, want)
	}
	// Without a message or a run: last, whatever the direction.
	ran := &scene{T: t, s: s, agent: other.agent, conv: all[4], lease: acquire(t, s, all[4].ID)}
	_, run := ran.ended(agent.StopEndTurn)
	ran.commit(&store.Change{Runs: []*agent.Run{run}})
	list := func(order store.ConversationOrder, p store.Page) []string {
		return ids(must(s.Conversations(t.Context(), store.ConversationFilter{Order: order, IncludeHidden: true, Page: p}))(t), conversationID)
	}
	for _, asc := range []bool{false, true} {
		by := list(store.ConversationsByMessage, store.Page{Asc: asc})
		talked := []string{all[0].ID, all[3].ID}
		if asc {
			slices.Reverse(talked)
		}
		same(t, "by message", by[:2], talked)
		same(t, "by completion", list(store.ConversationsByCompletion, store.Page{Asc: asc})[0], all[4].ID)
		for _, order := range []store.ConversationOrder{store.ConversationsByMessage, store.ConversationsByCompletion, store.ConversationsByActivity} {
			bothWays(t, fmt.Sprint(order, " ", asc), list(order, store.Page{Asc: asc}), asc, func(p store.Page) []string { return list(order, p) })
		}
	}
	_, err := s.Conversations(t.Context(), store.ConversationFilter{Page: store.Page{After: "conv-none"}})
	wantCode(t, err, agent.CodeNotFound)
}

func testDeleteConversation(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	kept := sc.another()
	keptChange := kept.full()
	kept.commit(keptChange)
	c := sc.full()
	sc.commit(c)
	ctx := t.Context()
	ok(t, s.DeleteConversation(ctx, sc.conv.ID))
	gone(t, s, sc, c)
	same(t, "messages of the other", len(must(s.Messages(ctx, store.MessageFilter{ConversationID: kept.conv.ID}))(t)), 4)
	same(t, "calls of the other", must(s.Calls(ctx, keptChange.Steps[0].ID))(t), keptChange.Calls)
	same(t, "events of the other", must(s.Events(ctx, keptChange.Runs[0].ID, 0, 0))(t), keptChange.Events)
	kept.say(1)
}

// gone checks that no row of a full change is left.
func gone(t *testing.T, s *store.Store, sc *scene, c *store.Change) {
	t.Helper()
	ctx := t.Context()
	for what, err := range map[string]error{
		"conversation": second(s.Conversation(ctx, sc.conv.ID)),
		"snapshot":     second(s.Load(ctx, sc.conv.ID)),
		"input":        second(s.Input(ctx, c.Inputs[0].ID)),
		"turn":         second(s.Turn(ctx, c.Turns[0].ID)),
		"run":          second(s.Run(ctx, c.Runs[0].ID)),
		"step":         second(s.Step(ctx, c.Steps[0].ID)),
		"message":      second(s.MessageByID(ctx, c.Messages[0].ID)),
	} {
		if agent.CodeOf(err) != agent.CodeNotFound {
			t.Errorf("%s after the deletion: %v", what, err)
		}
	}
	same(t, "calls", len(must(s.Calls(ctx, c.Steps[0].ID))(t)), 0)
	same(t, "events", len(must(s.Events(ctx, c.Runs[0].ID, 0, 0))(t)), 0)
	if p := must(s.Prompt(ctx, sc.conv.ID))(t); p != nil {
		t.Error("the prompt is still there")
	}
	wantCode(t, s.Commit(ctx, sc.lease, &store.Change{}), agent.CodeLeaseLost)
}

func second[T any](_ T, err error) error { return err }

func testDeleteAgent(t *testing.T, s *store.Store) {
	kept := newScene(t, s)
	kept.say(1)
	sc := newScene(t, s)
	side := sc.another()
	c, sideChange := sc.full(), side.full()
	sc.commit(c)
	side.commit(sideChange)
	ctx := t.Context()
	ok(t, s.ChangeSecrets(ctx, sc.agent.ID, map[string][]byte{"A": []byte("1")}, nil))
	ok(t, s.DeleteAgent(ctx, sc.agent.ID))
	gone(t, s, sc, c)
	gone(t, s, side, sideChange)
	_, err := s.Agent(ctx, sc.agent.ID)
	wantCode(t, err, agent.CodeNotFound)
	same(t, "secrets", len(must(s.Secrets(ctx, sc.agent.ID))(t)), 0)
	same(t, "messages", len(must(s.Messages(ctx, store.MessageFilter{AgentID: sc.agent.ID}))(t)), 0)
	same(t, "other agent's messages", len(must(s.Messages(ctx, store.MessageFilter{AgentID: kept.agent.ID}))(t)), 1)
	wantCode(t, s.DeleteAgent(ctx, sc.agent.ID), agent.CodeNotFound)
	// Its name, tags and foreign id are free again.
	ok(t, s.CreateAgent(ctx, sc.agent, sc.conv))
}

func testFork(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	all := sc.say(4)
	all[0].Hidden, all[1].Context, all[2].Interrupted = true, "ctx", true
	sc.commit(&store.Change{Messages: all[:3]})
	ctx := t.Context()
	fork := newConversation(sc.agent.ID)
	n := 0
	newID := func() string { n++; return fmt.Sprint("message-", n) }
	ok(t, s.Fork(ctx, sc.conv.ID, "", fork, newID))
	same(t, "fork", must(s.Conversation(ctx, fork.ID))(t), fork)
	got := must(s.Messages(ctx, store.MessageFilter{ConversationID: fork.ID}))(t)
	var want []*agent.Message
	for i, m := range all {
		c := *m
		c.ID, c.ConversationID = fmt.Sprint("message-", i+1), fork.ID
		want = append(want, &c)
	}
	same(t, "copies", got, want)
	same(t, "originals", must(s.Messages(ctx, store.MessageFilter{ConversationID: sc.conv.ID}))(t), all)

	wantCode(t, s.Fork(ctx, "conv-none", "", newConversation(sc.agent.ID), newID), agent.CodeNotFound)
	wantCode(t, s.Fork(ctx, sc.conv.ID, "message-none", newConversation(sc.agent.ID), newID), agent.CodeNotFound)
	wantCode(t, s.Fork(ctx, sc.conv.ID, "", newConversation("agent-none"), newID), agent.CodeNotFound)
	empty := sc.another()
	ok(t, s.Fork(ctx, empty.conv.ID, "", newConversation(sc.agent.ID), newID))
}

// visible forks the conversation at a message and returns the texts the model sees.
func (sc *scene) visible(upTo string) []string {
	sc.Helper()
	fork := newConversation(sc.agent.ID)
	ok(sc.T, sc.s.Fork(sc.Context(), sc.conv.ID, upTo, fork, func() string { return agent.NewID("message") }))
	snap := must(sc.s.Load(sc.Context(), fork.ID))(sc.T)
	return ids(snap.Context, func(m *agent.Message) string { return agent.TextOf(m.Parts) })
}

// testForkCut: 1 2 3, a summary of 1 and 2, then 4, all of it reset, then 5.
func testForkCut(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	all := sc.say(3)
	all[0].Hidden, all[1].Hidden = true, true
	sum := sc.message(agent.RoleSummary, "sum")
	sc.commit(&store.Change{Messages: append(all, sum)})
	all = append(all, sum)
	all = append(all, sc.say(1)...)
	same(t, "all", sc.visible(""), []string{"text 3", "sum", "text 5"})
	same(t, "before the summary", sc.visible(all[1].ID), []string{"text 1", "text 2"})
	same(t, "just before the summary", sc.visible(all[2].ID), []string{"text 1", "text 2", "text 3"})
	same(t, "at the summary", sc.visible(sum.ID), []string{"text 3", "sum"})
	for _, m := range all {
		m.Hidden = true
	}
	sc.commit(&store.Change{Messages: all})
	all = append(all, sc.say(1)...)
	same(t, "after the reset", sc.visible(all[5].ID), []string{"text 6"})
	same(t, "before the reset", sc.visible(all[4].ID), []string{"sum", "text 5"})
	same(t, "before the summary", sc.visible(all[0].ID), []string{"text 1"})
}

func testForkOpenCalls(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	answer := sc.message(agent.RoleAssistant, "calling")
	for _, id := range []string{"c1", "c2"} {
		answer.Parts = append(answer.Parts, agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: id, Name: "Read", Arguments: "{}"}})
	}
	r1, r2 := sc.message(agent.RoleTool, "r1"), sc.message(agent.RoleTool, "r2")
	r1.CallID, r2.CallID = "c1", "c2"
	user := sc.message(agent.RoleUser, "before")
	user.Seq, answer.Seq, r1.Seq, r2.Seq = 1, 2, 3, 4
	sc.commit(&store.Change{Messages: []*agent.Message{user, answer, r1, r2}})
	for _, c := range []struct {
		upTo        string
		interrupted []bool
	}{
		{r2.ID, []bool{false, false, false, false}},
		{r1.ID, []bool{false, true, true}},
		{answer.ID, []bool{false, true}},
	} {
		fork := newConversation(sc.agent.ID)
		ok(t, s.Fork(t.Context(), sc.conv.ID, c.upTo, fork, func() string { return agent.NewID("message") }))
		var got []bool
		for _, m := range must(s.Messages(t.Context(), store.MessageFilter{ConversationID: fork.ID}))(t) {
			got = append(got, m.Interrupted)
		}
		same(t, "interrupted", got, c.interrupted)
	}
}
