package tool

import (
	"context"
	_ "embed"
	"fmt"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

//go:embed write.md
var writeText string

type writeArgs struct {
	FilePath string `json:"file_path"`
	Content  string `json:"content"`
}

func writeTool() *Tool {
	t := define("Write", writeText, `
		"file_path":{"type":"string","description":"Absolute path of the file"},
		"content":{"type":"string","description":"The whole new content"}`,
		"file_path", "content")
	t.Class = PerFile
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in writeArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		path, err := c.Env.path(in.FilePath)
		if err != nil {
			return failf("%v: %s", err, in.FilePath)
		}
		if ctx.Err() != nil {
			return Interrupted()
		}
		if err := workspace.Write(path, []byte(in.Content)); err != nil {
			return fileError(c.Env, path, err)
		}
		changed(c, path, in.Content)
		return success(fmt.Sprintf("Successfully wrote %d characters to %s", utf8.RuneCountInString(in.Content), in.FilePath))
	}
	return t
}

// changed tells watchers of a write.
func changed(c *Call, path, content string) {
	if c.Host != nil {
		c.Host.FileChanged(c.Env.Scope, path, content)
	}
}
