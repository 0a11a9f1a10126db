package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

var modes = []agent.Mode{agent.ModeStandard, agent.ModeAcceptEdits, agent.ModeUnrestricted, agent.ModeStrict}

// verdicts are those of the four modes in the order of modes.
type verdicts [4]tool.Verdict

var (
	always  = verdicts{tool.Ask, tool.Ask, tool.Ask, tool.Ask}
	denied  = verdicts{tool.Deny, tool.Deny, tool.Deny, tool.Deny}
	trusted = verdicts{tool.Allow, tool.Allow, tool.Allow, tool.Ask} // free but in strict
	edits   = verdicts{tool.Ask, tool.Allow, tool.Allow, tool.Ask}
	risky   = verdicts{tool.Ask, tool.Ask, tool.Allow, tool.Ask} // free only in unrestricted
	granted = verdicts{tool.Allow, tool.Allow, tool.Allow, tool.Allow}
)

// external and attached tools, as the runtime makes them.
func otherTool(name string, approval tool.Approval) *tool.Tool {
	return &tool.Tool{Def: agent.ToolDef{Name: name}, Approval: approval,
		Run: func(context.Context, *tool.Call) agent.ToolResult { return agent.ToolResult{} }}
}

// The mode table of spec/harness.md section 3.2, over every mode.
func TestModes(t *testing.T) {
	r := newRig(t)
	r.file("work/a.txt", "alpha\n")
	secret := r.file("outside/secret", "x")
	foreign := r.file("memfs/agent-2/memory/system/human.md", "x")
	r.file("memfs/agent-1/memory/system/human.md", "x")
	r.file("work/.git/config", "")
	for link, to := range map[string]string{"work/out": "outside", "work/own": "work/sub", "work/theirs": "memfs/agent-2", "outside/in": "work"} {
		if err := os.Symlink(r.path(to), r.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	r.tools = append(r.tools, otherTool("lookup", tool.ApprovalByMode), otherTool("attached", tool.ApprovalNever),
		otherTool("sensitive", tool.ApprovalRequired), otherTool("TaskList", tool.ApprovalByMode))
	client := &tool.Tool{Def: agent.ToolDef{Name: "client"}}
	r.tools = append(r.tools, client)
	write := func(path string) []any { return []any{"file_path", path, "content", "x"} }
	edit := func(path string) []any { return []any{"file_path", path, "old_string", "a", "new_string", "b"} }
	for _, c := range []struct {
		name  string
		input []any
		want  verdicts
	}{
		// Reading, inside the places and outside of them.
		{"Read", []any{"file_path", r.path("work/a.txt")}, trusted},
		{"Read", []any{"file_path", "a.txt"}, trusted},
		{"Read", []any{"file_path", "sub/../a.txt"}, trusted},
		{"Read", []any{"file_path", r.path("work")}, trusted},
		{"Read", []any{"file_path", r.path("memfs/agent-1/memory/system/human.md")}, trusted},
		{"Read", []any{"file_path", "$MEMORY_DIR/system/human.md"}, trusted},
		{"Read", []any{"file_path", r.path("skills/s/SKILL.md")}, trusted},
		{"Read", []any{"file_path", r.path("outputs/agent-1/bash-x.txt")}, trusted},
		{"Read", []any{"file_path", r.path("extra/x")}, trusted},
		{"Read", []any{"file_path", "own/x"}, trusted},
		{"Read", []any{"file_path", r.path("outside/in/a.txt")}, trusted}, // leads inside
		{"Read", []any{"file_path", secret}, risky},
		{"Read", []any{"file_path", "/etc/hostname"}, risky},
		{"Read", []any{"file_path", "../outside/secret"}, risky},
		{"Read", []any{"file_path", "out/secret"}, risky}, // a link out
		{"Read", []any{"file_path", r.path("work2/x")}, risky},
		{"Read", []any{"file_path", "~/.ssh/id_rsa"}, risky},
		{"Read", []any{"file_path", r.path("outputs/agent-2/bash-x.txt")}, risky},
		{"Read", []any{"file_path", ""}, risky},
		{"Glob", []any{"pattern", "**/*.go"}, trusted},
		{"Glob", []any{"pattern", "*", "path", "sub"}, trusted},
		{"Glob", []any{"pattern", "/etc/*"}, risky},
		{"Glob", []any{"pattern", "../outside/*"}, risky},
		{"Glob", []any{"pattern", "*", "path", r.path("outside")}, risky},
		{"Glob", []any{"pattern", "*", "path", "out"}, risky},
		{"Grep", []any{"pattern", "x"}, trusted},
		{"Grep", []any{"pattern", "x", "path", r.path("work/a.txt")}, trusted},
		{"Grep", []any{"pattern", "x", "path", "/etc"}, risky},
		{"Grep", []any{"pattern", "x", "path", ".."}, verdicts{tool.Deny, tool.Deny, tool.Deny, tool.Deny}}, // above all memories

		// Writing.
		{"Write", write(r.path("work/a.txt")), edits},
		{"Write", write(r.path("outside/x")), edits},
		{"Edit", edit(r.path("work/a.txt")), edits},
		{"Write", write(r.path("work/.letta/settings.json")), risky},
		{"Write", write(".letta/settings.local.json"), risky},
		{"Write", write(r.path("home/.letta/settings.json")), risky},
		{"Edit", edit(".git/config"), risky},
		{"Write", write("sub/.git/hooks/pre-commit"), risky},
		{"Write", write(".gitignore"), edits},

		// Memory.
		{"memory", []any{"command", "delete", "reason", "r", "file_path", "x"}, trusted},

		// Other agents' memory, for every file tool and in every mode.
		{"Read", []any{"file_path", foreign}, denied},
		{"Read", []any{"file_path", "theirs/memory/system/human.md"}, denied},
		{"Write", write(foreign), denied},
		{"Edit", edit("theirs/memory/x"), denied},
		{"Write", write(r.path("memfs/agent-3/memory/new.md")), denied},
		{"Read", []any{"file_path", r.path("memfs/agent-1/../agent-2/memory/x")}, denied},
		{"Read", []any{"file_path", r.path("home/.letta/agents/agent-9/memory/x")}, denied},
		{"Read", []any{"file_path", r.path("home/.letta/agents/agent-1/memory/x")}, risky},
		{"Glob", []any{"pattern", "*", "path", r.path("memfs")}, denied},
		{"Glob", []any{"pattern", r.path("memfs") + "/*/x"}, denied},
		{"Grep", []any{"pattern", "x", "path", r.root}, denied},
		{"Grep", []any{"pattern", "x", "path", "/"}, denied},
		{"Grep", []any{"pattern", "x", "path", r.path("memfs/agent-2")}, denied},
		{"Grep", []any{"pattern", "x", "path", r.path("memfs/agent-1/memory")}, trusted},

		// Shells.
		{"Bash", bash("ls -la"), trusted},
		{"Bash", bash("git status"), trusted},
		{"Bash", bash("/bg"), trusted},
		{"Bash", bash("cat $MEMORY_DIR/system/human.md"), trusted},
		{"Bash", bash("cd $MEMORY_DIR && git add -A && git commit -m x"), trusted},
		{"Bash", bash("echo x >> $MEMORY_DIR/system/human.md"), trusted},
		{"Bash", bash("rm -rf $MEMORY_DIR/../../agent-2"), risky},
		{"Bash", bash("cat " + foreign), risky},
		{"Bash", bash("cat theirs/memory/system/human.md"), risky},
		{"Bash", bash("cat /etc/passwd"), risky},
		{"Bash", bash("cat out/secret"), risky},
		{"Bash", bash("touch x"), risky},
		{"Bash", bash("ls; touch x"), risky},
		{"Bash", bash("echo hi > b.txt"), risky},
		{"Bash", bash("rm -rf x"), risky},
		{"Bash", bash("npm test"), risky},
		{"Bash", bash("echo ("), risky},
		{"Bash", bash(""), risky},
		{"Bash", bash("sleep 20"), risky},
		{"TaskStop", []any{"task_id", "bash_1"}, risky},
		{"KillBash", []any{"shell_id", "bash_1"}, risky},

		// Tools of others.
		{"lookup", nil, risky},
		{"TaskList", nil, risky},
		{"NoSuchTool", []any{"x", 1}, risky},
		{"attached", nil, trusted},
		{"sensitive", nil, risky},
		{"client", nil, granted}, // it waits for its client in any case
		{"AskUserQuestion", []any{"questions", []any{}}, always},
	} {
		r.env.Rules = &tool.Rules{Directories: []string{r.path("extra")}}
		for i, mode := range modes {
			r.env.Mode = mode
			d := r.decide(c.name, in(c.input...))
			if d.Verdict != c.want[i] {
				t.Errorf("%s(%v) in %s: %s by %q, want %s", c.name, c.input, mode, d.Verdict, d.Rule, c.want[i])
			}
			if d.Rule == "" || (d.Verdict == tool.Deny) != (d.Reason != "") {
				t.Errorf("%s(%v) in %s: reasons %+v", c.name, c.input, mode, d)
			}

			// Headless: what would ask is denied, with the fixed text.
			r.env.Headless = true
			h := r.decide(c.name, in(c.input...))
			r.env.Headless = false
			switch {
			case d.Verdict == tool.Ask && (h.Verdict != tool.Deny || h.Reason != "Tool requires approval (headless mode)" || h.Rule != d.Rule):
				t.Errorf("%s(%v) in %s, headless: %+v", c.name, c.input, mode, h)
			case d.Verdict != tool.Ask && h.Verdict != d.Verdict:
				t.Errorf("%s(%v) in %s, headless: %s, else %s", c.name, c.input, mode, h.Verdict, d.Verdict)
			}

			// A deny rule wins in every mode, an alwaysAsk rule over all but it.
			r.env.Rules.Deny = []string{"*"}
			if d := r.decide(c.name, in(c.input...)); d.Verdict != tool.Deny {
				t.Errorf("%s(%v) in %s with deny *: %+v", c.name, c.input, mode, d)
			}
			r.env.Rules.Deny, r.env.Rules.AlwaysAsk = nil, []string{"*"}
			if a := r.decide(c.name, in(c.input...)); c.want[i] != tool.Deny && c.name != "client" && (a.Verdict != tool.Ask || len(a.Suggestions) > 0 && c.name != "AskUserQuestion") {
				t.Errorf("%s(%v) in %s with alwaysAsk *: %+v", c.name, c.input, mode, a)
			}
			r.env.Rules.AlwaysAsk = nil
		}
	}
}

// Rules: who wins over whom, per mode.
func TestRules(t *testing.T) {
	r := newRig(t)
	r.file("work/sub/x", "x")
	if err := os.Symlink(r.path("outside"), r.path("work/sub/out")); err != nil {
		t.Fatal(err)
	}
	r.tools = append(r.tools, otherTool("lookup", tool.ApprovalByMode))
	write := func(path string) []any { return []any{"file_path", path, "content", "x"} }
	read := func(path string) []any { return []any{"file_path", path} }
	for _, c := range []struct {
		about string
		rules tool.Rules
		name  string
		input []any
		want  verdicts
	}{
		{"bare allow", tool.Rules{Allow: []string{"Bash"}}, "Bash", bash("rm -rf x"), granted},
		{"star", tool.Rules{Allow: []string{"*"}}, "lookup", nil, granted},
		{"allow by name", tool.Rules{Allow: []string{"lookup"}}, "lookup", nil, granted},
		{"other name", tool.Rules{Allow: []string{"lookups", "Read"}}, "lookup", nil, risky},
		{"empty payload", tool.Rules{Allow: []string{"Bash()"}}, "Bash", bash("rm x"), granted},
		{"exact command", tool.Rules{Allow: []string{"Bash(echo hi > b.txt)"}}, "Bash", bash("echo hi > b.txt"), granted},
		{"exact command is no prefix", tool.Rules{Allow: []string{"Bash(touch s1)"}}, "Bash", bash("touch s1 s2"), risky},
		{"prefix", tool.Rules{Allow: []string{"Bash(npm run test:*)"}}, "Bash", bash("npm run test -- -u"), granted},
		{"prefix and more", tool.Rules{Allow: []string{"Bash(npm run test:*)"}}, "Bash", bash("npm run test; touch pwned"), risky},
		{"prefix needs a boundary", tool.Rules{Allow: []string{"Bash(npm run test:*)"}}, "Bash", bash("npm run testXYZ"), risky},
		{"prefix and reading", tool.Rules{Allow: []string{"Bash(npm run test:*)"}}, "Bash", bash("cd sub && npm run test | tail"), verdicts{tool.Allow, tool.Allow, tool.Allow, tool.Ask}},
		{"two prefixes", tool.Rules{Allow: []string{"Bash(npm run:*)", "Bash(git add:*)"}}, "Bash", bash("npm run x && git add ."), granted},
		{"a path's prefix", tool.Rules{Allow: []string{"Bash(" + r.path("skills/s") + ":*)"}}, "Bash", bash(r.path("skills/s") + "/scripts/run.sh a"), granted},
		{"a path's prefix is not left", tool.Rules{Allow: []string{"Bash(" + r.path("skills/s") + ":*)"}}, "Bash", bash(r.path("skills/s") + "/../../outside/evil"), risky},
		{"deny inside a script", tool.Rules{Deny: []string{"Bash(rm:*)"}}, "Bash", bash("ls && sudo rm x"), denied},
		{"deny in a substitution", tool.Rules{Deny: []string{"Bash(rm:*)"}}, "Bash", bash("echo $(rm x)"), denied},
		{"deny as others write it", tool.Rules{Deny: []string{"Bash(rm *)"}}, "Bash", bash("rm -rf x"), denied},
		{"deny over allow", tool.Rules{Allow: []string{"Bash"}, Deny: []string{"Bash(git push:*)"}}, "Bash", bash("git -C . push"), denied},
		{"deny something else", tool.Rules{Deny: []string{"Bash(rm:*)"}}, "Bash", bash("rmdir x"), risky},
		{"deny what is read-only", tool.Rules{Deny: []string{"Bash(cat:*)"}}, "Bash", bash("cat a"), denied},
		{"ask does not undo reading", tool.Rules{Ask: []string{"Bash(ls:*)"}}, "Bash", bash("ls"), trusted},
		{"ask does not undo allow", tool.Rules{Allow: []string{"Bash(make:*)"}, Ask: []string{"Bash(make:*)"}}, "Bash", bash("make"), granted},
		{"alwaysAsk undoes all", tool.Rules{Allow: []string{"*"}, AlwaysAsk: []string{"Bash(git push:*)"}}, "Bash", bash("git push"), always},

		{"read below", tool.Rules{Allow: []string{"Read(/" + r.path("outside") + "/**)"}}, "Read", read(r.path("outside/x/y")), granted},
		{"read elsewhere", tool.Rules{Allow: []string{"Read(/" + r.path("outside") + "/**)"}}, "Read", read(r.path("home/x")), risky},
		{"read_file is Read", tool.Rules{Allow: []string{"read_file"}}, "Read", read("/etc/x"), granted},
		{"home", tool.Rules{Allow: []string{"Read(~/docs/**)"}}, "Read", read(r.path("home/docs/a/b")), granted},
		{"relative stays inside", tool.Rules{Allow: []string{"Read(**)"}}, "Read", read("/etc/passwd"), risky},
		{"relative", tool.Rules{Allow: []string{"Write(sub/**)"}}, "Write", write("sub/x"), granted},
		{"relative with dot", tool.Rules{Allow: []string{"Write(./sub/*)"}}, "Write", write(r.path("work/sub/x")), granted},
		{"other directory", tool.Rules{Allow: []string{"Write(sub/**)"}}, "Write", write("x"), edits},
		{"through a link", tool.Rules{Allow: []string{"Write(sub/**)"}}, "Write", write("sub/out/x"), edits},
		{"all writes", tool.Rules{Allow: []string{"Write(**)"}}, "Write", write("/etc/x"), granted},
		{"but not the rules themselves", tool.Rules{Allow: []string{"Write(**)"}}, "Write", write(".letta/settings.json"), risky},
		{"Write is not Edit", tool.Rules{Allow: []string{"Edit(**)"}}, "Write", write("x"), edits},
		{"deny by name", tool.Rules{Deny: []string{"Read(**/.env)"}}, "Read", read("sub/.env"), denied},
		{"deny by name outside", tool.Rules{Deny: []string{"Read(**/.env)"}}, "Read", read(r.path("outside/.env")), denied},
		{"deny through a link", tool.Rules{Deny: []string{"Read(/" + r.path("outside") + "/**)"}}, "Read", read("sub/out/x"), denied},
		{"deny a search", tool.Rules{Deny: []string{"Grep(sub/**)"}}, "Grep", []any{"pattern", "x", "path", "sub"}, denied},
		{"not well-formed", tool.Rules{Allow: []string{"Bash(rm x", "Bash (rm x)", "", "(x)"}}, "Bash", bash("rm y"), risky},
	} {
		r.env.Rules = &c.rules
		for i, mode := range modes {
			r.env.Mode = mode
			if d := r.decide(c.name, in(c.input...)); d.Verdict != c.want[i] {
				t.Errorf("%s: %s(%v) in %s: %s by %q, want %s", c.about, c.name, c.input, mode, d.Verdict, d.Rule, c.want[i])
			}
		}
	}

	r.env.Mode, r.env.Rules = agent.ModeUnrestricted, &tool.Rules{Deny: []string{"Bash(rm:*)"}}
	if d := r.decide("Bash", in(bash("rm x")...)); d.Reason != "Permission denied by rule: Bash(rm:*)" {
		t.Errorf("reason %q", d.Reason)
	}
	r.env.Rules, r.env.Disallowed = nil, []string{"Bash"}
	if d := r.decide("Bash", in(bash("ls")...)); d.Verdict != tool.Deny || d.Reason != "Permission denied by rule: Bash" {
		t.Errorf("disallowed by the turn: %+v", d)
	}
	r.env.Disallowed = nil
	d := r.decide("Read", in("file_path", r.path("memfs/agent-2/memory/x")))
	if !strings.Contains(d.Reason, otherID) || !strings.Contains(d.Reason, agentID) {
		t.Errorf("the guard names neither agent: %q", d.Reason)
	}
}

func TestSuggestions(t *testing.T) {
	r := newRig(t)
	r.file("work/a.txt", "alpha\n")
	r.tools = append(r.tools, otherTool("lookup", tool.ApprovalByMode), otherTool("Agent", tool.ApprovalByMode))
	r.env.Mode = agent.ModeStrict
	write := []any{"file_path", r.path("work/a.txt"), "content", "x"}
	edit := func(path string) []any { return []any{"file_path", path, "old_string", "alpha", "new_string", "b"} }
	again := func(what string) string { return "Yes, and don't ask again for " + what + " in this project" }
	long := "touch " + strings.Repeat("x", 50)
	for _, c := range []struct {
		name              string
		input             []any
		text, rule, scope string // "" = none
	}{
		{"Read", []any{"file_path", r.path("work/a.txt")}, "Yes, allow reading project files during this session", "Read(**)", "session"},
		{"Read", []any{"file_path", "sub/x"}, "Yes, allow reading project files during this session", "Read(sub/**)", "session"},
		{"Read", []any{"file_path", "/etc/hostname"}, "Yes, allow reading from /etc/ in this project", "Read(//etc/**)", "project"},
		{"Read", []any{"file_path", "~/docs/x"}, "Yes, allow reading from ~/docs/ in this project", "Read(/" + r.path("home/docs") + "/**)", "project"},
		{"Grep", []any{"pattern", "x"}, "Yes, allow searching project files during this session", "Grep(**)", "session"},
		{"Glob", []any{"pattern", "*", "path", "/etc"}, "Yes, allow searching in /etc/ in this project", "Glob(//etc/**)", "project"},
		{"Write", write, "Yes, allow all writes during this session", "Write(**)", "session"},
		{"Edit", edit("a.txt"), "Yes, switch to accept edits mode for this session", "Edit(**)", "session"},
		{"Edit", edit("sub/x"), "Yes, allow editing files in sub/ in this project", "Edit(sub/**)", "project"},
		{"Edit", edit("/etc/x"), "Yes, allow editing files in /etc/ in this project", "Edit(//etc/**)", "project"},
		{"Edit", edit(".git/config"), "", "", ""},
		{"Bash", bash("touch p1"), again("'touch p1'"), "Bash(touch p1)", "project"},
		{"Bash", bash("sleep 20"), again("'sleep 20'"), "Bash(sleep 20)", "project"},
		{"Bash", bash("echo hi > b.txt"), again("'echo hi > b.txt'"), "Bash(echo hi > b.txt)", "project"},
		{"Bash", bash("touch original"), again("'touch original'"), "Bash(touch original)", "project"},
		{"Bash", bash(long), again("'" + long[:40] + "...'"), "Bash(" + long + ")", "project"},
		{"Bash", bash("git push origin main"), again("'git push' commands"), "Bash(git push:*)", "project"},
		{"Bash", bash("git -C . commit -m x"), again("'git commit' commands"), "Bash(git commit:*)", "project"},
		{"Bash", bash("npm run test -- -u"), again("'npm run test' commands"), "Bash(npm run test:*)", "project"},
		{"Bash", bash("npm install"), again("'npm install' commands"), "Bash(npm install:*)", "project"},
		{"Bash", bash("npx eslint ."), again("'npx eslint' commands"), "Bash(npx eslint:*)", "project"},
		{"Bash", bash("gh pr create -t x"), again("'gh pr create' commands"), "Bash(gh pr create:*)", "project"},
		{"Bash", bash("cat /etc/hostname"), again("'cat' commands"), "Bash(cat:*)", "project"},
		{"Bash", bash(r.path("skills/s") + "/scripts/go.sh x"), "Yes, and don't ask again for scripts in skill 's'", "Bash(" + r.path("skills/s") + ":*)", "project"},
		{"Bash", bash("touch a && touch b"), again("'touch a && touch b'"), "Bash(touch a && touch b)", "project"},
		{"Bash", bash("rm -rf x"), "", "", ""},
		{"Bash", bash("ls; rm x"), "", "", ""},
		{"Bash", bash("git push --force"), "", "", ""},
		{"Bash", bash("git reset --hard"), "", "", ""},
		{"Bash", bash("echo ("), "", "", ""},
		{"Bash", bash("touch a:*"), "", "", ""},
		{"lookup", nil, "Yes, allow lookup operations during this session", "lookup", "session"},
		{"Agent", nil, "Yes, allow subagent operations during this session", "Task", "session"},
		{"AskUserQuestion", []any{"questions", []any{}}, "Yes, allow AskUserQuestion operations during this session", "AskUserQuestion", "session"},
	} {
		mode := agent.ModeStrict
		if c.name == "Bash" {
			mode = agent.ModeStandard
		}
		r.env.Mode, r.env.Rules = mode, nil
		d := r.decide(c.name, in(c.input...))
		var want []agent.Suggestion
		if c.text != "" {
			want = []agent.Suggestion{{ID: "save-default", Text: c.text, Rule: c.rule, Scope: c.scope}}
		}
		if diff := cmp.Diff(want, d.Suggestions); d.Verdict != tool.Ask || diff != "" {
			t.Errorf("%s(%v): %s (-want +got):\n%s", c.name, c.input, d.Verdict, diff)
		}
		if len(d.Suggestions) == 0 || c.name == "AskUserQuestion" {
			continue
		}
		// Once it is saved, the same call passes.
		r.env.Rules = &tool.Rules{Allow: []string{d.Suggestions[0].Rule}}
		if d := r.decide(c.name, in(c.input...)); d.Verdict != tool.Allow {
			t.Errorf("%s(%v) still asks with %v: %+v", c.name, c.input, r.env.Rules.Allow, d)
		}
	}
}

func TestDiffs(t *testing.T) {
	r := newRig(t)
	r.file("work/a.txt", "alpha\nbeta\ngamma\n")
	r.file("work/bin", "a\x00b")
	r.file("work/long", strings.Repeat("line\n", 3000))
	var far []string
	for i := range 40 {
		far = append(far, fmt.Sprint(i))
	}
	r.file("work/far", strings.Join(far, "\n")+"\n")
	const change = `"hunks":[{"oldStart":1,"oldLines":3,"newStart":1,"newLines":3,"lines":[` +
		`{"type":"context","content":"alpha"},{"type":"remove","content":"beta"},{"type":"add","content":"BETA"},{"type":"context","content":"gamma"}]}]`
	for _, c := range []struct {
		name  string
		input []any
		want  string // "" = none
	}{
		{"Write", []any{"file_path", r.path("work/a.txt"), "content", "alpha\nBETA\ngamma\n"}, `[{"mode":"advanced","fileName":"a.txt",` + change + `}]`},
		{"Edit", []any{"file_path", r.path("work/a.txt"), "old_string", "beta", "new_string", "BETA"}, `[{"mode":"advanced","fileName":"a.txt",` + change + `}]`},
		{"Write", []any{"file_path", "deep/new.txt", "content", "a\nb\n"}, `[{"mode":"advanced","fileName":"new.txt","hunks":[{"oldStart":1,"oldLines":0,"newStart":1,"newLines":2,"lines":[` +
			`{"type":"add","content":"a"},{"type":"add","content":"b"}]}]}]`},
		{"Write", []any{"file_path", "a.txt", "content", "alpha\nbeta\ngamma\n"}, `[{"mode":"advanced","fileName":"a.txt"}]`},
		{"Write", []any{"file_path", "a.txt", "content", "alpha\nbeta\ngamma"}, `[{"mode":"advanced","fileName":"a.txt","hunks":[{"oldStart":1,"oldLines":3,"newStart":1,"newLines":3,"lines":[` +
			`{"type":"context","content":"alpha"},{"type":"context","content":"beta"},{"type":"remove","content":"gamma"},{"type":"add","content":"gamma"}]}]}]`},
		{"Edit", []any{"file_path", "a.txt", "old_string", "absent", "new_string", "x"}, `[{"mode":"fallback","fileName":"a.txt","reason":"String to replace not found in file. Read the file again: it may have changed, or the text may be quoted wrongly.\nString: absent"}]`},
		{"Write", []any{"file_path", "bin", "content", "x"}, `[{"mode":"unpreviewable","fileName":"bin","reason":"the file is binary or not valid UTF-8"}]`},
		{"Write", []any{"file_path", "long", "content", strings.Repeat("other\n", 3000)}, `[{"mode":"unpreviewable","fileName":"long","reason":"The change is too large to preview"}]`},
		{"Write", []any{"file_path", "long", "content", strings.Repeat("other\n", 300000)}, `[{"mode":"unpreviewable","fileName":"long","reason":"The file is too large to preview"}]`},
		{"Bash", bash("touch x"), ""},
	} {
		if d := r.decide(c.name, in(c.input...)); string(d.Diffs) != c.want {
			t.Errorf("%s(%.60v):\n got %s\nwant %s", c.name, c.input, d.Diffs, c.want)
		}
	}
	d := r.decide("Edit", in("file_path", "far", "old_string", "0\n1\n", "new_string", "zero\n1\n"))
	var parsed []struct{ Hunks []json.RawMessage }
	if err := json.Unmarshal(d.Diffs, &parsed); err != nil || len(parsed[0].Hunks) != 1 {
		t.Errorf("diffs %s, %v", d.Diffs, err)
	}
	r.env.Mode = agent.ModeUnrestricted
	if d := r.decide("Write", in("file_path", "a.txt", "content", "x")); d.Diffs != nil || d.Suggestions != nil {
		t.Errorf("an allowed call carries a preview: %+v", d)
	}
}
