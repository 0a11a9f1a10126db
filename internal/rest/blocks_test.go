package rest_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/client"
	"mneme/internal/memory"
	"mneme/protocol"
)

// block makes a block that is attached to nobody and returns its id.
func (r *rig) block(label, value string) string {
	r.t.Helper()
	return text(r.post("/v1/blocks/", map[string]any{"label": label, "value": value})["id"])
}

// file is the body of the memory file of an agent's block.
func (r *rig) file(agentID, label string) string {
	r.t.Helper()
	s, err := r.Memory.Snapshot(r.t.Context(), agentID, "")
	if err != nil {
		r.t.Fatal(err)
	}
	f := s.File("system/" + label + ".md")
	if f == nil {
		return "(none)"
	}
	return f.Body
}

func TestBlockCreate(t *testing.T) {
	r := start(t, nil)
	got := r.do("POST", "/v1/blocks/", map[string]any{
		"label": "human", "value": "Name: Bo\x00", "description": "d", "limit": 50, "read_only": true, "metadata": map[string]any{"k": 1.0},
		"tags": []string{"a", "b"}, "hidden": false, "is_template": true, "template_name": "t", "project_id": "p", "entity_id": "e",
		"preserve_on_migration": true, "unheard_of": 1,
	}).fits().object()
	want := map[string]any{
		"id": got["id"], "label": "human", "value": "Name: Bo", "description": "d", "limit": 50.0, "read_only": true,
		"metadata": map[string]any{"k": 1.0}, "tags": []any{"a", "b"}, "hidden": false, "is_template": true, "template_name": "t",
		"project_id": "p", "template_id": nil, "base_template_id": nil, "deployment_id": nil, "entity_id": "e", "preserve_on_migration": true,
		"created_by_id": nil, "last_updated_by_id": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again := r.do("GET", "/v1/blocks/"+text(got["id"]), nil).fits().object(); !cmp.Equal(again, got) {
		t.Errorf("read again: %s", cmp.Diff(got, again))
	}
	got = r.post("/v1/blocks", map[string]any{"label": "x/y", "value": nil})
	for field, value := range map[string]any{"label": "x/y", "value": "", "limit": 100000.0, "metadata": map[string]any{}, "tags": []any{}, "description": nil, "hidden": nil} {
		if diff := cmp.Diff(value, got[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	for label, want := range map[string]string{"system/human.md": "human", "a b": "a b", "人/é": "人/é"} {
		if got := r.post("/v1/blocks", map[string]any{"label": label, "value": ""})["label"]; got != want {
			t.Errorf("label %q became %q, want %q", label, got, want)
		}
	}
}

func TestBlockRefusals(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{"memory_blocks": []any{map[string]any{"label": "human", "value": "x"}}})
	free, other := r.block("free", "v"), r.block("human", "another")
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		text         string
	}{
		{"POST", "/v1/blocks", `{"value":"x"}`, 422, "body.label: Field required"},
		{"POST", "/v1/blocks", `{"label":"x"}`, 422, "body.value: Field required"},
		{"POST", "/v1/blocks", `{"label":"","value":"x"}`, 422, "body.label"},
		{"POST", "/v1/blocks", `{"label":"../x","value":"x"}`, 422, "body.label"},
		{"POST", "/v1/blocks", `{"label":"a\\b","value":"x"}`, 422, "body.label"},
		{"POST", "/v1/blocks", `{"label":"x","value":5}`, 422, "body.value: Input should be a string, not number"},
		{"POST", "/v1/blocks", `{"label":"x","value":"x","limit":0}`, 422, "body.limit"},
		{"POST", "/v1/blocks", `{"label":"x","value":"x","tags":"t"}`, 422, "body.tags"},
		{"POST", "/v1/blocks", `{"label":"x","value":"abcd","limit":3}`, 400, "more than its limit of 3"},
		{"POST", "/v1/blocks", map[string]any{"label": "x", "value": strings.Repeat("x", 100_001)}, 400, "more than its limit of 100000"},
		{"GET", "/v1/blocks/block-" + someID, nil, 404, "block-" + someID},
		{"GET", "/v1/blocks/x", nil, 422, `"examples":["block-`},
		{"PATCH", "/v1/blocks/block-" + someID, "{}", 404, "block-" + someID},
		{"PATCH", "/v1/blocks/" + free, `{"limit":0}`, 422, "body.limit"},
		{"PATCH", "/v1/blocks/" + free, `{"value":"` + strings.Repeat("x", 100_001) + `"}`, 400, "more than its limit"},
		{"PATCH", "/v1/blocks/" + free, `{"label":".."}`, 422, "body.label"},
		{"DELETE", "/v1/blocks/block-" + someID, nil, 404, "block-" + someID},
		{"GET", "/v1/blocks/block-" + someID + "/agents", nil, 404, "block-" + someID},
		{"GET", "/v1/blocks/?connected_to_agents_count_gt=x", nil, 422, "query.connected_to_agents_count_gt"},
		{"GET", "/v1/blocks/?connected_to_agents_count_eq=1&connected_to_agents_count_eq=x", nil, 422, "query.connected_to_agents_count_eq"},
		{"GET", "/v1/blocks/?after=block-" + someID, nil, 404, "block-" + someID},
		{"GET", "/v1/agents/" + id + "/core-memory/blocks/nobody", nil, 404, `nobody`},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/nobody", `{"value":"x"}`, 404, "nobody"},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/human", `{"value":[]}`, 422, "body.value"},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/human", `{"limit":2,"value":"abc"}`, 400, "more than its limit of 2"},
		{"GET", "/v1/agents/agent-" + someID + "/core-memory/blocks", nil, 404, "Agent not found"},
		{"GET", "/v1/agents/" + id + "/core-memory/blocks?after=block-" + someID, nil, 404, "cursor"},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/attach/block-" + someID, nil, 404, "block-" + someID},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/attach/x", nil, 422, "path.block_id"},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/attach/" + other, nil, 409, "human"},
		{"PATCH", "/v1/agents/" + id + "/core-memory/blocks/detach/" + free, nil, 404, free},
		{"PATCH", "/v1/agents/agent-" + someID + "/core-memory/blocks/attach/" + free, nil, 404, "Agent not found"},
		{"POST", "/v1/agents", `{"memory_blocks":[{"label":"a","value":"x"},{"label":"a","value":"y"}]}`, 409, `\"a\"`},
		{"POST", "/v1/agents", `{"memory_blocks":[{"label":"a","value":"x"},{"label":"system/a.md","value":"y"}]}`, 409, "a"},
		{"POST", "/v1/agents", map[string]any{"memory_blocks": []any{map[string]any{"label": "human", "value": ""}}, "block_ids": []string{other}}, 409, "human"},
		{"POST", "/v1/agents", `{"memory_blocks":[{"label":"a","value":"x"},{"label":"/","value":"y"}]}`, 422, "body.memory_blocks.1.label"},
		{"POST", "/v1/agents", `{"memory_blocks":[{"value":"x"}]}`, 422, "body.memory_blocks.0.label: Field required"},
		{"POST", "/v1/agents", `{"memory_blocks":[{"label":"a","value":1}]}`, 422, "body.memory_blocks.value: Input should be a string"},
		{"POST", "/v1/agents", `{"memory_blocks":[{"label":"a","value":"abc","limit":2}]}`, 400, "more than its limit of 2"},
		{"POST", "/v1/agents", `{"block_ids":["block-` + someID + `"]}`, 404, "block-" + someID},
		{"POST", "/v1/agents", `{"block_ids":["x"]}`, 422, "body.block_ids.0"},
		{"PATCH", "/v1/agents/" + id, `{"block_ids":["block-` + someID + `"]}`, 404, "block-" + someID},
	} {
		resp := r.do(c.method, c.path, c.body)
		if resp.Status != c.status || !strings.Contains(string(resp.Body), c.text) {
			t.Errorf("%s %s %.80v: %d %s, want %d with %q", c.method, c.path, c.body, resp.Status, resp.Body, c.status, c.text)
		}
	}
	// Nothing of it was done.
	if list := r.do("GET", "/v1/agents/", nil).list(); len(list) != 1 {
		t.Errorf("%d agents", len(list))
	}
	if got := r.file(id, "human"); got != "x" {
		t.Errorf("the block is %q", got)
	}
}

