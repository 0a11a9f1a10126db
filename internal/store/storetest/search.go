package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// tell stores messages of a role and returns them.
func (sc *scene) tell(role agent.Role, all ...string) []*agent.Message {
	sc.Helper()
	var ms []*agent.Message
	for _, text := range all {
		ms = append(ms, sc.message(role, text))
	}
	sc.commit(&store.Change{Messages: ms})
	return ms
}

// found are the texts of the messages that a search finds, the best first.
func (sc *scene) found(f store.SearchFilter) []string {
	sc.Helper()
	return ids(must(sc.s.SearchMessages(sc.Context(), f))(sc.T), func(h store.SearchHit) string { return agent.TextOf(h.Message.Parts) })
}

func testSearch(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	wedding := "The wedding of my sister Anna is on the 3rd of May in Łódź"
	sc.tell(agent.RoleUser, wedding, "My dog Rex is afraid of thunder", "I moved to Berlin in 2019",
		"昨日、東京タワーに行きました", "Das Café in der Straße hat geschlossen", "Please plan the budget for the next quarter",
		"the the the and and it was what it was", "안녕하세요 여보세요")
	sc.tell(agent.RoleAssistant, "Your dog will calm down if you stay with him during the thunderstorm.", "I noted the budgets.")
	for query, want := range map[string]string{
		"When is my sister's wedding?":     wedding,
		"who is getting married, weddings": wedding,
		"ANNA":                             wedding,
		"lodz":                             wedding,
		"What did I tell you about my dog's name Rex": "My dog Rex is afraid of thunder",
		"where did I move to":                         "I moved to Berlin in 2019",
		"東京タワー":                                       "昨日、東京タワーに行きました",
		"いつ東京に行った？":                                   "昨日、東京タワーに行きました",
		"cafe strasse":                                "Das Café in der Straße hat geschlossen",
		"quarterly budget planning":                   "Please plan the budget for the next quarter",
		"budgets":                                     "I noted the budgets.",
		"what was it":                                 "the the the and and it was what it was",
		"여보세요":                                        "안녕하세요 여보세요",
	} {
		got := sc.found(store.SearchFilter{Query: query})
		if len(got) == 0 || got[0] != want {
			t.Errorf("%q found %q", query, got)
		}
	}
	for _, query := range []string{"zeppelin", "?!", "'", `"`, "a'b\"c & | ! ( ) * : NEAR OR AND NOT", "\x00\xff", "%", "§tdefault"} {
		if got := sc.found(store.SearchFilter{Query: query}); len(got) != 0 {
			t.Errorf("%q found %q", query, got)
		}
	}
	// The best one comes first, and all that have one of the words.
	got := sc.found(store.SearchFilter{Query: "dog thunder Rex"})
	same(t, "ranked", got, []string{"My dog Rex is afraid of thunder", "Your dog will calm down if you stay with him during the thunderstorm."})
	same(t, "limit", len(sc.found(store.SearchFilter{Query: "dog thunder Rex", Limit: 1})), 1)
}

