package prompt

import (
	"fmt"
	"strings"
	"time"

	"mneme/internal/agent"
)

// A ReminderInput says what the model may have to be reminded of in front of a
// user's message (spec/harness.md section 1.3).
type ReminderInput struct {
	First      bool // the first message of the conversation
	CwdChanged bool

	Agent         *agent.Agent
	WireConv      string    // the conversation's id as clients know it
	MemoryDir     string    // "" = the agent has none
	LastMessageAt time.Time // zero = no message yet
	// Mode is the conversation's own; PrevMode is the one the model knows of, ""
	// = none. A difference is told.
	Mode, PrevMode agent.Mode

	Now     time.Time // in the zone of the device
	Device  string    // such as linux/amd64
	Version string    // of mneme
	Cwd     string
	// Git looks at the working directory; it is called only where the directory
	// is told. nil = git is not mentioned.
	Git func(cwd string) *GitInfo
}

// Reminders is the text in front of the user's message: blocks in
// <system-reminder> tags, "" if there is nothing to say.
func Reminders(in ReminderInput) string {
	var blocks []string
	if in.First || in.CwdChanged {
		blocks = append(blocks, sessionContext(in))
	}
	if in.First && in.Agent != nil {
		blocks = append(blocks, agentInfo(in))
	}
	if text := modeText(in); text != "" {
		blocks = append(blocks, text)
	}
	for i, text := range blocks {
		blocks[i] = wrap(text)
	}
	return strings.Join(blocks, "\n")
}

const reminderTag = "system-reminder"

// wrap puts text in the reminder's tags, which it cannot close itself.
func wrap(text string) string {
	text = strings.ReplaceAll(text, "</"+reminderTag, "< /"+reminderTag)
	return "<" + reminderTag + ">\n" + strings.TrimSpace(text) + "\n</" + reminderTag + ">"
}

func sessionContext(in ReminderInput) string {
	var b strings.Builder
	if in.First {
		b.WriteString("Where this conversation takes place. This is background; there is no need to answer it.\n\n")
	} else {
		b.WriteString("The working directory has changed. This is background; there is no need to answer it.\n\n")
	}
	fmt.Fprintf(&b, "- Local time: %s\n", in.Now.Format("Monday, 2006-01-02 15:04:05 MST (UTC-07:00)"))
	item(&b, "Device", in.Device)
	item(&b, "mneme version", in.Version)
	item(&b, "Working directory", in.Cwd)
	if in.Git == nil {
		return b.String()
	}
	g := in.Git(in.Cwd)
	if g == nil {
		b.WriteString("- Git repository: no\n")
		return b.String()
	}
	b.WriteString("- Git repository: yes\n")
	item(&b, "Branch", g.Branch)
	item(&b, "Git user", g.User)
	fenced(&b, "Recent commits", g.Commits)
	fenced(&b, "Git status", g.Status)
	return b.String()
}

// item writes one line of a list, unless the value is empty.
func item(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "- %s: %s\n", name, oneLine(value))
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// fenced writes lines in a code fence that they cannot close.
func fenced(b *strings.Builder, name, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(b, "\n%s:\n```\n%s\n```\n", name, strings.ReplaceAll(text, "```", "'''"))
	}
}

func agentInfo(in ReminderInput) string {
	var b strings.Builder
	b.WriteString("About you:\n\n")
	fmt.Fprintf(&b, "- Agent id (AGENT_ID): %s\n", in.Agent.ID)
	item(&b, "Conversation id (CONVERSATION_ID)", in.WireConv)
	item(&b, "Memory directory (MEMORY_DIR)", in.MemoryDir)
	item(&b, "Name", in.Agent.Name)
	if in.Agent.Description != nil {
		item(&b, "Description", *in.Agent.Description)
	}
	last := "none yet"
	if !in.LastMessageAt.IsZero() {
		last = fmt.Sprintf("%s (%s)", in.LastMessageAt.In(in.Now.Location()).Format("2006-01-02 15:04:05 MST"), age(in.Now.Sub(in.LastMessageAt)))
	}
	item(&b, "Last message", last)
	return b.String()
}

// age says how long ago something was, in its largest unit.
func age(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / u.size); n == 1 {
			return "1 " + u.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("%d %ss ago", n, u.name)
		}
	}
	return "just now"
}

// modes say what each permission mode means for the model.
var modes = map[agent.Mode]string{
	agent.ModeStandard:     "reading is free; changes and commands wait for a person's consent unless a rule allows them.",
	agent.ModeAcceptEdits:  "reading and editing files is free; commands wait for a person's consent unless a rule allows them.",
	agent.ModeUnrestricted: "calls run without asking, except for those that a rule forbids.",
	agent.ModeStrict:       "every call waits for a person's consent unless a rule allows it.",
}

// modeText tells the permission mode: at first unless it is unrestricted, later
// when it changed.
func modeText(in ReminderInput) string {
	changed := in.PrevMode != "" && in.PrevMode != in.Mode
	if in.Mode == "" || !changed && (!in.First || in.Mode == agent.ModeUnrestricted) {
		return ""
	}
	verb := "is"
	if changed {
		verb = "is now"
	}
	return fmt.Sprintf("The permission mode %s %q: %s", verb, in.Mode, modes[in.Mode])
}
