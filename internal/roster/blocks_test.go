package roster_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/store"
)

func block(label, value string) roster.BlockSpec { return roster.BlockSpec{Label: label, Value: value} }

func labels(blocks []*agent.Block) []string {
	all := []string{}
	for _, b := range blocks {
		all = append(all, b.Label+"="+b.Value)
	}
	return all
}

// newAgents makes agents with the blocks attached.
func newAgents(t *testing.T, r *roster.Roster, n int, ids ...string) []*agent.Agent {
	t.Helper()
	var all []*agent.Agent
	for range n {
		all = append(all, must(r.CreateAgent(t.Context(), roster.AgentSpec{BlockIDs: ids}))(t))
	}
	return all
}

// body is a file of an agent's memory below its front matter, "" if there is none.
func (d *deps) body(t *testing.T, agentID, path string) string {
	t.Helper()
	if f := must(d.memory.Snapshot(t.Context(), agentID, ""))(t).File(path); f != nil {
		return f.Body
	}
	return ""
}

// edit changes an agent's memory as its tools do.
func (d *deps) edit(t *testing.T, agentID string, changes ...memory.FileChange) {
	t.Helper()
	if _, _, err := d.memory.Write(t.Context(), memory.Author{}, agentID, changes, "edit"); err != nil {
		t.Fatal(err)
	}
}

func file(path, text string) memory.FileChange {
	return memory.FileChange{Path: path, Content: []byte(text), Force: true}
}

func gone(path string) memory.FileChange {
	return memory.FileChange{Path: path, Delete: true, Force: true}
}

