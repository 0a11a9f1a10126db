package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"mneme/internal/memory"
)

func TestMemoryTools(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.agent("vole")
		if o := r.must("memory_get", map[string]any{"agent_id": "vole"}); o.get(t, "commit") != nil || fmt.Sprint(o.get(t, "blocks")) != "[]" {
			t.Errorf("an empty memory: %s", o.raw)
		}
		if o := r.must("memory_search", map[string]any{"agent_id": "vole", "query": "anything"}); o.text(t, "answer") != "No matching memory." {
			t.Errorf("search of an empty memory: %s", o.raw)
		}

		const text = "---\nThe grey cat sleeps\n---\non the *oven*.\n\tTabs survive; so do blanks at the end. \n"
		saved := r.must("memory_save", map[string]any{"agent_id": "vole", "text": text, "tags": []string{"cat", "cat", " house "}})
		path := saved.text(t, "path")
		if saved.get(t, "created") != true || saved.text(t, "agent_id") != id || !strings.HasPrefix(saved.text(t, "id"), "mem-") ||
			fmt.Sprint(saved.get(t, "tags")) != "[cat house]" || !strings.HasPrefix(path, "saved/") {
			t.Errorf("saved %s", saved.raw)
		}
		again := r.must("memory_save", map[string]any{"agent_id": id, "text": text + "\n", "tags": []string{"house", "new"}})
		if again.get(t, "created") != false || again.text(t, "path") != path || fmt.Sprint(again.get(t, "tags")) != "[cat house new]" {
			t.Errorf("saved again %s", again.raw)
		}
		same := r.must("memory_save", map[string]any{"agent_id": id, "text": text})
		if same.text(t, "commit") != again.text(t, "commit") {
			t.Errorf("a commit for nothing: %s", same.raw)
		}
		snap, err := r.app.Memory.Snapshot(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if f := snap.File(path); f == nil || f.Body != text || f.FrontText("source") != "mcp" {
			t.Errorf("the file is %+v", f)
		}

		found := r.must("memory_search", map[string]any{"agent_id": id, "query": "Where does the cat like to sleep?"})
		var results []struct {
			ID, Path, URI, Snippet string
			Tags                   []string
		}
		raw, _ := json.Marshal(found.get(t, "results"))
		if err := json.Unmarshal(raw, &results); err != nil {
			t.Fatal(err)
		}
		if len(results) != 1 || results[0].Path != path || results[0].URI != "letta://agents/"+id+"/memory/"+path || !strings.Contains(found.text(t, "answer"), path) {
			t.Errorf("found %s", found.raw)
		}
		if results[0].ID != saved.text(t, "id") {
			t.Errorf("the result's id is %q", results[0].ID)
		}
		if o := r.must("memory_search", map[string]any{"agent_id": id, "query": "Where does the cat like to sleep?"}); o.raw != found.raw {
			t.Errorf("two answers to one question:\n%s\n%s", found.raw, o.raw)
		}
		if o := r.must("memory_search", map[string]any{"agent_id": id, "query": "zzzzqqqq"}); o.text(t, "answer") != "No matching memory." || o.get(t, "top_k") != 5.0 {
			t.Errorf("nothing to be found: %s", o.raw)
		}

		deleted := r.must("memory_delete", map[string]any{"agent_id": id, "id": saved.text(t, "id")})
		if deleted.text(t, "path") != path || deleted.text(t, "ref") != saved.text(t, "id") {
			t.Errorf("deleted %s", deleted.raw)
		}
		if o := r.tool("memory_delete", map[string]any{"agent_id": id, "id": saved.text(t, "id")}); o.code() != "memory_item_not_found" {
			t.Errorf("deleted twice: %s", o.raw)
		}
		if data, err := r.app.Memory.At(t.Context(), id, path, again.text(t, "commit")); err != nil || !strings.Contains(string(data), "grey cat") {
			t.Errorf("the commit before no longer holds it: %v", err)
		}
	})
}

