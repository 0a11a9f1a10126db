package tool

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// Decide says whether a call may run. The first that speaks wins
// (spec/harness.md sections 3.1 and 3.2):
//
//  1. missing parameters             deny
//  2. memory of another agent        deny
//  3. a deny rule                    deny
//  4. a client's tool                allow: it waits for its client anyway
//  5. an interactive tool            ask, in every mode
//  6. an alwaysAsk rule              ask, in every mode
//  7. mode unrestricted              allow
//  8. permission settings, .git      ask before they are written
//  9. mode acceptEdits: file edits   allow
//  10. read-only shell, shell inside  allow, not in strict
//     memory, reading in the places
//  11. an allow rule                 allow, in every mode
//  12. an ask rule                   ask
//  13. the table by tool             allow or ask; strict asks
//
// A headless environment denies what would ask. t is nil for a tool that does
// not exist; c.Host and c.Output are not used.
func Decide(t *Tool, c *Call) Decision {
	d := decide(t, c)
	if d.Verdict == Ask && c.Env.Headless {
		return Decision{Verdict: Deny, Reason: "Tool requires approval (headless mode)", Rule: d.Rule}
	}
	if d.Verdict == Ask {
		d.Suggestions = suggest(c)
		d.Diffs = diffs(c)
	}
	return d
}

func decide(t *Tool, c *Call) Decision {
	if t != nil {
		if text := missing(t, c); text != "" {
			return Decision{Verdict: Deny, Reason: text, Rule: "parameters"}
		}
	}
	s := subjectOf(c)
	if d, ok := guard(s); ok {
		return d
	}
	if c.Env.Confined && s.strays() {
		return Decision{Verdict: Deny, Reason: "Permission denied: only the working directory and the memory can be read here", Rule: "confined"}
	}
	env, rules := c.Env, c.Env.Rules
	if rules == nil {
		rules = &Rules{}
	}
	for _, deny := range [][]string{env.Disallowed, rules.Deny} {
		if rule, ok := s.denied(deny); ok {
			return Decision{Verdict: Deny, Reason: "Permission denied by rule: " + rule, Rule: rule}
		}
	}
	switch {
	case t != nil && t.Run == nil && !t.Interactive:
		return Decision{Verdict: Allow, Rule: "client tool"}
	case t != nil && t.Interactive:
		return Decision{Verdict: Ask, Rule: "interactive"}
	}
	if rule, ok := s.denied(rules.AlwaysAsk); ok {
		return Decision{Verdict: Ask, Rule: rule}
	}
	if env.Mode == agent.ModeUnrestricted {
		return Decision{Verdict: Allow, Rule: "mode"}
	}
	if s.kind == writes && protected(env, s.path) {
		return Decision{Verdict: Ask, Rule: "protected file"}
	}
	if env.Mode == agent.ModeAcceptEdits && s.kind == writes {
		return Decision{Verdict: Allow, Rule: "mode"}
	}
	if env.Mode != agent.ModeStrict {
		if why := s.harmless(); why != "" {
			return Decision{Verdict: Allow, Rule: why}
		}
	}
	if rule, ok := s.allowed(rules.Allow); ok {
		return Decision{Verdict: Allow, Rule: rule}
	}
	if rule, ok := s.denied(rules.Ask); ok {
		return Decision{Verdict: Ask, Rule: rule}
	}
	return byDefault(t, s)
}

// byDefault is the mode table for what no rule covers.
func byDefault(t *Tool, s *subject) Decision {
	if s.env.Mode == agent.ModeStrict {
		return Decision{Verdict: Ask, Rule: "mode"}
	}
	if s.kind == remembers || t != nil && t.Approval == ApprovalNever {
		return Decision{Verdict: Allow, Rule: "default"}
	}
	return Decision{Verdict: Ask, Rule: "default"}
}

// A kind groups tools by what the rules look at.
type kind uint8

const (
	others    kind = iota // by name alone
	shells                // by command
	reads                 // by file
	searches              // by directory
	writes                // by file
	remembers             // the memory tools: by name, allowed
)

