package offline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mneme/internal/agent"
)

const (
	toolName  = "memory"
	notesPath = "system/notes.md"
	// maxSteps bounds the calls for one exchange: one that fails for a reason
	// that can be mended is followed by one other.
	maxSteps = 3
	// atEnd is a line behind the end of every file; the tool takes the nearest.
	atEnd = 1_000_000
)

// arguments are the parameters of the memory tool that we use
// (spec/harness.md section 4.3).
type arguments struct {
	Command     string `json:"command"`
	Reason      string `json:"reason"`
	FilePath    string `json:"file_path"`
	Description string `json:"description,omitempty"`
	FileText    string `json:"file_text,omitempty"`
	InsertLine  int    `json:"insert_line,omitempty"`
	InsertText  string `json:"insert_text,omitempty"`
}

func parseArguments(s string) (a arguments) {
	_ = json.Unmarshal([]byte(s), &a) // a call that is not ours matches no fact
	return a
}

// stores says whether a call adds a fact.
func (a arguments) stores(fact string) bool {
	line := "- " + fact
	return slices.Contains(strings.Split(a.FileText, "\n"), line) || strings.TrimSpace(a.InsertText) == line
}

// asking forms of a wish to remember. What follows is the fact.
var wish = regexp.MustCompile(`(?is)^(?:(?:hey|hi|hello|ok|okay)\b[^.!?\n]{0,20}?[,!.]?\s+)?(?:please[,\s]+)?(?:can you\s+|could you\s+|would you\s+)?(?:please\s+)?` +
	`(?:(?:remember|memori[sz]e|keep in mind|don['’]t forget|do not forget)(?:\s+that\b|\s+this\b|\s*:|\s*,)?|(?:note|save|store|write down)(?:\s+that\b|\s+this\s*:|\s*:))[\s:]*(.+)$`)

// polite is a wish in the form of a question.
var polite = regexp.MustCompile(`(?is)\b(?:can|could|would)\s+you\b.*\bthat\b.*\?$`)

// factIn takes the fact out of a wish to remember. Other questions hold none.
func factIn(text string) (fact string, ok bool) {
	text = strings.TrimSpace(text)
	m := wish.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	fact = strings.Join(strings.Fields(m[1]), " ")
	fact = strings.TrimPrefix(strings.TrimPrefix(fact, "- "), "that ")
	if polite.MatchString(text) {
		fact = strings.TrimRight(fact, "? ")
	}
	if strings.HasSuffix(fact, "?") || fact == "" {
		return "", false
	}
	return fact, true
}

// remember gives the calls that are still needed to store the facts or, if
// there are none, what came of them.
func remember(facts []string, ex exchange, mem memory, tool bool) (said string, calls []agent.CallPart) {
	notes, there := mem.file(notesPath)
	var stored, known, failed []string
	for _, fact := range slices.Compact(facts) {
		tried := slices.DeleteFunc(slices.Clone(ex.calls), func(s settled) bool { return !s.args.stores(fact) })
		last := len(tried) - 1
		switch {
		case last >= 0 && tried[last].ok:
			stored = append(stored, fact)
		case last < 0 && slices.Contains(notes.lines(), "- "+fact):
			known = append(known, fact)
		case !tool:
			return noTool, nil
		case last >= 0 && (len(tried) > 1 || ex.steps >= maxSteps || !mendable(tried[last])):
			failed = append(failed, fmt.Sprintf("%q (%s)", fact, strings.TrimSuffix(strings.TrimSpace(tried[last].result), ".")))
		case last >= 0:
			calls = append(calls, storeCall(fact, tried[last].args.Command == "create", len(notes.lines()), ex.steps, len(calls)))
		default:
			calls = append(calls, storeCall(fact, there, len(notes.lines()), ex.steps, len(calls)))
			there = true
		}
	}
	if len(calls) > 0 {
		return "", calls
	}
	var out []string
	if len(stored) > 0 {
		out = append(out, "I have noted in memory: "+list(stored)+".")
	}
	if len(known) > 0 {
		out = append(out, "My memory holds that already: "+list(known)+".")
	}
	if len(failed) > 0 {
		out = append(out, "I could not store "+strings.Join(failed, ", ")+".")
	}
	return strings.Join(out, " "), nil
}

// mendable says whether the other command may do: the file is there after all,
// or is not.
func mendable(s settled) bool {
	result := strings.ToLower(s.result)
	if s.args.Command == "create" {
		return strings.Contains(result, "exist")
	}
	return strings.Contains(result, "no memory file") || strings.Contains(result, "not exist") || strings.Contains(result, "not found")
}

// storeCall adds a fact to the notes, or begins them with it. Its id follows
// from its place, so that the same request gets the same answer.
func storeCall(fact string, there bool, lines, step, n int) agent.CallPart {
	a := arguments{Command: "create", Reason: "Remember: " + clip(fact, 60), FilePath: notesPath,
		Description: "Facts that I was asked to remember", FileText: "- " + fact}
	if there {
		a = arguments{Command: "insert", Reason: a.Reason, FilePath: notesPath, InsertLine: atEnd, InsertText: "- " + fact}
		if lines > 0 && n == 0 {
			a.InsertLine = lines + 1
		}
	}
	b, _ := json.Marshal(a) // strings and a number: never fails
	return agent.CallPart{ID: fmt.Sprintf("call_offline_%d_%d", step+1, n+1), Name: toolName, Arguments: string(b)}
}

func list(facts []string) string {
	for i, f := range facts {
		facts[i] = strings.TrimRight(f, ".! ")
	}
	return strings.Join(facts, "; ")
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n-1])) + "…"
	}
	return s
}
