package roster

import "mneme/internal/agent"

// changed tells those who watch all agents what became of an agent, or of a
// conversation of it.
func (r *Roster) changed(agentID, conversationID string, change agent.Change) {
	r.runtime.Changed(agent.Changed{AgentID: agentID, ConversationID: conversationID, Change: change})
}
