// Package shell judges bash commands on their parse tree, for the permission
// rules of spec/harness.md sections 3.3 and 3.4.
//
// Four questions are answered, each for a World (the working directory, the
// known variables, the places that may be read):
//
//	ReadOnly  does the script only read, and only where reading is free?
//	InMemory  does it only touch the agent's own memory, or only read?
//	Allowed   is every command in it covered by a rule, or harmless?
//	Texts     which commands are in it, however they are wrapped?
//
// The first three are strict: a walker goes down the tree with a whitelist of
// structures, evaluates every word to its exact value, follows `cd`, and asks a
// table about each simple command. What is not understood (substitutions,
// functions, assignments, eval, a flag that is not known to be harmless where
// flags can do harm) makes the answer no. The last one is generous, for rules
// that deny.
//
// What the parser sees and what bash does must be the same thing, so the strict
// questions refuse everything where they might differ: brace expansion, ANSI-C
// quoting, bracket globs, control characters, invalid UTF-8. Out of reach is
// what a command's own configuration makes it do (git's textconv, a pager of
// ack): such files are written only with permission.
package shell

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// maxLength bounds what is parsed; Linux takes no longer argument than twice
// that, and the parser recurses.
const maxLength = 64 << 10

// maxDepth bounds scripts within scripts (bash -c).
const maxDepth = 5

// ErrTooLong is a command that is too long to be understood.
var ErrTooLong = errors.New("the command is too long")

// A World is what a script can refer to.
type World struct {
	Dir  string            // working directory, absolute
	Home string            // "" = unknown
	Vars map[string]string // values of variables that commands are started with
	// Readable says that an absolute path lies where reading is free.
	Readable func(path string) bool
	// Memory says that an absolute path lies in the agent's own memory; nil =
	// there is none.
	Memory func(path string) bool
}

// A Script is a parsed command line.
type Script struct {
	text string
	file *syntax.File
}

// Parse parses a command as bash would.
func Parse(text string) (*Script, error) {
	if len(text) > maxLength {
		return nil, ErrTooLong
	}
	file, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Script{text: text, file: file}, nil
}

func parse(text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// clear reports whether bash and the parser surely read the same characters. A
// backslash at the end of a comment is a line continuation for the parser only.
func clear(text string) bool {
	if strings.Contains(text, "#") && strings.Contains(text, "\\\n") {
		return false
	}
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r == 0x7F
	})
}

// ReadOnly reports whether every command of the script only reads, in places
// that may be read.
func (s *Script) ReadOnly(w *World) bool {
	k := &walker{w: w, freeCd: true, leaf: readOnly}
	return clear(s.text) && k.file(s.file)
}

// InMemory reports whether the script works on the agent's memory, and every
// command of it does that, only reads, or waits or prints.
func (s *Script) InMemory(w *World) bool {
	if w.Memory == nil {
		return false
	}
	touched := false
	k := &walker{w: w, freeCd: true, heredoc: true}
	k.write = func(path string) bool {
		ok := w.memoryFile(path)
		touched = touched || ok
		return ok
	}
	k.leaf = func(c *simple) bool {
		ok, touches := inMemory(c)
		touched = touched || touches
		return ok || readOnly(c)
	}
	return clear(s.text) && k.file(s.file) && touched
}

// Allowed reports whether every command of the script is covered: by rule, which
// gets its text, or, where harmless is set, by doing no harm. Writing
// redirections are covered only inside the agent's memory.
func (s *Script) Allowed(w *World, harmless bool, rule func(text string) bool) bool {
	k := &walker{w: w, freeCd: harmless, heredoc: true, subst: true}
	if w.Memory != nil {
		k.write = w.memoryFile
	}
	k.leaf = func(c *simple) bool {
		if harmless && readOnly(c) {
			return true
		}
		if ok, touches := inMemory(c); harmless && ok && (touches || !c.redirsOnlyRead()) {
			return true
		}
		return slices.ContainsFunc(c.ruleTexts(), rule)
	}
	return clear(s.text) && k.file(s.file)
}

// Open returns the texts of the commands that are not harmless, in order. ok is
// false if the script holds more than rules for single commands could cover.
func (s *Script) Open(w *World) (texts []string, ok bool) {
	k := &walker{w: w, freeCd: true, heredoc: true, subst: true}
	k.leaf = func(c *simple) bool {
		if !readOnly(c) {
			forms := c.ruleTexts()
			if len(forms) == 0 {
				return false
			}
			texts = append(texts, forms[len(forms)-1])
		}
		return true
	}
	ok = clear(s.text) && k.file(s.file)
	return texts, ok
}

// memoryFile is Memory without what git runs.
func (w *World) memoryFile(path string) bool {
	return w.Memory != nil && w.Memory(path) && !slices.Contains(strings.Split(path, "/"), ".git")
}
