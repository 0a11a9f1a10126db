// Package storetest holds the one conformance suite that every database behind
// internal/store must pass, and starts a PostgreSQL server to run it on.
//
// Run asserts what callers of the store rely on: nothing in it knows which
// database answers. RunPair does the same for two processes that share one.
package storetest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// Run runs the suite. Each call of open returns a store on an empty database and
// closes it in a cleanup of t.
func Run(t *testing.T, open func(t *testing.T) *store.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *store.Store)
	}{
		{"RoundTrip", testRoundTrip},
		{"Upsert", testUpsert},
		{"OddText", testOddText},
		{"Snapshot", testSnapshot},
		{"SnapshotOfOpenTurn", testSnapshotOpen},
		{"LastSeqAndContext", testContext},
		{"HideThrough", testHideThrough},
		{"LoadState", testLoadState},
		{"ContextIDs", testContextIDs},
		{"LastEvent", testLastEvent},
		{"LeaseEpochs", testLeaseEpochs},
		{"LeaseOfNothing", testLeaseOfNothing},
		{"Release", testRelease},
		{"TakeOver", testTakeOver},
		{"InputKey", testInputKey},
		{"OneOpenTurn", testOneOpenTurn},
		{"ForeignRow", testForeignRow},
		{"AllOrNothing", testAllOrNothing},
		{"BadNeighbour", testBadNeighbour},
		{"Withdraw", testWithdraw},
		{"Panic", testPanic},
		{"CommitAfterClose", testAfterClose},
		{"Unfinished", testUnfinished},
		{"Parked", testParked},
		{"Events", testEvents},
		{"PruneEvents", testPruneEvents},
		{"Lookups", testLookups},
		{"ConversationState", testConversationState},
		{"LastRun", testLastRun},
		{"Runs", testRuns},
		{"RunByOTID", testRunByOTID},
		{"Steps", testSteps},
		{"MessagesOfRun", testMessagesOfRun},
		{"Callbacks", testCallbacks},
		{"Agents", testAgents},
		{"AgentList", testAgentList},
		{"AgentPaging", testAgentPaging},
		{"AgentNames", testAgentNames},
		{"UpdateAgent", testUpdateAgent},
		{"Conversations", testConversations},
		{"ConversationList", testConversationList},
		{"DeleteConversation", testDeleteConversation},
		{"DeleteAgent", testDeleteAgent},
		{"Fork", testFork},
		{"ForkCut", testForkCut},
		{"ForkOpenCalls", testForkOpenCalls},
		{"Messages", testMessages},
		{"AgentMessages", testAgentMessages},
		{"PagingWhileWriting", testPagingWhileWriting},
		{"ConcurrentReaders", testConcurrentReaders},
		{"Search", testSearch},
		{"SearchForms", testSearchForms},
		{"SearchScope", testSearchScope},
		{"SearchAlike", testSearchAlike},
		{"Indexer", testIndexer},
		{"Blocks", testBlocks},
		{"BlockList", testBlockList},
		{"CoreMemory", testCoreMemory},
		{"BlocksOfAgents", testBlocksOfAgents},
		{"Settings", testSettings},
		{"Providers", testProviders},
		{"Secrets", testSecrets},
		{"ProjectRules", testProjectRules},
		{"Check", func(t *testing.T, s *store.Store) { ok(t, s.Check(t.Context())) }},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// RunPair runs the tests for two owners. Each call of open returns two stores of
// different owners on the same empty database. It is called inside a synctest
// bubble, so that leases expire without waiting.
func RunPair(t *testing.T, open func(t *testing.T) (a, b *store.Store)) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b *store.Store)
	}{
		{"Held", testHeld},
		{"Expired", testExpired},
		{"FencedOff", testFencedOff},
		{"RacingOwners", testRacingOwners},
		{"TakeOverIsOwn", testTakeOverIsOwn},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := open(t)
				c.test(t, a, b)
			})
		})
	}
}

// RunTenants runs the tests for two tenants. Each call of open returns two stores of
// different tenants and the same owner on one empty database.
func RunTenants(t *testing.T, open func(t *testing.T) (a, b *store.Store)) {
	a, b := open(t)
	testTenants(t, a, b)
}

// start is when everything in the suite happens; nanoseconds must survive.
var start = time.Date(2026, 3, 29, 1, 59, 59, 123456789, time.UTC)

