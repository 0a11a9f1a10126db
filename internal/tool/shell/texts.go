package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxTexts bounds what Texts returns.
const maxTexts = 10_000

// ruleTexts are the forms of a command that allow rules are compared with: as
// its words, and for git without -C to a readable place. A command whose words
// cannot be pinned down, or that writes a file, has none.
func (c *simple) ruleTexts() []string {
	if !c.redirsOnlyRead() {
		return nil
	}
	words := make([]string, 0, len(c.args))
	for i := range c.args {
		a := &c.args[i]
		switch {
		case a.known():
			words = append(words, a.ruleText())
		case a.plain && i > 0:
			words = append(words, a.text)
		default:
			return nil
		}
	}
	texts := []string{strings.Join(words, " ")}
	if args, ok := c.values(); ok && args[0] == "git" && len(args) > 1 {
		rest, ok := c.gitGlobals(args[1:], c.k.w.Readable)
		if ok && len(rest) > 0 && len(rest) < len(args)-1 {
			texts = append(texts, strings.Join(append([]string{"git"}, words[len(words)-len(rest):]...), " "))
		}
	}
	return texts
}

// ruleText is a word's value where that reads as one word, else its source.
func (a *arg) ruleText() string {
	if len(a.vals) == 1 && a.vals[0] != "" && !strings.ContainsAny(a.vals[0], " \t\n;&|<>()$`\\\"'") {
		return a.vals[0]
	}
	return a.text
}

// Texts returns the commands of a script in every form that a rule which denies
// might mean: as written, by their words, without assignments and paths in front
// of the name, without programs that run others (env, sudo, xargs, bash -c, find
// -exec ...), and git without its global options. It works on text that does not
// parse, too.
func Texts(text string) []string {
	t := &texts{seen: map[string]bool{}}
	t.add(strings.TrimSpace(text))
	t.script(text, 0)
	return t.list
}

type texts struct {
	list []string
	seen map[string]bool
}

func (t *texts) add(s string) {
	if s != "" && !t.seen[s] && len(t.list) < maxTexts {
		t.seen[s] = true
		t.list = append(t.list, s)
	}
}

func (t *texts) script(text string, depth int) {
	if depth > maxDepth {
		return
	}
	s, err := Parse(text)
	if err != nil {
		for _, piece := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";&|\n()`{}", r) }) {
			t.words(strings.Fields(piece), depth)
		}
		return
	}
	w := &World{}
	syntax.Walk(s.file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			var words []string
			for _, word := range n.Args {
				a := eval(w, nil, word)
				if a.known() {
					words = append(words, a.vals[0])
				} else {
					words = append(words, a.text)
				}
			}
			t.add(source(n))
			t.words(words, depth)
		case *syntax.DeclClause:
			t.add(source(n))
		}
		return true
	})
}

// runners are programs that run what their arguments name.
var runners = []string{
	"env", "command", "builtin", "exec", "nohup", "time", "nice", "ionice", "sudo", "doas", "stdbuf", "setsid",
	"timeout", "xargs", "parallel", "watch", "strace", "busybox", "find", "fd", "chroot", "unshare", "su", "flock",
}

// words adds the forms of one command.
func (t *texts) words(words []string, depth int) {
	for len(words) > 0 && isAssign(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 || depth > maxDepth {
		return
	}
	t.add(strings.Join(words, " "))
	name := path.Base(words[0])
	if name != words[0] {
		words = append([]string{name}, words[1:]...)
		t.add(strings.Join(words, " "))
	}
	switch {
	case name == "git":
		if rest := gitSub(words[1:]); len(rest) < len(words)-1 {
			t.add(strings.Join(append([]string{"git"}, rest...), " "))
		}
	case name == "eval" || name == "source" || name == "trap":
		t.script(strings.Join(words[1:], " "), depth+1)
	case slices.Contains([]string{"bash", "sh", "dash", "zsh", "ksh", "su"}, name):
		for _, word := range words[1:] {
			if !strings.HasPrefix(word, "-") {
				t.script(word, depth+1)
			}
		}
	}
	if slices.Contains(runners, name) {
		// Which words are options depends on the program: any of the rest may
		// be the command.
		for i := range min(len(words)-1, 64) {
			rest := words[1+i:]
			if !strings.HasPrefix(rest[0], "-") {
				t.inner(rest, depth+1)
			}
		}
	}
}

// inner adds a command that another one runs, without looking for runners in
// each of its own tails again.
func (t *texts) inner(words []string, depth int) {
	if slices.Contains(runners, path.Base(words[0])) {
		t.add(strings.Join(words, " "))
		return
	}
	t.words(words, depth)
}

func isAssign(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsAny(name, "/-. \t")
}

// gitSub takes every option in front of the subcommand off.
func gitSub(args []string) []string {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-C", "-c", "--config-env", "--exec-path", "--git-dir", "--namespace", "--super-prefix", "--work-tree":
			args = args[min(2, len(args)):]
		default:
			args = args[1:]
		}
	}
	return args
}

// dangerous are commands that no rule is offered for.
var dangerous = []string{"rm", "mv", "chmod", "chown", "sudo", "dd", "mkfs", "fdisk", "kill", "killall"}

// Dangerous reports whether a script holds a command that should be looked at
// every time (spec/harness.md section 3.6), or cannot be understood.
func Dangerous(text string) bool {
	if _, err := Parse(text); err != nil {
		return true
	}
	for _, s := range Texts(text) {
		words := strings.Fields(s)
		if len(words) == 0 {
			continue
		}
		name := path.Base(words[0])
		if slices.Contains(dangerous, name) || strings.HasPrefix(name, "mkfs.") {
			return true
		}
		if slices.ContainsFunc(words, func(w string) bool { return w == "--force" || w == "--hard" || w == "-f" }) {
			return true
		}
	}
	return false
}
