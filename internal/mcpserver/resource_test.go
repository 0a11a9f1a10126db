package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/memory"
)

// readResource reads a resource and returns its text and media type.
func (r *rig) readResource(uri string) (text, kind string) {
	r.t.Helper()
	_, m := r.send("resources/read", map[string]any{"uri": uri})
	var result struct {
		Contents []struct{ URI, MimeType, Text, Blob string }
	}
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || len(result.Contents) != 1 || result.Contents[0].URI != uri {
		r.t.Fatalf("read %s: %s %+v", uri, m.Result, m.Error)
	}
	return result.Contents[0].Text + result.Contents[0].Blob, result.Contents[0].MimeType
}

func TestResources(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		id := r.must("agent_create", map[string]any{"name": "Ä vole/1", "human": "Owns a garden.", "description": "digs"}).text(t, "agent_id")
		saved := r.must("memory_save", map[string]any{"agent_id": id, "text": "the cat is grey"}).text(t, "path")
		png := "\x89PNG\r\n\x1a\n"
		if _, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: "pictures/a b.png", Content: []byte(png)}}, "picture"); err != nil {
			t.Fatal(err)
		}
		if text, kind := r.readResource("letta://agents"); !strings.Contains(text, id) || kind != "application/json" {
			t.Errorf("agents: %s %s", text, kind)
		}
		for _, ref := range []string{id, url.PathEscape("Ä vole/1")} {
			text, _ := r.readResource("letta://agents/" + ref)
			if !strings.Contains(text, `"description":"digs"`) || strings.Contains(text, `"system"`) || !strings.Contains(text, id) {
				t.Errorf("agent: %s", text)
			}
		}
		text, _ := r.readResource("letta://agents/" + id + "/memory")
		var tree struct {
			Commit string
			Files  []struct {
				Path, URI string
				Size      int
				UpdatedAt string `json:"updated_at"`
			}
		}
		if err := json.Unmarshal([]byte(text), &tree); err != nil {
			t.Fatal(err)
		}
		if len(tree.Files) != 3 || tree.Files[0].Path != "pictures/a b.png" || tree.Files[0].Size != len(png) || tree.Files[2].Size != 14 || len(tree.Commit) != 40 ||
			!r.stock && tree.Files[1].UpdatedAt == "" {
			t.Errorf("tree: %s", text)
		}
		if text, kind := r.readResource(tree.Files[0].URI); text != "iVBORw0KGgo=" || kind != "image/png" {
			t.Errorf("picture: %s %s", text, kind)
		}
		if text, kind := r.readResource("letta://agents/" + id + "/memory/" + saved); !strings.HasSuffix(text, "the cat is grey") || !strings.Contains(text, "source: mcp") || kind != "text/markdown" {
			t.Errorf("file: %s %s", text, kind)
		}
		if text, _ := r.readResource("letta://agents/" + id + "/history"); strings.Count(text, `"commit":`) != 3 {
			t.Errorf("history: %s", text)
		}
		if text, _ := r.readResource("letta://agents/" + id + "/history?path=system/human.md"); strings.Count(text, `"commit":`) != 1 {
			t.Errorf("history of a file: %s", text)
		}
		for _, uri := range []string{
			"letta://agents/nobody", "letta://agents/" + id + "/memory/nope.md", "letta://agents/" + id + "/memory/../../x", "letta://agents/" + id + "/nope",
			"letta://agents/" + id + "/memory/.git/config", "letta://agents/nobody/memory", "letta://other", "http://example.org/",
		} {
			_, m := r.send("resources/read", map[string]any{"uri": uri})
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(string(m.Error.Data), uri) {
				t.Errorf("%s: %s %+v", uri, m.Result, m.Error)
			}
		}
		session := r.session("2025-11-25", "")
		if m := r.last(r.legacy(session, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"letta://agents/nobody"}}`)); m.Error == nil || m.Error.Code != -32002 {
			t.Errorf("legacy: %+v", m)
		}
		if m := r.last(r.legacy(session, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"letta://nope"}}`)); m.Error == nil || m.Error.Code != -32002 {
			t.Errorf("legacy: %+v", m)
		}
	})
}

func TestListResources(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		var want []string
		want = append(want, "letta://agents")
		for i := range 3 {
			id := r.agent(fmt.Sprintf("agent %d", i))
			want = append(want, "letta://agents/"+id, "letta://agents/"+id+"/memory")
			var changes []memory.FileChange
			for n := range []int{0, 300, 10}[i] {
				path := fmt.Sprintf("notes/%03d.md", n)
				changes = append(changes, memory.FileChange{Path: path, Content: []byte("x")})
				want = append(want, "letta://agents/"+id+"/memory/"+path)
			}
			if _, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, changes, "bulk"); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		cursor, pages := "", 0
		for {
			params := map[string]any{}
			if cursor != "" {
				params["cursor"] = cursor
			}
			_, m := r.send("resources/list", params)
			var page struct {
				Resources []struct {
					URI, Name string
				}
				NextCursor string
				CacheScope string
			}
			if m.Error != nil || json.Unmarshal(m.Result, &page) != nil || page.CacheScope != "private" {
				t.Fatalf("%s %+v", m.Result, m.Error)
			}
			if len(page.Resources) > 201 {
				t.Errorf("a page of %d", len(page.Resources))
			}
			for _, res := range page.Resources {
				got = append(got, res.URI)
			}
			pages++
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || pages != 2 {
			t.Errorf("%d pages: %s", pages, diff)
		}
		for _, bad := range []string{"x", "e30", "!"} {
			if _, m := r.send("resources/list", map[string]any{"cursor": bad}); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("cursor %q: %+v", bad, m)
			}
		}
	})
}

