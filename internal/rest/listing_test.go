package rest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/store"
)

// groups are the stored messages of a list, each once: what its limit counts. An
// approval request belongs to the message that asked.
func groups(list []map[string]any) []string {
	var out []string
	for _, m := range list {
		key := text(m["id"])
		if m["message_type"] == "approval_request_message" {
			key = "message-" + shift(key[len("message-"):], 1)
		}
		if len(out) == 0 || out[len(out)-1] != key {
			out = append(out, key)
		}
	}
	return out
}

// fill makes a conversation with turns of several steps, parallel calls and a call
// that waits at the end.
func fill(t *testing.T, l *life, turns int) (agentID, conv string) {
	t.Helper()
	agentID = l.armed()
	conv = l.allowed(agentID, "TaskCreate")
	for i := range turns {
		l.post("/v1/conversations/"+conv+"/messages", map[string]any{"input": fmt.Sprint("turn ", i), "streaming": false})
	}
	l.post("/v1/conversations/"+conv+"/messages", map[string]any{"input": "wait", "streaming": false, "client_tools": place})
	return agentID, conv
}

func listingModel() *fake.Model {
	return fake.NewFunc(func(req *llm.Request) fake.Answer {
		last := req.Messages[len(req.Messages)-1]
		switch {
		case last.Role == agent.RoleTool:
			return fake.Answer{fake.Reasoning("hm"), fake.Text("done")}
		case agent.TextOf(last.Parts) == "wait":
			return fake.Answer{fake.Text("let me"), fake.Call("where_am_i", `{}`)}
		}
		return fake.Answer{fake.Text("go"), fake.Call("TaskCreate", `{"text":"a"}`), fake.Call("TaskCreate", `{"text":"b"}`)}
	})
}

// TestConversationPages walks through a conversation in both orders and both
// directions (bug report J01): each stored message comes once and whole.
func TestConversationPages(t *testing.T) {
	l := live(t, listingModel())
	_, conv := fill(t, l, 9)
	path := "/v1/conversations/" + conv + "/messages?limit="
	whole := l.do("GET", path+"1000&order=asc", nil).list()
	all := groups(whole)
	if len(all) < 39 {
		t.Fatalf("%d messages", len(all))
	}
	for _, order := range []string{"asc", "desc"} {
		want := slices.Clone(all)
		if order == "desc" {
			slices.Reverse(want)
		}
		for _, limit := range []int{1, 2, 3, 7, 38, 40, 500} {
			var got, back []string
			for cursor := ""; ; {
				page := l.do("GET", fmt.Sprint(path, limit, "&order=", order, "&after=", cursor), nil).list()
				if len(page) == 0 {
					break
				}
				g := groups(page)
				if len(g) > limit {
					t.Fatalf("%d messages on a page of %d", len(g), limit)
				}
				got = append(got, g...)
				cursor = text(page[len(page)-1]["id"])
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%s, pages of %d:\n%s", order, limit, d)
			}
			for cursor := want[len(want)-1]; ; {
				page := l.do("GET", fmt.Sprint(path, limit, "&order=", order, "&before=", cursor), nil).list()
				if len(page) == 0 {
					break
				}
				back = append(groups(page), back...)
				cursor = text(page[0]["id"])
			}
			if d := cmp.Diff(want[:len(want)-1], back); d != "" {
				t.Fatalf("%s, pages of %d, backwards:\n%s", order, limit, d)
			}
		}
	}
	// The parts of a message keep their order.
	desc := l.do("GET", path+"3", nil).list()
	if got := []string{text(desc[0]["message_type"]), text(desc[1]["message_type"])}; got[0] != "assistant_message" || got[1] != "approval_request_message" {
		t.Errorf("the newest message shows as %v", got)
	}
	for query, n := range map[string]int{"0": 0, "5&after=message-00000000-0000-4000-8000-000000000001": 0} {
		if got := l.do("GET", path+query, nil).list(); len(got) != n {
			t.Errorf("limit=%s: %d", query, len(got))
		}
	}
	for _, query := range []string{"-1", "1001", "x"} {
		l.do("GET", path+query, nil).want(422)
	}
	// Filters come before the limit; the reasoning alone counts.
	only := l.do("GET", path+"4&include_return_message_types=reasoning_message", nil).list()
	if len(only) != 4 || only[0]["message_type"] != "reasoning_message" {
		t.Errorf("filtered: %v", only)
	}
	both := l.do("GET", path+"4&include_return_message_types=reasoning_message,tool_return_message", nil).list()
	if len(both) != 4 {
		t.Errorf("filtered by two: %v", both)
	}
	one := l.do("GET", "/v1/messages/"+all[2], nil).list()
	if len(one) == 0 || text(one[0]["id"]) != all[2] {
		t.Errorf("one message: %v", one)
	}
	request := whole[len(whole)-1]
	if got := l.do("GET", "/v1/messages/"+text(request["id"]), nil).list(); len(got) != 2 || !cmp.Equal(got[1], request) {
		t.Errorf("an approval request by its id: %v", got)
	}
	l.do("GET", "/v1/messages/message-00000000-0000-4000-8000-000000000001", nil).want(404)
	l.do("GET", "/v1/messages/m", nil).want(422)
	l.do("PATCH", "/v1/agents/"+text(l.get("/v1/conversations/" + conv)["agent_id"])+"/messages/"+all[2], map[string]any{}).want(405, "detail")
}

