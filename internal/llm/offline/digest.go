package offline

import (
	"regexp"
	"strings"
)

// transcriptLine is a line of a transcript that is to be summed up.
var transcriptLine = regexp.MustCompile(`(?m)^\[(user|assistant|tool|tool result|system|notice|summary)[^\]\n]*\]`)

// Bounds of a digest.
const (
	minTranscript = 3  // lines that make a text a transcript
	maxDigest     = 40 // lines kept: the first few and the last ones
	keptAtStart   = 5
	maxLine       = 240 // characters
)

// digest sums up a transcript without understanding it: the beginning of each
// message, of a long one the first and the last. "" if texts are no transcript.
func digest(texts []string) string {
	all := strings.Join(texts, "\n")
	starts := transcriptLine.FindAllStringIndex(all, -1)
	if len(starts) < minTranscript {
		return ""
	}
	var lines []string
	for i, at := range starts {
		end := len(all)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		if s := strings.Join(strings.Fields(all[at[0]:end]), " "); s != all[at[0]:at[1]] {
			lines = append(lines, clip(s, maxLine))
		}
	}
	if len(lines) > maxDigest {
		rest := lines[len(lines)-(maxDigest-keptAtStart):]
		lines = append(append(lines[:keptAtStart:keptAtStart], "…"), rest...)
	}
	return "What was said, shortened without a language model:\n" + strings.Join(lines, "\n")
}
