package memory

import (
	"strings"
	"unicode/utf8"
)

// maxChunk is how many characters a piece of a file may have that is ranked by
// itself (spec/mcp.md section 5.2).
const maxChunk = 1200

// A chunk is a piece of a file's body: what stands between two headings, or as
// much of that as fits.
type chunk struct {
	from, to int    // bytes of the body, without blank ends
	heading  string // above it; "" = none
}

// chunksOf cuts a body at headings and blank lines, and where that is not enough
// at the end of a line, a sentence or a word. It has at least one chunk, which
// may be empty.
func chunksOf(body string) []chunk {
	c := &chunker{body: body}
	at := 0
	fence := ""
	for line := range strings.Lines(body) {
		text := strings.TrimRight(line, "\r\n")
		switch m := codeRow.FindStringSubmatch(text); {
		case fence != "":
			if m != nil && strings.HasPrefix(m[1], fence) {
				fence = ""
			}
		case m != nil:
			fence = m[1]
		case heading.MatchString(text):
			c.end(at)
			c.heading = strings.TrimSpace(strings.Trim(strings.TrimSpace(text), "#"))
		case strings.TrimSpace(text) == "":
			c.pause(at)
		}
		at += len(line)
	}
	c.end(len(body))
	if len(c.found) == 0 {
		return []chunk{{}}
	}
	return c.found
}

// A chunker gathers paragraphs until they no longer fit.
type chunker struct {
	body    string
	heading string
	from    int // where the chunk at hand begins
	paused  int // its last blank line
	found   []chunk
}

// pause notes a blank line: the paragraphs so far may be one chunk.
func (c *chunker) pause(at int) {
	if c.paused > c.from && utf8.RuneCountInString(c.body[c.from:at]) > maxChunk {
		c.add(c.from, c.paused)
		c.from = c.paused
	}
	c.paused = at
}

// end closes the chunk.
func (c *chunker) end(at int) {
	c.pause(at)
	c.add(c.from, at)
	c.from, c.paused = at, at
}

// add notes a piece, cut to size.
func (c *chunker) add(from, to int) {
	for {
		text := c.body[from:to]
		from += len(text) - len(strings.TrimLeft(text, " \t\r\n"))
		to = from + len(strings.TrimRight(c.body[from:to], " \t\r\n"))
		if from >= to {
			return
		}
		n := breakAt(c.body[from:to], maxChunk)
		c.found = append(c.found, chunk{from: from, to: from + n, heading: c.heading})
		from += n
	}
}

// breakAt is where to cut a text so that the first part has at most max
// characters, in bytes.
func breakAt(text string, max int) int {
	limit := len(text)
	n := 0
	for i := range text {
		if n == max {
			limit = i
			break
		}
		n++
	}
	if limit == len(text) {
		return limit
	}
	for _, mark := range []string{"\n", ". ", "。", " "} {
		if i := strings.LastIndex(text[:limit], mark); i > limit/2 {
			return i + len(mark)
		}
	}
	return limit
}
