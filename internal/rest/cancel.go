package rest

import (
	"context"
	"net/http"

	"mneme/internal/agent"
)

var cancelRoutes = []route{
	{"POST", "/v1/agents/{agent_id}/messages/cancel", (*Door).cancelAgent, doc{
		summary: "Cancel runs of an agent", body: cancelBody{}, optional: true, answer: map[string]string{}}},
	{"POST", "/v1/conversations/{conversation_id}/cancel", (*Door).cancelConversation, doc{
		summary: "Cancel runs of a conversation", query: ofAgent{}, body: cancelBody{}, optional: true, answer: map[string]string{}}},
}

// A cancelBody names what is to be cancelled, by the ids of runs, steps or turns;
// none = everything that is active.
type cancelBody struct {
	RunIDs []string `json:"run_ids"`
}

func (d *Door) cancelAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[cancelBody](d, w, r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	return d.cancel(w, r, b, ag.ID, "", conflict("No active runs to cancel for agent %s", ag.ID))
}

func (d *Door) cancelConversation(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[cancelBody](d, w, r)
	if err != nil {
		return err
	}
	q, err := decodeQuery[ofAgent](r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, q.AgentID)
	if err != nil {
		return err
	}
	return d.cancel(w, r, b, conv.AgentID, conv.ID, conflict("No active runs to cancel for conversation %s", r.PathValue("conversation_id")))
}

// cancel ends runs and answers what became of each (spec/rest.md section 8.4).
// conversationID is empty for all conversations of the agent.
func (d *Door) cancel(w http.ResponseWriter, r *http.Request, b cancelBody, agentID, conversationID string, idle error) error {
	out := map[string]string{}
	if b.RunIDs != nil {
		for _, id := range b.RunIDs {
			out[id] = d.cancelOne(r.Context(), id, agentID, conversationID)
		}
		return reply(w, out)
	}
	runs, err := d.store.ActiveRuns(r.Context(), agentID, conversationID)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return idle
	}
	for _, run := range runs {
		out[run.ID] = d.cancelRun(r.Context(), run, run.ID)
	}
	return reply(w, out)
}

// cancelOne cancels what an id names. An id that is not of this agent or
// conversation is as good as unknown.
func (d *Door) cancelOne(ctx context.Context, id, agentID, conversationID string) string {
	run, err := d.runOf(ctx, id)
	if err != nil || run.AgentID != agentID || conversationID != "" && run.ConversationID != conversationID {
		if err != nil && agent.CodeOf(err) != agent.CodeNotFound {
			d.log.Error("run not cancelled", "id", id, "err", err)
		}
		return runFailed
	}
	return d.cancelRun(ctx, run, id)
}

// What a cancel answers of a run.
const (
	runCancelled = string(agent.RunCancelled)
	runFailed    = string(agent.RunFailed)
)

// runOf finds the run that the id of a run, a step or a turn means; of a turn it is
// the last one.
func (d *Door) runOf(ctx context.Context, id string) (*agent.Run, error) {
	run, err := d.store.Run(ctx, id)
	if agent.CodeOf(err) != agent.CodeNotFound {
		return run, err
	}
	if st, err := d.store.Step(ctx, id); agent.CodeOf(err) != agent.CodeNotFound {
		if err != nil {
			return nil, err
		}
		return d.store.Run(ctx, st.RunID)
	}
	turn, err := d.store.Turn(ctx, id)
	if err != nil {
		return nil, err
	}
	runs, err := d.store.RunsOf(ctx, turn.ConversationID, 0)
	if err != nil {
		return nil, err
	}
	for _, run := range runs { // the newest first
		if run.TurnID == turn.ID {
			return run, nil
		}
	}
	return nil, agent.Errorf(agent.CodeNotFound, "Turn %s has no run", id)
}

// cancelRun ends a run, or the turn that waits behind it for an answer. One that
// has ended by itself counts as cancelled.
func (d *Door) cancelRun(ctx context.Context, run *agent.Run, target string) string {
	if run.Ended && run.StopReason != agent.StopRequiresApproval {
		return runCancelled
	}
	scope := agent.Scope{AgentID: run.AgentID, ConversationID: run.ConversationID}
	if _, err := d.rt.CancelRun(ctx, scope, target); err != nil {
		d.log.Error("run not cancelled", "run", run.ID, "err", err)
		return runFailed
	}
	return runCancelled
}
