package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
)

// The four ways to compact a history (spec/rest.md section 8.8). The self modes
// ask the agent's own model with the history as it is; the others ask with a
// transcript.
const (
	ModeSlidingWindow     = "sliding_window"
	ModeAll               = "all"
	ModeSelfAll           = "self_compact_all"
	ModeSelfSlidingWindow = "self_compact_sliding_window"
)

// Bounds of what a summariser is shown.
const (
	transcriptResult = 2000 // characters of a tool result
	digestLine       = 300
	digestLines      = 40
)

// TranscriptLimits are the lengths in bytes to which a transcript is cut when a
// model refuses it as too long, one after the other.
var transcriptLimits = []int{120_000, 90_000, 60_000, 40_000, 25_000, 15_000, 10_000, 6_000, 4_000, 2_000}

// TranscriptLimits returns the lengths to try, longest first.
func TranscriptLimits() []int { return slices.Clone(transcriptLimits) }

// SummarySystem is the default system text of a summariser.
func SummarySystem(mode string) string {
	words := 500
	if mode == ModeSlidingWindow || mode == ModeSelfSlidingWindow {
		words = 300
	}
	return fmt.Sprintf(`You write the memory of a conversation that is about to leave an assistant's view. The assistant will go on with your text alone, so write what it needs to go on well, in at most %d words, in the language of the conversation, under these headings where they apply:

Goals: what the user wants, in their own terms, with every wish that still holds.
What happened: what was done and decided, in order.
Details: names, paths, numbers, commands and ids word for word.
Errors: what went wrong, what fixed it, what the user corrected.
State: what is finished, what is half done.
Next: the very next thing to do.
Look-up hints: words by which older messages can be found again.

If the transcript begins with an earlier summary, keep what still matters of it. Do not answer the conversation and do not invent anything.`, words)
}

// SelfSummaryRequest asks the agent's own model to sum up what it has seen.
func SelfSummaryRequest(mode string) string {
	return "<system-reminder>\nThe conversation so far must be shortened. Do not call tools and do not go on with the task. " +
		"Follow these instructions instead.\n\n" + SummarySystem(mode) + "\n</system-reminder>"
}

// Transcript writes messages as lines for a summariser, at most limit bytes of
// them: what is over is left out of the middle.
func Transcript(messages []*agent.Message, limit int) string {
	var b strings.Builder
	for _, m := range messages {
		if line := transcriptLine(m, transcriptResult); line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	text := b.String()
	if len(text) <= limit {
		return text
	}
	const note = "\n[… the middle was left out …]\n"
	part := max(0, limit-len(note)) / 2
	return clean(text[:part]) + note + clean(text[len(text)-part:])
}

// transcriptLine is one message as a line; tool results are cut to max bytes.
func transcriptLine(m *agent.Message, max int) string {
	text := strings.TrimSpace(agent.TextOf(m.Parts))
	images := 0
	for _, p := range m.Parts {
		if p.Kind == agent.PartImage {
			images++
		}
	}
	if m.Role == agent.RoleTool {
		if len(text) > max {
			text = clean(text[:max]) + " […]"
		}
		return fmt.Sprintf("[tool result %s] %s", m.Name, text)
	}
	for _, c := range m.Calls() {
		text += fmt.Sprintf(" -> %s(%s)", c.Name, c.Arguments)
	}
	if images > 0 {
		text += fmt.Sprintf(" [%d images]", images)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("[%s] %s", m.Role, text)
}

// clean drops halves of characters at the ends of a cut text.
func clean(s string) string { return strings.ToValidUTF8(s, "") }

// Digest sums up without a model: the beginnings of what was said. It is what
// stands in when no summariser answers.
func Digest(messages []*agent.Message) string {
	var lines []string
	for _, m := range messages {
		if m.Role == agent.RoleTool {
			continue
		}
		line := strings.Join(strings.Fields(transcriptLine(m, digestLine)), " ")
		if len(line) > digestLine {
			line = clean(line[:digestLine]) + " […]"
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if n := len(lines); n > digestLines {
		head := digestLines / 4
		lines = slices.Concat(lines[:head], []string{fmt.Sprintf("[… %d messages …]", n-digestLines)}, lines[n-digestLines+head:])
	}
	return "No model could sum this up; these are the beginnings of the messages:\n" + strings.Join(lines, "\n")
}

// CompactionStats are what is stored beside a summary and shown by every door.
type CompactionStats struct {
	Trigger        string `json:"trigger"`
	TokensBefore   int    `json:"context_tokens_before"`
	TokensAfter    int    `json:"context_tokens_after"`
	Window         int    `json:"context_window"`
	MessagesBefore int    `json:"messages_count_before"`
	MessagesAfter  int    `json:"messages_count_after"`
}

// PackSummary is a summary in the form in which the model, and old clients, see
// it: the JSON text of a system alert.
func PackSummary(m *agent.Message) string {
	var stats CompactionStats
	if len(m.Stats) > 0 {
		_ = json.Unmarshal(m.Stats, &stats) // a summary without numbers is still one
	}
	hidden := max(0, stats.MessagesBefore-stats.MessagesAfter+1)
	alert := struct {
		Type    string          `json:"type"`
		Message string          `json:"message"`
		Time    string          `json:"time"`
		Stats   json.RawMessage `json:"compaction_stats,omitempty"`
	}{
		Type: "system_alert",
		Message: fmt.Sprintf("%d earlier messages are no longer shown; they can still be searched. What they were about:\n\n%s",
			hidden, agent.TextOf(m.Parts)),
		Time: m.CreatedAt.UTC().Format(time.RFC3339), Stats: m.Stats,
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(alert); err != nil {
		return agent.TextOf(m.Parts)
	}
	return strings.TrimSpace(b.String())
}

// Cut says how many of the messages leave the context in a sliding window: the
// smallest prefix, from share of them on, that ends behind an assistant's answer
// and its results and leaves less than (1-share) of the window. 0 means that
// nothing sensible can be cut and all must go (spec/harness.md section 1.7).
func Cut(messages []*agent.Message, share float64, window int) int {
	share = min(max(share, 0.1), 1)
	if len(messages) < 4 {
		return 0
	}
	for p := share; p < 1; p += 0.1 {
		at := -1
		for i := min(int(p*float64(len(messages))+0.5), len(messages)-1); i >= 0; i-- {
			if messages[i].Role == agent.RoleAssistant && i < len(messages)-1 {
				at = i
				break
			}
		}
		if at < 0 {
			continue
		}
		end := at + 1
		for end < len(messages) && messages[end].Role == agent.RoleTool {
			end++ // a call and its results stay together
		}
		kept := 0
		for _, m := range messages[end:] {
			kept += EstimateMessage(m)
		}
		if end < len(messages) && (window <= 0 || float64(kept) < (1-share)*float64(window)) {
			return end
		}
	}
	return 0
}
