package tool

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

//go:embed memory_insert.md
var memoryInsertText string

//go:embed memory_replace.md
var memoryReplaceText string

// Blocks changes the core memory of agents. *memory.Memory does.
type Blocks interface {
	Update(ctx context.Context, author memory.Author, agentID, message string,
		edit func(*memory.Snapshot) ([]memory.FileChange, error)) (commit string, changed bool, err error)
}

type insertArgs struct {
	Label      string  `json:"label"`
	NewString  string  `json:"new_string"`
	InsertLine *number `json:"insert_line"`
}

func memoryInsertTool(b Blocks) *Tool {
	t := define("memory_insert", memoryInsertText, `
		"label":{"type":"string","description":"Label of the memory block"},
		"new_string":{"type":"string","description":"Text to insert, without line numbers"},
		"insert_line":{"type":"integer","description":"Line after which the text goes: 0 is the beginning, -1 the end (default -1)"}`,
		"label", "new_string")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in insertArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		line := -1
		if in.InsertLine != nil {
			line = int(*in.InsertLine)
		}
		return editBlock(ctx, b, c, in.Label, func(body string) (string, error) { return insertLines(body, in.NewString, line) })
	}
	return t
}

// insertLines puts text behind a line of a body, -1 = the last.
func insertLines(body, text string, line int) (string, error) {
	lines := strings.Split(body, "\n")
	if body == "" {
		lines = nil
	}
	if line < -1 || line > len(lines) {
		return "", agent.Invalid("insert_line", "insert_line is %d; the block has %d lines, so use 0 to %d, or -1 for the end.", line, len(lines), len(lines))
	}
	if line == -1 {
		line = len(lines)
		if line > 0 && lines[line-1] == "" {
			line-- // the body ends with a line break: the text goes before its end
		}
	}
	return strings.Join(slices.Insert(lines, line, strings.Split(text, "\n")...), "\n"), nil
}

type replaceArgs struct {
	Label     string `json:"label"`
	OldString string `json:"old_string"`
	NewString string `json:"new_string"`
}

func memoryReplaceTool(b Blocks) *Tool {
	t := define("memory_replace", memoryReplaceText, `
		"label":{"type":"string","description":"Label of the memory block"},
		"old_string":{"type":"string","description":"Text to replace, exactly as it stands in the block, without line numbers"},
		"new_string":{"type":"string","description":"Text to put in its place; empty deletes it"}`,
		"label", "old_string", "new_string")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in replaceArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		if in.OldString == "" {
			return failf("old_string must not be empty; memory_insert adds text.")
		}
		return editBlock(ctx, b, c, in.Label, func(body string) (string, error) { return replaceOnce(body, in.OldString, in.NewString) })
	}
	return t
}

// replaceOnce replaces a passage that must be there once.
func replaceOnce(body, from, to string) (string, error) {
	switch n := strings.Count(body, from); n {
	case 0:
		return "", agent.Errorf(agent.CodeMemoryConflict, "The block does not hold this text; nothing was changed. Copy old_string exactly.")
	case 1:
		return strings.Replace(body, from, to, 1), nil
	default:
		return "", agent.Errorf(agent.CodeMemoryConflict, "The block holds this text %d times; nothing was changed. Give more of what is around it.", n)
	}
}

// editBlock changes the body of a core memory block and shows the model what it has
// become.
func editBlock(ctx context.Context, b Blocks, c *Call, label string, edit func(body string) (string, error)) agent.ToolResult {
	path, err := memory.LabelPath(label)
	if err != nil {
		return errResult(ctx, err)
	}
	label, _ = memory.PathLabel(path)
	body := ""
	commit, changed, err := b.Update(ctx, memory.Author{}, c.Env.Scope.AgentID, c.Name+" "+label, func(s *memory.Snapshot) ([]memory.FileChange, error) {
		f := s.File(path)
		switch {
		case f == nil || f.Oversized || f.Label() == "":
			return nil, agent.Errorf(agent.CodeNotFound, "There is no memory block %q. %s", label, knownLabels(s))
		case f.ReadOnly:
			return nil, agent.Invalid("label", "The memory block %q is read-only.", label)
		}
		var err error
		if body, err = edit(f.Body); err != nil {
			return nil, err
		}
		doc := f.Doc()
		doc.Body = body
		return []memory.FileChange{{Path: path, Content: []byte(doc.String())}}, nil
	})
	if err != nil {
		return errResult(ctx, err)
	}
	if !changed {
		return failf("Nothing to change: the memory block %q says that already.", label)
	}
	return success(fmt.Sprintf("Memory block %s changed (%s). It now says:\n%s", label, commit[:min(7, len(commit))], body))
}

// knownLabels tells which blocks there are.
func knownLabels(s *memory.Snapshot) string {
	var labels []string
	for _, f := range s.Files {
		if label := f.Label(); label != "" {
			labels = append(labels, label)
		}
	}
	if len(labels) == 0 {
		return "There are none."
	}
	return "There are: " + strings.Join(labels, ", ") + "."
}
