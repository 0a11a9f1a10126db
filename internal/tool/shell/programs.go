package shell

import (
	"regexp"
	"slices"
	"strings"
)

// A program is what is known of a command that only reads.
type program struct {
	// files: arguments name files that are read, wherever they stand.
	files bool
	// skip is the number of leading arguments that are no files (a pattern, a
	// filter), unless one of the flags in unless is there.
	skip   int
	unless flags
	deny   flags // what makes it do more than read
	check  func(c *simple) bool
}

// flags are options: letters of short ones, which may stand in clusters, and
// long ones, which may be abbreviated.
type flags struct {
	short string
	long  []string
}

// has reports whether an argument is, holds or may abbreviate one of the flags.
func (f flags) has(a string) bool {
	if strings.HasPrefix(a, "--") {
		name, _, _ := strings.Cut(a, "=")
		return len(name) > 2 && slices.ContainsFunc(f.long, func(l string) bool { return strings.HasPrefix(l, name) })
	}
	return len(a) > 1 && a[0] == '-' && strings.ContainsAny(a[1:], f.short)
}

var (
	anything = program{}
	file     = program{files: true}
)

// programs are the commands of spec/harness.md section 3.4 that only read.
var programs = map[string]program{
	"cat": file, "head": file, "tail": file, "cmp": file, "comm": file, "cut": file, "nl": file,
	"column": file, "fold": file, "strings": file, "hexdump": file, "diff": file,
	"wc":   {files: true, deny: flags{"", []string{"--files0-from"}}},
	"less": {files: true, check: pagerFlags}, "more": {files: true, check: pagerFlags},
	"file": {files: true, deny: flags{"C", []string{"--compile"}}},
	"xxd":  {files: true, deny: flags{"r", nil}, check: func(c *simple) bool { return len(c.operands()) <= 1 }},

	"grep": pattern, "egrep": pattern, "fgrep": pattern,
	"rg": {files: true, skip: 1, unless: flags{"ef", []string{"--regexp", "--file", "--files", "--ignore-file", "--type-list"}},
		deny: flags{"z", []string{"--pre", "--pre-glob", "--hostname-bin", "--search-zip"}}},
	"ag": {files: true, skip: 1, unless: flags{"gp", []string{"--path-to-ignore"}}, deny: flags{"", []string{"--pager"}}},
	"ack": {files: true, skip: 1, unless: flags{"fg", []string{"--match", "--files-from", "--ackrc"}},
		deny: flags{"", []string{"--pager", "--output", "--ackrc"}}},
	"jq": {files: true, skip: 1, unless: flags{"f", []string{"--from-file"}}},
	"yq": {files: true, skip: 1, unless: flags{"f", []string{"--from-file"}}, check: yqReads,
		deny: flags{"is", []string{"--inplace", "--in-place", "--split-exp", "--split-exp-file"}}},
	"sort": {files: true, deny: flags{"oT", []string{"--output", "--compress-program", "--temporary-directory", "--files0-from"}}},
	"sed":  {files: true, skip: 1, unless: flags{"ef", []string{"--expression", "--file"}}, check: sedReads},
	"find": {check: findReads},

	// They show names and sizes, not contents.
	"ls": anything, "tree": {deny: flags{"oR", nil}}, "stat": anything, "du": {deny: flags{"X", []string{"--files0-from", "--exclude-from"}}},
	"realpath": anything, "readlink": anything, "basename": anything, "dirname": anything,

	"pwd": anything, "whoami": anything, "uname": anything, "uptime": anything, "id": anything, "df": anything,
	"echo": anything, "printenv": anything, "which": anything, "whereis": anything, "type": anything, "true": anything,
	"tr":       anything,
	"printf":   {check: func(c *simple) bool { return len(c.args) > 1 && !strings.HasPrefix(c.first(1), "-") }},
	"hostname": {check: hostnameReads},
	"date":     {deny: flags{"sf", []string{"--set", "--file"}}, check: dateReads},
	"[":        {check: testReads}, "test": {check: testReads},
	"git": {check: gitReads}, "gh": {check: ghReads}, "letta": {check: lettaReads},
}

