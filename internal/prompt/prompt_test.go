package prompt_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/prompt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 30, 17, 27, 41, 0, time.UTC)

const hint = "Reminder: <projection> names the file behind a part of your memory; $MEMORY_DIR is the directory that holds them all."

// snapshots commits each set of files after the other and returns what is there
// after each.
func snapshots(t *testing.T, commits ...map[string]string) []*memory.Snapshot {
	t.Helper()
	m := memory.New(filepath.Join(t.TempDir(), "memfs"), memory.Options{})
	defer m.Close()
	var out []*memory.Snapshot
	for _, files := range commits {
		var changes []memory.FileChange
		for path, text := range files {
			changes = append(changes, memory.FileChange{Path: path, Content: []byte(text), Delete: text == ""})
		}
		if _, _, err := m.Write(t.Context(), memory.Author{}, "agent-1", changes, "x"); err != nil {
			t.Fatal(err)
		}
		s, err := m.Snapshot(t.Context(), "agent-1", "")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func compile(system string, s *memory.Snapshot) string {
	return prompt.Compile(prompt.CompileInput{
		Agent: &agent.Agent{ID: "agent-1", System: system}, WireConv: "default", Memory: s, MessageCount: 7, Now: at.In(time.FixedZone("x", 3600)),
	})
}

const metadata = `<memory_metadata>
- AGENT_ID: agent-1
- CONVERSATION_ID: default
- System prompt last recompiled: 2026-11-30 05:27:41 PM UTC+0000
- 7 previous messages between you and the user are stored in recall memory
</memory_metadata>`

func TestCompile(t *testing.T) {
	s := snapshots(t, map[string]string{
		"system/persona.md":     "---\ndescription: not shown\n---\nI am Ada.\nI count.\n\n",
		"system/human.md":       "---\ndescription: who you talk to\n---\nName: Bob\nLikes tea\n",
		"system/dev.md":         "notes on dev",
		"system/dev/style.md":   "---\ndescription: \"\"\n---\nshort\n  indented",
		"system/dev/a/b.md":     "deep",
		"system/empty.md":       "---\ndescription: nothing yet\n---\n",
		"system/pic.png":        "x",
		"notes/z.md":            "hidden content",
		"notes/deep/a.md":       "x",
		"archive/old.md":        "x",
		"README.md":             "x",
		"skills/count/SKILL.md": "x",
		"pic.webp":              "x",
	})[0]
	want := `You are Ada.

` + hint + `

<self>
<projection>$MEMORY_DIR/system/persona.md</projection>
I am Ada.
I count.
</self>

<memory>
<dev>
  <projection>$MEMORY_DIR/system/dev.md</projection>
  notes on dev
  <a>
    <b>
      <projection>$MEMORY_DIR/system/dev/a/b.md</projection>
      deep
    </b>
  </a>
  <style>
    <projection>$MEMORY_DIR/system/dev/style.md</projection>
    short
  indented
  </style>
</dev>
<empty>
  <projection>$MEMORY_DIR/system/empty.md</projection>
  <description>nothing yet</description>
</empty>
<human>
  <projection>$MEMORY_DIR/system/human.md</projection>
  <description>who you talk to</description>
  Name: Bob
Likes tea
</human>
<external_projection>
${MEMORY_DIR}/
├── archive/
│   └── old.md
├── notes/
│   ├── deep/
│   │   └── a.md
│   └── z.md
└── README.md
</external_projection>
</memory>

` + metadata
	if diff := cmp.Diff(want, compile("You are Ada.", s)); diff != "" {
		t.Errorf("prompt (-want +got):\n%s", diff)
	}
}

func TestCompilePlaces(t *testing.T) {
	persona := snapshots(t, map[string]string{"system/persona.md": "I say {CORE_MEMORY}."})[0]
	self := hint + "\n\n<self>\n<projection>$MEMORY_DIR/system/persona.md</projection>\nI say {CORE_MEMORY}.\n</self>\n\n" + metadata
	for _, tc := range []struct {
		name, system string
		memory       *memory.Snapshot
		want         string
	}{
		{"no memory", "Be brief.", nil, "Be brief.\n\n" + metadata},
		{"empty memory", "Be brief.", &memory.Snapshot{}, "Be brief.\n\n" + metadata},
		{"empty system", "", persona, self},
		{"placeholder", "A {CORE_MEMORY} B {CORE_MEMORY}", persona, "A " + self + " B " + self},
	} {
		if diff := cmp.Diff(tc.want, compile(tc.system, tc.memory)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestOnlyExternalFiles(t *testing.T) {
	s := snapshots(t, map[string]string{"a.md": "x"})[0]
	want := hint + "\n\n<memory>\n<external_projection>\n${MEMORY_DIR}/\n└── a.md\n</external_projection>\n</memory>\n\n" + metadata
	if diff := cmp.Diff(want, compile("", s)); diff != "" {
		t.Errorf("prompt (-want +got):\n%s", diff)
	}
}

// The list of files is bounded: the newest of saved/, and not every other file.
func TestManyFiles(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("saved/%02d/item-%02d.md", i%3, i)] = fmt.Sprintf("---\ncreated_at: %s\n---\nx", at.Add(time.Duration(-i)*time.Hour).Format(time.RFC3339))
	}
	for i := range 320 {
		files[fmt.Sprintf("notes/n%03d.md", i)] = "x"
	}
	got := compile("", snapshots(t, files)[0])
	for i := range 40 {
		if shown := strings.Contains(got, fmt.Sprintf("item-%02d.md", i)); shown != (i < 30) {
			t.Errorf("item %d shown: %v", i, shown)
		}
	}
	for _, line := range []string{"\n│   └── … 10 more, search them\n", "\n└── … 20 more, search them\n", "\n│   └── n299.md\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %q", line)
		}
	}
}

func TestSkills(t *testing.T) {
	got := prompt.Compile(prompt.CompileInput{Agent: &agent.Agent{ID: "agent-1", System: "S"}, WireConv: "default", MessageCount: 7, Now: at,
		Skills: []prompt.Skill{{ID: "b", Description: "\n second \nmore"}, {ID: "a"}}})
	want := "S\n\n" + metadata + "\n\n<available_skills>\n- `a`\n- `b`: second\n</available_skills>"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("prompt (-want +got):\n%s", diff)
	}
	if got := prompt.SkillList(nil); got != "" {
		t.Errorf("no skills are listed as %q", got)
	}
}

