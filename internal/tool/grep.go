package tool

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

//go:embed grep.md
var grepText string

const (
	defaultGrepRows = 100
	maxContext      = 50      // lines on either side
	maxGrepMatches  = 100_000 // looked at in one call
	maxGrepLine     = 500     // characters shown of a line
)

type grepArgs struct {
	Pattern   string  `json:"pattern"`
	Path      string  `json:"path"`
	Glob      string  `json:"glob"`
	Mode      string  `json:"output_mode"`
	After     number  `json:"-A"`
	Before    number  `json:"-B"`
	Around    number  `json:"-C"`
	Numbers   *flag   `json:"-n"`
	Ignore    flag    `json:"-i"`
	Type      string  `json:"type"`
	Head      *number `json:"head_limit"`
	Offset    number  `json:"offset"`
	Multiline flag    `json:"multiline"`
}

func grepTool() *Tool {
	t := define("Grep", grepText, `
		"pattern":{"type":"string","description":"Regular expression"},
		"path":{"type":"string","description":"File or directory to search (default: the working directory)"},
		"glob":{"type":"string","description":"Only files that match, such as *.go; !x leaves files out"},
		"output_mode":{"type":"string","enum":["files_with_matches","content","count"],"description":"Default files_with_matches"},
		"-A":{"type":"integer","description":"Lines after each match (content)"},
		"-B":{"type":"integer","description":"Lines before each match (content)"},
		"-C":{"type":"integer","description":"Lines before and after each match (content)"},
		"-n":{"type":"boolean","description":"Line numbers (content, default true)"},
		"-i":{"type":"boolean","description":"Ignore case"},
		"type":{"type":"string","description":"Kind of files, such as go, py, ts"},
		"head_limit":{"type":"integer","description":"Rows to return (default 100, 0 = all)"},
		"offset":{"type":"integer","description":"Rows to skip"},
		"multiline":{"type":"boolean","description":"Let the pattern span lines, with . matching line breaks"}`,
		"pattern")
	t.Class, t.ReadOnly = Parallel, true
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in grepArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		return runGrep(ctx, c, in)
	}
	return t
}

func runGrep(ctx context.Context, c *Call, in grepArgs) agent.ToolResult {
	root := c.Env.Cwd
	if in.Path != "" {
		var err error
		if root, err = c.Env.path(in.Path); err != nil {
			return failf("%v", err)
		}
	}
	q := workspace.Query{
		Root: root, Pattern: in.Pattern, Glob: in.Glob, Type: in.Type,
		IgnoreCase: bool(in.Ignore), Multiline: bool(in.Multiline),
	}
	page := grepPage{env: c.Env, numbers: in.Numbers == nil || bool(*in.Numbers), skip: max(0, int(in.Offset)), limit: defaultGrepRows}
	if in.Head != nil {
		page.limit = int(*in.Head)
	}
	yield := page.file
	switch in.Mode {
	case "content":
		q.Before = clampContext(max(in.Before, in.Around))
		q.After = clampContext(max(in.After, in.Around))
		page.context = q.Before+q.After > 0
		yield = page.line
	case "count":
		yield = page.count
	case "", "files_with_matches":
	default:
		return failf("output_mode must be files_with_matches, content or count, not %q", in.Mode)
	}
	hides := c.Env.hides()
	err := workspace.Grep(ctx, q, func(m workspace.Match) bool {
		if page.seen++; page.seen > maxGrepMatches {
			page.more = true
			return false
		}
		return hides(m.Path) || yield(m)
	})
	if err != nil {
		return searchError(ctx, root, err)
	}
	return success(page.text(in.Mode))
}

func clampContext(n number) int { return min(max(int(n), 0), maxContext) }

// A grepPage collects the rows of one result.
type grepPage struct {
	env         *Env
	numbers     bool
	context     bool
	skip, limit int // rows; limit 0 = all

	seen    int // matches looked at
	rows    []string
	at      int // rows so far, the skipped ones too
	chars   int
	more    bool
	last    workspace.Match
	matches int // in count mode
	perFile int
}

// add takes a row and says whether to go on.
func (p *grepPage) add(row string) bool {
	p.at++
	if p.at <= p.skip {
		return true
	}
	if p.limit > 0 && len(p.rows) == p.limit {
		p.more = true
		return false
	}
	if p.chars += utf8.RuneCountInString(row) + 1; p.chars > maxGrep {
		p.more = true
		return false
	}
	p.rows = append(p.rows, row)
	return true
}

func (p *grepPage) file(m workspace.Match) bool {
	if m.Path == p.last.Path {
		return true
	}
	p.last = m
	return p.add(p.shown(m.Path))
}

func (p *grepPage) line(m workspace.Match) bool {
	gap := p.context && p.last.Path != "" && (m.Path != p.last.Path || m.Line != p.last.Line+1)
	p.last = m
	if gap && len(p.rows) > 0 {
		p.rows = append(p.rows, "--")
	}
	sep := ":"
	if m.Context {
		sep = "-"
	}
	row := p.shown(m.Path) + sep
	if p.numbers {
		row += fmt.Sprintf("%d%s", m.Line, sep)
	}
	text := m.Text
	if utf8.RuneCountInString(text) > maxGrepLine {
		text = firstChars(text, maxGrepLine) + "..."
	}
	return p.add(row + text)
}

// count gathers the matches of a file and takes a row when the next one begins.
func (p *grepPage) count(m workspace.Match) bool {
	if m.Path != p.last.Path && !p.endFile() {
		return false
	}
	p.last = m
	p.perFile++
	return true
}

func (p *grepPage) endFile() bool {
	if p.perFile == 0 {
		return true
	}
	n := p.perFile
	p.matches += n
	p.perFile = 0
	return p.add(fmt.Sprintf("%s:%d", p.shown(p.last.Path), n))
}

// shown is a path relative to the working directory where it lies in it.
func (p *grepPage) shown(path string) string {
	if rel, err := filepath.Rel(p.env.Cwd, path); err == nil && within(path, p.env.Cwd) {
		return rel
	}
	return path
}

func (p *grepPage) text(mode string) string {
	footer := ""
	switch mode {
	case "content":
		if len(p.rows) == 0 {
			return "No matches found"
		}
	case "count":
		p.endFile()
		if len(p.rows) == 0 {
			return "No matches found"
		}
		footer = fmt.Sprintf("\n\nFound %d %s in %d %s.", p.matches, plural(p.matches, "match", "matches"),
			p.at, plural(p.at, "file", "files"))
	default:
		if len(p.rows) == 0 {
			return "No files found"
		}
		p.rows = append([]string{fmt.Sprintf("Found %d %s", len(p.rows), plural(len(p.rows), "file", "files"))}, p.rows...)
	}
	text := strings.Join(p.rows, "\n") + footer
	if p.more {
		text += fmt.Sprintf("\n[There is more. Narrow the search, or read on with offset %d.]", p.at-1)
	}
	return text
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