func TestBlockPatch(t *testing.T) {
	r := start(t, nil)
	id := r.block("free", "v")
	shared := r.agent(map[string]any{"memory_blocks": []any{map[string]any{"label": "human", "value": "v"}}})
	paths := map[string]string{
		"unattached": "/v1/blocks/" + id,
		"attached":   "/v1/agents/" + shared + "/core-memory/blocks/human",
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.patch(path, map[string]any{"description": "d", "metadata": map[string]any{"k": 1.0}, "tags": []string{"t"}, "project_id": "p"})
			before := r.get(path)
			changed := func(body map[string]any, fields ...string) map[string]any {
				t.Helper()
				after := r.do("PATCH", path, body).fits().object()
				for field := range before {
					if cmp.Equal(before[field], after[field]) == slices.Contains(fields, field) {
						t.Errorf("%v: %s was %v and is %v", body, field, before[field], after[field])
					}
				}
				before = after
				return after
			}
			changed(map[string]any{})
			changed(map[string]any{"value": nil, "label": nil, "limit": nil, "read_only": nil, "is_template": nil, "unheard_of": 1})
			changed(map[string]any{"value": "new\n\nvalue \n"}, "value")
			changed(map[string]any{"description": nil}, "description")
			changed(map[string]any{"metadata": nil, "tags": nil}, "metadata", "tags")
			changed(map[string]any{"limit": 500}, "limit")
			changed(map[string]any{"project_id": nil, "is_template": true}, "project_id", "is_template")
			changed(map[string]any{"hidden": true}, "hidden")
			changed(map[string]any{"read_only": true}, "read_only")
			changed(map[string]any{"read_only": false, "value": ""}, "read_only", "value")
			if again := r.get(path); !cmp.Equal(again, before) {
				t.Errorf("read again: %s", cmp.Diff(before, again))
			}
		})
	}
	r.t = t
	// A rename moves the file and keeps the id.
	before := r.get(paths["attached"])
	r.patch(paths["attached"], map[string]any{"label": "person", "value": "p"})
	after := r.get("/v1/agents/" + shared + "/core-memory/blocks/person")
	if after["id"] != before["id"] || r.file(shared, "person") != "p" || r.file(shared, "human") != "(none)" {
		t.Errorf("%v, files %q and %q", after, r.file(shared, "person"), r.file(shared, "human"))
	}
	r.do("GET", paths["attached"], nil).want(404)
}

