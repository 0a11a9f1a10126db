package memory

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/internal/agent"
)

// The rules for paths and labels (spec/harness.md section 4.1,
// spec/app-server-commands.md section 2.7).
const (
	maxSegment = 100 // bytes, without ".md"
	maxPath    = 1000
	systemDir  = "system/"
)

// imageTypes are the files besides Markdown that memory holds.
var imageTypes = map[string]string{
	".gif": "image/gif", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".png": "image/png", ".webp": "image/webp",
}

const (
	notRelative = "path must be a non-empty relative path"
	notInside   = "path must resolve inside the memory root"
)

// CleanPath brings a path below the memory root into its one normal form:
// slashes, no "." or "..". What leaves the root, or names git's own files, is
// CodeInvalid.
func CleanPath(p string) (string, error) {
	if strings.TrimSpace(p) == "" || strings.HasPrefix(p, "/") {
		return "", agent.Invalid("path", notRelative)
	}
	clean := path.Clean(p)
	switch {
	case clean == ".":
		return "", agent.Invalid("path", notRelative)
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", agent.Invalid("path", notInside)
	case len(clean) > maxPath:
		return "", agent.Invalid("path", "path must have at most %d bytes", maxPath)
	}
	for segment := range strings.SplitSeq(clean, "/") {
		if isGitName(segment) {
			return "", agent.Invalid("path", notInside)
		}
		if fault := segmentFault(segment); fault != "" {
			return "", agent.Invalid("path", "path %q: a name %s", p, fault)
		}
	}
	return clean, nil
}

// writablePath is CleanPath for a file that shall be written: Markdown or an
// image, without hidden names, which no listing would show.
func writablePath(p string) (string, error) {
	clean, err := CleanPath(p)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(clean, ".") || strings.Contains(clean, "/.") {
		return "", agent.Invalid("path", "path %q: a name must not begin with a dot", p)
	}
	if kindOf(clean) == KindOther {
		return "", agent.Invalid("path", "path %q: memory holds Markdown (.md) and images (.gif, .jpeg, .jpg, .png, .webp)", p)
	}
	return clean, nil
}

// segmentFault says what is wrong with one name of a path, "" for nothing.
func segmentFault(s string) string {
	switch {
	case s == "" || s == "." || s == "..":
		return "must not be empty, . or .."
	case len(strings.TrimSuffix(s, ".md")) > maxSegment:
		return "must have at most 100 bytes"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case strings.ContainsRune(s, '\\') || strings.ContainsFunc(s, unicode.IsControl):
		return "must not hold backslashes or control characters"
	}
	return ""
}

// isGitName tells names that a file system may take for git's directory: in
// other case, with code points that some ignore, or as a short name.
func isGitName(s string) bool {
	s = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
	s = strings.ToLower(strings.TrimRight(s, ". "))
	return s == ".git" || s == "git~1"
}

// LabelPath is the file of the core block with this label. A leading "system/"
// and a trailing ".md" are cut first.
func LabelPath(label string) (string, error) {
	cut := strings.TrimSuffix(strings.TrimPrefix(label, systemDir), ".md")
	for segment := range strings.SplitSeq(cut, "/") {
		fault := segmentFault(segment)
		if fault == "" && strings.HasPrefix(segment, ".") {
			fault = "must not begin with a dot"
		}
		if fault != "" {
			return "", agent.Invalid("label", "block label %q: a name %s", label, fault)
		}
	}
	p := systemDir + cut + ".md"
	if len(p) > maxPath {
		return "", agent.Invalid("label", "block label must have at most %d bytes", maxPath-len(systemDir)-len(".md"))
	}
	return p, nil
}

// PathLabel is the label of a core block's file; ok is false for other files.
func PathLabel(p string) (label string, ok bool) {
	if !strings.HasPrefix(p, systemDir) || kindOf(p) != KindMarkdown {
		return "", false
	}
	return p[len(systemDir) : len(p)-len(".md")], true
}
