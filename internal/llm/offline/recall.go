package offline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// A file is the body of a memory file as the prompt shows it.
type file struct {
	path string
	body []string
}

// lines are the lines that say something.
func (f file) lines() []string {
	var out []string
	for _, l := range f.body {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// memory is the core memory, in the order it was shown first.
type memory struct{ files []file }

func (m *memory) file(path string) (file, bool) {
	i := m.index(path)
	if i < 0 {
		return file{}, false
	}
	return m.files[i], true
}

func (m *memory) index(path string) int {
	return slices.IndexFunc(m.files, func(f file) bool { return f.path == path })
}

func (m *memory) set(f file) {
	if i := m.index(f.path); i >= 0 {
		m.files[i] = f
		return
	}
	m.files = append(m.files, f)
}

func (m *memory) drop(path string) {
	if i := m.index(path); i >= 0 {
		m.files = slices.Delete(m.files, i, i+1)
	}
}

// readMemory reads the core memory of the system prompt and then the notices,
// of which the newer wins (spec/harness.md section 1.2).
func readMemory(req *llm.Request) memory {
	var m memory
	m.read(req.System)
	for _, msg := range req.Messages {
		if text := agent.TextOf(msg.Parts); msg.Role == agent.RoleNotice && strings.Contains(text, "<memory_update>") {
			m.read(text)
		}
	}
	return m
}

const (
	fileMark = "<projection>$MEMORY_DIR/"
	fileEnd  = "</projection>"
	goneMark = "No longer in your memory:"
)

// read takes the files out of a text with core memory: a tag, a projection line
// with the path, a description, the body, the closing tag. Files nest.
func (m *memory) read(text string) {
	var f *file
	var tag, before string
	gone := false
	end := func() {
		if f != nil {
			m.set(*f)
		}
		f = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		s := strings.TrimSpace(line)
		path, isMark := strings.CutPrefix(s, fileMark)
		path, closed := strings.CutSuffix(path, fileEnd)
		switch {
		case isMark && closed:
			if f != nil && len(f.body) > 0 && strings.TrimSpace(f.body[len(f.body)-1]) == before {
				f.body = f.body[:len(f.body)-1] // the tag of a file below this one
			}
			end()
			f, tag, gone = &file{path: path}, before, false
		case f != nil && s == closing(tag):
			end()
		case f != nil && len(f.body) == 0 && strings.HasPrefix(s, "<description>"):
		case f != nil:
			f.body = append(f.body, line)
		case s == goneMark:
			gone = true
		case gone && strings.HasPrefix(s, "- $MEMORY_DIR/"):
			m.drop(strings.TrimPrefix(s, "- $MEMORY_DIR/"))
		case s != "":
			gone = false
		}
		before = s
	}
	end()
}

// closing is the closing tag of an opening one.
func closing(tag string) string { return "</" + strings.TrimPrefix(tag, "<") }

// about finds what a question is about.
var about = regexp.MustCompile(`(?is)^(?:please\s+)?(?:so\s+)?(?:what\s+(?:do|can)\s+you\s+(?:know|remember|recall|tell me)|what\s+have\s+you\s+(?:stored|noted|saved)|tell\s+me|do\s+you\s+(?:know|remember)|what\s+did\s+i\s+(?:tell|say to)\s+you|remind\s+me)\b(?:\s+(?:everything|all|anything|something|what)\b)*(?:\s*(?:you\s+(?:know|remember)\b))?(?:\s*\b(?:about|of|on|that)\b)?(.*)$`)

// asks are words that questions begin with.
var asks = []string{"what", "who", "where", "when", "which", "how", "why", "is", "are", "am", "do", "does", "did", "was", "were", "can", "whose", "whom", "what's", "who's", "where's", "when's"}

// emptyWords say nothing about what is asked for.
var emptyWords = strings.Fields("a about all an and anything are as at be been by can could did do does everything for from had has have how i if in is it its " +
	"know ll me my name of on or our please re recall remember s say should so t tell that the their them there they this to ve was we were what when where " +
	"which who whom whose why will with would you your")

// maxQuoted bounds the lines that an answer quotes.
const maxQuoted = 12

// recall answers a question from memory; "" if the text is none.
func recall(text string, mem memory) string {
	text = strings.TrimSpace(text)
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return ""
	}
	subject, asked := text, strings.HasSuffix(text, "?") || slices.Contains(asks, words[0])
	explicit := false
	if m := about.FindStringSubmatch(text); m != nil {
		subject, asked, explicit = m[1], true, true
	}
	if !asked {
		return ""
	}
	terms := contentWords(subject)
	quotes := mem.find(terms, explicit)
	switch {
	case len(quotes) > 0:
		return "From my memory:\n" + strings.Join(quotes, "\n")
	case !explicit:
		return ""
	case len(terms) == 0:
		return "My memory holds nothing yet. Tell me something with \"remember that …\"."
	}
	return fmt.Sprintf("I find nothing about %s in my memory.", strings.Trim(strings.Join(strings.Fields(subject), " "), "?.! "))
}

// maxTerms bounds the words that a question is about: a long text is none.
const maxTerms = 32

// contentWords are the words of a question that say what it is about.
func contentWords(s string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(out) < maxTerms && !slices.Contains(emptyWords, w) && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// find gives the lines that hold the most of the terms, by file; without terms
// all lines, if everything was asked for. A line that holds less than half of
// them does not fit unless explicit.
func (m *memory) find(terms []string, explicit bool) []string {
	type hit struct {
		line  string
		score int
	}
	var hits []hit
	best := 1
	if len(terms) == 0 && !explicit {
		return nil
	}
	for _, f := range m.files {
		for _, l := range f.lines() {
			lower := strings.ToLower(l)
			score := 0
			for _, t := range terms {
				if contains(lower, t) {
					score++
				}
			}
			best = max(best, score)
			hits = append(hits, hit{fmt.Sprintf("- %s (%s)", strings.TrimPrefix(l, "- "), f.path), score})
		}
	}
	least := best
	switch {
	case len(terms) == 0:
		least = 0
	case explicit:
		least = 1
	case 2*best < len(terms):
		return nil
	}
	var out []string
	for _, h := range hits {
		if h.score >= least && len(out) < maxQuoted {
			out = append(out, h.line)
		}
	}
	return out
}

// contains finds a term in a line, also where the term is the plural of a word
// in it.
func contains(line, term string) bool {
	if strings.Contains(line, term) {
		return true
	}
	stem := strings.TrimSuffix(term, "s")
	return len(stem) >= 3 && strings.Contains(line, stem)
}
