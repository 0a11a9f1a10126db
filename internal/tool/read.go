package tool

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

//go:embed read.md
var readText string

type readArgs struct {
	FilePath string `json:"file_path"`
	Offset   number `json:"offset"`
	Limit    number `json:"limit"`
}

func readTool() *Tool {
	t := define("Read", readText, `
		"file_path":{"type":"string","description":"Absolute path of the file"},
		"offset":{"type":"integer","description":"Number of lines to skip"},
		"limit":{"type":"integer","description":"Number of lines to read, at most 2000 (default 2000)"}`,
		"file_path")
	t.Class, t.ReadOnly = Parallel, true
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in readArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		path, err := c.Env.path(in.FilePath)
		if err != nil {
			return failf("%v: %s", err, in.FilePath)
		}
		if slices.Contains(imageTypes, strings.ToLower(filepath.Ext(path))) {
			return readImage(c.Env, path)
		}
		text, err := workspace.ReadText(path)
		if err != nil {
			return fileError(c.Env, path, err)
		}
		return success(numbered(path, text, int(in.Offset), int(in.Limit)))
	}
	return t
}

// numbered renders lines as "N<TAB>text". A line break at the end of the file
// gives an empty last line, as clients know it.
func numbered(path, text string, offset, limit int) string {
	if text == "" {
		return "<system-reminder>The file " + path + " exists, but it is empty.</system-reminder>"
	}
	lines := strings.Split(text, "\n")
	if limit <= 0 || limit > maxReadLines {
		limit = maxReadLines
	}
	offset = max(offset, 0)
	if offset >= len(lines) {
		return fmt.Sprintf("<system-reminder>The file has %d lines; offset %d is behind its end.</system-reminder>", len(lines), offset)
	}
	var out strings.Builder
	chars, next := 0, offset
	for ; next < len(lines) && next < offset+limit; next++ {
		line := strings.TrimSuffix(lines[next], "\r")
		if len(line) > maxReadLine {
			if n := utf8.RuneCountInString(line); n > maxReadLine {
				line = firstChars(line, maxReadLine) + fmt.Sprintf("... [line has %d characters]", n)
			}
		}
		row := fmt.Sprintf("%d\t%s", next+1, line)
		chars += utf8.RuneCountInString(row) + 1
		if chars > maxRead && next > offset {
			break
		}
		if next > offset {
			out.WriteByte('\n')
		}
		out.WriteString(row)
	}
	if next < len(lines) {
		fmt.Fprintf(&out, "\n[Lines %d to %d of %d. Read on with offset %d.]", offset+1, next, len(lines), next)
	}
	return out.String()
}

// fileError is what the model sees when a file cannot be used.
func fileError(env *Env, path string, err error) agent.ToolResult {
	switch {
	case workspace.IsMissing(err):
		return failf("File does not exist. Attempted path: %s. Current working directory: %s", path, env.Cwd)
	case errors.Is(err, workspace.ErrDirectory):
		return failf("Path is a directory, not a file: %s", path)
	case errors.Is(err, workspace.ErrTooLarge):
		return failf("The file is larger than 10 MB: %s. Look at parts of it with a command such as head, tail or grep.", path)
	case errors.Is(err, workspace.ErrBinary):
		return failf("Cannot read binary file: %s", path)
	case errors.Is(err, workspace.ErrSpecial):
		return failf("Not a regular file: %s", path)
	}
	return failf("%v", err)
}
