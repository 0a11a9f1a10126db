package rest_test

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
)

// A lister is a list that tests walk through.
type lister struct {
	name  string
	path  string // with a question mark
	asc   bool   // its default order
	order []string
	make  func(r *rig, n int, at time.Time) string // stores one and returns its id
	touch func(r *rig, id string)                  // changes one
	drop  func(r *rig, id string)
}

func listers() []lister {
	return []lister{
		{
			name: "agents", path: "/v1/agents/?", order: []string{"created_at", "updated_at", "last_run_completion"},
			make: func(r *rig, n int, at time.Time) string {
				ag := &agent.Agent{ID: agent.NewID("agent"), Name: fmt.Sprint("A", n), Model: "auto", CreatedAt: at, UpdatedAt: at}
				own := &agent.Conversation{ID: agent.NewID("conv"), AgentID: ag.ID, Own: true, CreatedAt: at, UpdatedAt: at}
				if err := r.Store.CreateAgent(r.t.Context(), ag, own); err != nil {
					r.t.Error(err)
				}
				return ag.ID
			},
			touch: func(r *rig, id string) { r.patch("/v1/agents/"+id, map[string]any{"description": time.Now().String()}) },
			drop:  func(r *rig, id string) { r.do("DELETE", "/v1/agents/"+id, nil).want(200) },
		},
		{
			name: "conversations", path: "/v1/conversations/?", order: []string{"created_at", "last_message_at", "last_run_completion"},
			make: func(r *rig, n int, at time.Time) string {
				r.t.Helper()
				conv := &agent.Conversation{ID: agent.NewID("conv"), AgentID: r.someAgent(), CreatedAt: at, UpdatedAt: at}
				if n%2 == 0 {
					conv.LastMessageAt = at
				}
				if err := r.Store.CreateConversation(r.t.Context(), conv); err != nil {
					r.t.Error(err)
				}
				return conv.ID
			},
			touch: func(r *rig, id string) {
				r.patch("/v1/conversations/"+id, map[string]any{"last_message_at": time.Now().Format(time.RFC3339Nano)})
			},
			drop: func(r *rig, id string) { r.do("DELETE", "/v1/conversations/"+id, nil).want(200) },
		},
		{
			name: "blocks", path: "/v1/blocks/?", asc: true, order: []string{"created_at"},
			make: func(r *rig, n int, at time.Time) string {
				b := &agent.Block{ID: agent.NewID("block"), Label: fmt.Sprint("b", n), Limit: 9, Version: 1, CreatedAt: at, UpdatedAt: at}
				if err := r.Store.CreateBlock(r.t.Context(), b); err != nil {
					r.t.Error(err)
				}
				return b.ID
			},
			touch: func(r *rig, id string) { r.patch("/v1/blocks/"+id, map[string]any{"description": time.Now().String()}) },
			drop:  func(r *rig, id string) { r.do("DELETE", "/v1/blocks/"+id, nil).want(200) },
		},
	}
}

// someAgent is an agent for things that need one.
func (r *rig) someAgent() string {
	r.t.Helper()
	list := r.do("GET", "/v1/agents/?limit=1&order=asc", nil).list()
	if len(list) > 0 {
		return text(list[0]["id"])
	}
	return r.agent(nil)
}

// walk pages through a list as the official client does: with the last id as after,
// or the first one as before, until a page is empty. between is called between two
// pages with what was seen so far.
func (r *rig) walk(path, cursor string, size int, first string, between func(seen []string)) []string {
	r.t.Helper()
	var seen []string
	at := first
	for range 10_000 {
		page := path + "&limit=" + strconv.Itoa(size)
		if at != "" {
			page += "&" + cursor + "=" + url.QueryEscape(at)
		}
		got := ids(r.do("GET", page, nil).list())
		if len(got) == 0 {
			return seen
		}
		if len(got) > size {
			r.t.Fatalf("%s: %d rows of at most %d", page, len(got), size)
		}
		if cursor == "before" {
			at, seen = got[0], append(slices.Clone(got), seen...)
		} else {
			at, seen = got[len(got)-1], append(seen, got...)
		}
		if between != nil {
			between(seen)
		}
	}
	r.t.Fatal("the walk does not end")
	return nil
}

