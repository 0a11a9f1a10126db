package tool

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"mneme/internal/agent"
)

// Rules are permission rules from all sources (spec/harness.md section 3.3).
//
// A rule is `Tool`, `Tool(payload)` or `*`. The tool is a family: Bash also
// means the other shells, Read read_file, Edit MultiEdit and so on. A bare name
// matches every call. The payload is
//
//   - for file tools a glob: `//x` and `/x` absolute, `~/x` below home,
//     anything else below the working directory; Write(**) and Edit(**) mean
//     every file;
//   - for shells a command, or with `:*` at its end the beginning of one, up to
//     a word boundary.
//
// What denies or asks matches generously: a shell rule if any command inside
// the script matches, a file rule if the path or what its links lead to does,
// a relative glob outside the working directory too.
// What allows matches strictly: every command of the script, and both forms of
// the path.
type Rules struct {
	Allow     []string
	Deny      []string
	Ask       []string
	AlwaysAsk []string
	// Directories are places besides the working directory that may be read
	// without asking.
	Directories []string
	// Mode is what the settings ask for; "" = nothing.
	Mode agent.Mode
}

// A rule is a parsed one.
type rule struct {
	family  string // "*" = every tool
	payload string
	bare    bool
}

// parseRule reads a rule; ok is false if it is not well-formed.
func parseRule(s string) (r rule, ok bool) {
	s = strings.TrimSpace(s)
	name, rest, hasPayload := strings.Cut(s, "(")
	name = strings.TrimSpace(name)
	switch {
	case name == "" || strings.ContainsAny(name, " \t\n)"):
		return rule{}, false
	case !hasPayload:
		return rule{family: familyOf(name), bare: true}, true
	case !strings.HasSuffix(rest, ")"):
		return rule{}, false
	}
	payload := strings.TrimSuffix(rest, ")")
	bare := payload == "" || payload == "*" || payload == ":*"
	return rule{family: familyOf(name), payload: payload, bare: bare}, true
}

// allowed returns the first rule that covers the whole call.
func (s *subject) allowed(rules []string) (string, bool) {
	var mine []rule
	for _, text := range rules {
		r, ok := parseRule(text)
		if !ok || r.family != "*" && r.family != s.family {
			continue
		}
		switch {
		case r.bare:
			return text, true
		case s.kind == shells:
			mine = append(mine, r)
			if strings.TrimSpace(s.command) == strings.TrimSpace(r.payload) {
				return text, true
			}
		case s.kind == writes && r.payload == "**", s.path != "" && s.fileMatches(r.payload, true):
			return text, true
		}
	}
	if len(mine) > 0 && s.shellAllowed(mine) {
		i := slices.IndexFunc(rules, func(text string) bool { r, ok := parseRule(text); return ok && slices.Contains(mine, r) })
		return rules[i], true
	}
	return "", false
}

// denied returns the first rule that touches the call.
func (s *subject) denied(rules []string) (string, bool) {
	for _, text := range rules {
		r, ok := parseRule(text)
		if !ok || r.family != "*" && r.family != s.family {
			continue
		}
		switch {
		case r.bare:
			return text, true
		case s.kind == shells:
			if s.shellTouches(r) {
				return text, true
			}
		case s.path != "" && s.fileMatches(r.payload, false):
			return text, true
		}
	}
	return "", false
}

// fileMatches compares the path of the call with a glob: the path as named and
// as it really is. Both must match, or either.
func (s *subject) fileMatches(pattern string, both bool) bool {
	named := s.globMatch(pattern, s.path, s.env.Cwd)
	real := s.globMatch(pattern, realPath(s.path), realPath(s.env.Cwd))
	if both {
		return named && real
	}
	return named || real || glob(strings.TrimPrefix(pattern, "./"), s.path[1:])
}

func (s *subject) globMatch(pattern, path, cwd string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	switch {
	case strings.HasPrefix(pattern, "//"):
		pattern = pattern[1:]
	case strings.HasPrefix(pattern, "~/"):
		pattern = filepath.Join(s.env.home(), pattern[2:])
	}
	if !strings.HasPrefix(pattern, "/") {
		if rest, ok := strings.CutPrefix(path, cwd); ok && within(path, cwd) {
			return glob(pattern, strings.TrimPrefix(rest, "/"))
		}
		return false
	}
	if glob(pattern, path) {
		return true
	}
	// The fixed part of the pattern may itself lie behind links.
	base, rest := doublestar.SplitPattern(pattern)
	return glob(filepath.Join(realPath(base), rest), path)
}

func glob(pattern, path string) bool {
	ok, err := doublestar.Match(pattern, path)
	return err == nil && ok
}
