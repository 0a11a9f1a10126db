package shell

import (
	"slices"
	"strings"
)

// A memoryProgram is a command that may change files, allowed where they all
// belong to the agent's memory.
type memoryProgram struct {
	deny flags
	// plain: its operands are no files.
	plain bool
}

// memoryPrograms are the commands of spec/harness.md section 3.4, git aside.
var memoryPrograms = map[string]memoryProgram{
	"rm": {}, "mv": {deny: flags{"tS", []string{"--target-directory", "--suffix"}}}, "mkdir": {deny: flags{"Z", []string{"--context"}}},
	"cp": {deny: flags{"tSls", []string{"--target-directory", "--suffix", "--link", "--symbolic-link"}}},
	"ls": {}, "cat": {}, "head": {}, "tail": {}, "wc": {deny: flags{"", []string{"--files0-from"}}},
	"sort":  {deny: flags{"oT", []string{"--output", "--compress-program", "--temporary-directory", "--files0-from"}}},
	"split": {deny: flags{"", []string{"--filter"}}},
	"echo":  {plain: true}, "printf": {plain: true, deny: flags{"v", nil}}, "sleep": {plain: true},
}

// inMemory reports whether a simple command works inside the agent's memory
// alone, and whether it works on a file there at all.
func inMemory(c *simple) (ok, touches bool) {
	w := c.k.w
	args, ok := c.values()
	if !ok || len(c.assigns) > 0 || w.Memory == nil {
		return false, false
	}
	// The walker lets redirections pass that write memory or read what may be
	// read: nothing else is left to check of them.
	switch args[0] {
	case "git":
		ok = c.gitInMemory(args[1:])
		return ok, ok
	case "find":
		ok = c.findInMemory()
		return ok, ok
	}
	p, known := memoryPrograms[args[0]]
	if !known {
		return false, false
	}
	operands := 0
	for i, a := range args[1:] {
		switch {
		case len(a) > 1 && a[0] == '-':
			if p.deny.has(a) || strings.ContainsRune(a, '/') {
				return false, false
			}
		case p.plain || a == "-" || isNumber(a):
		case c.args[1+i].glob:
			operands++
			if !c.globInMemory(a) {
				return false, false
			}
		default:
			operands++
			if !everywhere(c.in, a, w.memoryFile) {
				return false, false
			}
		}
	}
	// split writes where it is unless it gets a prefix as well.
	return args[0] != "split" || operands > 1 || c.insideMemory(), operands > 0
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// insideMemory reports whether the shell is surely in the memory directory.
func (c *simple) insideMemory() bool {
	return !slices.ContainsFunc(c.in, func(dir string) bool { return !c.k.w.memoryFile(dir) })
}

// globInMemory checks a pattern: where it starts, and all that it finds. A
// pattern for hidden names could find .git.
func (c *simple) globInMemory(pattern string) bool {
	for part := range strings.SplitSeq(pattern, "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") {
			return false
		}
	}
	base := pattern[:strings.IndexAny(pattern, "*?")]
	base = base[:strings.LastIndexByte(base, '/')+1]
	if base == "" {
		base = "."
	}
	if !everywhere(c.in, base, c.k.w.memoryFile) {
		return false
	}
	found, ok := expand(c.in, pattern)
	return ok && !slices.ContainsFunc(found, func(f string) bool { return !everywhere(c.in, f, c.k.w.Memory) })
}

// findInMemory lets find delete inside memory; other actions stay refused.
func (c *simple) findInMemory() bool {
	kept := *c
	kept.args = slices.DeleteFunc(slices.Clone(c.args), func(a arg) bool { return a.val() == "-delete" })
	w := *c.k.w
	w.Readable = c.k.w.memoryFile
	k := *c.k
	k.w = &w
	kept.k = &k
	if !findReads(&kept) {
		return false
	}
	// Without a place it starts where it is.
	return len(c.args) > 1 && !strings.HasPrefix(c.first(1), "-") || c.insideMemory()
}

// gitWriting are the subcommands that may change the memory repository. config
// is not here: a setting can make git run any program.
var gitWriting = []string{
	"add", "commit", "push", "pull", "fetch", "rebase", "merge", "worktree", "rm", "mv", "restore", "reset", "checkout",
	"switch", "stash", "revert", "cherry-pick", "branch", "tag", "status", "diff", "log", "show", "rev-parse", "ls-files",
}

var gitMemoryDeny = flags{"xsO", []string{
	"--exec", "--strategy", "--upload-pack", "--receive-pack", "--output", "--ext-diff", "--textconv", "--template",
	"--open-files-in-pager", "--paginate", "--config-env", "--filters", "--no-index", "--file", "--pathspec-from-file",
	"--repo",
}}

// gitInMemory reports whether a git command works on the memory repository and
// runs nothing of the caller's choice.
func (c *simple) gitInMemory(args []string) bool {
	inside := c.insideMemory()
	if len(args) > 1 && args[0] == "-C" {
		inside = everywhere(c.in, args[1], c.k.w.memoryFile)
	}
	args, ok := c.gitGlobals(args, c.k.w.memoryFile)
	if !ok || !inside || len(args) == 0 || !slices.Contains(gitWriting, args[0]) {
		return false
	}
	message := false // the value of -m is no path
	for _, a := range args[1:] {
		switch {
		case message:
			message = false
		case a == "-m" || a == "--message" || a == "-am":
			message = true
		case strings.HasPrefix(a, "--message="), strings.HasPrefix(a, "-m"):
		case strings.HasPrefix(a, "-"):
			if gitMemoryDeny.has(a) && !slices.Contains(gitPlain, a) || strings.ContainsRune(a, '/') && !strings.HasPrefix(a, "--format=") {
				return false
			}
		case strings.ContainsAny(a, ":\\") || climbs(a):
			return false // a remote's address, or a path that leaves
		case strings.HasPrefix(a, "/"):
			if !everywhere(c.in, a, c.k.w.memoryFile) {
				return false
			}
		}
	}
	return true
}