var pattern = program{files: true, skip: 1, unless: flags{"ef", []string{"--regexp", "--file", "--exclude-from"}}}

// readOnly reports whether a simple command only reads, where reading is free.
func readOnly(c *simple) bool {
	c, ok := c.withoutEnv()
	if !ok {
		return false
	}
	if len(c.args) == 0 {
		return true // `env` alone prints the environment
	}
	name := c.args[0].val()
	p, ok := programs[name]
	if !ok || !c.redirsOnlyRead() {
		return false
	}
	for i := range c.args[1:] {
		a := &c.args[1+i]
		if !a.known() {
			if name == "echo" && a.plain && len(a.subst) == 0 {
				continue // a variable is shown, whatever it holds
			}
			return false
		}
		for _, v := range a.vals {
			if p.deny.has(v) || strings.HasPrefix(v, "+") && p.files {
				return false
			}
		}
	}
	return c.filesReadable(p) && (p.check == nil || p.check(c))
}

// withoutEnv takes `env A=B` off the front of a command.
func (c *simple) withoutEnv() (*simple, bool) {
	if c.args[0].val() != "env" {
		return c, true
	}
	if len(c.assigns) > 0 {
		return nil, false
	}
	inner := *c
	inner.args = c.args[1:]
	for len(inner.args) > 0 {
		name, _, isAssign := strings.Cut(inner.args[0].val(), "=")
		if !isAssign {
			break
		}
		if !harmlessEnv.MatchString(name) {
			return nil, false
		}
		inner.args = inner.args[1:]
	}
	if len(inner.args) > 0 && (inner.args[0].val() == "" || strings.HasPrefix(inner.args[0].val(), "-")) {
		return nil, false
	}
	return &inner, true
}

// redirsOnlyRead reports whether the command's redirections, which the walker
// has let pass, write no file.
func (c *simple) redirsOnlyRead() bool {
	reader := *c.k
	reader.write, reader.heredoc = nil, c.k.heredoc
	return reader.redirs(c.redirs, c.in)
}

// operands are the arguments that are no flags.
func (c *simple) operands() []*arg {
	var out []*arg
	flagsEnded := false
	for i := range c.args[1:] {
		a := &c.args[1+i]
		v := a.text
		if a.known() {
			v = a.vals[0]
		}
		switch {
		case flagsEnded:
		case v == "--":
			flagsEnded = true
			continue
		case len(v) > 1 && v[0] == '-':
			continue
		}
		out = append(out, a)
	}
	return out
}

// first is the first value of argument i, "" if there is none.
func (c *simple) first(i int) string {
	if i < len(c.args) && c.args[i].known() {
		return c.args[i].vals[0]
	}
	return ""
}

// filesReadable checks the operands of a program that reads files, and the paths
// inside its flags. Globs are expanded for every program: what they find could
// be taken for a flag.
func (c *simple) filesReadable(p program) bool {
	skip := p.skip
	for i := range c.args[1:] {
		if slices.ContainsFunc(c.args[1+i].vals, p.unless.has) {
			skip = 0
		}
	}
	for i, a := range c.operands() {
		if !c.globSafe(a, p.files && i >= skip) {
			return false
		}
		if !p.files || i < skip || a.glob {
			continue
		}
		for _, v := range a.vals {
			if v != "-" && !readable(c.k.w, c.in, v) {
				return false
			}
		}
	}
	if !p.files {
		return true
	}
	for i := range c.args[1:] {
		for _, v := range c.args[1+i].vals {
			if !c.flagReadable(v) {
				return false
			}
		}
	}
	return true
}

// globSafe expands a pattern and checks what it finds.
func (c *simple) globSafe(a *arg, files bool) bool {
	if !a.glob {
		return true
	}
	for _, v := range a.vals {
		base := v[:strings.IndexAny(v+"*", "*?")]
		base = base[:strings.LastIndexByte(base, '/')+1]
		if files && base != "" && !readable(c.k.w, c.in, base) {
			return false
		}
		if base == "" || files {
			found, ok := expand(c.in, v)
			if !ok {
				return false
			}
			for _, f := range found {
				if files && !readable(c.k.w, c.in, f) {
					return false
				}
			}
		}
	}
	return true
}

