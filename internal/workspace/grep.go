package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Query says what to search for.
type Query struct {
	Root    string // an absolute directory, or one file
	Pattern string // regular expression
	// Glob keeps the files that match, "!x" those that do not; "" = all.
	Glob string
	// Type keeps the files of a kind that rg knows, such as "go" or "py"; "" = all.
	Type       string
	IgnoreCase bool
	// Multiline lets the pattern span lines, with "." matching line breaks.
	Multiline     bool
	Hidden        bool
	Before, After int // lines of context
}

// A Match is one line of a result: a matching line, or a line of context.
type Match struct {
	Path    string // absolute
	Line    int    // 1-based
	Text    string // without its line break
	Context bool
}

// ErrPattern wraps what is wrong with a pattern, a glob or a type.
var ErrPattern = errors.New("invalid search")

// errStop ends a search early; it never leaves the package.
var errStop = errors.New("stop")

// Grep yields the matches of a search, files in the order of their paths and
// lines in order, until yield returns false. Overlapping contexts are yielded
// once.
func Grep(ctx context.Context, q Query, yield func(Match) bool) error {
	if _, err := os.Stat(q.Root); err != nil {
		return err
	}
	if err := CheckGlob(strings.TrimPrefix(q.Glob, "!")); err != nil {
		return fmt.Errorf("%w: %w", ErrPattern, err)
	}
	var err error
	if rg, lookErr := exec.LookPath("rg"); lookErr == nil {
		err = ripgrep(ctx, rg, q, yield)
	} else {
		err = scanFiles(ctx, q, yield)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// fileTypes are the kinds of files that are known without rg.
var fileTypes = map[string][]string{
	"c": {"*.c", "*.h"}, "cpp": {"*.cc", "*.cpp", "*.cxx", "*.h", "*.hh", "*.hpp"}, "css": {"*.css", "*.scss"},
	"go": {"*.go"}, "html": {"*.html", "*.htm"}, "java": {"*.java"}, "js": {"*.js", "*.jsx", "*.mjs", "*.cjs"},
	"json": {"*.json"}, "kotlin": {"*.kt", "*.kts"}, "lua": {"*.lua"}, "markdown": {"*.md", "*.markdown"},
	"md": {"*.md", "*.markdown"}, "php": {"*.php"}, "py": {"*.py", "*.pyi"}, "python": {"*.py", "*.pyi"},
	"ruby": {"*.rb"}, "rust": {"*.rs"}, "sh": {"*.sh", "*.bash"}, "sql": {"*.sql"}, "swift": {"*.swift"},
	"toml": {"*.toml"}, "ts": {"*.ts", "*.tsx", "*.mts", "*.cts"}, "txt": {"*.txt"}, "xml": {"*.xml"},
	"yaml": {"*.yaml", "*.yml"},
}

// scanFiles searches with Go's regexp.
func scanFiles(ctx context.Context, q Query, yield func(Match) bool) error {
	re, err := compile(q)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPattern, err)
	}
	globs, ok := fileTypes[q.Type]
	if q.Type != "" && !ok {
		return fmt.Errorf("%w: unknown file type %q", ErrPattern, q.Type)
	}
	root, files := filepath.Dir(q.Root), []string{filepath.Base(q.Root)}
	if st, err := os.Stat(q.Root); err == nil && st.IsDir() {
		root = q.Root
		if files, _, err = Files(ctx, root, q.Hidden); err != nil {
			return err
		}
		slices.Sort(files)
	}
	for _, name := range files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !wanted(name, q.Glob) || len(globs) > 0 && !slices.ContainsFunc(globs, func(g string) bool { return MatchGlob(g, name) }) {
			continue
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() && path != q.Root {
			continue // links are not followed
		}
		text, err := ReadText(path)
		if err != nil {
			continue // binary, too large or unreadable: not searched
		}
		for _, m := range matchText(re, q, path, text) {
			if !yield(m) {
				return errStop
			}
		}
	}
	return nil
}

func wanted(name, glob string) bool {
	if rest, not := strings.CutPrefix(glob, "!"); not {
		return !MatchGlob(rest, name)
	}
	return glob == "" || MatchGlob(glob, name)
}

func compile(q Query) (*regexp.Regexp, error) {
	flags := "m"
	if q.IgnoreCase {
		flags += "i"
	}
	if q.Multiline {
		flags += "s"
	}
	return regexp.Compile("(?" + flags + ":" + q.Pattern + ")")
}

// matchText finds the matching lines of a text and their context.
func matchText(re *regexp.Regexp, q Query, path, text string) []Match {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	hit := make([]bool, len(lines))
	found := false
	if q.Multiline {
		found = hitSpans(re, text, lines, hit)
	} else {
		for i, line := range lines {
			hit[i] = re.MatchString(strings.TrimRight(line, "\r\n"))
			found = found || hit[i]
		}
	}
	if !found {
		return nil
	}
	var out []Match
	for i, line := range lines {
		near := slices.Contains(hit[max(0, i-q.After):i], true) ||
			slices.Contains(hit[i:min(len(hit), i+q.Before+1)], true)
		if near {
			out = append(out, Match{Path: path, Line: i + 1, Text: strings.TrimRight(line, "\r\n"), Context: !hit[i]})
		}
	}
	return out
}

// hitSpans marks every line that a match touches.
func hitSpans(re *regexp.Regexp, text string, lines []string, hit []bool) (found bool) {
	starts := make([]int, len(lines))
	at := 0
	for i, line := range lines {
		starts[i] = at
		at += len(line)
	}
	for _, span := range re.FindAllStringIndex(text, -1) {
		first, ok := slices.BinarySearch(starts, span[0])
		if !ok {
			first--
		}
		for i := first; i >= 0 && i < len(lines) && (i == first || starts[i] < span[1]); i++ {
			hit[i], found = true, true
		}
	}
	return found
}