// Whoever changes a file, subscribers hear of it, once per commit, in both eras.
func TestSubscriptions(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		t.Run(fmt.Sprintf("legacy %v", legacy), func(t *testing.T) {
			eachMode(t, nil, func(t *testing.T, r *rig) {
				id, other := r.agent("vole"), r.agent("mole")
				r.must("memory_get", map[string]any{"agent_id": id}) // a stock server's commit is known
				updated, lists := make(chan string, 100), make(chan bool, 100)
				cs := r.connect(legacy, &mcp.ClientOptions{
					ResourceUpdatedHandler:     func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
					ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { lists <- true },
				})
				human := "letta://agents/" + id + "/memory/system/human.md"
				for _, uri := range []string{human, "letta://agents/vole/memory", "letta://agents/" + other + "/memory", "letta://agents", "test://unknown"} {
					if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
						t.Fatalf("subscribe %s: %v", uri, err)
					}
				}
				time.Sleep(50 * time.Millisecond) // a modern subscription has no answer to wait for
				write := func(path, text string) {
					t.Helper()
					if _, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: path, Content: []byte(text)}}, "test"); err != nil {
						t.Fatal(err)
					}
					if r.stock { // others' changes show when the agent is read
						r.must("memory_get", map[string]any{"agent_id": id})
					}
				}
				expect := func(want ...string) {
					t.Helper()
					left := map[string]bool{}
					for _, w := range want {
						left[w] = true
					}
					for len(left) > 0 {
						select {
						case uri := <-updated:
							if !left[uri] {
								t.Errorf("heard of %s; waiting for %v", uri, left)
							}
							delete(left, uri)
						case <-time.After(patience):
							t.Fatalf("did not hear of %v", left)
						}
					}
				}
				write("system/human.md", "Owns a boat.")
				expect(human, "letta://agents/vole/memory")
				select {
				case <-lists:
				case <-time.After(patience):
					t.Error("a new file does not change the list")
				}
				if !r.stock { // it cannot tell which paths have changed
					write("notes/a.md", "x")
					expect("letta://agents/vole/memory")
				}
				r.must("memory_save", map[string]any{"agent_id": other, "text": "a fact"})
				expect("letta://agents/" + other + "/memory")
				r.must("agent_delete", map[string]any{"agent_id": other, "confirm": true})
				expect("letta://agents")
				if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: human}); err != nil {
					t.Fatal(err)
				}
				cs.Close()
				deadline := time.Now().Add(patience)
				for !legacy && r.server.Sizes().Subscriptions > 0 {
					if time.Now().After(deadline) {
						t.Fatalf("subscriptions outlive their stream: %+v", r.server.Sizes())
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		})
	}
}

func TestPrompts(t *testing.T) {
	r := start(t, nil)
	_, m := r.send("prompts/list", nil)
	var list struct {
		Prompts []struct {
			Name, Description string
			Arguments         []struct{ Name, Description string }
		}
	}
	if err := json.Unmarshal(m.Result, &list); err != nil || len(list.Prompts) != 4 {
		t.Fatalf("prompts: %s", m.Result)
	}
	for _, p := range list.Prompts {
		args := map[string]any{}
		if p.Description == "" {
			t.Errorf("%s has no description", p.Name)
		}
		for _, a := range p.Arguments {
			if a.Description == "" {
				t.Errorf("%s of %s has no description", a.Name, p.Name)
			}
			args[a.Name] = "the " + a.Name
		}
		_, got := r.send("prompts/get", map[string]any{"name": p.Name, "arguments": args})
		for name := range args {
			if got.Error != nil || !strings.Contains(string(got.Result), "the "+name) {
				t.Errorf("%s: %s", p.Name, got.Result)
			}
		}
		if len(args) > 0 {
			if _, got := r.send("prompts/get", map[string]any{"name": p.Name}); got.Error == nil || got.Error.Code != -32602 {
				t.Errorf("%s without arguments: %s", p.Name, got.Result)
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	r := start(t, nil)
	for _, name := range []string{"vole", "mole", "Violet", "vole"} {
		r.agent(name)
	}
	r.must("memory_save", map[string]any{"agent_id": "mole", "text": "a fact"})
	complete := func(ref map[string]any, name, value string, given map[string]any) []string {
		t.Helper()
		_, m := r.send("completion/complete", map[string]any{
			"ref": ref, "argument": map[string]any{"name": name, "value": value}, "context": map[string]any{"arguments": given},
		})
		var c struct {
			Completion struct{ Values []string }
		}
		if m.Error != nil || json.Unmarshal(m.Result, &c) != nil {
			t.Fatalf("%s %+v", m.Result, m.Error)
		}
		return c.Completion.Values
	}
	prompt := map[string]any{"type": "ref/prompt", "name": "recall"}
	file := map[string]any{"type": "ref/resource", "uri": "letta://agents/{agent}/memory/{+path}"}
	for _, tt := range []struct {
		ref   map[string]any
		name  string
		value string
		given map[string]any
		want  []string
	}{
		{prompt, "agent_id", "vo", nil, []string{"vole"}},
		{prompt, "agent_id", "V", nil, []string{"Violet", "vole"}},
		{file, "agent", "ole", nil, []string{"Violet", "mole", "vole"}},
		{prompt, "topic", "v", nil, []string{}},
		{file, "path", "sav", map[string]any{"agent": "mole"}, []string{"saved/"}},
		{file, "path", "", map[string]any{"agent": "nobody"}, []string{}},
		{file, "path", "", nil, []string{}},
	} {
		got := complete(tt.ref, tt.name, tt.value, tt.given)
		for i := range got {
			if strings.HasPrefix(got[i], "saved/") {
				got[i] = "saved/"
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %q: %s", tt.name, tt.value, diff)
		}
	}
}