// TestAgentPages: the array runs from old to new whatever the order, and cursors are
// chronological.
func TestAgentPages(t *testing.T) {
	l := live(t, listingModel())
	a, conv := fill(t, l, 3)
	l.post("/v1/agents/"+a+"/messages", say("turn own"))
	path := "/v1/agents/" + a + "/messages?limit="
	all := groups(l.do("GET", path+"1000", nil).list())
	if asc := groups(l.do("GET", path+"1000&order=asc", nil).list()); !cmp.Equal(all, asc) {
		t.Errorf("order asc: %s", cmp.Diff(all, asc))
	}
	tests := map[string][]string{
		"4":                            all[len(all)-4:],
		"4&order=desc":                 all[len(all)-4:],
		"4&order=asc":                  all[:4],
		"3&after=" + all[5]:            all[len(all)-3:],
		"3&order=asc&after=" + all[5]:  all[6:9],
		"3&before=" + all[5]:           all[2:5],
		"3&order=asc&before=" + all[5]: all[:3],
		"9&after=" + all[2] + "&before=" + all[6]: all[3:6],
		"3&after=" + all[len(all)-1]:              nil,
		"3&before=" + all[0]:                      nil,
	}
	for query, want := range tests {
		if d := cmp.Diff(want, groups(l.do("GET", path+query, nil).list())); d != "" {
			t.Errorf("limit=%s:\n%s", query, d)
		}
	}
	l.do("GET", path+"3&after=message-00000000-0000-4000-8000-000000000001", nil).want(404)
	own := groups(l.do("GET", path+"100&conversation_id=default", nil).list())
	rest := groups(l.do("GET", path+"100&conversation_id="+conv, nil).list())
	if len(own)+len(rest) != len(all) || len(own) == 0 || len(rest) == 0 {
		t.Errorf("%d of the own conversation, %d of the other one, %d in all", len(own), len(rest), len(all))
	}
	every := groups(l.do("GET", "/v1/messages/?limit=1000", nil).list())
	if d := cmp.Diff(all, every); d != "" {
		t.Errorf("messages of all agents: %s", d)
	}
	last := l.do("GET", path+"1", nil).list()
	l.do("GET", "/v1/messages/?limit=5&before="+text(last[0]["id"]), nil).want(200)
}