func TestMemoryDelete(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.agent("vole")
		write := func(path, text string) {
			t.Helper()
			_, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: path, Content: []byte(text), Force: true}}, "test")
			if err != nil {
				t.Fatal(err)
			}
		}
		write("system/human.md", "---\ndescription: who\n---\n- likes Tea\n- owns a boat\n- likes coffee\n")
		write("system/rules.md", "---\ndescription: rules\nread_only: true\n---\nNever lie about boxes.\n")
		write("notes/a.md", "first paragraph\n\nsecond about tractors\n")
		r.must("memory_save", map[string]any{"agent_id": id, "text": "the tractor is red"})

		for ref, code := range map[string]string{
			"likes": "memory_item_ambiguous", "tractor": "memory_item_ambiguous", "nothing of this": "memory_item_not_found",
			"Never lie": "memory_read_only", "rules": "memory_read_only", "../../etc/passwd": "invalid_request", "/etc/passwd": "invalid_request",
			".git/config": "invalid_request", "mem-0123456789abcdef": "memory_item_not_found",
		} {
			if o := r.tool("memory_delete", map[string]any{"agent_id": id, "id": ref}); o.code() != code {
				t.Errorf("%q: %s; want %s", ref, o.raw, code)
			}
		}
		r.must("memory_delete", map[string]any{"agent_id": id, "id": "LIKES tea"})
		snap, err := r.app.Memory.Snapshot(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if f := snap.File("system/human.md"); f.Body != "- owns a boat\n- likes coffee\n" || f.Description != "who" {
			t.Errorf("one item is gone: %q", f.Text)
		}
		r.must("memory_delete", map[string]any{"agent_id": id, "id": "about tractors"})
		r.must("memory_delete", map[string]any{"agent_id": id, "id": "tractor is RED"})
		r.must("memory_delete", map[string]any{"agent_id": id, "id": "human"})
		o := r.must("memory_delete", map[string]any{"agent_id": id, "id": "notes/a.md"})
		if !strings.Contains(o.text(t, "detail"), "notes/a.md") {
			t.Errorf("deleted %s", o.raw)
		}
		got := r.must("memory_get", map[string]any{"agent_id": id})
		if !strings.Contains(got.raw, `"label":"rules"`) || !strings.Contains(got.raw, `"read_only":true`) && !r.stock || fmt.Sprint(got.get(t, "files")) != "[]" {
			t.Errorf("what is left: %s", got.raw)
		}
	})
}

// Saves of many callers at once are all there, each as one file.
func TestParallelWriters(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.agent("vole")
		const writers, texts = 6, 4
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range texts {
					o := r.tool("memory_save", map[string]any{"agent_id": id, "text": fmt.Sprintf("fact %d", i), "tags": []string{fmt.Sprint("by", w)}})
					if !o.OK {
						t.Errorf("writer %d: %s", w, o.raw)
						return
					}
					// A writer sees what it wrote.
					if s := r.tool("memory_search", map[string]any{"agent_id": id, "query": fmt.Sprintf("fact %d", i)}); !strings.Contains(s.raw, o.text(t, "path")) {
						t.Errorf("writer %d does not find its own text: %s", w, s.raw)
					}
				}
			})
		}
		wg.Wait()
		snap, err := r.app.Memory.Snapshot(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(snap.Files) != texts {
			t.Errorf("%d files for %d texts", len(snap.Files), texts)
		}
		for _, f := range snap.Files {
			if len(f.Tags()) != writers {
				t.Errorf("%s has the tags %v, not those of all writers", f.Path, f.Tags())
			}
		}
	})
}

func TestMemoryGetIsCut(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.agent("big")
		var changes []memory.FileChange
		for i := range 520 {
			changes = append(changes, memory.FileChange{Path: fmt.Sprintf("notes/%04d.md", i), Content: fmt.Appendf(nil, "note number %d about subject%d", i, i)})
		}
		changes = append(changes, memory.FileChange{Path: "system/long.md", Content: []byte(strings.Repeat("x", 50_000))})
		if _, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, changes, "bulk"); err != nil {
			t.Fatal(err)
		}
		o := r.must("memory_get", map[string]any{"agent_id": id})
		var contents struct {
			Blocks []struct{ Value string }
			Files  []struct{ Path string }
		}
		if err := json.Unmarshal(o.Data, &contents); err != nil {
			t.Fatal(err)
		}
		if len(contents.Files) != 500 || contents.Files[499].Path != "notes/0499.md" || o.meta["letta/total"] != 520.0 || o.meta["letta/truncated"] != true {
			t.Errorf("%d files, side facts %v", len(contents.Files), o.meta)
		}
		if len(contents.Blocks) != 1 || len(contents.Blocks[0].Value) != 50_000 {
			t.Errorf("the block was cut")
		}
		if o := r.must("memory_search", map[string]any{"agent_id": id, "query": "subject517"}); !strings.Contains(o.raw, "notes/0517.md") {
			t.Errorf("search: %s", o.raw)
		}
	})
}

func TestMemoryIndex(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.agent("vole")
		for i := range 3 {
			r.must("memory_save", map[string]any{"agent_id": id, "text": fmt.Sprintf("fact number %d", i)})
		}
		r.must("memory_delete", map[string]any{"agent_id": id, "id": "fact number 1"})
		o := r.must("memory_get", map[string]any{"agent_id": id})
		if strings.Contains(o.raw, "number 1") || !strings.Contains(o.raw, `"label":"saved-index"`) || !strings.Contains(o.raw, "fact number 2 (saved/") {
			t.Errorf("the index: %s", o.raw)
		}
	}, "MCP_MEMORY_INDEX", "true")
}
