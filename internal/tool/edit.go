package tool

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

//go:embed edit.md
var editText string

type editArgs struct {
	FilePath   string `json:"file_path"`
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll flag   `json:"replace_all"`
}

func editTool() *Tool {
	t := define("Edit", editText, `
		"file_path":{"type":"string","description":"Absolute path of the file"},
		"old_string":{"type":"string","description":"The exact text to replace"},
		"new_string":{"type":"string","description":"The text to put in its place"},
		"replace_all":{"type":"boolean","description":"Replace every occurrence (default false)"}`,
		"file_path", "old_string", "new_string")
	t.Class = PerFile
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in editArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		return runEdit(ctx, c, in)
	}
	return t
}

func runEdit(ctx context.Context, c *Call, in editArgs) agent.ToolResult {
	path, err := c.Env.path(in.FilePath)
	if err != nil {
		return failf("%v: %s", err, in.FilePath)
	}
	raw, err := workspace.Read(path, workspace.MaxText)
	if err != nil {
		return fileError(c.Env, path, err)
	}
	if bytes.HasPrefix(raw, []byte("\xFF\xFE")) || bytes.HasPrefix(raw, []byte("\xFE\xFF")) {
		return failf("The file is UTF-16; Edit changes UTF-8 files only: %s", path)
	}
	text, err := workspace.Decode(raw)
	if err != nil {
		return fileError(c.Env, path, err)
	}
	done, err := in.apply(text)
	if err != nil {
		return failf("%v", err)
	}
	if ctx.Err() != nil {
		return Interrupted()
	}
	out := done.text
	if mark := "\xEF\xBB\xBF"; bytes.HasPrefix(raw, []byte(mark)) {
		out = mark + out
	}
	if err := workspace.Write(path, []byte(out)); err != nil {
		return fileError(c.Env, path, err)
	}
	changed(c, path, done.text)
	plural := ""
	if done.count != 1 {
		plural = "s"
	}
	result, err := json.Marshal(struct {
		Message      string `json:"message"`
		Replacements int    `json:"replacements"`
		StartLine    int    `json:"startLine"`
	}{
		fmt.Sprintf("Successfully replaced %d occurrence%s in %s", done.count, plural, in.FilePath), done.count, done.line,
	})
	if err != nil {
		return failf("Error executing tool: %v", err)
	}
	return success(string(result))
}

// An edited text and what was done to it.
type edited struct {
	text  string
	count int
	line  int // 1-based, of the first replacement in the old text
}

// apply replaces old_string in text. Line breaks match whether they are LF or
// CRLF, and what is put in gets those of the text it replaces, or of the file;
// everything else stays byte for byte. An old_string that is not there but would
// be once its escapes are undone (a model that escaped twice) is taken as that.
func (in *editArgs) apply(text string) (edited, error) {
	switch {
	case in.OldString == "":
		return edited{}, errors.New("old_string must not be empty. Use Write to make a file.")
	case in.OldString == in.NewString:
		return edited{}, errors.New("No changes to make: old_string and new_string are exactly the same.")
	}
	old, next := unix(in.OldString), unix(in.NewString)
	flat := unix(text)
	n := strings.Count(flat, old)
	if n == 0 {
		if plain := unescape(old); plain != old && plain != "" && strings.Contains(flat, plain) {
			old, next = plain, unescape(next)
			n = strings.Count(flat, old)
		}
	}
	switch {
	case n == 0:
		return edited{}, notThere(flat, old)
	case n > 1 && !bool(in.ReplaceAll):
		return edited{}, fmt.Errorf("old_string occurs %d times in the file. Add lines around it until it is unique,"+
			" or set replace_all to change all of them.", n)
	}
	if grown := len(flat) + n*(len(next)-len(old)); grown > workspace.MaxText {
		return edited{}, errors.New("The file would become larger than 10 MB.")
	}
	line := 1 + strings.Count(flat[:strings.Index(flat, old)], "\n")
	return edited{text: splice(text, flat, old, next), count: n, line: line}, nil
}

func unix(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// splice replaces old by next in text, of which flat is the form with plain line
// breaks.
func splice(text, flat, old, next string) string {
	if text == flat {
		return strings.ReplaceAll(text, old, next)
	}
	crlf := 2*strings.Count(text, "\r\n") >= strings.Count(text, "\n")
	var out strings.Builder
	at := 0 // in text
	// skip copies or drops the piece of text behind n bytes of flat.
	skip := func(piece string, copy bool) string {
		from := at
		for i := range len(piece) {
			if piece[i] == '\n' && text[at] == '\r' {
				at++
			}
			at++
		}
		if copy {
			out.WriteString(text[from:at])
		}
		return text[from:at]
	}
	for {
		i := strings.Index(flat, old)
		if i < 0 {
			skip(flat, true)
			return out.String()
		}
		skip(flat[:i], true)
		gone := skip(old, false)
		put := next
		if strings.Contains(gone, "\r\n") || crlf && !strings.Contains(gone, "\n") {
			put = strings.ReplaceAll(next, "\n", "\r\n")
		}
		out.WriteString(put)
		flat = flat[i+len(old):]
	}
}

var unescaper = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\"`, `"`, `\'`, `'`, "\\`", "`", `\\`, `\`, `\$`, `$`)

func unescape(s string) string { return unescaper.Replace(s) }

// notThere explains why nothing matched, as far as it can be seen.
func notThere(flat, old string) error {
	hint := "Read the file again: it may have changed, or the text may be quoted wrongly."
	switch {
	case strings.Contains(loose(flat), loose(old)):
		hint = "It is there with other whitespace or line breaks; copy the lines exactly as Read shows them, without the line numbers."
	case strings.Contains(straight(flat), straight(old)):
		hint = "It is there with other quotation marks or dashes (typographic or plain); copy them exactly."
	}
	return fmt.Errorf("String to replace not found in file. %s\nString: %s", hint, firstChars(old, 500))
}

func loose(s string) string { return strings.Join(strings.Fields(s), " ") }

var straightener = strings.NewReplacer("\u2018", "'", "\u2019", "'", "\u201C", `"`, "\u201D", `"`,
	"\u2013", "-", "\u2014", "-", "\u00A0", " ")

func straight(s string) string { return loose(straightener.Replace(s)) }