func TestUnattachedBlock(t *testing.T) {
	r, _ := setup(t)
	ctx := t.Context()
	b := must(r.CreateBlock(ctx, roster.BlockSpec{Label: "system/human.md", Value: "a\x00b", Description: ptr("d"), Limit: ptr(5), ReadOnly: true,
		Hidden: ptr(true), Tags: []string{"t", "t"}, Metadata: json.RawMessage(`{"k":1}`), Extra: json.RawMessage("null")}))(t)
	want := &agent.Block{ID: b.ID, Label: "human", Value: "ab", Description: ptr("d"), Limit: 5, ReadOnly: true, Hidden: ptr(true), Tags: []string{"t"},
		Metadata: json.RawMessage(`{"k":1}`), Version: 1, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt}
	if diff := cmp.Diff(want, must(r.Block(ctx, b.ID))(t)); diff != "" {
		t.Error(diff)
	}
	got := must(r.UpdateBlock(ctx, b.ID, roster.BlockPatch{Label: ptr("a/b"), Value: ptr("xyz"), Description: ptr[*string](nil), Hidden: ptr[*bool](nil),
		Metadata: ptr(json.RawMessage("null")), Tags: &[]string{}}))(t)
	if got.Label != "a/b" || got.Value != "xyz" || got.Description != nil || got.Hidden != nil || got.Metadata != nil || got.Tags != nil || got.Version != 2 {
		t.Errorf("%+v", got)
	}
	for name, p := range map[string]roster.BlockPatch{
		"value": {Value: ptr("123456")}, "limit": {Limit: ptr(2)}, "label": {Label: ptr("a//b")},
	} {
		_, err := r.UpdateBlock(ctx, b.ID, p)
		if e, ok := err.(*agent.Error); !ok || e.Code != agent.CodeInvalid || name == "label" && e.Field != "label" || name != "label" && e.Field != "value" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, label := range []string{"", "..", "a/../b", "a\\b", "a\nb", strings.Repeat("x", 101), ".git", "system/"} {
		if _, err := r.CreateBlock(ctx, block(label, "")); agent.CodeOf(err) != agent.CodeInvalid {
			t.Errorf("label %q: %v", label, err)
		}
	}
	must(r.UpdateBlock(ctx, b.ID, roster.BlockPatch{Value: ptr("12345")}))(t)
	if err := r.DeleteBlock(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Block(ctx, b.ID); agent.CodeOf(err) != agent.CodeNotFound {
		t.Error(err)
	}
}

func TestBlockIsItsFile(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{Blocks: []roster.BlockSpec{
		{Label: "human", Value: "Bo", Tags: []string{"t"}}, {Label: "persona", Value: "I am", Description: ptr("me"), Limit: ptr(9)}}}))(t)
	blocks := must(r.AgentBlocks(ctx, ag.ID))(t)
	if diff := cmp.Diff([]string{"human=Bo", "persona=I am"}, labels(blocks)); diff != "" {
		t.Fatal(diff)
	}
	human, persona := blocks[0], blocks[1]
	if human.Description != nil || human.Version != 1 || !slices.Equal(human.Tags, []string{"t"}) || persona.Limit != 9 || *persona.Description != "me" {
		t.Errorf("%+v, %+v", human, persona)
	}

	// The API changes the file, and keeps what else it says.
	d.edit(t, ag.ID, file("system/human.md", "---\ndescription: who\ncustom: 1\n---\nBob"))
	got := must(r.UpdateAgentBlock(ctx, ag.ID, "human", roster.BlockPatch{Value: ptr("line\n---\nx\n"), ReadOnly: ptr(true), Limit: ptr(50)}))(t)
	if got.ID != human.ID || got.Version != 3 || *got.Description != "who" || !got.ReadOnly || !slices.Equal(got.Tags, []string{"t"}) {
		t.Errorf("%+v", got)
	}
	f := must(d.memory.Snapshot(ctx, ag.ID, ""))(t).File("system/human.md")
	if f.Body != "line\n---\nx\n" || !f.ReadOnly || f.Limit != 50 || f.Front["custom"] != 1 || f.Description != "who" {
		t.Errorf("file %q", f.Text)
	}
	if got := must(r.Block(ctx, human.ID))(t); got.Value != "line\n---\nx\n" || got.Version != 3 {
		t.Errorf("%+v", got)
	}
	// What is no file's business makes no commit.
	head := must(d.memory.Head(ag.ID))(t)
	got = must(r.UpdateBlock(ctx, human.ID, roster.BlockPatch{Tags: &[]string{"u"}, Description: ptr(ptr("who"))}))(t)
	if got.Version != 4 || !slices.Equal(got.Tags, []string{"u"}) || must(d.memory.Head(ag.ID))(t) != head {
		t.Errorf("%+v", got)
	}
	// A read-only file is its owner's to change. A description may be cleared.
	got = must(r.UpdateBlock(ctx, human.ID, roster.BlockPatch{Description: ptr[*string](nil), ReadOnly: ptr(false)}))(t)
	f = must(d.memory.Snapshot(ctx, ag.ID, ""))(t).File("system/human.md")
	if got.Description != nil || f.Description != "Memory block human" || f.ReadOnly {
		t.Errorf("%+v, file %q", got, f.Text)
	}

	// The file wins.
	d.edit(t, ag.ID, file("system/human.md", "no front matter"), file("system/deep/new.md", "---\ndescription: n\nlimit: 7\n---\nnew"))
	blocks = must(r.AgentBlocks(ctx, ag.ID))(t)
	if diff := cmp.Diff([]string{"human=no front matter", "persona=I am", "deep/new=new"}, labels(blocks)); diff != "" {
		t.Error(diff)
	}
	if b := blocks[2]; *b.Description != "n" || b.Limit != 7 || b.Version != 1 {
		t.Errorf("%+v", b)
	}
	// Nothing has changed: nothing changes.
	if diff := cmp.Diff(blocks, must(r.AgentBlocks(ctx, ag.ID))(t)); diff != "" {
		t.Error(diff)
	}
	// A file that is renamed is the same block; one that goes takes its block along.
	d.edit(t, ag.ID, gone("system/persona.md"), file("system/self.md", must(d.memory.Snapshot(ctx, ag.ID, ""))(t).File("system/persona.md").Text), gone("system/deep/new.md"))
	blocks = must(r.AgentBlocks(ctx, ag.ID))(t)
	if diff := cmp.Diff([]string{"human=no front matter", "self=I am"}, labels(blocks)); diff != "" || blocks[1].ID != persona.ID {
		t.Error(diff, blocks[1].ID)
	}
	// So is one that the API renames, whatever else it changes.
	got = must(r.UpdateBlock(ctx, persona.ID, roster.BlockPatch{Label: ptr("deep/persona"), Value: ptr("You are")}))(t)
	if got.Label != "deep/persona" || got.Value != "You are" || d.body(t, ag.ID, "system/deep/persona.md") != "You are" || d.body(t, ag.ID, "system/self.md") != "" {
		t.Errorf("%+v", got)
	}
	_, err := r.UpdateBlock(ctx, persona.ID, roster.BlockPatch{Label: ptr("human")})
	fails(t, err, agent.CodeConflict, "Agent "+ag.ID+` has a memory block with the label "human" already`)
	_, err = r.UpdateAgentBlock(ctx, ag.ID, "persona", roster.BlockPatch{Value: ptr("x")})
	fails(t, err, agent.CodeNotFound, "Block persona not found")
	_, err = r.UpdateBlock(ctx, persona.ID, roster.BlockPatch{Value: ptr("0123456789")})
	fails(t, err, agent.CodeInvalid, `memory block "deep/persona" has 10 characters, more than its limit of 9`)
}

