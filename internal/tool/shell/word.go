package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxValues bounds what a word may stand for.
const maxValues = 64

// An arg is one word of a command.
type arg struct {
	text string // as written
	// vals are what the word may be: one value, or one for each turn of a loop;
	// empty if it is not known.
	vals []string
	// glob: the values are patterns that bash expands.
	glob bool
	// plain: not known, but only because of simple variables, or of the command
	// substitutions in subst.
	plain bool
	subst []*syntax.CmdSubst
}

func (a *arg) known() bool { return len(a.vals) > 0 }

// val is the value of a word with exactly one, "" otherwise.
func (a *arg) val() string {
	if len(a.vals) == 1 && !a.glob {
		return a.vals[0]
	}
	return ""
}

// An evaluator builds the values of one word.
type evaluator struct {
	w    *World
	vars map[string][]string // of loops

	vals       []string
	bare       strings.Builder // the unquoted text
	glob       bool
	quotedGlob bool // a quoted * or ?
	unknown    bool // not known
	opaque     bool // not known, and not plain
	subst      []*syntax.CmdSubst
}

// eval evaluates a word. vars are the values of loop variables.
func eval(w *World, vars map[string][]string, word *syntax.Word) arg {
	e := &evaluator{w: w, vars: vars, vals: []string{""}}
	for i, part := range word.Parts {
		e.part(part, i == 0, len(word.Parts) == 1)
	}
	bare := e.bare.String()
	if strings.Contains(bare, "{") && (strings.Contains(bare, ",") || strings.Contains(bare, "..")) {
		e.opaque = true // brace expansion
	}
	if strings.Contains(bare, "=~") || strings.Contains(bare, ":~") {
		e.opaque = true // tilde expansion inside the word
	}
	if e.glob && e.quotedGlob {
		e.opaque = true
	}
	a := arg{text: source(word), glob: e.glob, subst: e.subst}
	if e.unknown || e.opaque {
		a.plain = !e.opaque
		return a
	}
	a.vals = e.vals
	return a
}

func (e *evaluator) part(part syntax.WordPart, first, only bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		e.literal(p.Value, first, only)
	case *syntax.SglQuoted:
		e.opaque = e.opaque || p.Dollar
		e.quoted(p.Value)
	case *syntax.DblQuoted:
		e.opaque = e.opaque || p.Dollar
		for _, inner := range p.Parts {
			switch q := inner.(type) {
			case *syntax.Lit:
				e.quoted(unescapeQuoted(q.Value))
			case *syntax.ParamExp:
				e.param(q, true)
			case *syntax.CmdSubst:
				e.unknown, e.subst = true, append(e.subst, q)
			default:
				e.opaque = true
			}
		}
	case *syntax.ParamExp:
		e.param(p, false)
	case *syntax.CmdSubst:
		e.unknown, e.subst = true, append(e.subst, p)
	default: // process substitution, arithmetic, extended globs
		e.opaque = true
	}
}

// literal takes unquoted text.
func (e *evaluator) literal(s string, first, only bool) {
	if first && strings.HasPrefix(s, "~") {
		switch {
		case e.w.Home != "" && (only && s == "~" || strings.HasPrefix(s, "~/")):
			e.add(e.w.Home)
			s = s[1:]
		default:
			e.opaque = true
		}
	}
	if only && (s == "[" || s == "]") {
		e.add(s)
		return
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			e.quotedGlob = e.quotedGlob || s[i] == '*' || s[i] == '?'
			out.WriteByte(s[i])
			continue
		}
		switch c {
		case '*', '?':
			e.glob = true
		case '[':
			e.opaque = true // bracket globs differ from those of Go
		}
		e.bare.WriteByte(c)
		out.WriteByte(c)
	}
	e.add(out.String())
}

func (e *evaluator) quoted(s string) {
	e.quotedGlob = e.quotedGlob || strings.ContainsAny(s, "*?")
	e.add(s)
}

func (e *evaluator) add(s string) {
	for i := range e.vals {
		e.vals[i] += s
	}
}

// param takes $name or ${name}.
func (e *evaluator) param(p *syntax.ParamExp, quoted bool) {
	if !simpleParam(p) {
		e.opaque = true
		return
	}
	name := p.Param.Value
	values := e.vars[name]
	if v, ok := e.w.Vars[name]; ok {
		values = append(values[:len(values):len(values)], v)
	}
	if len(values) == 0 || len(values)*len(e.vals) > maxValues {
		e.unknown = true
		return
	}
	var vals []string
	for _, head := range e.vals {
		for _, v := range values {
			if !quoted && (v == "" || strings.ContainsAny(v, " \t\n*?[\\")) {
				e.unknown = true // split or expanded by the shell
				return
			}
			e.quotedGlob = e.quotedGlob || strings.ContainsAny(v, "*?")
			vals = append(vals, head+v)
		}
	}
	e.vals = vals
}

// simpleParam reports whether p is $name or ${name} and nothing more.
func simpleParam(p *syntax.ParamExp) bool {
	return p.Param != nil && !p.Excl && !p.Length && !p.Width && !p.IsSet && p.NestedParam == nil && p.Flags == nil &&
		p.Index == nil && len(p.Modifiers) == 0 && p.Slice == nil && p.Repl == nil && p.Names == 0 && p.Exp == nil
}

// unescapeQuoted undoes the escapes of text within double quotes.
func unescapeQuoted(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// source prints a node as shell text.
func source(node syntax.Node) string {
	var out strings.Builder
	if err := syntax.NewPrinter().Print(&out, node); err != nil {
		return ""
	}
	return out.String()
}
