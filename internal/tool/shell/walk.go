package shell

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A walker goes through a script and asks leaf about each simple command.
type walker struct {
	w    *World
	leaf func(c *simple) bool
	// freeCd: `cd` to a readable place needs no leaf.
	freeCd bool
	// heredoc: here-documents without expansions are fine.
	heredoc bool
	// subst: words may hold command substitutions, whose commands are walked.
	subst bool
	// write says which files redirections may write; nil = none.
	write func(path string) bool

	vars  map[string][]string // loop variables
	loops int                 // loops around the current command
	depth int                 // scripts around it
}

// dirs are the directories that a command may run in: `cd` may have failed.
type dirs []string

func (d dirs) with(more dirs) dirs {
	for _, dir := range more {
		if !slices.Contains(d, dir) {
			d = append(d[:len(d):len(d)], dir)
		}
	}
	return d
}

// A simple is a simple command with its evaluated words.
type simple struct {
	k       *walker
	in      dirs
	assigns []*syntax.Assign
	args    []arg
	redirs  []*syntax.Redirect
}

func (k *walker) file(f *syntax.File) bool {
	_, ok := k.stmts(f.Stmts, dirs{k.w.Dir})
	return ok && len(f.Stmts) > 0
}

// stmts walks a list and returns where the shell may be after it.
func (k *walker) stmts(list []*syntax.Stmt, in dirs) (after dirs, ok bool) {
	for _, s := range list {
		if in, _, ok = k.stmt(s, in); !ok {
			return nil, false
		}
	}
	return in, true
}

// stmt walks a statement. after is where the shell may be behind it, good where
// it is if the statement succeeded.
func (k *walker) stmt(s *syntax.Stmt, in dirs) (after, good dirs, ok bool) {
	if s.Background || s.Coprocess || s.Disown || s.Cmd == nil || !k.redirs(s.Redirs, in) {
		return nil, nil, false
	}
	after, good, ok = k.command(s.Cmd, s.Redirs, in)
	if s.Negated {
		good = after
	}
	return after, good, ok
}

func (k *walker) command(cmd syntax.Command, redirs []*syntax.Redirect, in dirs) (after, good dirs, ok bool) {
	switch c := cmd.(type) {
	case *syntax.CallExpr:
		return k.call(c, redirs, in)
	case *syntax.BinaryCmd:
		return k.binary(c, in)
	case *syntax.Subshell:
		_, ok = k.stmts(c.Stmts, in)
		return in, in, ok
	case *syntax.Block:
		after, ok = k.stmts(c.Stmts, in)
		return after, after, ok
	case *syntax.IfClause:
		after, ok = k.ifClause(c, in)
		return after, after, ok
	case *syntax.ForClause:
		return in, in, k.forClause(c, in)
	case *syntax.TestClause:
		return in, in, k.testClause(c)
	case *syntax.TimeClause:
		if c.Stmt == nil {
			return nil, nil, false
		}
		return k.stmt(c.Stmt, in)
	}
	return nil, nil, false
}

func (k *walker) binary(c *syntax.BinaryCmd, in dirs) (after, good dirs, ok bool) {
	leftAfter, leftGood, ok := k.stmt(c.X, in)
	if !ok {
		return nil, nil, false
	}
	switch c.Op {
	case syntax.Pipe, syntax.PipeAll: // both sides run in shells of their own
		_, _, ok = k.stmt(c.Y, in)
		return in, in, ok
	case syntax.AndStmt:
		after, good, ok = k.stmt(c.Y, leftGood)
		return leftAfter.with(after), good, ok
	case syntax.OrStmt:
		after, good, ok = k.stmt(c.Y, leftAfter)
		return leftAfter.with(after), leftGood.with(good), ok
	}
	return nil, nil, false
}

func (k *walker) ifClause(c *syntax.IfClause, in dirs) (after dirs, ok bool) {
	after = in
	for ; c != nil; c = c.Else {
		if len(c.Cond) > 0 {
			if in, ok = k.stmts(c.Cond, in); !ok {
				return nil, false
			}
		}
		branch, ok := k.stmts(c.Then, in)
		if !ok {
			return nil, false
		}
		after = after.with(in).with(branch)
	}
	return after, true
}