// TestEqualDates (bug report J03): a thousand messages of one instant, in pages of
// seven, while others are written.
func TestEqualDates(t *testing.T) {
	l := live(t, fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text("x")} }))
	a := l.armed()
	own, err := l.st.OwnConversation(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.st.Acquire(t.Context(), own.ID)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	want := map[string]int{}
	c := &store.Change{}
	for i := range 1000 {
		m := &agent.Message{
			ID: agent.NewID("message"), AgentID: a, ConversationID: own.ID, Seq: int64(10 + i), Role: agent.RoleUser,
			Parts: []agent.Part{agent.Text("x")}, CreatedAt: at,
		}
		c.Messages = append(c.Messages, m)
		want[m.ID] = 1
	}
	if err := l.st.Commit(t.Context(), lease, c); err != nil {
		t.Fatal(err)
	}
	if err := l.st.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	walk := func(path, cursor string, last bool) {
		t.Helper()
		got := map[string]int{}
		for at := ""; ; {
			page := l.do("GET", path+cursor+at, nil).list()
			if len(page) == 0 {
				break
			}
			for _, id := range ids(page) {
				if want[id] > 0 {
					got[id]++
				}
			}
			at = text(page[0]["id"])
			if last {
				at = text(page[len(page)-1]["id"])
			}
			if random.IntN(40) == 0 {
				l.post("/v1/agents/"+a+"/messages", say("more"))
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %d of %d messages, or some twice", path, len(got), len(want))
		}
	}
	walk("/v1/agents/"+a+"/messages?limit=7&order=asc&after=", "", true)
	walk("/v1/agents/"+a+"/messages?limit=7&before=", "", false)
	walk("/v1/conversations/"+a+"/messages?limit=7&after=", "", true)
	walk("/v1/conversations/"+a+"/messages?limit=7&order=asc&after=", "", true)
}

func TestRunsAndSteps(t *testing.T) {
	l := live(t, listingModel())
	a, conv := fill(t, l, 2)
	runs := l.do("GET", "/v1/runs/?agent_id="+a, nil).list()
	if len(runs) != 3 {
		t.Fatalf("%d runs", len(runs))
	}
	waiting, done := runs[0], runs[2]
	if waiting["stop_reason"] != "requires_approval" || waiting["status"] != "completed" || waiting["conversation_id"] != conv ||
		waiting["background"] != false || waiting["metadata"].(map[string]any)["run_type"] != "send_conversation_message" {
		t.Errorf("the run that waits: %v", waiting)
	}
	if done["ttft_ns"] == nil || done["total_duration_ns"] == nil || done["completed_at"] == nil {
		t.Errorf("a run that is done: %v", done)
	}
	for query, n := range map[string]int{
		"statuses=completed": 3, "statuses=running&statuses=failed": 0, "active=true": 0, "stop_reason=end_turn": 2, "background=true": 0,
		"conversation_id=" + conv: 3, "limit=2": 2, "after=" + text(runs[0]["id"]): 2, "order=asc&after=" + text(runs[0]["id"]): 0,
		"before=" + text(runs[1]["id"]): 1,
	} {
		if got := l.do("GET", "/v1/runs/?agent_id="+a+"&"+query, nil).list(); len(got) != n {
			t.Errorf("%s: %d runs, want %d", query, len(got), n)
		}
	}
	l.do("GET", "/v1/runs/?after=run-00000000-0000-4000-8000-000000000001", nil).want(404)
	l.do("GET", "/v1/runs/?limit=0", nil).want(422)
	l.do("GET", "/v1/runs/run-1", nil).want(400, "INVALID_ARGUMENT: Invalid run ID format")

	path := "/v1/runs/" + text(done["id"])
	if got := l.get(path); !cmp.Equal(got, done) {
		t.Errorf("the run alone:\n%s", cmp.Diff(done, got))
	}
	msgs := l.do("GET", path+"/messages", nil).list()
	var types []string
	for _, m := range msgs {
		types = append(types, strings.TrimSuffix(text(m["message_type"]), "_message"))
	}
	if d := cmp.Diff([]string{"user", "assistant", "tool_call", "tool_return", "reasoning", "assistant"}, types); d != "" {
		t.Errorf("messages of the run: %s", d)
	}
	desc := groups(l.do("GET", path+"/messages?order=desc&limit=2", nil).list())
	if all := groups(msgs); !cmp.Equal(desc, []string{all[3], all[2]}) {
		t.Errorf("the newest of %v are %v", all, desc)
	}
	usage := l.get(path + "/usage")
	if usage["prompt_tokens"] != 200.0 || usage["total_tokens"].(float64) <= 200 || usage["completion_tokens_details"] == nil {
		t.Errorf("usage: %v", usage)
	}
	if got := l.do("GET", path+"/trace", nil).list(); len(got) != 0 {
		t.Errorf("trace: %v", got)
	}
	steps := l.do("GET", path+"/steps", nil).list()
	if len(steps) != 2 || steps[0]["stop_reason"] != "end_turn" || steps[0]["status"] != "success" || steps[0]["model_handle"] != "mneme/offline" ||
		steps[0]["provider_name"] != "mneme" || steps[0]["prompt_tokens"] != 100.0 {
		t.Errorf("steps: %v", steps)
	}
	step := "/v1/steps/" + text(steps[1]["id"])
	if got := l.get(step); !cmp.Equal(got, steps[1]) {
		t.Errorf("the step alone:\n%s", cmp.Diff(steps[1], got))
	}
	stepMsgs := l.do("GET", step+"/messages", nil).list()
	if d := cmp.Diff(msgs[1:4], stepMsgs); d != "" {
		t.Errorf("messages of the step: %s", d)
	}
	if got := l.do("GET", step+"/messages?limit=1&after="+text(stepMsgs[0]["id"]), nil).list(); len(got) != 1 || got[0]["message_type"] != "tool_return_message" {
		t.Errorf("the second of the step: %v", got)
	}
	metrics := l.get(step + "/metrics")
	for _, field := range []string{"step_start_ns", "llm_request_start_ns", "llm_request_ns", "tool_execution_ns", "step_ns"} {
		if n, ok := metrics[field].(float64); !ok || n <= 0 {
			t.Errorf("%s is %v", field, metrics[field])
		}
	}
	if got := string(l.do("GET", step+"/trace", nil).want(200).Body); got != "null" {
		t.Errorf("trace of a step: %s", got)
	}
	l.do("PATCH", step+"/feedback", map[string]any{"feedback": "great"}).want(422, "body.feedback")
	if got := l.patch(step+"/feedback", map[string]any{"feedback": "positive", "tags": []string{"a", "b"}}); got["feedback"] != "positive" || len(got["tags"].([]any)) != 2 {
		t.Errorf("feedback: %v", got)
	}
	for query, n := range map[string]int{
		"feedback=positive": 1, "has_feedback=false": 4, "tags=b": 1, "model=mneme/offline": 5, "trace_ids=x": 0, "limit=2": 2,
		"start_date=2001-01-01T00:00:00Z": 5, "end_date=2001-01-01": 0,
	} {
		if got := l.do("GET", "/v1/steps/?agent_id="+a+"&"+query, nil).list(); len(got) != n {
			t.Errorf("%s: %d steps, want %d", query, len(got), n)
		}
	}
	l.do("GET", "/v1/steps/step-1", nil).want(422)
	l.do("GET", "/v1/steps/step-00000000-0000-4000-8000-000000000001", nil).want(404)

	// A failed run says why.
	l.post("/v1/conversations/"+conv+"/cancel", map[string]any{"run_ids": []any{waiting["id"]}})
}

func TestFailedRun(t *testing.T) {
	tests := []struct {
		step      fake.Step
		status    int
		kind, run string
		final     bool
	}{
		{fake.Status(400, "no such thing"), 400, "llm_bad_request", "llm_error", true},
		{fake.Status(401, "key"), 401, "llm_authentication", "llm_authentication", true},
		{fake.Status(402, "pay"), 402, "llm_insufficient_credits", "llm_error", true},
	}
	for _, test := range tests {
		r := start(t, fake.New(fake.Answer{test.step}))
		a := r.agent(nil)
		req := r.request(t.Context(), "POST", "/v1/agents/"+a+"/messages", say("x"))
		req.Header.Set("x-api-request-log-id", "log-7")
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status || test.final != (resp.Header.Get("x-should-retry") == "false") {
			t.Errorf("%s: status %d, x-should-retry %q", test.kind, resp.StatusCode, resp.Header.Get("x-should-retry"))
		}
		run := r.do("GET", "/v1/runs/?agent_id="+a, nil).list()[0]
		fault, _ := run["metadata"].(map[string]any)["error"].(map[string]any)
		if run["status"] != "failed" || run["stop_reason"] != "llm_api_error" || fault["error_type"] != test.run {
			t.Errorf("%s: the run %v", test.kind, run)
		}
		for query, n := range map[string]int{"llm_api_error": 1, "error": 0, "end_turn": 0, "llm_api_error&statuses=completed": 0} {
			if got := r.do("GET", "/v1/runs/?stop_reason="+query, nil).list(); len(got) != n {
				t.Errorf("%s: %d runs with stop_reason=%s", test.kind, len(got), query)
			}
		}
		step := r.do("GET", "/v1/runs/"+text(run["id"])+"/steps", nil).list()[0]
		if step["status"] != "failed" || step["stop_reason"] != "llm_api_error" || step["error_type"] != test.run || step["request_id"] != "log-7" {
			t.Errorf("%s: the step %v", test.kind, step)
		}
	}
}