// TestWalks goes through lists in both orders and both directions; each row comes
// once, also where all have one timestamp.
func TestWalks(t *testing.T) {
	for _, l := range listers() {
		t.Run(l.name, func(t *testing.T) {
			r := start(t, nil)
			at := time.Now().Add(-time.Hour)
			if l.name == "conversations" {
				r.someAgent()
			}
			var made []string
			for i := range 23 {
				if i >= 15 {
					at = at.Add(time.Second) // the first fifteen are of the same instant
				}
				made = append(made, l.make(r, i, at))
			}
			for _, by := range l.order {
				for _, order := range []string{"asc", "desc"} {
					path := l.path + "order=" + order + "&order_by=" + by
					whole := ids(r.do("GET", path+"&limit=1000", nil).list())
					if got, want := slices.Sorted(slices.Values(whole)), slices.Sorted(slices.Values(made)); !cmp.Equal(got, want) {
						t.Fatalf("%s: %d rows, want %d", path, len(got), len(want))
					}
					for _, size := range []int{1, 7, 22, 23, 24} {
						if got := r.walk(path, "after", size, "", nil); !cmp.Equal(got, whole) {
							t.Errorf("%s by %d: %d rows, want %d, or in another order", path, size, len(got), len(whole))
						}
						last := whole[len(whole)-1]
						if got := append(r.walk(path, "before", size, last, nil), last); !cmp.Equal(got, whole) {
							t.Errorf("%s backwards by %d: %d rows, want %d, or in another order", path, size, len(got), len(whole))
						}
					}
					between := ids(r.do("GET", path+"&limit=3&after="+whole[4]+"&before="+whole[9], nil).list())
					if !cmp.Equal(between, whole[5:8]) {
						t.Errorf("%s: between two rows %v, want %v", path, between, whole[5:8])
					}
				}
			}
			if got := r.do("GET", l.path+"limit=0", nil).list(); len(got) != 0 {
				t.Errorf("limit 0: %d rows", len(got))
			}
			if got, want := ids(r.do("GET", l.path+"limit=1000", nil).list()), ids(r.do("GET", l.path+"limit=1000&order="+map[bool]string{true: "asc", false: "desc"}[l.asc], nil).list()); !cmp.Equal(got, want) {
				t.Error("the default order is another one")
			}
			if got := r.do("GET", l.path, nil).list(); len(got) != len(made) {
				t.Errorf("the default page has %d rows", len(got))
			}
		})
	}
}

// TestWalksWhileOthersWrite: rows that are there all the time come exactly once,
// whatever is made, changed and deleted meanwhile.
func TestWalksWhileOthersWrite(t *testing.T) {
	for _, l := range listers() {
		t.Run(l.name, func(t *testing.T) {
			r := start(t, nil)
			if l.name == "conversations" {
				r.someAgent()
			}
			var steady, doomed []string
			at := time.Now().Add(-time.Hour)
			for i := range 30 {
				id := l.make(r, i, at.Add(time.Duration(i/4)*time.Second))
				if i%3 == 0 {
					doomed = append(doomed, id)
				} else {
					steady = append(steady, id)
				}
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range 150 { // more would keep the pager busy for ever
					select {
					case <-done:
						return
					default:
					}
					l.make(r, i, time.Now().Add(time.Duration(i%2)*-2*time.Hour)) // at either end
				}
			})
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					l.touch(r, steady[i%len(steady)])
				}
			})
			for _, order := range []string{"asc", "desc"} {
				drop := func(seen []string) {
					// The row that the pager stands on goes, too.
					if last := seen[len(seen)-1]; slices.Contains(doomed, last) {
						l.drop(r, last)
						doomed = slices.DeleteFunc(doomed, func(id string) bool { return id == last })
					}
				}
				seen := map[string]int{}
				for _, id := range r.walk(l.path+"order="+order, "after", 5, "", drop) {
					seen[id]++
				}
				for _, id := range steady {
					if seen[id] != 1 {
						t.Errorf("%s: %s came %d times", order, id, seen[id])
					}
				}
			}
			close(done)
			wg.Wait()
		})
	}
}

