// Package prompt builds what the model sees besides the tools: the system
// message, the history and what the harness adds to a user's message. All of it
// is pure text from values; only Git looks at the machine.
//
//	system message = raw system text + core memory + skills      Compile
//	history        = stored messages, filtered and paired         Window
//	notice         = what changed in memory since                 MemoryNotice
//	reminders      = where and how the agent works                Reminders
//
// The system message of a conversation is compiled once and then stays as it is,
// so that providers can cache it; memory that changes later reaches the model as
// a notice in the history (spec/harness.md section 1.2). Tags and projection
// lines are wire structure, sentences are ours.
package prompt

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

// corePlace is where a raw system text wants the core memory.
const corePlace = "{CORE_MEMORY}"

// A CompileInput is what a system message is made from.
type CompileInput struct {
	Agent *agent.Agent
	// WireConv is the conversation's id as clients know it.
	WireConv string
	// Memory is the agent's memory at one commit; nil = none.
	Memory *memory.Snapshot
	// MessageCount is how many messages of the conversation the model can search.
	MessageCount int
	Now          time.Time
	// Skills are listed behind the memory; none = no list.
	Skills []Skill
}

// Compile makes the system message of a conversation. Every {CORE_MEMORY} of the
// raw text is replaced; without one the core memory follows the text.
func Compile(in CompileInput) string {
	core := CoreMemory(in)
	raw := in.Agent.System
	var text string
	switch {
	case strings.Contains(raw, corePlace):
		text = strings.ReplaceAll(raw, corePlace, core)
	case raw == "":
		text = core
	default:
		text = raw + "\n\n" + core
	}
	if list := SkillList(in.Skills); list != "" {
		text += "\n\n" + list
	}
	return text
}

// CoreMemory is the memory part of the system message: the projected files and
// the metadata.
func CoreMemory(in CompileInput) string {
	var b strings.Builder
	if projected := projection(in.Memory); projected != "" {
		b.WriteString(projected)
		b.WriteString("\n\n")
	}
	b.WriteString("<memory_metadata>\n")
	fmt.Fprintf(&b, "- AGENT_ID: %s\n", in.Agent.ID)
	fmt.Fprintf(&b, "- CONVERSATION_ID: %s\n", in.WireConv)
	fmt.Fprintf(&b, "- System prompt last recompiled: %s\n", in.Now.UTC().Format("2006-01-02 03:04:05 PM UTC-0700"))
	fmt.Fprintf(&b, "- %d previous messages between you and the user are stored in recall memory\n", in.MessageCount)
	b.WriteString("</memory_metadata>")
	return b.String()
}

//go:embed system.md
var defaultSystem string

// DefaultSystem is the raw system text of agents that are made without one where
// a default is wanted.
func DefaultSystem() string { return strings.TrimSpace(defaultSystem) }

// A Skill is one line of the list of skills.
type Skill struct {
	ID          string
	Description string // its first line is shown
}

// SkillList is the list of skills, sorted by id; "" if there are none.
func SkillList(skills []Skill) string {
	if len(skills) == 0 {
		return ""
	}
	sorted := slices.SortedFunc(slices.Values(skills), func(a, b Skill) int { return strings.Compare(a.ID, b.ID) })
	var b strings.Builder
	b.WriteString("<available_skills>\n")
	for _, s := range sorted {
		fmt.Fprintf(&b, "- `%s`", s.ID)
		if line := firstLine(s.Description); line != "" {
			b.WriteString(": " + line)
		}
		b.WriteByte('\n')
	}
	b.WriteString("</available_skills>")
	return b.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(line)
}