// loopName keeps loops from setting variables that commands look at.
var loopName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,19}$`)

func (k *walker) forClause(c *syntax.ForClause, in dirs) bool {
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select || !iter.InPos.IsValid() {
		return false
	}
	name := iter.Name.Value
	_, twice := k.vars[name]
	_, given := k.w.Vars[name]
	if twice || given || !loopName.MatchString(name) || strings.Contains(name, "proxy") {
		return false
	}
	var values []string
	for _, item := range iter.Items {
		a := eval(k.w, k.vars, item)
		if !a.known() {
			return false
		}
		for _, v := range a.vals {
			if !a.glob {
				values = append(values, v)
				continue
			}
			found, ok := expand(in, v)
			if !ok {
				return false
			}
			values = append(values, append(found, v)...)
		}
	}
	if len(values) == 0 {
		values = []string{""}
	}
	if len(values) > maxValues {
		return false
	}
	if k.vars == nil {
		k.vars = map[string][]string{}
	}
	k.vars[name] = values
	k.loops++
	defer func() { k.loops-- }()
	_, ok = k.stmts(c.Do, in)
	return ok
}

// fileTests are the tests of `[ … ]` that are understood.
var fileTests = []string{"-e", "-f", "-d", "-s", "-L"}

func (k *walker) testClause(c *syntax.TestClause) bool {
	x := c.X
	if not, ok := x.(*syntax.UnaryTest); ok && not.Op == syntax.TsNot {
		x = not.X
	}
	u, ok := x.(*syntax.UnaryTest)
	if !ok || !slices.Contains(fileTests, u.Op.String()) {
		return false
	}
	word, ok := u.X.(*syntax.Word)
	if !ok {
		return false
	}
	a := eval(k.w, k.vars, word)
	return a.known()
}

// call walks a simple command.
func (k *walker) call(c *syntax.CallExpr, redirs []*syntax.Redirect, in dirs) (after, good dirs, ok bool) {
	if len(c.Args) == 0 {
		return nil, nil, false // assignments change what later commands mean
	}
	s := &simple{k: k, in: in, assigns: c.Assigns, redirs: redirs}
	for _, word := range c.Args {
		a := eval(k.w, k.vars, word)
		for _, sub := range a.subst {
			if !k.subst || sub.TempFile || sub.ReplyVar {
				return nil, nil, false
			}
			if _, ok := k.stmts(sub.Stmts, in); !ok {
				return nil, nil, false
			}
		}
		s.args = append(s.args, a)
	}
	if !s.safeAssigns() {
		return nil, nil, false
	}
	if s.args[0].val() == "cd" && k.freeCd {
		target, ok := s.cd()
		return in.with(target), target, ok
	}
	if inner, ok := s.script(); ok {
		return in, in, k.nested(inner, in)
	}
	return in, in, k.leaf(s)
}

// cd returns the directories that `cd X` leads to.
func (c *simple) cd() (target dirs, ok bool) {
	if len(c.args) != 2 || c.k.loops > 0 || len(c.assigns) > 0 {
		return nil, false
	}
	a := &c.args[1]
	if !a.known() || a.glob {
		return nil, false
	}
	for _, v := range a.vals {
		if v == "" || strings.HasPrefix(v, "-") || climbs(v) {
			return nil, false
		}
		for _, dir := range c.in {
			path := v
			if !filepath.IsAbs(v) {
				path = filepath.Join(dir, v)
			}
			if !c.k.w.Readable(path) {
				return nil, false
			}
			target = target.with(dirs{filepath.Clean(path)})
		}
	}
	return target, true
}

// shellFlags are the ways to pass a script; i would read the user's aliases.
var shellFlags = regexp.MustCompile(`^-[leux]*c$`)

// script returns the script of `bash -c 'script'`.
func (c *simple) script() (text string, ok bool) {
	if len(c.assigns) > 0 || len(c.args) != 3 {
		return "", false
	}
	switch c.args[0].val() {
	case "bash", "sh", "dash":
		return c.args[2].val(), shellFlags.MatchString(c.args[1].val()) && c.args[2].val() != ""
	}
	return "", false
}

func (k *walker) nested(text string, in dirs) bool {
	if k.depth >= maxDepth || !clear(text) {
		return false
	}
	file, err := parse(text)
	if err != nil {
		return false
	}
	// A new shell: it knows the environment, not the loops.
	inner := *k
	inner.vars, inner.loops, inner.depth = nil, 0, k.depth+1
	_, ok := inner.stmts(file.Stmts, in)
	return ok
}

// harmlessEnv names variables that may be set for one command.
var harmlessEnv = regexp.MustCompile(`^(LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|COLUMNS|LINES|CI|NODE_ENV)$`)

// safeAssigns checks `A=B command`.
func (c *simple) safeAssigns() bool {
	for _, a := range c.assigns {
		if a.Name == nil || a.Append || a.Naked || a.Index != nil || a.Array != nil || !harmlessEnv.MatchString(a.Name.Value) {
			return false
		}
		if a.Value == nil {
			continue
		}
		if v := eval(c.k.w, c.k.vars, a.Value); !v.known() || strings.Contains(v.text, "~") {
			return false
		}
	}
	return true
}

// redirs checks redirections: reading what may be read, /dev/null, copies of
// descriptors, and writing where that is allowed.
func (k *walker) redirs(list []*syntax.Redirect, in dirs) bool {
	for _, r := range list {
		if r.N != nil && strings.Trim(r.N.Value, "0123456789") != "" {
			return false
		}
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if !k.heredoc || !static(r.Hdoc) {
				return false
			}
			continue
		}
		a := eval(k.w, k.vars, r.Word)
		if !a.known() || a.glob {
			return false
		}
		for _, v := range a.vals {
			if !k.redir(r.Op, v, in) {
				return false
			}
		}
	}
	return true
}

func (k *walker) redir(op syntax.RedirOperator, target string, in dirs) bool {
	switch op {
	case syntax.DplOut, syntax.DplIn:
		return target == "-" || target != "" && strings.Trim(target, "0123456789") == ""
	case syntax.RdrIn:
		return readable(k.w, in, target)
	case syntax.WordHdoc:
		return k.heredoc
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		return target == "/dev/null" || k.write != nil && everywhere(in, target, k.write)
	}
	return false
}

// static reports whether a here-document has no expansions.
func static(doc *syntax.Word) bool {
	if doc == nil {
		return true
	}
	return !slices.ContainsFunc(doc.Parts, func(p syntax.WordPart) bool {
		_, lit := p.(*syntax.Lit)
		return !lit
	})
}

// climbs reports whether a path goes up with "..".
func climbs(p string) bool {
	return p == ".." || strings.Contains(p, "../") || strings.HasSuffix(p, "/..")
}

// everywhere reports whether ok holds for a path from wherever the shell may be.
func everywhere(in dirs, p string, ok func(path string) bool) bool {
	if p == "" || climbs(p) {
		return false
	}
	if filepath.IsAbs(p) {
		return ok(filepath.Clean(p))
	}
	return !slices.ContainsFunc(in, func(dir string) bool { return !ok(filepath.Join(dir, p)) })
}

// readable reports whether a path may be read from wherever the shell may be.
func readable(w *World, in dirs, p string) bool {
	return p == "/dev/null" || everywhere(in, p, w.Readable)
}

// maxExpanded bounds the files of one glob.
const maxExpanded = 4096

// expand returns what a glob finds from wherever the shell may be. ok is false
// if that is too much, or a name could be taken for a flag.
func expand(in dirs, pattern string) (found []string, ok bool) {
	wild := 0
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.ContainsAny(part, "*?") {
			wild++
		}
	}
	if climbs(pattern) || wild > 2 {
		return nil, false
	}
	for _, dir := range in {
		prefix := ""
		full := pattern
		if !filepath.IsAbs(pattern) {
			if strings.ContainsAny(dir, `*?[\`) {
				return nil, false
			}
			prefix = strings.TrimSuffix(dir, "/") + "/"
			full = prefix + pattern
		}
		paths, err := filepath.Glob(full)
		if err != nil || len(paths) > maxExpanded {
			return nil, false
		}
		for _, p := range paths {
			p = strings.TrimPrefix(p, prefix)
			if strings.HasPrefix(p, "-") || strings.HasPrefix(p, "+") {
				return nil, false
			}
			found = append(found, p)
		}
	}
	return found, true
}