// testSearchForms: every form of content, whether the model still sees it or not.
func testSearchForms(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	user, answer, result := sc.message(agent.RoleUser, "alpha one"), sc.message(agent.RoleAssistant, "beta"), sc.message(agent.RoleTool, "gamma "+strings.Repeat("x ", 5000)+" omega")
	user.Parts = append(user.Parts, agent.Part{Kind: agent.PartImage, Data: "alphadata"}, agent.Text("alpha two"))
	answer.Parts = append([]agent.Part{{Kind: agent.PartReasoning, Text: "delta epsilon"}}, append(answer.Parts,
		agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: "c", Name: "Bash", Arguments: `{"zeta":1}`}})...)
	summary, system := sc.message(agent.RoleSummary, "eta so far"), sc.message(agent.RoleSystem, "You are theta")
	notice, cut := sc.message(agent.RoleNotice, "iota"), sc.message(agent.RoleAssistant, "kappa")
	cut.Interrupted = true
	old, replaced := sc.message(agent.RoleUser, "lambda"), sc.message(agent.RoleSystem, "You were mu")
	old.Hidden, replaced.Hidden = true, true
	calls := sc.message(agent.RoleAssistant, "")
	calls.Parts = answer.Parts[2:]
	sc.commit(&store.Change{Messages: []*agent.Message{user, answer, result, summary, system, notice, cut, old, replaced, calls}})
	all := []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary, agent.RoleSystem, agent.RoleNotice, agent.RoleApproval}
	for query, want := range map[string]*agent.Message{
		"alpha": user, "two": user, "beta": answer, "epsilon": answer, "gamma": result, "eta": summary, "theta": system, "lambda": old,
		"zeta": nil, "iota": nil, "kappa": nil, "mu": nil, "alphadata": nil, "omega": nil, // the end of a long result
	} {
		hits := must(s.SearchMessages(ctx, store.SearchFilter{Query: query, Roles: all}))(t)
		if want == nil && len(hits) > 0 || want != nil && (len(hits) != 1 || hits[0].Message.ID != want.ID) {
			t.Errorf("%s found %v", query, hits)
		}
		if len(hits) == 1 {
			part := agent.PartText
			if query == "epsilon" {
				part = agent.PartReasoning
			}
			same(t, "part of "+query, hits[0].Part, part)
			same(t, "message of "+query, hits[0].Message, want)
		}
	}
	// Long texts with all the words leave room for what was said.
	long := make([]string, 450)
	for i := range long {
		long[i] = fmt.Sprint(strings.Repeat("filler ", 200), "omicron pi rho ", i)
	}
	sc.tell(agent.RoleSystem, long...)
	sc.tell(agent.RoleUser, "omicron alone")
	hits := must(s.SearchMessages(ctx, store.SearchFilter{Query: "omicron pi rho", Roles: all}))(t)
	same(t, "number", len(hits), 50)
	same(t, "best", agent.TextOf(hits[0].Message.Parts), "omicron alone")
	// Without roles: what was said.
	for query, n := range map[string]int{"gamma": 0, "theta": 0, "eta": 1, "beta": 1} {
		same(t, query, len(sc.found(store.SearchFilter{Query: query})), n)
	}
	same(t, "index", must(s.CheckIndex(ctx))(t), []string(nil))

	// A message that changes is found by its new text alone.
	user.Parts = []agent.Part{agent.Text("nu")}
	sc.commit(&store.Change{Messages: []*agent.Message{user}})
	same(t, "old text", len(sc.found(store.SearchFilter{Query: "alpha"})), 0)
	same(t, "new text", len(sc.found(store.SearchFilter{Query: "nu"})), 1)
	user.Parts = []agent.Part{agent.Text("")}
	sc.commit(&store.Change{Messages: []*agent.Message{user}})
	same(t, "hits", len(sc.found(store.SearchFilter{Query: "nu"})), 0)
	same(t, "index", must(s.CheckIndex(ctx))(t), []string(nil))
}

