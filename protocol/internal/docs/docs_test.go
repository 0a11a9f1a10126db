package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
	"mneme/protocol/internal/docs"
)

func TestPageIsCurrent(t *testing.T) {
	want, err := docs.Markdown("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatalf("run go generate ./protocol: %v", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/protocol.md is out of date, run go generate ./protocol (-want +got):\n%s", diff)
	}
}

func TestPageIsComplete(t *testing.T) {
	text, err := docs.Markdown("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range protocol.Commands {
		if !strings.Contains(string(text), "\n### "+c.Name+"\n") {
			t.Errorf("command %s is missing", c.Name)
		}
	}
	for _, e := range protocol.Events {
		if !strings.Contains(string(text), "\n### "+e.New().EventType()+"\n") {
			t.Errorf("event %s is missing", e.New().EventType())
		}
	}
	// Samples: an enum from constants, a comment of a field, a nested record.
	for _, sample := range []string{
		"| `mode` | `standard` `acceptEdits` `unrestricted` `strict`? | empty = keep |",
		"| `cwd` | string, null? | Cwd: missing keeps the directory, null resets it to the boot directory. |",
		"\n### AgentState\n",
		"| `agents` | array of [AgentState](#agentstate) |",
	} {
		if !strings.Contains(string(text), sample) {
			t.Errorf("page lacks %q", sample)
		}
	}
	if _, err := docs.Markdown("no-such-directory"); err == nil {
		t.Error("a missing directory gave no error")
	}
}
