package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"mneme/internal/agent"
)

// The limits of spec/harness.md section 2.2, in characters.
const (
	maxResult      = 32_000 // any text of any result
	maxBashOutput  = 30_000 // a command that succeeded
	bashPreview    = 2_000  // what is shown of a longer output
	maxBashFailure = 10_000 // a command that failed
	maxRead        = 30_000
	maxReadLines   = 2_000
	maxReadLine    = 2_000
	maxGrep        = 10_000
	maxGlobFiles   = 2_000
	maxNotice      = 10_000 // a notification
	noticeLines    = 50     // of each stream
)

// Clamp bounds every text of a result at 32,000 characters, makes it storable
// (valid UTF-8 without NUL) and gives an empty result a text.
func Clamp(r agent.ToolResult) agent.ToolResult {
	parts := make([]agent.Part, 0, len(r.Parts))
	for _, p := range r.Parts {
		if p.Kind == agent.PartText {
			p.Text = clampText(p.Text)
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		parts = append(parts, agent.Text("(no output)"))
	}
	r.Parts = parts
	if r.Status == "" {
		r.Status = agent.StatusSuccess
	}
	return r
}

func clampText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= maxResult {
		return s
	}
	total := utf8.RuneCountInString(s)
	if total <= maxResult {
		return s
	}
	note := truncated(maxResult, total)
	return firstChars(s, maxResult-utf8.RuneCountInString(note)) + note
}

// truncated is the line that tells of a cut output.
func truncated(shown, total int) string {
	return fmt.Sprintf("\n[Output truncated: showing %s of %s characters.]",
		humanize.Comma(int64(shown)), humanize.Comma(int64(total)))
}

// writtenTo is the line that names the file with the whole output.
func writtenTo(path string) string { return "\n[Full output written to: " + path + "]" }

func firstChars(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func lastChars(s string, n int) string {
	over := utf8.RuneCountInString(s) - n
	if over <= 0 {
		return s
	}
	return s[len(firstChars(s, over)):]
}
