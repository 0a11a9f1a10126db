package storetest

import (
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// testTenants: what one tenant stores, the other can neither see nor touch.
func testTenants(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	c := sc.full()
	c.Turns[0].State = agent.TurnParked
	c.Calls[0].State = agent.CallWaiting
	sc.commit(c)
	ctx := t.Context()
	ok(t, a.SetSetting(ctx, "k", "v"))
	ok(t, a.PutProvider(ctx, &store.Provider{Name: "p"}))
	ok(t, a.AddProjectRule(ctx, "/d", "r"))
	ok(t, a.ChangeSecrets(ctx, sc.agent.ID, map[string][]byte{"S": {1}}, nil))

	block := newBlock("human", "1")
	link(t, a, sc.agent.ID, false, block)
	must(a.UpdateBlock(ctx, block.ID, func(b *agent.Block) error { b.Value = "2"; return nil }))(t)

	agentID, convID := sc.agent.ID, sc.conv.ID
	nothing := func(*agent.Agent) error { return nil }
	for what, err := range map[string]error{
		"agent":         second(b.Agent(ctx, agentID)),
		"agent by name": second(b.AgentByName(ctx, sc.agent.Name)),
		"update agent":  second(b.UpdateAgent(ctx, agentID, nothing)),
		"delete agent":  b.DeleteAgent(ctx, agentID),
		"own":           second(b.OwnConversation(ctx, agentID)),
		"conversation":  second(b.Conversation(ctx, convID)),
		"delete":        b.DeleteConversation(ctx, convID),
		"create":        b.CreateConversation(ctx, newConversation(agentID)),
		"acquire":       second(b.Acquire(ctx, convID)),
		"load":          second(b.Load(ctx, convID)),
		"load state":    second(b.LoadState(ctx, convID)),
		"turn":          second(b.Turn(ctx, c.Turns[0].ID)),
		"run":           second(b.Run(ctx, c.Runs[0].ID)),
		"step":          second(b.Step(ctx, c.Steps[0].ID)),
		"input":         second(b.Input(ctx, c.Inputs[0].ID)),
		"message":       second(b.MessageByID(ctx, c.Messages[0].ID)),
		"cursor":        second(b.Messages(ctx, store.MessageFilter{AgentID: agentID, AfterID: c.Messages[0].ID})),
		"secrets":       b.ChangeSecrets(ctx, agentID, map[string][]byte{"S": {2}}, nil),
		"provider":      b.DeleteProvider(ctx, "p"),
		"block":         second(b.Block(ctx, block.ID)),
		"change block":  second(b.UpdateBlock(ctx, block.ID, func(*agent.Block) error { return nil })),
		"delete block":  b.DeleteBlock(ctx, block.ID),
		"change core":   second(b.ChangeCoreMemory(ctx, agentID, func(*store.CoreMemory) error { return nil })),
		"run cursor":    second(b.Runs(ctx, store.RunFilter{Page: store.Page{After: c.Runs[0].ID}})),
		"step cursor":   second(b.Steps(ctx, store.StepFilter{Page: store.Page{After: c.Steps[0].ID}})),
		"feedback":      second(b.SetStepFeedback(ctx, c.Steps[0].ID, "positive", nil)),
		"callback":      nilFound(b.Callback(ctx, c.Runs[0].ID)),
		"run of a key":  nilFound(b.RunByOTID(ctx, convID, "k1")),
		"last run":      nilFound(b.LastRun(ctx, agentID)),
	} {
		if agent.CodeOf(err) != agent.CodeNotFound {
			t.Errorf("%s of another tenant: %v", what, err)
		}
	}
	wantCode(t, b.Commit(ctx, sc.lease, &store.Change{RunEnded: at(1)}), agent.CodeLeaseLost)
	ok(t, b.Release(ctx, sc.lease))
	ok(t, b.TakeOver(ctx))
	for what, n := range map[string]int{
		"messages":      len(must(b.Messages(ctx, store.MessageFilter{ConversationID: convID}))(t)),
		"context ids":   len(must(b.ContextIDs(ctx, convID))(t)),
		"count":         must(b.MessageCount(ctx, convID))(t),
		"agents":        len(must(b.Agents(ctx, store.AgentFilter{IncludeHidden: true}))(t)),
		"conversations": len(must(b.Conversations(ctx, store.ConversationFilter{IncludeOwn: true}))(t)),
		"calls":         len(must(b.Calls(ctx, c.Steps[0].ID))(t)),
		"runs":          len(must(b.RunsOf(ctx, convID, 0))(t)),
		"events":        len(must(b.Events(ctx, c.Runs[0].ID, 0, 0))(t)),
		"last event":    int(must(b.LastEventSeq(ctx, c.Runs[0].ID))(t)),
		"oldest event":  int(must(b.OldestEventSeq(ctx, c.Runs[0].ID))(t)),
		"all runs":      len(must(b.Runs(ctx, store.RunFilter{}))(t)),
		"all steps":     len(must(b.Steps(ctx, store.StepFilter{}))(t)),
		"all messages":  len(must(b.Messages(ctx, store.MessageFilter{}))(t)),
		"of the run":    len(must(b.MessagesOfRun(ctx, c.Runs[0].ID, store.MessageFilter{}))(t)),
		"found":         len(must(b.SearchMessages(ctx, store.SearchFilter{Query: "hello"}))(t)),
		"newest":        len(must(b.SearchMessages(ctx, store.SearchFilter{}))(t)),
		"index faults":  len(must(b.CheckIndex(ctx))(t)),
		"blocks":        len(must(b.Blocks(ctx, store.BlockFilter{IncludeHidden: true}))(t)),
		"links":         len(must(b.BlockLinks(ctx, block.ID))(t)),
		"pending":       len(must(b.PendingLinks(ctx))(t)),
		"core memory":   len(must(b.CoreMemory(ctx, agentID))(t).Links),
		"heads":         len(must(b.MemoryHeads(ctx))(t)),
		"callbacks":     len(must(b.DueCallbacks(ctx, at(1000)))(t)),
		"parked":        len(must(b.ParkedTurns(ctx))(t)),
		"unfinished":    len(must(b.Unfinished(ctx))(t)),
		"pruned":        must(b.PruneEvents(ctx, at(1000)))(t),
		"providers":     len(must(b.Providers(ctx))(t)),
		"rules":         len(must(b.ProjectRules(ctx, "/d"))(t)),
		"secrets":       len(must(b.Secrets(ctx, agentID))(t)),
	} {
		if n != 0 {
			t.Errorf("%d %s of another tenant", n, what)
		}
	}
	if _, found, err := b.Setting(ctx, "k"); found || err != nil {
		t.Errorf("setting of another tenant: %v, %v", found, err)
	}
	if p := must(b.Prompt(ctx, convID))(t); p != nil {
		t.Error("prompt of another tenant")
	}
	if in := must(b.InputByKey(ctx, convID, "k1"))(t); in != nil {
		t.Error("input of another tenant")
	}
	// Nothing has changed for its owner, whose lease still holds.
	same(t, "parked", len(must(a.ParkedTurns(ctx))(t)), 1)
	same(t, "secrets", must(a.Secrets(ctx, agentID))(t), map[string][]byte{"S": {1}})
	same(t, "last event", must(a.LastEventSeq(ctx, c.Runs[0].ID))(t), int64(1))
	sc.say(1)
}

// nilFound takes nothing found for an error, as others report it.
func nilFound[T any](v *T, err error) error {
	if v == nil && err == nil {
		return agent.Errorf(agent.CodeNotFound, "nothing found")
	}
	return err
}