// flagReadable checks the path inside a flag such as --file=x or -Ix.
func (c *simple) flagReadable(v string) bool {
	if len(v) < 2 || v[0] != '-' || !strings.ContainsAny(v, "/.") {
		return true
	}
	if climbs(v) {
		return false
	}
	value := v
	if _, after, ok := strings.Cut(v, "="); ok {
		value = after
	} else if i := strings.IndexByte(v, '/'); i >= 0 {
		value = v[i:]
	}
	return value == "" || value[0] != '/' || readable(c.k.w, c.in, value)
}

var pagerFlag = regexp.MustCompile(`^-[NSRFXEinM]+$`)

// pagerFlags lets less and more have flags that change how text looks.
func pagerFlags(c *simple) bool {
	for i := range c.args[1:] {
		if v := c.first(1 + i); strings.HasPrefix(v, "-") && v != "-" && !pagerFlag.MatchString(v) {
			return false
		}
	}
	return true
}

// yqReads refuses expressions that read other files.
func yqReads(c *simple) bool {
	return !slices.ContainsFunc(c.args, func(a arg) bool { return strings.Contains(a.text, "load") })
}

var hostnameFlag = regexp.MustCompile(`^(-[fsiIdAa]+|--(fqdn|long|short|ip-address|all-ip-addresses|domain|alias))$`)

// hostnameReads refuses an operand, which would be the new name.
func hostnameReads(c *simple) bool {
	for i := range c.args[1:] {
		if !hostnameFlag.MatchString(c.first(1 + i)) {
			return false
		}
	}
	return true
}

// dateReads lets formats and -d through; another operand would set the clock.
func dateReads(c *simple) bool {
	for i := 1; i < len(c.args); i++ {
		switch v := c.first(i); {
		case strings.HasPrefix(v, "+"), strings.HasPrefix(v, "-") && v != "-d" && v != "--date" && v != "-r":
		case v == "-d", v == "--date", v == "-r":
			i++
		default:
			return false
		}
	}
	return true
}

// testReads lets `[ -f x ]` through, with the tests of the specification.
func testReads(c *simple) bool {
	args := c.args[1:]
	if c.first(0) == "[" {
		if len(args) == 0 || args[len(args)-1].val() != "]" {
			return false
		}
		args = args[:len(args)-1]
	}
	if len(args) > 0 && args[0].val() == "!" {
		args = args[1:]
	}
	return len(args) == 2 && slices.Contains(fileTests, args[0].val())
}

// findActions are the actions of find that do more than print.
var findActions = []string{
	"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf", "-files0-from",
}

// findReads checks the places and the actions of find.
func findReads(c *simple) bool {
	places := true
	for i := 1; i < len(c.args); i++ {
		a := &c.args[i]
		if len(a.vals) != 1 {
			return false
		}
		v := a.vals[0]
		if places && (strings.HasPrefix(v, "-") || v == "(" || v == "!") {
			places = v == "-H" || v == "-L" || v == "-P"
			if places {
				continue
			}
		}
		switch {
		case places && a.glob:
			if !c.globSafe(a, true) {
				return false
			}
		case places:
			if !readable(c.k.w, c.in, v) {
				return false
			}
		case a.glob:
			return false // what it finds would be read as an expression
		case v == "-exec":
			n := execStat(c.args[i+1:])
			if n == 0 {
				return false
			}
			i += n
		case slices.Contains(findActions, v):
			return false
		}
	}
	return true
}

// execStat is the length of `stat … {} ;` behind -exec, 0 if it is another
// command.
func execStat(args []arg) int {
	if len(args) == 0 || args[0].val() != "stat" {
		return 0
	}
	for i, a := range args {
		switch a.val() {
		case ";", "+":
			return i + 1
		case "":
			return 0
		}
	}
	return 0
}