func testSearchScope(t *testing.T, s *store.Store) {
	sc, other := newScene(t, s), newScene(t, s)
	side := sc.another()
	here, there, theirs := sc.tell(agent.RoleUser, "apple here", "apple later"), side.tell(agent.RoleAssistant, "apple there"), other.tell(agent.RoleUser, "apple theirs")
	side.tell(agent.RoleUser, "nothing of the kind")
	ctx := t.Context()
	find := func(f store.SearchFilter) []string {
		got := ids(must(s.SearchMessages(ctx, f))(t), func(h store.SearchHit) string { return h.Message.ID })
		slices.Sort(got)
		return got
	}
	list := func(all ...*agent.Message) []string {
		want := ids(all, messageID)
		slices.Sort(want)
		return want
	}
	for _, c := range []struct {
		name   string
		filter store.SearchFilter
		want   []string
	}{
		{"all", store.SearchFilter{}, list(here[0], here[1], there[0], theirs[0])},
		{"agent", store.SearchFilter{AgentID: sc.agent.ID}, list(here[0], here[1], there[0])},
		{"conversation", store.SearchFilter{ConversationID: sc.conv.ID}, list(here...)},
		{"both", store.SearchFilter{AgentID: sc.agent.ID, ConversationID: side.conv.ID}, list(there...)},
		{"other agent's conversation", store.SearchFilter{AgentID: other.agent.ID, ConversationID: side.conv.ID}, list()},
		{"role", store.SearchFilter{Roles: []agent.Role{agent.RoleAssistant}}, list(there...)},
		{"from", store.SearchFilter{AgentID: sc.agent.ID, From: here[1].CreatedAt}, list(here[1])},
		{"to", store.SearchFilter{ConversationID: sc.conv.ID, To: here[0].CreatedAt}, list(here[0])},
		{"between", store.SearchFilter{AgentID: sc.agent.ID, From: at(0), To: at(1)}, list(here[0], there[0])},
		{"nobody", store.SearchFilter{AgentID: "agent-none"}, list()},
		{"odd id", store.SearchFilter{AgentID: `x" OR "y' | 'z`}, list()},
	} {
		c.filter.Query = "apples"
		same(t, c.name, find(c.filter), c.want)
	}
	// Without words: the newest, by date.
	same(t, "newest", find(store.SearchFilter{ConversationID: sc.conv.ID, Limit: 1}), list(here[1]))
	same(t, "newest of a role", find(store.SearchFilter{AgentID: sc.agent.ID, Roles: []agent.Role{agent.RoleAssistant}}), list(there...))
	same(t, "newest since", len(find(store.SearchFilter{AgentID: sc.agent.ID, From: at(2)})), 2)

	ok(t, s.DeleteConversation(ctx, side.conv.ID))
	same(t, "after a deletion", find(store.SearchFilter{Query: "apple"}), list(here[0], here[1], theirs[0]))
	ok(t, s.DeleteAgent(ctx, other.agent.ID))
	same(t, "after a deletion", find(store.SearchFilter{Query: "apple"}), list(here...))
	same(t, "index", must(s.CheckIndex(ctx))(t), []string(nil))
	fork := newConversation(sc.agent.ID)
	ok(t, s.Fork(ctx, sc.conv.ID, "", fork, func() string { return agent.NewID("message") }))
	same(t, "in the fork", len(find(store.SearchFilter{Query: "apple", ConversationID: fork.ID})), 2)

	ok(t, s.RebuildIndex(ctx))
	same(t, "rebuilt", len(find(store.SearchFilter{Query: "apple"})), 4)
	same(t, "index", must(s.CheckIndex(ctx))(t), []string(nil))
}

// testIndexer: nobody searches, and yet everything is indexed soon.
func testIndexer(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	for i := range 5 {
		sc.say(40 + i)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		waiting, oldest, err := s.IndexLag(t.Context())
		ok(t, err)
		if waiting == 0 {
			if !oldest.IsZero() {
				t.Errorf("nothing waits since %v", oldest)
			}
			break
		}
		if oldest.Before(at(1)) {
			t.Fatalf("the oldest is of %v", oldest)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages still wait", waiting)
		}
		time.Sleep(10 * time.Millisecond)
	}
	same(t, "index", must(s.CheckIndex(t.Context()))(t), []string(nil))
	same(t, "hits", len(sc.found(store.SearchFilter{Query: "text", Limit: 1000})), 210)
}

// testSearchAlike: the order of hits is the same everywhere.
func testSearchAlike(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	nouns := []string{"river", "stone", "cloud", "apple", "night", "paper", "music", "glass", "horse", "table"}
	var all []string
	for i := range 300 {
		var b strings.Builder
		for k := range 3 + i%7 {
			fmt.Fprintf(&b, "%s ", nouns[(i*(k+1)+k*k)%(2+i%9)])
		}
		all = append(all, fmt.Sprint(b.String(), i))
	}
	for part := range slices.Chunk(all, 60) {
		sc.tell(agent.RoleUser, part...)
	}
	got := sc.found(store.SearchFilter{Query: "Where is the stone apple near the table with horses?", Limit: 12})
	same(t, "ranking", got, []string{
		"horse glass horse stone music apple cloud apple 278",
		"table table stone paper stone table table 179",
		"horse glass horse stone music apple cloud apple music 188",
		"horse glass horse 98",
		"table table stone paper stone table table stone 89",
		"paper stone table table stone paper stone table table 125",
		"horse glass horse stone 8",
		"table table stone paper stone table 269",
		"paper stone table table stone paper stone table 215",
		"music apple cloud apple music stone horse 116",
		"music apple cloud apple music stone horse glass 26",
		"paper stone table 35",
	})
}
