package memory_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

func line(n int) *int { return &n }

func TestApply(t *testing.T) {
	f := setup(t)
	f.put("system/human.md", "---\ndescription: who\nown_key: [1, 2]\n---\none\ntwo\none\n")
	f.put("system/fixed.md", "---\nread_only: true\n---\nfixed")
	f.put("notes/a.md", "a")
	f.put("notes/deep/b.md", "b")
	dir := f.Dir(id)
	const front = "---\ndescription: who\nown_key: [1, 2]\n---\n"

	for _, tc := range []struct {
		name  string
		op    memory.Op
		path  string // looked at afterwards
		want  string // its text, "" = gone
		code  agent.Code
		fault string // a word of the error
	}{
		{"create", memory.Op{Command: "create", FilePath: "notes/x", Description: "x notes", FileText: "remember x"}, "notes/x.md", "---\ndescription: x notes\n---\nremember x", "", ""},
		{"create what exists", memory.Op{Command: "create", FilePath: "notes/x.md", Description: "d", FileText: "t"}, "", "", agent.CodeConflict, "exists"},
		{"create without description", memory.Op{Command: "create", FilePath: "notes/y.md", FileText: "t"}, "", "", agent.CodeInvalid, "description"},
		{"create without text", memory.Op{Command: "create", FilePath: "notes/y.md", Description: "d", FileText: " \n"}, "", "", agent.CodeInvalid, "file_text"},
		{"create without path", memory.Op{Command: "create", Description: "d", FileText: "t"}, "", "", agent.CodeInvalid, "file_path"},
		{"create outside", memory.Op{Command: "create", FilePath: "../y.md", Description: "d", FileText: "t"}, "", "", agent.CodeInvalid, ".."},
		{"create in the home", memory.Op{Command: "create", FilePath: "~/y.md", Description: "d", FileText: "t"}, "", "", agent.CodeInvalid, "relative"},
		{"create elsewhere", memory.Op{Command: "create", FilePath: "/etc/y.md", Description: "d", FileText: "t"}, "", "", agent.CodeInvalid, "relative"},
		{"create hidden", memory.Op{Command: "create", FilePath: ".git/y.md", Description: "d", FileText: "t"}, "", "", agent.CodeInvalid, "inside"},
		{"create by the full path", memory.Op{Command: "create", FilePath: filepath.Join(dir, "notes/full.md"), Description: "d", FileText: "---\nnot: front\n---\n"}, "notes/full.md", "---\ndescription: d\n---\n---\nnot: front\n---\n", "", ""},
		{"replace the first in the body", memory.Op{Command: "str_replace", FilePath: "system/human", OldString: "o", NewString: "0"}, "system/human.md", front + "0ne\ntwo\none\n", "", ""},
		{"replace what is not there", memory.Op{Command: "str_replace", FilePath: "system/human.md", OldString: "who", NewString: "x"}, "", "", agent.CodeMemoryConflict, "old_string"},
		{"replace nothing", memory.Op{Command: "str_replace", FilePath: "system/human.md", NewString: "x"}, "", "", agent.CodeInvalid, "old_string"},
		{"replace by nothing", memory.Op{Command: "str_replace", FilePath: "system/human.md", OldString: "two"}, "", "", agent.CodeInvalid, "new_string"},
		{"replace by itself", memory.Op{Command: "str_replace", FilePath: "system/human.md", OldString: "two", NewString: "two"}, "", "", agent.CodeInvalid, "Nothing to change"},
		{"replace in a missing file", memory.Op{Command: "str_replace", FilePath: "nope", OldString: "a", NewString: "b"}, "", "", agent.CodeNotFound, "nope.md"},
		{"replace in a read-only file", memory.Op{Command: "str_replace", FilePath: "system/fixed.md", OldString: "fixed", NewString: "b"}, "", "", agent.CodeInvalid, "read-only"},
		{"insert at the start", memory.Op{Command: "insert", FilePath: "$MEMORY_DIR/system/human.md", InsertLine: line(0), InsertText: "top"}, "system/human.md", front + "top\n0ne\ntwo\none\n", "", ""},
		{"insert before a line", memory.Op{Command: "insert", FilePath: "${MEMORY_DIR}/system/human.md", InsertLine: line(3), InsertText: "mid\n"}, "system/human.md", front + "top\n0ne\nmid\ntwo\none\n", "", ""},
		{"insert behind the end", memory.Op{Command: "insert", FilePath: "system/human.md", InsertLine: line(99), InsertText: "end"}, "system/human.md", front + "top\n0ne\nmid\ntwo\none\nend\n", "", ""},
		{"insert behind an open end", memory.Op{Command: "insert", FilePath: "notes/a.md", InsertLine: line(2), InsertText: "b"}, "notes/a.md", "a\nb", "", ""},
		{"insert without line", memory.Op{Command: "insert", FilePath: "notes/a.md", InsertText: "b"}, "", "", agent.CodeInvalid, "insert_line"},
		{"insert nothing", memory.Op{Command: "insert", FilePath: "notes/a.md", InsertLine: line(1)}, "", "", agent.CodeInvalid, "insert_text"},
		{"describe", memory.Op{Command: "update_description", FilePath: "system/human.md", Description: "the person"}, "system/human.md", strings.Replace(front, "who", "the person", 1) + "top\n0ne\nmid\ntwo\none\nend\n", "", ""},
		{"describe a file without front matter", memory.Op{Command: "update_description", FilePath: "notes/a", Description: "letters"}, "notes/a.md", "---\ndescription: letters\n---\na\nb", "", ""},
		{"describe by nothing", memory.Op{Command: "update_description", FilePath: "notes/a", Description: " "}, "", "", agent.CodeInvalid, "description"},
		{"describe a read-only file", memory.Op{Command: "update_description", FilePath: "system/fixed", Description: "x"}, "", "", agent.CodeInvalid, "read-only"},
		{"rename", memory.Op{Command: "rename", OldPath: "notes/x", NewPath: "reference/x"}, "reference/x.md", "---\ndescription: x notes\n---\nremember x", "", ""},
		{"the old name is gone", memory.Op{Command: "delete", FilePath: "notes/x.md"}, "", "", agent.CodeNotFound, "notes/x.md"},
		{"rename onto something", memory.Op{Command: "rename", OldPath: "notes/a.md", NewPath: "reference/x.md"}, "", "", agent.CodeConflict, "exists"},
		{"rename a read-only file", memory.Op{Command: "rename", OldPath: "system/fixed.md", NewPath: "system/x.md"}, "", "", agent.CodeInvalid, "read-only"},
		{"rename into itself", memory.Op{Command: "rename", OldPath: "notes", NewPath: "notes/more"}, "", "", agent.CodeInvalid, "itself"},
		{"rename a directory", memory.Op{Command: "rename", OldPath: "notes", NewPath: "old/notes"}, "old/notes/deep/b.md", "b", "", ""},
		{"delete a file", memory.Op{Command: "delete", FilePath: "reference/x"}, "reference/x.md", "", "", ""},
		{"delete a directory", memory.Op{Command: "delete", FilePath: "old/"}, "old/notes/a.md", "", "", ""},
		{"delete a read-only directory", memory.Op{Command: "delete", FilePath: "system"}, "", "", agent.CodeInvalid, "read-only"},
		{"unknown", memory.Op{Command: "view", FilePath: "system"}, "", "", agent.CodeInvalid, "view"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, _ := f.Head(id)
			tc.op.Reason = "because: " + tc.name
			commit, err := f.Apply(t.Context(), id, tc.op)
			if tc.code != "" {
				wantCode(t, err, tc.code)
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("error %v says nothing of %q", err, tc.fault)
				}
				if now, _ := f.Head(id); now != before {
					t.Error("something was committed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if head, _ := f.Head(id); head != commit || head == before {
				t.Errorf("commit %s, head %s, before %s", commit, head, before)
			}
			data, err := f.At(t.Context(), id, tc.path, commit)
			if tc.want == "" {
				wantCode(t, err, agent.CodeNotFound)
			} else if string(data) != tc.want {
				t.Errorf("%s is %q, want %q", tc.path, data, tc.want)
			}
			history, err := f.History(t.Context(), id, "", 1)
			if err != nil || history[0].Message != "because: "+tc.name {
				t.Errorf("history %v, %v", history, err)
			}
			f.sound()
		})
	}
	if history := f.shell("log", "--format=%an <%ae>", "-1"); history != fmt.Sprintf("Ada Lovelace <%s@letta.com>", id) {
		t.Errorf("author is %q", history)
	}
}

// The tool meets a change made through another door.
func TestApplyAfterAnotherChange(t *testing.T) {
	f := setup(t)
	f.put("system/human.md", "old name")
	f.put("system/human.md", "new name")
	_, err := f.Apply(t.Context(), id, memory.Op{Command: "str_replace", FilePath: "system/human.md", OldString: "old name", NewString: "x"})
	wantCode(t, err, agent.CodeMemoryConflict)
	f.edit("system/human.md", "an edit that nobody committed")
	_, err = f.Apply(t.Context(), id, memory.Op{Command: "str_replace", FilePath: "system/human.md", OldString: "new name", NewString: "x"})
	wantCode(t, err, agent.CodeMemoryConflict)
}