func at(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// A scene is an agent with its own conversation and the lease of it.
type scene struct {
	*testing.T
	s     *store.Store
	agent *agent.Agent
	conv  *agent.Conversation
	lease store.Lease
	seq   int64
}

func newScene(t *testing.T, s *store.Store) *scene {
	t.Helper()
	a, c := newAgent("Ada")
	ok(t, s.CreateAgent(t.Context(), a, c))
	return &scene{T: t, s: s, agent: a, conv: c, lease: acquire(t, s, c.ID)}
}

// another is a scene in a further conversation of the same agent.
func (sc *scene) another() *scene {
	sc.Helper()
	c := newConversation(sc.agent.ID)
	ok(sc.T, sc.s.CreateConversation(sc.Context(), c))
	return &scene{T: sc.T, s: sc.s, agent: sc.agent, conv: c, lease: acquire(sc.T, sc.s, c.ID)}
}

func newAgent(name string) (*agent.Agent, *agent.Conversation) {
	a := &agent.Agent{
		ID: agent.NewID("agent"), Name: name, System: "You are " + name + ".", Model: "auto",
		ModelSettings: []byte(`{}`), Toolset: "auto", CreatedAt: start, UpdatedAt: start,
	}
	own := newConversation(a.ID)
	own.Own = true
	return a, own
}

func newConversation(agentID string) *agent.Conversation {
	return &agent.Conversation{ID: agent.NewID("conv"), AgentID: agentID, CreatedAt: start, UpdatedAt: start}
}

func (sc *scene) commit(c *store.Change) {
	sc.Helper()
	ok(sc.T, sc.s.Commit(sc.Context(), sc.lease, c))
}

func (sc *scene) input() *agent.Input {
	return &agent.Input{
		ID: agent.NewID("input"), AgentID: sc.agent.ID, ConversationID: sc.conv.ID, Door: agent.DoorREST,
		Kind: "message", Source: "user", IfBusy: agent.BusyQueue, OnOrphan: agent.OrphanKeep,
		State: agent.InputQueued, CreatedAt: start,
	}
}

func (sc *scene) turn(state agent.TurnState) *agent.Turn {
	return &agent.Turn{
		ID: agent.NewID("turn"), AgentID: sc.agent.ID, ConversationID: sc.conv.ID, State: state,
		Door: agent.DoorREST, OnOrphan: agent.OrphanKeep, StartedAt: start,
	}
}

func (sc *scene) run(t *agent.Turn) *agent.Run {
	return &agent.Run{ID: agent.NewID("run"), TurnID: t.ID, AgentID: sc.agent.ID, ConversationID: sc.conv.ID, StartedAt: start}
}

func (sc *scene) step(r *agent.Run, n int) *agent.Step {
	return &agent.Step{
		ID: agent.NewID("step"), RunID: r.ID, TurnID: r.TurnID, AgentID: sc.agent.ID, ConversationID: sc.conv.ID, N: n,
		State: agent.StepOpen, MessageID: agent.NewID("message"), Model: "fake/model", StartedAt: start,
	}
}

func (sc *scene) call(st *agent.Step, index int) *agent.ToolCall {
	return &agent.ToolCall{
		ID: fmt.Sprintf("call_%d", index), StepID: st.ID, TurnID: st.TurnID, AgentID: sc.agent.ID, ConversationID: sc.conv.ID,
		MessageID: st.MessageID, Index: index, Name: "Bash", Arguments: `{"command":"ls"}`, State: agent.CallProposed, CreatedAt: start,
	}
}

// message is the next message of the conversation.
func (sc *scene) message(role agent.Role, text string) *agent.Message {
	sc.seq++
	return &agent.Message{
		ID: agent.NewID("message"), AgentID: sc.agent.ID, ConversationID: sc.conv.ID, Seq: sc.seq, Role: role,
		Parts: []agent.Part{agent.Text(text)}, CreatedAt: at(int(sc.seq)),
	}
}

// say stores n user messages and returns them.
func (sc *scene) say(n int) []*agent.Message {
	sc.Helper()
	var all []*agent.Message
	for range n {
		all = append(all, sc.message(agent.RoleUser, fmt.Sprint("text ", sc.seq+1)))
	}
	sc.commit(&store.Change{Messages: all})
	return all
}

func (sc *scene) load() *store.Snapshot {
	sc.Helper()
	return must(sc.s.Load(sc.Context(), sc.conv.ID))(sc.T)
}

func acquire(t *testing.T, s *store.Store, conversationID string) store.Lease {
	t.Helper()
	return must(s.Acquire(t.Context(), conversationID))(t)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is for calls with a value: must(f())(t).
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func wantCode(t *testing.T, err error, code agent.Code) {
	t.Helper()
	if agent.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, agent.CodeOf(err), code)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s differs (-want +got):\n%s", what, diff)
	}
}

func ids[T any](all []T, id func(T) string) []string {
	list := []string{}
	for _, v := range all {
		list = append(list, id(v))
	}
	return list
}

func messageID(m *agent.Message) string           { return m.ID }
func agentID(a *agent.Agent) string               { return a.ID }
func conversationID(c *agent.Conversation) string { return c.ID }
func ptr[T any](v T) *T                           { return &v }
