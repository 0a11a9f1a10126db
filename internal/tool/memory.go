package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

//go:embed memory.md
var memoryText string

// Memory commits changes to the memory files of agents.
type Memory interface {
	// Apply does one operation and returns its commit. Errors are sentences for
	// the model.
	Apply(ctx context.Context, agentID string, op memory.Op) (commit string, err error)
}

type memoryArgs struct {
	Command     string  `json:"command"`
	Reason      string  `json:"reason"`
	FilePath    string  `json:"file_path"`
	OldPath     string  `json:"old_path"`
	NewPath     string  `json:"new_path"`
	OldString   string  `json:"old_string"`
	NewString   string  `json:"new_string"`
	InsertLine  *number `json:"insert_line"`
	InsertText  string  `json:"insert_text"`
	Description string  `json:"description"`
	FileText    string  `json:"file_text"`
}

// memoryNeeds lists what each command cannot do without (spec/harness.md
// section 4.3).
var memoryNeeds = map[string][]string{
	"create":             {"file_path", "description", "file_text"},
	"str_replace":        {"file_path", "old_string", "new_string"},
	"insert":             {"file_path", "insert_line", "insert_text"},
	"delete":             {"file_path"},
	"rename":             {"old_path", "new_path"},
	"update_description": {"file_path", "description"},
}

func memoryTool(m Memory) *Tool {
	t := define("memory", memoryText, `
		"command":{"type":"string","enum":["create","str_replace","insert","delete","rename","update_description"]},
		"reason":{"type":"string","description":"Why, in a few words; becomes the commit message"},
		"file_path":{"type":"string","description":"Path inside the memory directory, such as system/human.md"},
		"description":{"type":"string","description":"What the file is for (create, update_description)"},
		"file_text":{"type":"string","description":"Content of the new file (create)"},
		"old_string":{"type":"string","description":"Text to replace (str_replace)"},
		"new_string":{"type":"string","description":"Text to put in its place (str_replace)"},
		"insert_line":{"type":"integer","description":"Line to insert before, counted from 1 (insert)"},
		"insert_text":{"type":"string","description":"Text to insert (insert)"},
		"old_path":{"type":"string","description":"Path to rename (rename)"},
		"new_path":{"type":"string","description":"Its new path (rename)"}`,
		"command", "reason")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult { return runMemory(ctx, m, c) }
	return t
}

func runMemory(ctx context.Context, m Memory, c *Call) agent.ToolResult {
	var in memoryArgs
	if r, ok := decode(c, &in); !ok {
		return r
	}
	needs, known := memoryNeeds[in.Command]
	if !known {
		return failf("Unknown memory command %q. Use create, str_replace, insert, delete, rename or update_description.", in.Command)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(c.Input, &given); err != nil {
		return failf("Invalid arguments for memory: %v", err)
	}
	var lacks []string
	for _, name := range needs {
		if v, ok := given[name]; !ok || string(v) == "null" {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) > 0 {
		return failf("memory %s needs %s", in.Command, strings.Join(lacks, " and "))
	}
	op := memory.Op{
		Command: in.Command, Reason: in.Reason, FilePath: in.FilePath, OldPath: in.OldPath, NewPath: in.NewPath,
		OldString: in.OldString, NewString: in.NewString, InsertText: in.InsertText,
		Description: in.Description, FileText: in.FileText,
	}
	if in.InsertLine != nil {
		n := int(*in.InsertLine)
		op.InsertLine = &n
	}
	commit, err := m.Apply(ctx, c.Env.Scope.AgentID, op)
	if err != nil {
		return errResult(ctx, err)
	}
	return success(fmt.Sprintf("Memory %s committed locally (%s).", in.Command, commit[:min(7, len(commit))]))
}
