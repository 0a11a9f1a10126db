package tool

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/tool/shell"
)

// world is what a command of the environment can refer to. The places are
// resolved once: a script asks about many paths.
func (e *Env) world() *shell.World {
	var roots []string
	for _, root := range e.roots() {
		roots = append(roots, realPath(root))
	}
	dir, _ := startDir(e.Cwd)
	w := &shell.World{
		Dir: dir, Home: e.home(),
		Vars: map[string]string{"USER_CWD": e.Cwd, "AGENT_ID": e.Scope.AgentID, "CONVERSATION_ID": e.WireConv},
		Readable: func(path string) bool {
			real := realPath(path)
			return slices.ContainsFunc(roots, func(root string) bool { return within(real, root) }) && e.foreign(path, false) == ""
		},
	}
	if w.Home != "" {
		w.Vars["HOME"] = w.Home
	}
	if e.MemoryDir != "" {
		w.Vars["MEMORY_DIR"], w.Vars["LETTA_MEMORY_DIR"] = e.MemoryDir, e.MemoryDir
		own := []string{realPath(e.MemoryDir), realPath(filepath.Join(filepath.Dir(e.MemoryDir), "memory-worktrees"))}
		w.Memory = func(path string) bool {
			real := realPath(path)
			return slices.ContainsFunc(own, func(dir string) bool { return within(real, dir) })
		}
	}
	return w
}

// harmlessShell says why a command may run without asking; "" if it may not.
func (s *subject) harmlessShell() string {
	if s.call.Name != "Bash" {
		return "" // the input of a running session is no script
	}
	if strings.TrimSpace(s.command) == listCommand {
		return "read-only"
	}
	script, err := shell.Parse(s.command)
	if err != nil {
		return ""
	}
	w := s.env.world()
	switch {
	case script.ReadOnly(w):
		return "read-only"
	case script.InMemory(w):
		return "memory"
	}
	return ""
}

// shellAllowed reports whether rules and what is harmless cover the whole
// command.
func (s *subject) shellAllowed(rules []rule) bool {
	script, err := shell.Parse(s.command)
	if err != nil {
		return false
	}
	return script.Allowed(s.env.world(), s.env.Mode != agent.ModeStrict, func(text string) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.coversCommand(text) })
	})
}

// shellTouches reports whether a rule that denies or asks means any command in
// the script.
func (s *subject) shellTouches(r rule) bool {
	if s.texts == nil {
		s.texts = shell.Texts(s.command)
	}
	return slices.ContainsFunc(s.texts, func(text string) bool {
		if r.coversCommand(text) {
			return true
		}
		// Other systems write prefixes as "rm *".
		prefix, ok := strings.CutSuffix(r.payload, " *")
		return ok && hasWords(text, prefix)
	})
}

// coversCommand compares the payload of a shell rule with one command.
func (r rule) coversCommand(text string) bool {
	if prefix, ok := strings.CutSuffix(r.payload, ":*"); ok {
		return hasWords(text, prefix)
	}
	return text == strings.TrimSpace(r.payload)
}

// hasWords reports whether text starts with prefix, up to a word boundary. A
// prefix that ends in a path also covers the files below it.
func hasWords(text, prefix string) bool {
	rest, ok := strings.CutPrefix(text, strings.TrimSpace(prefix))
	if !ok || prefix == "" {
		return false
	}
	if rest == "" || strings.ContainsRune(" \t\n", rune(rest[0])) {
		return true
	}
	last := prefix[strings.LastIndexByte(prefix, ' ')+1:]
	below, _, _ := strings.Cut(rest, " ")
	return strings.Contains(last, "/") && rest[0] == '/' && !strings.Contains(below, "..")
}

// suggestShell offers a rule for what is not harmless in a command: the kind of
// command where that is known to be meant, else the very text.
func (s *subject) suggestShell() []agent.Suggestion {
	text := strings.TrimSpace(s.command)
	if text == "" || strings.HasSuffix(text, ":*") || shell.Dangerous(text) {
		return nil
	}
	script, err := shell.Parse(text)
	if err != nil {
		return nil
	}
	open, ok := script.Open(s.env.world())
	if ok && len(open) == 0 { // only reads, and was asked for all the same
		open = []string{text}
	}
	if ok && len(open) == 1 {
		if root, name := s.skillScript(open[0]); root != "" {
			return project("Bash("+root+":*)", "Yes, and don't ask again for scripts in skill '"+name+"'")
		}
		if kind := commandKind(open[0]); kind != "" {
			return project("Bash("+kind+":*)", "Yes, and don't ask again for '"+kind+"' commands in this project")
		}
	}
	shown := text
	if utf8.RuneCountInString(text) > 40 {
		shown = firstChars(text, 40) + "..."
	}
	return project("Bash("+text+")", "Yes, and don't ask again for '"+shown+"' in this project")
}

// readKinds are the reading commands that a rule is offered for by name.
var readKinds = []string{
	"ls", "cat", "pwd", "echo", "which", "type", "whoami", "date", "grep", "find", "head", "wc", "tail", "diff", "file",
	"stat", "rg", "ag", "ack", "fgrep", "egrep", "jq", "yq", "tree", "less", "more",
}

// commandKind is the beginning of a command that a rule may stand for
// (spec/harness.md section 3.6); "" = none.
func commandKind(text string) string {
	words := strings.Fields(text)
	word := func(i int) string {
		if i < len(words) && !strings.HasPrefix(words[i], "-") && !strings.ContainsAny(words[i], "$`'\"") {
			return words[i]
		}
		return ""
	}
	switch name := words[0]; {
	case name == "git" && word(1) != "":
		return "git " + word(1)
	case slices.Contains([]string{"npm", "bun", "yarn", "pnpm"}, name) && word(1) == "run" && word(2) != "":
		return name + " run " + word(2)
	case slices.Contains([]string{"npm", "bun", "yarn", "pnpm", "npx", "bunx"}, name) && word(1) != "" && word(1) != "run":
		return name + " " + word(1)
	case name == "gh" && word(1) != "" && word(2) != "":
		return "gh " + word(1) + " " + word(2)
	case slices.Contains(readKinds, name):
		return readKind(name, text)
	}
	return ""
}

// readKind offers a reading command by name if this one only reads, wherever
// that is.
func readKind(name, text string) string {
	script, err := shell.Parse(text)
	if err != nil {
		return ""
	}
	everywhere := &shell.World{Dir: "/", Readable: func(string) bool { return true }}
	if !script.ReadOnly(everywhere) {
		return ""
	}
	return name
}

// skillScript finds the skill whose script a command runs: everything up to the
// skill's directory, and the skill's name.
func (s *subject) skillScript(text string) (prefix, name string) {
	dirs := append([]string{filepath.Join(s.env.Cwd, ".skills")}, s.env.SkillDirs...)
	for _, dir := range dirs {
		i := strings.Index(text, dir+"/")
		if i < 0 {
			continue
		}
		rest := text[i+len(dir)+1:]
		skill, after, ok := strings.Cut(rest, "/scripts/")
		if ok && skill != "" && after != "" && !strings.ContainsAny(skill, " \t\n'\"") && !strings.Contains(rest, "..") {
			return text[:i] + dir + "/" + skill, filepath.Base(skill)
		}
	}
	return "", ""
}
