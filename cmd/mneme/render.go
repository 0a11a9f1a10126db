package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"mneme/protocol"
)

// maxShown is how much of a tool's result is shown, in lines and characters.
const (
	maxShownLines = 6
	maxShownChars = 600
)

// A renderer writes the events of one turn as text.
type renderer struct {
	talk    *talk
	open    bool // the last line is not ended
	message string
	results map[string]bool // calls whose end was shown
}

// event writes one event. Tool output that comes while a tool runs is not
// shown: its result is.
func (r *renderer) event(ev protocol.Event) {
	d, ok := ev.Body.(*protocol.StreamDelta)
	if !ok || d.SubagentID != "" {
		return
	}
	switch d := d.Delta.(type) {
	case *protocol.AssistantDelta:
		r.text(d.ID, d.Content.Text(), false)
	case *protocol.ReasoningDelta:
		r.text(d.ID, d.Reasoning, true)
	case *protocol.ToolCallDelta:
		r.newline()
		r.talk.dim("● %s %s", d.ToolCall.Name, summary(json.RawMessage(d.ToolCall.Arguments)))
	case *protocol.ToolReturnDelta:
		r.result(d)
	case *protocol.ToolEndDelta:
		if r.results == nil {
			r.results = map[string]bool{}
		}
		r.results[d.ToolCallID] = true
	case *protocol.StatusDelta:
		r.newline()
		r.talk.dim("%s", d.Message)
	case *protocol.RetryDelta:
		r.newline()
		r.talk.dim("%s What was shown of this answer does not count; asking again.", sentence(d.Message))
	}
}

// text writes a piece of a message; another message begins a new line.
func (r *renderer) text(id, piece string, faint bool) {
	if piece == "" {
		return
	}
	if id != r.message {
		r.newline()
		r.message = id
	}
	piece = printable(piece)
	if faint {
		piece = r.talk.paint("2", piece)
	}
	fmt.Fprint(r.talk.out, piece)
	r.open = !strings.HasSuffix(piece, "\n")
}

func (r *renderer) newline() {
	if r.open {
		fmt.Fprintln(r.talk.out)
	}
	r.open = false
}

// result shows the beginning of a finished tool's result.
func (r *renderer) result(d *protocol.ToolReturnDelta) {
	if !r.results[d.ToolCallID] {
		return // output so far
	}
	r.newline()
	text := strings.TrimSpace(d.ToolReturn.Text())
	if d.Status == "error" {
		text = "failed: " + text
	}
	lines := strings.Split(clip(text, maxShownChars), "\n")
	if more := len(lines) - maxShownLines; more > 0 {
		lines = append(lines[:maxShownLines], fmt.Sprintf("… %d more lines", more))
	}
	for _, line := range lines {
		r.talk.dim("  %s", line)
	}
}

// diff shows what a tool would write.
func (t *talk) diff(d protocol.Diff) {
	t.dim("  %s %s", d.FileName, d.Reason)
	for _, h := range d.Hunks {
		for _, l := range h.Lines {
			sign, color := " ", "2"
			switch l.Type {
			case "add":
				sign, color = "+", "32"
			case "remove":
				sign, color = "-", "31"
			}
			fmt.Fprintln(t.out, t.paint(color, "  "+sign+" "+printable(l.Content)))
		}
	}
}

func (t *talk) dim(format string, args ...any) {
	fmt.Fprintln(t.out, t.paint("2", printable(fmt.Sprintf(format, args...))))
}

func (t *talk) warn(format string, args ...any) {
	fmt.Fprintln(t.out, t.paint("33", printable(fmt.Sprintf(format, args...))))
}

// paint wraps text in a colour where the terminal has colours.
func (t *talk) paint(code, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// summary is the input of a call on one line.
func summary(input json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(input, &fields) != nil {
		return clip(strings.Join(strings.Fields(string(input)), " "), 200)
	}
	if len(fields) > 1 {
		delete(fields, "description") // the model's own words about the rest
	}
	for _, main := range []string{"command", "file_path", "pattern", "path"} {
		if s, ok := fields[main].(string); ok && len(fields) == 1 {
			return clip(strings.Join(strings.Fields(s), " "), 200)
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return ""
	}
	return clip(string(text), 200)
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}

// printable drops control characters: a model or a file must not steer the
// terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// sentence ends a text with a full stop.
func sentence(s string) string {
	if s = strings.TrimSpace(s); s != "" && !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