func TestAttachAndDetach(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	b := must(r.CreateBlock(ctx, block("facts", "1")))(t)
	other := must(r.CreateBlock(ctx, block("facts", "2")))(t)
	ag := newAgents(t, r, 1)[0]
	for range 2 { // the second time it is there already
		if err := r.AttachBlock(ctx, ag.ID, b.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.body(t, ag.ID, "system/facts.md"); got != "1" {
		t.Errorf("file %q", got)
	}
	fails(t, r.AttachBlock(ctx, ag.ID, other.ID), agent.CodeConflict, "Agent "+ag.ID+` has a memory block with the label "facts" already`)
	d.edit(t, ag.ID, file("system/loose.md", "x"))
	loose := must(r.CreateBlock(ctx, block("loose", "")))(t)
	if err := r.AttachBlock(ctx, ag.ID, loose.ID); agent.CodeOf(err) != agent.CodeConflict {
		t.Errorf("a file has the label: %v", err)
	}
	fails(t, r.AttachBlock(ctx, "agent-none", b.ID), agent.CodeNotFound, "Agent agent-none not found")
	if err := r.AttachBlock(ctx, ag.ID, "block-none"); agent.CodeOf(err) != agent.CodeNotFound {
		t.Error(err)
	}

	d.edit(t, ag.ID, file("system/facts.md", "1 and more"))
	if err := r.DetachBlock(ctx, ag.ID, b.ID); err != nil {
		t.Fatal(err)
	}
	if got := d.body(t, ag.ID, "system/facts.md"); got != "" {
		t.Errorf("the file is still there: %q", got)
	}
	if got := must(r.Block(ctx, b.ID))(t); got.Value != "1 and more" {
		t.Errorf("detached with %q", got.Value)
	}
	if err := r.DetachBlock(ctx, ag.ID, b.ID); agent.CodeOf(err) != agent.CodeNotFound {
		t.Error(err)
	}
	// A block that was a file is one that is detached, not one that is lost.
	filed := must(r.AgentBlock(ctx, ag.ID, "loose"))(t)
	if err := r.DetachBlock(ctx, ag.ID, filed.ID); err != nil {
		t.Fatal(err)
	}
	if got := must(r.Block(ctx, filed.ID))(t); got.Value != "x" {
		t.Errorf("%+v", got)
	}

	// All of them at once.
	if err := r.SetAgentBlocks(ctx, ag.ID, []string{other.ID, loose.ID, other.ID}); err != nil {
		t.Fatal(err)
	}
	must(r.UpdateAgent(ctx, ag.ID, roster.AgentPatch{BlockIDs: &[]string{loose.ID}, Name: ptr("Bo")}))(t)
	if diff := cmp.Diff([]string{"loose="}, labels(must(r.AgentBlocks(ctx, ag.ID))(t))); diff != "" {
		t.Error(diff)
	}
	if err := r.SetAgentBlocks(ctx, ag.ID, []string{"block-none"}); agent.CodeOf(err) != agent.CodeNotFound {
		t.Error(err)
	}
	// An edit in the work tree is not overwritten, and nothing is half done.
	path := filepath.Join(d.memory.Dir(ag.ID), "system", "loose.md")
	if err := os.WriteFile(path, []byte("draft"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"detach": r.DetachBlock(ctx, ag.ID, loose.ID),
		"update": second(r.UpdateBlock(ctx, loose.ID, roster.BlockPatch{Value: ptr("v")})),
	} {
		if agent.CodeOf(err) != agent.CodeMemoryConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	if diff := cmp.Diff([]string{"loose="}, labels(must(r.AgentBlocks(ctx, ag.ID))(t))); diff != "" {
		t.Error(diff)
	}
}

func second[T any](_ T, err error) error { return err }

func TestCreateAgentWithBlocks(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	one, two := must(r.CreateBlock(ctx, block("one", "1")))(t), must(r.CreateBlock(ctx, block("two", "2")))(t)
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{BlockIDs: []string{two.ID, one.ID, two.ID}, Blocks: []roster.BlockSpec{block("three", "3")}}))(t)
	blocks := must(r.AgentBlocks(ctx, ag.ID))(t)
	if diff := cmp.Diff([]string{"two=2", "one=1", "three=3"}, labels(blocks)); diff != "" || blocks[0].ID != two.ID {
		t.Error(diff)
	}
	if got := d.body(t, ag.ID, "system/two.md"); got != "2" {
		t.Errorf("file %q", got)
	}
	for name, spec := range map[string]roster.AgentSpec{
		"label twice": {BlockIDs: []string{one.ID}, Blocks: []roster.BlockSpec{block("one", "")}},
		"unknown":     {BlockIDs: []string{one.ID, "block-none"}},
	} {
		_, err := r.CreateAgent(ctx, spec)
		if code := agent.CodeOf(err); code != agent.CodeConflict && code != agent.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(must(d.store.Agents(ctx, store.AgentFilter{}))(t)); n != 1 {
		t.Errorf("%d agents", n)
	}
	// The agent's own blocks go with it, the others stay.
	if err := r.DeleteAgent(ctx, ag.ID); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one=1", "two=2"}, labels(must(r.Blocks(ctx, store.BlockFilter{Page: store.Page{Asc: true}}))(t))); diff != "" {
		t.Error(diff)
	}
}

func TestSharedBlock(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	b := must(r.CreateBlock(ctx, block("team", "v1")))(t)
	all := newAgents(t, r, 3, b.ID)
	everywhere := func(path, want string) {
		t.Helper()
		for _, ag := range all {
			if got := d.body(t, ag.ID, path); got != want {
				t.Errorf("%s of %s is %q, want %q", path, ag.ID, got, want)
			}
			if got := must(r.AgentBlock(ctx, ag.ID, strings.TrimSuffix(strings.TrimPrefix(path, "system/"), ".md")))(t); got.Value != want || got.ID != b.ID {
				t.Errorf("%+v", got)
			}
		}
	}
	everywhere("system/team.md", "v1")
	must(r.UpdateBlock(ctx, b.ID, roster.BlockPatch{Value: ptr("v2"), ReadOnly: ptr(true)}))(t)
	everywhere("system/team.md", "v2")
	must(r.UpdateAgentBlock(ctx, all[2].ID, "team", roster.BlockPatch{Value: ptr("v3"), ReadOnly: ptr(false)}))(t)
	everywhere("system/team.md", "v3")
	heads := must(d.store.MemoryHeads(ctx))(t)

	// An agent changes its file: the others see the row at once, their files follow.
	d.edit(t, all[1].ID, file("system/team.md", "v4"))
	must(r.AgentBlocks(ctx, all[1].ID))(t)
	if got := must(r.AgentBlock(ctx, all[0].ID, "team"))(t); got.Value != "v4" || got.Version != 4 {
		t.Errorf("%+v", got)
	}
	serve(t, r)
	eventually(t, func() bool {
		return d.body(t, all[0].ID, "system/team.md") == "v4" && d.body(t, all[2].ID, "system/team.md") == "v4"
	})
	everywhere("system/team.md", "v4")
	if now := must(d.store.MemoryHeads(ctx))(t); now[all[0].ID] == heads[all[0].ID] {
		t.Error("the file of another agent was not committed")
	}

	// A rename goes everywhere.
	must(r.UpdateBlock(ctx, b.ID, roster.BlockPatch{Label: ptr("crew")}))(t)
	everywhere("system/crew.md", "v4")
	if got := d.body(t, all[2].ID, "system/team.md"); got != "" {
		t.Errorf("the old file is left: %q", got)
	}
	// One that meets another file of that name leaves it alone.
	d.edit(t, all[0].ID, file("system/mine.md", "mine"))
	text := must(d.memory.Snapshot(ctx, all[1].ID, ""))(t).File("system/crew.md").Text
	d.edit(t, all[1].ID, gone("system/crew.md"), file("system/mine.md", text))
	must(r.AgentBlocks(ctx, all[1].ID))(t)
	eventually(t, func() bool { return d.body(t, all[2].ID, "system/mine.md") == "v4" })
	if d.body(t, all[0].ID, "system/mine.md") != "mine" || d.body(t, all[0].ID, "system/crew.md") != "v4" {
		t.Error("a file was overwritten or lost")
	}
	must(r.UpdateBlock(ctx, b.ID, roster.BlockPatch{Value: ptr("v5")}))(t)
	eventually(t, func() bool {
		return d.body(t, all[0].ID, "system/crew.md") == "v5" && len(must(d.store.PendingLinks(ctx))(t)) == 0
	})

	// One agent lets go of it.
	d.edit(t, all[2].ID, gone("system/mine.md"))
	if n := len(must(r.AgentBlocks(ctx, all[2].ID))(t)); n != 0 {
		t.Errorf("%d blocks", n)
	}
	if got := d.body(t, all[1].ID, "system/mine.md"); got != "v5" {
		t.Errorf("file of another agent %q", got)
	}
	// Deleted, it is gone at once, with its files.
	if err := r.DeleteBlock(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if d.body(t, all[1].ID, "system/mine.md") != "" || d.body(t, all[0].ID, "system/crew.md") != "" || d.body(t, all[0].ID, "system/mine.md") != "mine" {
		t.Error("files of the deleted block are left, or others are gone")
	}
	if n := len(must(d.store.BlockLinks(ctx, b.ID))(t)); n != 0 {
		t.Errorf("%d links are left", n)
	}
}

// serve runs Serve until the test ends, before the store is closed.
func serve(t *testing.T, r *roster.Roster) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Serve(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// TestBlockJobsOutliveTheProcess: what a crash leaves at each point is put right by
// the next start, from the rows alone.
func TestBlockJobsOutliveTheProcess(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	b, doomed := must(r.CreateBlock(ctx, block("team", "v1")))(t), must(r.CreateBlock(ctx, block("doomed", "x")))(t)
	all := newAgents(t, r, 4, b.ID, doomed.ID)
	late := must(r.CreateBlock(ctx, block("late", "l")))(t)

	// Attached, not written yet.
	must(d.store.ChangeCoreMemory(ctx, all[0].ID, func(c *store.CoreMemory) error {
		c.Links = append(c.Links, &store.BlockLink{Block: late, Label: "late", AttachedAt: time.Now()})
		return nil
	}))(t)
	// Changed, and of the four files one is written but not noted, one was about to be.
	next := must(d.store.UpdateBlock(ctx, b.ID, func(b *agent.Block) error { b.Value = "v2"; return nil }))(t)
	text := "---\ndescription: Memory block team\n---\nv2"
	for _, ag := range all[1:3] {
		must(d.store.ChangeCoreMemory(ctx, ag.ID, func(c *store.CoreMemory) error {
			for _, l := range c.Links {
				if l.Block.ID == b.ID {
					l.NextDigest, l.NextVersion = digestOf(text), next.Version
				}
			}
			return nil
		}))(t)
	}
	d.edit(t, all[1].ID, file("system/team.md", text))
	// Meanwhile the row went on: the file that was written must not undo it.
	must(d.store.UpdateBlock(ctx, b.ID, func(b *agent.Block) error { b.Value = "v3"; return nil }))(t)
	// Deleted, its files not removed yet.
	if err := d.store.DeleteBlock(ctx, doomed.ID); err != nil {
		t.Fatal(err)
	}
	// Made by a shell while nobody looked.
	shell(t, d.memory.Dir(all[3].ID), "echo hi > system/note.md && git add -A && git commit -qm note")

	serve(t, r)
	eventually(t, func() bool { return len(must(d.store.PendingLinks(ctx))(t)) == 0 })
	for _, ag := range all {
		if team, gone := d.body(t, ag.ID, "system/team.md"), d.body(t, ag.ID, "system/doomed.md"); team != "v3" || gone != "" {
			t.Errorf("team %q, doomed %q", team, gone)
		}
	}
	if got := d.body(t, all[0].ID, "system/late.md"); got != "l" {
		t.Errorf("late %q", got)
	}
	if got := must(r.Block(ctx, b.ID))(t); got.Value != "v3" || got.Version != 3 {
		t.Errorf("%+v", got)
	}
	eventually(t, func() bool {
		blocks := must(d.store.Blocks(ctx, store.BlockFilter{AgentID: all[3].ID, Label: "note"}))(t)
		return len(blocks) == 1 && blocks[0].Value == "hi\n"
	})
	// A file that cannot be written now is tried again, and fails nobody.
	path := filepath.Join(d.memory.Dir(all[2].ID), "system", "team.md")
	clean := must(os.ReadFile(path))(t)
	if err := os.WriteFile(path, []byte("draft"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(r.UpdateAgentBlock(ctx, all[0].ID, "team", roster.BlockPatch{Value: ptr("v4")}))(t)
	if got := must(r.AgentBlock(ctx, all[2].ID, "team"))(t); got.Value != "v4" {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(path, clean, 0o600); err != nil {
		t.Fatal(err)
	}
	r.MemoryChanged(all[2].ID)
	eventually(t, func() bool { return d.body(t, all[2].ID, "system/team.md") == "v4" })
}

// TestConcurrentChanges: whoever comes last wins, and all files say the same.
func TestConcurrentChanges(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	b := must(r.CreateBlock(ctx, block("team", "v0")))(t)
	all := newAgents(t, r, 3, b.ID)
	serve(t, r)
	var wg sync.WaitGroup
	for i, ag := range all {
		wg.Go(func() {
			for k := range 4 {
				if _, err := r.UpdateAgentBlock(ctx, ag.ID, "team", roster.BlockPatch{Value: ptr(strings.Repeat("x", 1+10*i+k))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool { return len(must(d.store.PendingLinks(ctx))(t)) == 0 })
	want := must(r.Block(ctx, b.ID))(t).Value
	if want == "v0" {
		t.Error("nothing was changed")
	}
	for _, ag := range all {
		if got := d.body(t, ag.ID, "system/team.md"); got != want {
			t.Errorf("%q, the row says %q", got, want)
		}
	}
}

func shell(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// digestOf is how the rows tell files apart.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
