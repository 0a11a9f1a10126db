package tool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// path resolves a path the model gave: absolute, relative to the working
// directory, below "~" or below $MEMORY_DIR (as the prompt shows memory files).
// The result is absolute and clean; symbolic links are not followed.
func (e *Env) path(p string) (string, error) {
	if p == "" {
		return "", errors.New("The path is empty")
	}
	if strings.ContainsRune(p, 0) {
		return "", errors.New("The path contains a NUL character")
	}
	for _, name := range []string{"$MEMORY_DIR", "${MEMORY_DIR}", "$LETTA_MEMORY_DIR"} {
		if rest, ok := strings.CutPrefix(p, name); ok && e.MemoryDir != "" && (rest == "" || rest[0] == '/') {
			return filepath.Join(e.MemoryDir, rest), nil
		}
	}
	if p == "~" || strings.HasPrefix(p, "~/") {
		if home := e.home(); home != "" {
			return filepath.Join(home, p[1:]), nil
		}
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(e.Cwd, p)
	}
	return filepath.Clean(p), nil
}

// home is the home directory of the commands, "" if there is none.
func (e *Env) home() string {
	for _, kv := range e.BaseEnv {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok {
			return home
		}
	}
	if e.BaseEnv != nil {
		return ""
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return home
}

// roots are the places that may be read without asking: the working directory,
// the additional ones, and the agent's memory, skills and outputs
// (spec/harness.md section 3.1, point 10).
func (e *Env) roots() []string {
	roots := []string{e.Cwd}
	if e.Rules != nil {
		for _, dir := range e.Rules.Directories {
			if p, err := e.path(dir); err == nil {
				roots = append(roots, p)
			}
		}
	}
	roots = append(roots, e.MemoryDir, e.outputs())
	roots = append(roots, e.SkillDirs...)
	return slices.DeleteFunc(roots, func(dir string) bool { return dir == "" })
}

// outputs is where the agent's long outputs and logs go.
func (e *Env) outputs() string {
	if e.OutputDir == "" {
		return ""
	}
	return filepath.Join(e.OutputDir, e.Scope.AgentID)
}

// inside reports whether path, its links followed, is one of dirs or below one.
func inside(path string, dirs ...string) bool {
	real := realPath(path)
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(real, realPath(dir)) })
}

// within compares clean absolute paths by whole segments.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// realPath follows the symbolic links of an absolute path as far as it exists,
// and links that point nowhere too: what a write through them would make.
func realPath(path string) string { return resolve(filepath.Clean(path), 40) }

func resolve(path string, hops int) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	if dir == path || hops == 0 {
		return path
	}
	dir = resolve(dir, hops-1)
	full := filepath.Join(dir, name)
	target, err := os.Readlink(full)
	if err != nil {
		return full
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	return resolve(filepath.Clean(target), hops-1)
}

// foreign returns the id of the other agent whose memory path is in or above,
// "" if it touches none. Above means "every agent", told as <unresolved>
// (spec/harness.md section 3.5).
func (e *Env) foreign(path string, search bool) string {
	for _, p := range []string{path, realPath(path)} {
		for _, root := range e.memoryRoots() {
			if p == root || (search && within(root, p) && !within(p, e.Cwd)) {
				if search {
					return "<unresolved>"
				}
				continue
			}
			if !within(p, root) {
				continue
			}
			id, _, _ := strings.Cut(strings.TrimPrefix(p[len(root):], "/"), "/")
			if id != e.Scope.AgentID {
				return id
			}
		}
	}
	return ""
}

// hides returns a check for files that a search must leave out: those in other
// agents' memory. It remembers directories, because a search asks about many
// files.
func (e *Env) hides() func(path string) bool {
	known := map[string]bool{}
	return func(path string) bool {
		dir := filepath.Dir(path)
		hidden, ok := known[dir]
		if !ok {
			hidden = e.foreign(dir, false) != ""
			known[dir] = hidden
		}
		return hidden
	}
}

// memoryRoots are the directories that hold one directory of memory per agent,
// as named and as they really are.
func (e *Env) memoryRoots() []string {
	var roots []string
	if e.MemoryRoot != "" {
		roots = append(roots, e.MemoryRoot, realPath(e.MemoryRoot))
	}
	if home := e.home(); home != "" {
		roots = append(roots, filepath.Join(home, ".letta", "agents"))
	}
	return roots
}
