package tool

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

//go:embed glob.md
var globText string

type globArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func globTool() *Tool {
	t := define("Glob", globText, `
		"pattern":{"type":"string","description":"Glob such as **/*.go or src/{a,b}/*.ts"},
		"path":{"type":"string","description":"Directory to search in (default: the working directory)"}`,
		"pattern")
	t.Class, t.ReadOnly = Parallel, true
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in globArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		root, pattern, err := in.scope(c.Env)
		if err != nil {
			return failf("%v", err)
		}
		files, cut, err := workspace.Files(ctx, root, true)
		if err != nil {
			return searchError(ctx, root, err)
		}
		var found []string
		hides := c.Env.hides()
		for _, name := range files {
			path := filepath.Join(root, filepath.FromSlash(name))
			if workspace.MatchGlob(pattern, name) && !hides(path) {
				found = append(found, path)
			}
		}
		return success(fileList(found, cut))
	}
	return t
}

// scope is the directory to list and the pattern relative to it. A pattern that
// starts with directories starts there; one with ".." or an absolute one brings
// its own root.
func (in *globArgs) scope(env *Env) (root, pattern string, err error) {
	if in.Pattern == "" {
		return "", "", fmt.Errorf("pattern must not be empty")
	}
	if err := workspace.CheckGlob(in.Pattern); err != nil {
		return "", "", err
	}
	root = env.Cwd
	if in.Path != "" {
		if root, err = env.path(in.Path); err != nil {
			return "", "", err
		}
	}
	pattern = filepath.ToSlash(in.Pattern)
	base, rest := doublestar.SplitPattern(pattern)
	switch {
	case filepath.IsAbs(pattern) || strings.HasPrefix(pattern, "~/"):
		root, err = env.path(base)
	case base == ".":
		return root, rest, nil
	default:
		root = filepath.Join(root, base)
	}
	// The base was taken off: what is left is relative to it, not at any depth.
	return root, "/" + rest, err
}

func fileList(found []string, cut bool) string {
	if len(found) == 0 {
		return "No files found"
	}
	slices.Sort(found)
	total := len(found)
	found = found[:min(total, maxGlobFiles)]
	text := strings.Join(found, "\n")
	if total > len(found) {
		text += fmt.Sprintf("\n[%d of %d files shown. Use a narrower pattern.]", len(found), total)
	}
	if cut {
		text += "\n[The directory has too many files to look at all of them. Use a narrower path.]"
	}
	return text
}

// searchError is what the model sees when a search cannot be made.
func searchError(ctx context.Context, root string, err error) agent.ToolResult {
	if workspace.IsMissing(err) {
		return failf("Path does not exist: %s", root)
	}
	return errResult(ctx, err)
}