// TestPagerLoops: a list that is ordered by what changes does not keep a pager
// busy for ever when each row changes as soon as it was seen.
func TestPagerLoops(t *testing.T) {
	r := start(t, nil)
	l := listers()[0]
	var made []string
	for i := range 6 {
		made = append(made, l.make(r, i, time.Now().Add(time.Duration(i-100)*time.Second)))
	}
	seen := r.walk(l.path+"order_by=updated_at", "after", 1, "", func(seen []string) { l.touch(r, seen[len(seen)-1]) })
	slices.Sort(seen)
	if want := slices.Sorted(slices.Values(made)); !cmp.Equal(seen, want) {
		t.Errorf("saw %d rows, want %d once each", len(seen), len(want))
	}
}

// TestDeletingWhatIsListed: the usual clean-up script, which deletes each row that
// the pager gives it.
func TestDeletingWhatIsListed(t *testing.T) {
	for _, l := range listers() {
		t.Run(l.name, func(t *testing.T) {
			r := start(t, nil)
			if l.name == "conversations" {
				r.someAgent()
			}
			for i := range 13 {
				l.make(r, i, time.Now())
			}
			n := 0
			r.walk(l.path, "after", 5, "", func(seen []string) {
				for _, id := range seen[n:] {
					l.drop(r, id)
				}
				n = len(seen)
			})
			if left := r.do("GET", l.path, nil).list(); n != 13 || len(left) != 0 {
				t.Errorf("%d deleted, %d left", n, len(left))
			}
		})
	}
}

func TestAgentListFilters(t *testing.T) {
	// Names that no id can hold: ids are searched too, and are hexadecimal.
	r := start(t, nil)
	made := map[string]string{}
	for _, a := range []map[string]any{
		{"name": "Zoe", "tags": []string{"x", "y"}, "project_id": "p"},
		{"name": "zoe", "tags": []string{"x"}, "identity_ids": []string{"identity-1", "identity-2"}},
		{"name": "Ünal", "tags": []string{"y"}, "template_id": "t", "base_template_id": "b"},
		{"name": "Hidden", "hidden": true, "tags": []string{"x"}},
	} {
		made[r.agent(a)] = text(a["name"])
	}
	for query, want := range map[string]string{
		"":                                "[Ünal zoe Zoe]",
		"?name=Zoe":                       "[Zoe]",
		"?name=nobody":                    "[]",
		"?query_text=ZOE":                 "[zoe Zoe]",
		"?query_text=ünAL":                "[Ünal]",
		"?query_text=%25":                 "[]",
		"?tags=x":                         "[zoe Zoe]",
		"?tags=x&tags=y":                  "[Ünal zoe Zoe]",
		"?tags=x,y&match_all_tags=true":   "[Zoe]",
		"?tags[]=x&tags[]=y":              "[Ünal zoe Zoe]",
		"?tags=":                          "[Ünal zoe Zoe]",
		"?project_id=p":                   "[Zoe]",
		"?template_id=t":                  "[Ünal]",
		"?template_id=t&project_id=p":     "[]",
		"?base_template_id=b":             "[Ünal]",
		"?identity_id=identity-2":         "[zoe]",
		"?identifier_keys=k":              "[]",
		"?created_by_id=user-1":           "[]",
		"?last_stop_reason=end_turn":      "[]",
		"?ascending=true":                 "[Zoe zoe Ünal]",
		"?ascending=true&order=desc":      "[Ünal zoe Zoe]",
		"?sort_by=updated_at&order=asc":   "[Zoe zoe Ünal]",
		"?sort_by=nonsense&unheard_of=1":  "[Ünal zoe Zoe]",
		"?limit=1":                        "[Ünal]",
		"?limit=1&project_id=p":           "[Zoe]",
		"?limit=1&query_text=a&order=asc": "[Zoe]",
	} {
		names := []string{}
		for _, id := range ids(r.do("GET", "/v1/agents/"+query, nil).list()) {
			names = append(names, made[id])
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