// A subject is a call as the rules see it.
type subject struct {
	call   *Call
	env    *Env
	family string // canonical name
	kind   kind
	// path is what file tools work on, absolute; "" if the call names none that
	// can be read.
	path    string
	command string   // of shells
	texts   []string // the commands inside it, once a rule has asked for them
}

// families maps tool names to the one that rules are written for
// (spec/harness.md section 3.3).
var families = map[string]string{
	"shell": "Bash", "shell_command": "Bash", "Shell": "Bash", "ShellCommand": "Bash",
	"exec_command": "Bash", "write_stdin": "Bash",
	"read_file": "Read", "ReadFile": "Read",
	"MultiEdit": "Edit", "NotebookEdit": "Edit",
	"grep_files": "Grep", "GrepFiles": "Grep",
	"LS": "ListDir", "list_dir": "ListDir", "ListDir": "ListDir",
	"Agent": "Task",
}

func familyOf(name string) string {
	if f, ok := families[name]; ok {
		return f
	}
	return name
}

func subjectOf(c *Call) *subject {
	s := &subject{call: c, env: c.Env, family: familyOf(c.Name)}
	var in struct {
		Command  json.RawMessage `json:"command"`
		FilePath string          `json:"file_path"`
		Path     string          `json:"path"`
	}
	_ = json.Unmarshal(c.Input, &in) // fields of other types stay empty
	given := in.FilePath
	switch s.family {
	case "Bash":
		s.kind = shells
		_ = json.Unmarshal(in.Command, &s.command)
		return s
	case "Read":
		s.kind = reads
	case "Write", "Edit":
		s.kind = writes
	case "Glob", "Grep", "ListDir":
		s.kind, given = searches, in.Path
		if given == "" {
			given = c.Env.Cwd
		}
		if s.family == "Glob" && given == c.Env.Cwd {
			given = globRoot(c)
		}
	case "memory", "memory_apply_patch":
		s.kind = remembers
	}
	if s.kind != others && s.kind != remembers {
		if p, err := c.Env.path(given); err == nil {
			s.path = p
		}
	}
	return s
}

// globRoot is the directory that a pattern starts from: an absolute pattern
// brings its own.
func globRoot(c *Call) string {
	var in globArgs
	if json.Unmarshal(c.Input, &in) != nil {
		return ""
	}
	root, _, err := in.scope(c.Env)
	if err != nil {
		return ""
	}
	return root
}

// guard keeps file tools out of other agents' memory, in every mode.
func guard(s *subject) (Decision, bool) {
	if s.path == "" {
		return Decision{}, false
	}
	id := s.env.foreign(s.path, s.kind == searches)
	if id == "" {
		return Decision{}, false
	}
	return Decision{Verdict: Deny, Rule: "memory guard", Reason: fmt.Sprintf(
		"Permission denied: this path belongs to the memory of agent %s; allowed: %s", id, s.env.Scope.AgentID)}, true
}

// harmless says why a call may run without asking in the modes that trust
// reading; "" if it may not.
func (s *subject) harmless() string {
	switch s.kind {
	case shells:
		return s.harmlessShell()
	case reads, searches:
		if s.path != "" && inside(s.path, s.env.roots()...) {
			return "place"
		}
	}
	return ""
}

// strays says that a call reads outside of the working directory and the memory.
func (s *subject) strays() bool {
	if s.kind != reads && s.kind != searches {
		return false
	}
	places := slices.DeleteFunc([]string{s.env.Cwd, s.env.MemoryDir}, func(dir string) bool { return dir == "" })
	if s.family == "Glob" { // a pattern may bring a directory of its own
		if root := globRoot(s.call); root == "" || !inside(root, places...) {
			return true
		}
	}
	return s.path == "" || !inside(s.path, places...)
}

// protected names files that could widen the agent's own permissions: the
// settings that hold rules, and what git runs.
func protected(env *Env, path string) bool {
	if path == "" {
		return false
	}
	for _, p := range []string{path, realPath(path)} {
		dirs := strings.Split(filepath.Dir(p), "/")
		if slices.Contains(dirs, ".git") || filepath.Base(p) == ".git" {
			return true
		}
		if filepath.Base(filepath.Dir(p)) == ".letta" && strings.HasPrefix(filepath.Base(p), "settings") {
			return true
		}
	}
	return false
}