// TestAgentBlocks: an attached block is the file, byte for byte.
func TestAgentBlocks(t *testing.T) {
	r := start(t, nil)
	value := "Name: Bo\r\n\n  #x  \u2028😀 "
	ag := r.do("POST", "/v1/agents/", map[string]any{"memory_blocks": []any{
		map[string]any{"label": "human", "value": value, "description": "who", "limit": 900, "tags": []string{"t"}, "metadata": map[string]any{"k": "v"}},
		map[string]any{"label": "deep/down", "value": "d", "read_only": true},
	}}).fits().object()
	id := text(ag["id"])
	blocks := ag["blocks"].([]any)
	if len(blocks) != 2 || !cmp.Equal(ag["memory"].(map[string]any)["blocks"], any(blocks)) {
		t.Fatalf("blocks %v", blocks)
	}
	if got := r.file(id, "human"); got != value {
		t.Errorf("the file is %q", got)
	}
	list := r.do("GET", "/v1/agents/"+id+"/core-memory/blocks", nil).fits().list()
	if len(list) != 2 || list[0]["label"] != "human" || list[1]["label"] != "deep/down" || !strings.HasPrefix(text(list[0]["id"]), "block-") {
		t.Errorf("%v", list)
	}
	human := r.do("GET", "/v1/agents/"+id+"/core-memory/blocks/human", nil).fits().object()
	for field, want := range map[string]any{"value": value, "description": "who", "limit": 900.0, "tags": []any{"t"}, "metadata": map[string]any{"k": "v"}, "read_only": false} {
		if !cmp.Equal(human[field], want) {
			t.Errorf("%s is %v, want %v", field, human[field], want)
		}
	}
	// The label is one segment of the path, escaped by the client.
	deep := r.get("/v1/agents/" + id + "/core-memory/blocks/" + url.PathEscape("deep/down"))
	if deep["value"] != "d" || deep["read_only"] != true || deep["id"] != list[1]["id"] {
		t.Errorf("%v", deep)
	}
	r.get("/v1/agents/" + id + "/core-memory/blocks/" + url.PathEscape("system/deep/down.md"))
	// The owner may change what the agent may not.
	r.patch("/v1/agents/"+id+"/core-memory/blocks/deep%2Fdown/", map[string]any{"value": "changed"})
	if got := r.file(id, "deep/down"); got != "changed" {
		t.Errorf("the file is %q", got)
	}
	// By its id it is the same block.
	if by := r.get("/v1/blocks/" + text(human["id"])); !cmp.Equal(by, human) {
		t.Errorf("by id: %s", cmp.Diff(human, by))
	}
	r.patch("/v1/blocks/"+text(human["id"]), map[string]any{"value": "by id"})
	if got := r.file(id, "human"); got != "by id" {
		t.Errorf("the file is %q", got)
	}
	// What another door writes shows here, and a new file becomes a block.
	_, _, err := r.Memory.Write(t.Context(), memory.Author{}, id, []memory.FileChange{
		{Path: "system/human.md", Content: []byte("---\ndescription: who\n---\nby file")},
		{Path: "system/fresh.md", Content: []byte("---\ndescription: f\n---\nnew")},
	}, "from elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.get("/v1/blocks/" + text(human["id"])); got["value"] != "by file" {
		t.Errorf("%v", got)
	}
	if got := r.get("/v1/agents/" + id + "/core-memory/blocks/fresh"); got["value"] != "new" || got["description"] != "f" {
		t.Errorf("%v", got)
	}
	for query, want := range map[string]string{
		"": "[human deep/down fresh]", "?order=desc": "[fresh deep/down human]", "?limit=1": "[human]", "?limit=0": "[]",
		"?after=" + text(human["id"]): "[deep/down fresh]", "?order=desc&after=" + text(list[1]["id"]): "[human]",
		"?limit=1&before=" + text(list[1]["id"]): "[human]",
	} {
		labels := []string{}
		for _, b := range r.do("GET", "/v1/agents/"+id+"/core-memory/blocks"+query, nil).list() {
			labels = append(labels, text(b["label"]))
		}
		if got := fmt.Sprint(labels); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestBlocksAtBothDoors: blocks of an agent that the App Server made.
func TestBlocksAtBothDoors(t *testing.T) {
	r := start(t, nil)
	c, err := client.Dial(t.Context(), r.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	made, err := client.Call(t.Context(), c, &protocol.AgentCreate{Body: protocol.AgentBody{
		MemoryBlocks: []protocol.MemoryBlock{{Label: "persona", Value: "I am."}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ag := r.do("GET", "/v1/agents/"+made.Agent.ID+"?include=agent.blocks", nil).fits().object()
	if blocks := ag["blocks"].([]any); len(blocks) != 1 || blocks[0].(map[string]any)["value"] != "I am." {
		t.Errorf("%v", ag["blocks"])
	}
}

func TestAttachAndDetach(t *testing.T) {
	r := start(t, nil)
	a, b := r.agent(nil), r.agent(map[string]any{"hidden": true})
	id := r.block("team", "us")
	for _, ag := range []string{a, b, a} {
		got := r.do("PATCH", "/v1/agents/"+ag+"/core-memory/blocks/attach/"+id, nil).fits().object()
		if blocks := got["blocks"].([]any); len(blocks) != 1 || blocks[0].(map[string]any)["id"] != id {
			t.Errorf("blocks %v", blocks)
		}
		if got := r.file(ag, "team"); got != "us" {
			t.Errorf("the file is %q", got)
		}
	}
	if got := ids(r.do("GET", "/v1/blocks/"+id+"/agents", nil).fits().list()); !cmp.Equal(got, []string{b, a}) {
		t.Errorf("attached to %v, want %v", got, []string{b, a})
	}
	if got := ids(r.do("GET", "/v1/blocks/"+id+"/agents?limit=1&order=asc&after="+a, nil).list()); !cmp.Equal(got, []string{b}) {
		t.Errorf("second page %v", got)
	}
	// A change by any way is in all agents.
	r.patch("/v1/agents/"+b+"/core-memory/blocks/team", map[string]any{"value": "all of us"})
	waitFor(t, "the change reaches the other agent", func() bool { return r.file(a, "team") == "all of us" })
	if got := r.get("/v1/agents/" + a + "/core-memory/blocks/team")["value"]; got != "all of us" {
		t.Errorf("%v", got)
	}
	r.do("PATCH", "/v1/agents/"+b+"/core-memory/blocks/detach/"+id, nil).fits()
	if got := r.file(b, "team"); got != "(none)" {
		t.Errorf("the file is still there: %q", got)
	}
	r.do("PATCH", "/v1/agents/"+b+"/core-memory/blocks/detach/"+id, nil).want(404)
	r.patch("/v1/blocks/"+id, map[string]any{"value": "one left"})
	waitFor(t, "the change reaches the agent", func() bool { return r.file(a, "team") == "one left" })

	// The whole list at once.
	second := r.block("second", "2")
	r.patch("/v1/agents/"+a, map[string]any{"block_ids": []string{second}})
	if r.file(a, "team") != "(none)" || r.file(a, "second") != "2" {
		t.Errorf("files %q and %q", r.file(a, "team"), r.file(a, "second"))
	}
	// Gone everywhere.
	if body := string(r.do("DELETE", "/v1/blocks/"+second, nil).want(200).Body); body != "null" {
		t.Errorf("answer %s", body)
	}
	r.do("GET", "/v1/blocks/"+second, nil).want(404)
	r.do("DELETE", "/v1/blocks/"+second, nil).want(404)
	waitFor(t, "its file goes", func() bool { return r.file(a, "second") == "(none)" })
	if list := r.do("GET", "/v1/agents/"+a+"/core-memory/blocks", nil).list(); len(list) != 0 {
		t.Errorf("%v", list)
	}
	// A block outlives its agents.
	third := r.block("third", "3")
	c := r.agent(map[string]any{"block_ids": []string{third}})
	if r.file(c, "third") != "3" {
		t.Errorf("the file is %q", r.file(c, "third"))
	}
	r.do("DELETE", "/v1/agents/"+c, nil).want(200)
	r.do("GET", "/v1/blocks/"+third, nil).want(200, `"value":"3"`)
}

func TestBlockListFilters(t *testing.T) {
	r := start(t, nil)
	made := map[string]string{}
	add := func(b map[string]any) string {
		id := text(r.post("/v1/blocks/", b)["id"])
		made[id] = text(b["label"])
		return id
	}
	one := add(map[string]any{"label": "One", "value": "Alpha", "tags": []string{"x", "y"}, "description": "Deep"})
	add(map[string]any{"label": "two", "value": "beta", "tags": []string{"x"}, "project_id": "p"})
	add(map[string]any{"label": "three", "value": "alphabet", "tags": []string{"y"}, "is_template": true, "template_name": "n"})
	add(map[string]any{"label": "four", "value": "alpha", "hidden": true})
	r.agent(map[string]any{"block_ids": []string{one}})
	for query, want := range map[string]string{
		"":                                  "[One two three]",
		"?order=desc":                       "[three two One]",
		"?limit=2":                          "[One two]",
		"?limit=0":                          "[]",
		"?label=One":                        "[One]",
		"?label=one":                        "[]",
		"?label_search=T":                   "[two three]",
		"?value_search=ALPHA":               "[One three]",
		"?value_search=alpha&limit=1":       "[One]",
		"?description_search=deep":          "[One]",
		"?tags=x":                           "[One two]",
		"?tags=x&tags=y":                    "[One two three]",
		"?tags=x,y&match_all_tags=true":     "[One]",
		"?templates_only=true":              "[three]",
		"?name=n":                           "[three]",
		"?project_id=p":                     "[two]",
		"?identity_id=identity-1":           "[]",
		"?identifier_keys=k":                "[]",
		"?connected_to_agents_count_gt=0":   "[One]",
		"?connected_to_agents_count_lt=1":   "[two three]",
		"?connected_to_agents_count_eq=1":   "[One]",
		"?connected_to_agents_count_eq=0,1": "[One two three]",
		"?order_by=created_at":              "[One two three]",
	} {
		labels := []string{}
		for _, id := range ids(r.do("GET", "/v1/blocks/"+query, nil).fits().list()) {
			labels = append(labels, made[id])
		}
		if got := fmt.Sprint(labels); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestBlockWritesAtOnce: writers of one agent's blocks do not lose each other's
// changes.
func TestBlockWritesAtOnce(t *testing.T) {
	r := start(t, nil)
	var blocks []any
	for i := range 6 {
		blocks = append(blocks, map[string]any{"label": fmt.Sprint("b", i), "value": ""})
	}
	id := r.agent(map[string]any{"memory_blocks": blocks})
	shared := r.block("shared", "")
	others := []string{r.agent(map[string]any{"block_ids": []string{shared}}), r.agent(map[string]any{"block_ids": []string{shared}})}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for n := range 5 {
				r.do("PATCH", fmt.Sprintf("/v1/agents/%s/core-memory/blocks/b%d", id, i), map[string]any{"value": fmt.Sprint(n)}).want(200)
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			r.do("PATCH", "/v1/agents/"+others[i%2]+"/core-memory/blocks/shared", map[string]any{"value": fmt.Sprint("v", i)}).want(200)
		})
	}
	wg.Wait()
	for i := range 6 {
		if got := r.file(id, fmt.Sprint("b", i)); got != "4" {
			t.Errorf("block %d is %q", i, got)
		}
	}
	waitFor(t, "the shared block is the same everywhere", func() bool {
		now := text(r.get("/v1/blocks/" + shared)["value"])
		return r.file(others[0], "shared") == now && r.file(others[1], "shared") == now
	})
}
