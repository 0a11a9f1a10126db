package prompt

import "mneme/internal/agent"

// What things count for in an estimate (spec/harness.md section 1.7). Bytes
// stand for characters, so that scripts that need more tokens count for more.
const (
	bytesPerToken = 4
	imageTokens   = 1200
	messageTokens = 4 // role and separators
)

// Estimate is about how many tokens a request takes.
func Estimate(system string, tools []agent.ToolDef, messages []*agent.Message) int {
	bytes := len(system)
	for _, t := range tools {
		bytes += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	n := bytes / bytesPerToken
	for _, m := range messages {
		n += EstimateMessage(m)
	}
	return n
}

// EstimateMessage is about how many tokens one message takes.
func EstimateMessage(m *agent.Message) int {
	bytes, n := len(m.Context), messageTokens
	for _, p := range m.Parts {
		switch {
		case p.Kind == agent.PartImage:
			n += imageTokens
		case p.Call != nil:
			bytes += len(p.Call.Name) + len(p.Call.Arguments)
		default:
			bytes += len(p.Text)
		}
	}
	return n + bytes/bytesPerToken
}

// Threshold is how many tokens of a window may be used before the history is
// compacted.
func Threshold(window int) int {
	return window - min(16384, max(1, window/5))
}

// Fits says whether a request of so many tokens stays below the threshold. A
// window of 0 is not known, and everything fits.
func Fits(tokens, window int) bool {
	return window <= 0 || tokens <= Threshold(window)
}
