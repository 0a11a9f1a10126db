package shell

import (
	"regexp"
	"slices"
	"strings"
)

// A subcommand is what is known of a reading subcommand of git.
type subcommand struct {
	deny  flags
	check func(args []string) bool
}

// gitDeny are flags that no subcommand may have: they run programs, write files
// or open pagers.
var gitDeny = flags{"", []string{
	"--output", "--ext-diff", "--textconv", "--exec", "--paginate", "--open-files-in-pager", "--upload-pack",
	"--config-env", "--filters", "--no-index",
}}

// gitPlain are harmless flags that look like abbreviations of denied ones.
var gitPlain = []string{"--text", "--no-textconv", "--no-ext-diff", "--filter", "--no"}

// gitReading are the subcommands that only read. Where the reference takes any
// argument (`git tag x` makes a tag, `git remote add` a remote) the forms that
// list are picked out.
var gitReading = map[string]subcommand{
	"status": {}, "diff": {}, "log": {}, "show": {}, "rev-parse": {}, "ls-files": {}, "ls-tree": {}, "cat-file": {},
	"describe": {}, "blame": {}, "shortlog": {}, "name-rev": {}, "rev-list": {}, "for-each-ref": {}, "count-objects": {},
	"verify-commit": {}, "verify-tag": {},
	"grep":   {deny: flags{"O", nil}},
	"branch": {check: branchLists},
	"tag":    {check: tagLists},
	"remote": {check: remoteLists},
}

// gitReads reports whether a git command only reads.
func gitReads(c *simple) bool {
	args, ok := c.values()
	if !ok {
		return false
	}
	args, ok = c.gitGlobals(args[1:], c.k.w.Readable)
	if !ok || len(args) == 0 {
		return false
	}
	sub, known := gitReading[args[0]]
	if !known {
		return false
	}
	for _, a := range args[1:] {
		if gitDeny.has(a) && !slices.Contains(gitPlain, strings.SplitN(a, "=", 2)[0]) || sub.deny.has(a) {
			return false
		}
		if !c.gitArg(a) {
			return false
		}
	}
	return sub.check == nil || sub.check(args[1:])
}

// gitArg keeps paths inside the places that may be read; revisions such as a..b
// are no paths.
func (c *simple) gitArg(a string) bool {
	if climbs(a) {
		return false
	}
	if strings.HasPrefix(a, "-") {
		return c.flagReadable(a)
	}
	return a == "" || a[0] != '/' || readable(c.k.w, c.in, a)
}

// gitGlobals takes the options in front of the subcommand off: -C to where ok
// allows, and --no-pager and the like.
func (c *simple) gitGlobals(args []string, ok func(string) bool) (rest []string, fine bool) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "--no-pager", "--no-optional-locks", "--literal-pathspecs", "-P":
			args = args[1:]
		case "-C":
			if len(args) < 2 || !everywhere(c.in, args[1], ok) {
				return nil, false
			}
			args = args[2:]
		default:
			return nil, false
		}
	}
	return args, true
}

// values are the words of a command of which each has one value. Globs are
// expanded to see that nothing they find looks like a flag.
func (c *simple) values() (args []string, ok bool) {
	for i := range c.args {
		a := &c.args[i]
		if len(a.vals) != 1 || !c.globSafe(a, true) {
			return nil, false
		}
		args = append(args, a.vals[0])
	}
	return args, true
}

var branchFlag = regexp.MustCompile(`^(-[arvil]+|--(all|remotes|verbose|list|ignore-case|show-current|color|no-color|no-abbrev|no-column|column)` +
	`|--(abbrev|column|color|sort|format|contains|no-contains|merged|no-merged|points-at)=.*)$`)

// branchLists lets the forms of `git branch` through that list.
func branchLists(args []string) bool { return lists(args, branchFlag, "--list") }

var tagFlag = regexp.MustCompile(`^(-n[0-9]*|-i|--(ignore-case|column|no-column|color|no-color)` +
	`|--(sort|format|contains|no-contains|merged|no-merged|points-at)=.*)$`)

// tagLists lets `git tag`, `git tag -l x` and filters through.
func tagLists(args []string) bool { return lists(args, tagFlag, "-l", "--list") }

// lists checks flags by a pattern. Without a flag that turns listing on an
// operand would be the name of a new branch or tag.
func lists(args []string, harmless *regexp.Regexp, listing ...string) bool {
	on := false
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains(listing, a):
			on = true
		case slices.Contains([]string{"--contains", "--no-contains", "--merged", "--no-merged", "--points-at"}, a):
			i++
			on = true
		case a == "--sort" || a == "--format":
			i++
		case harmless.MatchString(a):
		case strings.HasPrefix(a, "-") || !on:
			return false
		}
	}
	return true
}

// remoteLists lets `git remote`, `git remote -v` and get-url through.
func remoteLists(args []string) bool {
	switch {
	case len(args) == 0:
		return true
	case len(args) == 1:
		return args[0] == "-v" || args[0] == "--verbose"
	}
	return args[0] == "get-url" && !strings.HasPrefix(args[1], "-") && len(args) == 2
}

// ghReading are the subcommands of gh that only read; nil = all actions. What
// downloads writes files, and is not here.
var ghReading = map[string][]string{
	"pr": {"list", "status", "checks", "diff", "view"}, "issue": {"list", "status", "view"}, "repo": {"list", "view"},
	"run": {"list", "view", "watch"}, "release": {"list", "view"}, "search": nil, "status": nil,
}

// ghReads reports whether a gh command only asks.
func ghReads(c *simple) bool {
	args, ok := c.values()
	if !ok || len(args) < 2 {
		return false
	}
	args = args[1:]
	browser := flags{"w", []string{"--web"}}
	if slices.ContainsFunc(args, browser.has) {
		return false
	}
	if args[0] == "api" {
		return ghGets(args[1:])
	}
	actions, known := ghReading[args[0]]
	return known && (actions == nil || len(args) > 1 && slices.Contains(actions, args[1]))
}

// ghGets lets `gh api path` through with flags that keep it a GET at the usual
// host.
func ghGets(args []string) bool {
	paths := 0
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-X" || a == "--method":
			i++
			if i == len(args) || !strings.EqualFold(args[i], "GET") {
				return false
			}
		case strings.EqualFold(a, "-XGET"), strings.EqualFold(a, "--method=GET"),
			a == "--paginate", a == "--slurp", a == "-i", a == "--include", a == "--silent":
		case a == "-q", a == "--jq", a == "-t", a == "--template":
			i++
		case strings.HasPrefix(a, "--jq="), strings.HasPrefix(a, "--template="):
		case strings.HasPrefix(a, "-") || strings.Contains(a, "://") || a == "graphql":
			return false
		default:
			paths++
		}
	}
	return paths == 1
}

// lettaReads lets the reading commands of the letta program through.
func lettaReads(c *simple) bool {
	args, ok := c.values()
	if !ok || len(args) < 3 {
		return false
	}
	switch args[1] {
	case "memory", "memfs":
		return args[2] == "status"
	case "agents":
		return args[2] == "list"
	case "messages":
		return args[2] == "search" || args[2] == "list"
	}
	return false
}