func TestTagsCannotBeForged(t *testing.T) {
	s := snapshots(t, map[string]string{"system/a><b.md": "x"})[0]
	if got := compile("", s); !strings.Contains(got, "<a__b>\n") {
		t.Errorf("prompt is\n%s", got)
	}
}

func TestMemoryNotice(t *testing.T) {
	s := snapshots(t,
		map[string]string{"system/human.md": "Bob", "system/persona.md": "I", "system/old.md": "x", "notes/a.md": "1", "notes/b.md": "1"},
		map[string]string{"system/human.md": "Carol", "system/old.md": "", "system/new.md": "fresh", "notes/b.md": "", "notes/c.md": "1", "notes/a.md": "2", "skills/x/SKILL.md": "s"},
		map[string]string{"notes/a.md": "3", "skills/x/SKILL.md": "t"},
	)
	want := "<memory_update>\nYour memory changed after this conversation began; it is now at revision " + s[1].Commit[:12] + ". Where what follows differs from what you were shown earlier, the newer holds.\n\n" + hint + `

<memory>
<human>
  <projection>$MEMORY_DIR/system/human.md</projection>
  Carol
</human>
<new>
  <projection>$MEMORY_DIR/system/new.md</projection>
  fresh
</new>
</memory>

No longer in your memory:
- $MEMORY_DIR/system/old.md

New files outside system/:
- $MEMORY_DIR/notes/c.md

Files outside system/ that are gone:
- $MEMORY_DIR/notes/b.md
</memory_update>`
	if diff := cmp.Diff(want, prompt.MemoryNotice(s[0], s[1])); diff != "" {
		t.Errorf("notice (-want +got):\n%s", diff)
	}
	if got := prompt.MemoryNotice(s[1], s[2]); got != "" {
		t.Errorf("nothing that the model sees changed, and it is told %q", got)
	}
	full := prompt.MemoryNotice(nil, s[1])
	for _, part := range []string{"<self>", "Carol", "fresh", "└── c.md"} {
		if !strings.Contains(full, part) {
			t.Errorf("no %q in the full notice\n%s", part, full)
		}
	}
	if got := prompt.MemoryNotice(s[1], nil); !strings.Contains(got, "revision none") || !strings.Contains(got, "- $MEMORY_DIR/system/human.md") {
		t.Errorf("a memory that is gone is told as %q", got)
	}
	if got := prompt.MemoryNotice(&memory.Snapshot{}, s[0]); !strings.Contains(got, "Bob") || !strings.Contains(got, "notes/a.md") {
		t.Errorf("a first memory is told as %q", got)
	}
}

func TestDefaultSystem(t *testing.T) {
	text := prompt.DefaultSystem()
	if lines := strings.Count(text, "\n"); lines < 20 || lines > 60 || !strings.Contains(text, "memory") {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}
