package tool

import (
	"path/filepath"
	"strings"

	"mneme/internal/agent"
)

// suggest offers the one rule that would let a call like this one pass next
// time (spec/harness.md section 3.6). The texts are the wire's. Where no allow
// rule would help there is nothing to offer.
func suggest(c *Call) []agent.Suggestion {
	s := subjectOf(c)
	if c.Env.Rules != nil {
		if _, ok := s.denied(c.Env.Rules.AlwaysAsk); ok {
			return nil
		}
	}
	if s.kind == writes && protected(c.Env, s.path) {
		return nil
	}
	offer := s.offer()
	if len(offer) > 0 {
		if _, ok := s.allowed([]string{offer[0].Rule}); !ok {
			return nil // such as a path that leads elsewhere through a link
		}
	}
	return offer
}

func (s *subject) offer() []agent.Suggestion {
	switch s.kind {
	case shells:
		return s.suggestShell()
	case reads, searches:
		return s.suggestRead()
	case writes:
		if s.family == "Edit" {
			return s.suggestEdit()
		}
		return session("Write(**)", "Yes, allow all writes during this session")
	}
	if s.family == "Task" {
		return session("Task", "Yes, allow subagent operations during this session")
	}
	return session(s.call.Name, "Yes, allow "+s.call.Name+" operations during this session")
}

func session(rule, text string) []agent.Suggestion {
	return []agent.Suggestion{{ID: "save-default", Text: text, Rule: rule, Scope: "session"}}
}

func project(rule, text string) []agent.Suggestion {
	return []agent.Suggestion{{ID: "save-default", Text: text, Rule: rule, Scope: "project"}}
}

func (s *subject) suggestRead() []agent.Suggestion {
	if s.path == "" {
		return nil
	}
	verb, dir := "reading from", filepath.Dir(s.path)
	if s.kind == searches {
		verb, dir = "searching in", s.path
	}
	if !within(s.path, s.env.Cwd) {
		return project(s.family+"("+below(dir)+")", "Yes, allow "+verb+" "+s.shown(dir)+"/ in this project")
	}
	if s.kind == searches {
		return session(s.family+"(**)", "Yes, allow searching project files during this session")
	}
	return session(s.family+"("+s.relative(dir)+"**)", "Yes, allow reading project files during this session")
}

func (s *subject) suggestEdit() []agent.Suggestion {
	if s.path == "" {
		return nil
	}
	dir := filepath.Dir(s.path)
	if !within(dir, s.env.Cwd) {
		return project("Edit("+below(dir)+")", "Yes, allow editing files in "+s.shown(dir)+"/ in this project")
	}
	rel := s.relative(dir)
	if rel == "" {
		return session("Edit(**)", "Yes, switch to accept edits mode for this session")
	}
	return project("Edit("+rel+"**)", "Yes, allow editing files in "+rel+" in this project")
}

// below is the pattern of everything under an absolute directory.
func below(dir string) string { return "/" + strings.TrimSuffix(escapeGlob(dir), "/") + "/**" }

// relative is a directory below the working directory as the start of a
// pattern: "" or "sub/".
func (s *subject) relative(dir string) string {
	rel, err := filepath.Rel(s.env.Cwd, dir)
	if err != nil || rel == "." {
		return ""
	}
	return escapeGlob(rel) + "/"
}

// escapeGlob makes a pattern of a path that matches it alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "{", `\{`).Replace(path)
}

// shown is a directory as people read it.
func (s *subject) shown(dir string) string {
	if home := s.env.home(); home != "" && within(dir, home) {
		dir = "~" + dir[len(home):]
	}
	return strings.TrimSuffix(dir, "/")
}
