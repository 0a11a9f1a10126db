package rest_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
)

// asked plays a turn that waits for the calls c1 (TaskUpdate) and c2 (a client's).
func asked(t *testing.T, l *life, model *fake.Model) (agentID, conv string) {
	t.Helper()
	model.Add(fake.Answer{
		fake.CallID("c1", "TaskUpdate", `{"text":"a"}`), fake.CallID("c2", "where_am_i", `{}`), fake.CallID("c3", "TaskCreate", `{"text":"b"}`),
	})
	agentID = l.armed()
	conv = l.allowed(agentID, "TaskCreate")
	out := l.post("/v1/conversations/"+conv+"/messages", with(say("go"), map[string]any{"streaming": false, "client_tools": place}))
	if got := out["stop_reason"].(map[string]any)["stop_reason"]; got != "requires_approval" {
		t.Fatalf("the turn ended with %v", got)
	}
	return agentID, conv
}

func TestApprovalRules(t *testing.T) {
	model := fake.New()
	l := live(t, model)
	a, conv := asked(t, l, model)
	path := "/v1/conversations/" + conv + "/messages"

	// Plain messages are refused on every route; reads and compaction work.
	const pending = "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or deny the pending request before continuing."
	resp := l.do("POST", path, say("x")).want(409, `{"detail":"`+pending+`"}`)
	if resp.Header.Get("x-should-retry") != "false" {
		t.Error("a pending approval should not be tried again")
	}
	own := l.armed()
	model.Add(fake.Answer{fake.CallID("c9", "where_am_i", `{}`)})
	l.post("/v1/agents/"+own+"/messages", with(say("go"), map[string]any{"client_tools": place}))
	request := text(l.get("/v1/agents/" + own + "?include=agent.pending_approval")["pending_approval"].(map[string]any)["id"])
	l.do("POST", "/v1/agents/"+own+"/messages", say("x")).want(409, `{"detail":{"code":"PENDING_APPROVAL","message":"`+pending+`","pending_request_id":"`+request+`"}}`)
	l.do("POST", "/v1/agents/"+own+"/messages/stream", say("x")).want(409, `{"detail":"`+pending+`"}`)

	// The set of ids must be equal.
	l.do("POST", path, answer(approve("c1"))).want(400, "Invalid tool call IDs. Expected '['c1', 'c2']', but received '['c1']'.")
	l.do("POST", path, answer(approve("c1"), returned("c2", "x"), approve("cx"))).want(400, "Invalid tool call IDs")
	l.do("POST", path, answer(approve("c1"), approve("c2"))).want(400, "waits for its tool return")
	l.do("POST", path, answer(returned("c1", "x"), returned("c2", "x"))).want(400, "waits for an approval")
	if got := l.do("GET", path, nil).list(); len(got) != 4 {
		t.Errorf("listed while pending: %v", ids(got))
	}

	// Answered, with messages behind the answers.
	model.Add(fake.Answer{fake.Text("ok")})
	body := map[string]any{"streaming": false, "messages": []map[string]any{
		{"type": "approval", "otid": "answer-1", "approvals": []map[string]any{approve("c1"), returned("c2", "Rome")}},
		{"role": "user", "content": "And hurry.", "otid": "more-1"},
	}}
	out := l.post(path, body)
	first := out["messages"].([]any)[0].(map[string]any)
	if n := len(first["tool_returns"].([]any)); first["message_type"] != "tool_return_message" || n != 3 {
		t.Errorf("the answer begins with %v", first)
	}
	var seen []string
	reqs := model.Requests()
	for _, m := range reqs[len(reqs)-1].Messages {
		seen = append(seen, string(m.Role)+" "+agent.TextOf(m.Parts))
	}
	if last := seen[len(seen)-1]; last != "user And hurry." || !strings.HasPrefix(seen[len(seen)-2], "tool ") {
		t.Errorf("the model saw %q", seen)
	}
	// The same send again is the same run.
	if again := l.post(path, body); !cmp.Equal(out, again) {
		t.Errorf("sent again:\n%s", cmp.Diff(out, again))
	}
	// Answers again, without a key: no error, the turn goes on.
	model.Add(fake.Answer{fake.Text("still ok")}, fake.Answer{fake.Text("and on")})
	again := l.post(path, with(answer(returned("c2", "Rome"), approve("c1")), map[string]any{"streaming": false}))
	if got := text(again["messages"].([]any)[0].(map[string]any)["content"]); got != "still ok" {
		t.Errorf("answers that were given: %v", again)
	}
	l.do("POST", path, answer(approve("c7"))).want(400, "No tool call is currently awaiting approval")
	list := l.do("GET", path+"?order=asc&include_return_message_types=user_message", nil).list()
	if n := len(list); n != 3 || !strings.Contains(text(list[2]["content"]), "keep-alive") {
		t.Errorf("user messages: %v", list)
	}
	_ = a
}

// TestOldApproval answers in the deprecated form, by the id of the request.
func TestOldApproval(t *testing.T) {
	model := fake.New(fake.Answer{fake.CallID("c1", "TaskUpdate", `{"text":"a"}`)}, fake.Answer{fake.Text("ok")})
	l := live(t, model)
	a := l.armed()
	out := l.post("/v1/agents/"+a+"/messages", say("go"))
	request := out["messages"].([]any)[0].(map[string]any)
	out = l.post("/v1/agents/"+a+"/messages", map[string]any{"messages": []map[string]any{
		{"approve": false, "approval_request_id": request["id"], "reason": "no"},
	}})
	if got := text(out["messages"].([]any)[0].(map[string]any)["tool_return"]); got != "Error: request to call tool denied. User reason: no" {
		t.Errorf("the result is %q", got)
	}
}

// TestParkedWhileWaiting: a send that waits is refused when the turn parks, and one
// that is queued runs when the turn has been answered.
func TestParkedWhileWaiting(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{})
	model := fake.New(
		fake.Answer{fake.Signal(reached), fake.Gate(gate), fake.CallID("c1", "where_am_i", `{}`)},
		fake.Answer{fake.Text("in Rome")}, fake.Answer{fake.Text("queued")},
	)
	l := live(t, model)
	a := l.armed()
	path := "/v1/agents/" + a + "/messages"
	done := make(chan *response, 2)
	go func() { done <- l.do("POST", path, with(say("go"), map[string]any{"client_tools": place})) }()
	<-reached
	waits := make(chan *response, 1)
	go func() { waits <- l.do("POST", path, say("me too")) }()
	time.Sleep(20 * time.Millisecond)
	run := l.post(path+"/async", say("later"))
	close(gate)
	(<-done).want(200, "requires_approval")
	(<-waits).want(409, "PENDING_APPROVAL", "waiting for approval")
	second := l.post(path+"/async", say("later still"))
	if got := l.get("/v1/runs/" + text(run["id"])); got["status"] != "created" {
		t.Errorf("the queued run is %v", got["status"])
	}
	model.Add(fake.Answer{fake.Text("queued too")})
	l.do("POST", path, with(answer(returned("c1", "Rome")), map[string]any{"client_tools": place})).want(200, "in Rome")
	for _, r := range []map[string]any{run, second} {
		if got := l.ended(text(r["id"])); got["status"] != "completed" {
			t.Errorf("a queued run is %v", got["status"])
		}
	}
}

// TestToolReturnParts: the result of a client's tool can have images, and is cut where
// it is very long.
func TestToolReturnParts(t *testing.T) {
	model := fake.New(fake.Answer{fake.CallID("c1", "where_am_i", `{}`)}, fake.Answer{fake.Text("ok")},
		fake.Answer{fake.CallID("c2", "where_am_i", `{}`)}, fake.Answer{fake.Text("ok")})
	l := live(t, model)
	a := l.agent(map[string]any{"include_base_tools": false, "context_window_limit": 9000})
	conv := l.conversation(a)
	path := "/v1/conversations/" + conv + "/messages"
	options := map[string]any{"client_tools": place, "streaming": false}
	l.post(path, with(say("go"), options))
	image := base64.StdEncoding.EncodeToString([]byte(png))
	out := l.post(path, with(map[string]any{"messages": []map[string]any{{"type": "tool_return", "tool_returns": []map[string]any{{
		"tool_call_id": "c1", "status": "error", "stderr": []string{"e"},
		"tool_return": []map[string]any{{"type": "text", "text": "see"}, {"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/png", "data": image}}},
	}}}}}, options))
	m := out["messages"].([]any)[0].(map[string]any)
	parts, _ := m["tool_returns"].([]any)[0].(map[string]any)["tool_return"].([]any)
	if m["tool_return"] != "see\n[image image/png]" || m["status"] != "error" || len(parts) != 2 || parts[1].(map[string]any)["source"].(map[string]any)["data"] != image {
		t.Errorf("the result shows as %v", m)
	}
	l.post(path, with(say("go"), options))
	out = l.post(path, with(answer(returned("c2", strings.Repeat("é", 8000))), options))
	got := text(out["messages"].([]any)[0].(map[string]any)["tool_return"])
	if !strings.HasPrefix(got, strings.Repeat("é", 7200)+"\n[The result was cut here") || !strings.Contains(got, "8000") {
		t.Errorf("a long result has %d bytes and ends with %q", len(got), got[len(got)-120:])
	}
}

// TestOldAgentType: an agent that speaks through a tool shows its calls as what it
// says, and its text as reasoning.
func TestOldAgentType(t *testing.T) {
	speak := fake.Answer{fake.Text("I should greet."), fake.CallID("c1", "send_message", `{"message":"Hi there"}`)}
	model := fake.New(speak, fake.Answer{fake.Text("done")}, speak, fake.Answer{fake.Text("done")})
	l := live(t, model)
	a := l.agent(map[string]any{"agent_type": "memgpt_v2_agent", "include_base_tools": false, "tools": []string{"send_message"}})
	path := "/v1/agents/" + a + "/messages"
	shown := func(list []map[string]any) []string {
		var out []string
		for _, s := range fold(t, list) {
			out = append(out, strings.TrimSuffix(s.Type, "_message")+" "+s.Text+strings.Join(s.Calls, ""))
		}
		return out
	}
	want := []string{"reasoning I should greet.", "assistant Hi there", "reasoning done"}
	got := fold(t, chunks(l.stream("POST", path, with(say("x"), map[string]any{"streaming": true, "stream_tokens": true}))))
	listed := fold(t, l.do("GET", path+"?limit=100", nil).list())
	if d := cmp.Diff(listed, got); d != "" {
		t.Errorf("the stream (+) differs from the list (-):\n%s", d)
	}
	if d := cmp.Diff(want, shown(l.do("GET", path+"?limit=100", nil).list())); d != "" {
		t.Errorf("listed:\n%s", d)
	}
	plain := shown(l.do("GET", path+"?limit=100&use_assistant_message=false", nil).list())
	if len(plain) != 4 || plain[0] != "assistant I should greet." || !strings.HasPrefix(plain[1], "tool_call c1 send_message(") {
		t.Errorf("listed as it is: %v", plain)
	}
}

// TestOtherDoor answers one call over another door: its answer stands.
func TestOtherDoor(t *testing.T) {
	model := fake.New()
	l := live(t, model)
	a, conv := asked(t, l, model)
	scope := agent.Scope{AgentID: a, ConversationID: conv}
	if err := l.rt.Answer(t.Context(), scope, "c1", runtime.Answer{Message: "no way"}, nil); err != nil {
		t.Fatal(err)
	}
	model.Add(fake.Answer{fake.Text("ok")})
	out := l.post("/v1/conversations/"+conv+"/messages", with(answer(approve("c1"), returned("c2", "Rome")), map[string]any{"streaming": false}))
	returns := out["messages"].([]any)[0].(map[string]any)["tool_returns"].([]any)
	var got []string
	for _, r := range returns {
		got = append(got, text(r.(map[string]any)["tool_return"]))
	}
	if d := cmp.Diff([]string{"no way", "Rome", "b"}, got); d != "" {
		t.Errorf("results: %s", d)
	}
}

// TestApprovalAfterRestart (bug reports A18, B09): what was asked is still asked,
// under the same ids, and only what is new is told.
func TestApprovalAfterRestart(t *testing.T) {
	model := fake.New()
	l := live(t, model)
	_, conv := asked(t, l, model)
	path := "/v1/conversations/" + conv + "/messages"
	before := l.do("GET", path+"?order=asc", nil).list()
	l.restart()
	if d := cmp.Diff(before, l.do("GET", path+"?order=asc", nil).list()); d != "" {
		t.Errorf("listed after the restart:\n%s", d)
	}
	model.Add(fake.Answer{fake.Text("ok")})
	all := l.stream("POST", path, with(answer(approve("c1"), returned("c2", "Rome")), map[string]any{"stream_tokens": true, "background": true}))
	if d := cmp.Diff([]string{"ping", "tool_return_message", "assistant_message", "stop_reason", "usage_statistics", "[DONE]"}, kinds(all)); d != "" {
		t.Errorf("the stream:\n%s", d)
	}
	after := l.do("GET", path+"?order=asc", nil).list()
	if d := cmp.Diff(before, after[:len(before)]); d != "" {
		t.Errorf("what was told changed:\n%s", d)
	}
}

// TestCancelParked (bug report B02): a run that waits is cancelled, and the
// conversation takes messages again.
func TestCancelParked(t *testing.T) {
	model := fake.New()
	l := live(t, model)
	a, conv := asked(t, l, model)
	path := "/v1/conversations/" + conv
	run := text(l.do("GET", "/v1/runs/?conversation_id="+conv, nil).list()[0]["id"])
	l.do("POST", path+"/cancel", nil).want(409, "CONFLICT: No active runs to cancel for conversation "+conv)
	l.do("POST", "/v1/agents/"+a+"/messages/cancel", nil).want(409, "CONFLICT: No active runs to cancel for agent "+a)
	for range 2 { // a second time changes nothing
		if got := l.post(path+"/cancel", map[string]any{"run_ids": []string{run}}); got[run] != "cancelled" {
			t.Errorf("cancel: %v", got)
		}
	}
	if got := l.get("/v1/runs/" + run); got["status"] != "cancelled" || got["stop_reason"] != "cancelled" {
		t.Errorf("the run is %v, %v", got["status"], got["stop_reason"])
	}
	list := l.do("GET", path+"/messages?order=asc", nil).list()
	last := list[len(list)-1]
	if last["message_type"] != "tool_return_message" || last["status"] != "error" || len(last["tool_returns"].([]any)) != 3 {
		t.Errorf("the last message is %v", last)
	}
	model.Add(fake.Answer{fake.Text("hello again")})
	out := l.post(path+"/messages", with(say("x"), map[string]any{"streaming": false}))
	if got := text(out["messages"].([]any)[0].(map[string]any)["content"]); got != "hello again" {
		t.Errorf("afterwards: %v", out)
	}
}

// TestCancel (bug report F08) stops the model's request at once; what came of it is
// kept apart.
func TestCancel(t *testing.T) {
	for name, background := range map[string]bool{"foreground": false, "background": true} {
		t.Run(name, func(t *testing.T) {
			reached := make(chan struct{})
			model := fake.New(fake.Answer{fake.Text("half"), fake.Signal(reached), fake.Hang()})
			l := live(t, model)
			a := l.armed()
			done := make(chan []sseEvent, 1)
			go func() {
				done <- l.stream("POST", "/v1/agents/"+a+"/messages", map[string]any{
					"input": "x", "streaming": true, "stream_tokens": true, "background": background,
				})
			}()
			<-reached
			got := l.post("/v1/agents/"+a+"/messages/cancel", nil)
			if len(got) != 1 {
				t.Errorf("cancelled: %v", got)
			}
			all := <-done
			if d := cmp.Diff([]string{"ping", "assistant_message", "stop_reason", "usage_statistics", "[DONE]"}, kinds(all)); d != "" {
				t.Errorf("the stream:\n%s", d)
			}
			run := text(all[0].chunk["run_id"])
			if all[2].chunk["stop_reason"] != "cancelled" || got[run] != "cancelled" {
				t.Errorf("%v, %v", all[2].data, got)
			}
			if st := l.get("/v1/runs/" + run); st["status"] != "cancelled" || st["completed_at"] == nil {
				t.Errorf("the run: %v", st)
			}
			if n := len(l.do("GET", "/v1/agents/"+a+"/messages", nil).list()); n != 2 {
				t.Errorf("%d messages are listed", n)
			}
			list := l.do("GET", "/v1/agents/"+a+"/messages?include_err=true", nil).list()
			if m := list[len(list)-1]; m["content"] != "half" || m["is_err"] != true {
				t.Errorf("the partial text: %v", m)
			}
			model.Add(fake.Answer{fake.Text("new")})
			l.post("/v1/agents/"+a+"/messages", say("y"))
			for _, m := range model.Requests()[1].Messages {
				if strings.Contains(agent.TextOf(m.Parts), "half") {
					t.Error("the model saw the text of the cancelled step")
				}
			}
		})
	}
	t.Run("answer", func(t *testing.T) {
		reached := make(chan struct{})
		model := fake.New(
			fake.Answer{fake.Text("one"), fake.CallID("c1", "TaskCreate", `{"text":"x"}`)},
			fake.Answer{fake.Signal(reached), fake.Hang()},
		)
		l := live(t, model)
		conv := l.allowed(l.armed(), "TaskCreate")
		done := make(chan map[string]any, 1)
		go func() {
			done <- l.post("/v1/conversations/"+conv+"/messages", with(say("x"), map[string]any{"streaming": false}))
		}()
		<-reached
		l.post("/v1/conversations/"+conv+"/cancel", nil)
		out := <-done
		if out["stop_reason"].(map[string]any)["stop_reason"] != "cancelled" || len(out["messages"].([]any)) != 3 {
			t.Errorf("the answer: %v", out)
		}
	})
	t.Run("tool", func(t *testing.T) {
		model := fake.New(fake.Answer{fake.CallID("c1", "TaskStop", `{}`)})
		l := live(t, model)
		conv := l.allowed(l.armed(), "TaskStop")
		done := make(chan []sseEvent, 1)
		go func() { done <- l.stream("POST", "/v1/conversations/"+conv+"/messages", say("x")) }()
		waitFor(t, "the call", func() bool {
			list := l.do("GET", "/v1/conversations/"+conv+"/messages", nil).list()
			return len(list) > 0 && list[0]["message_type"] == "tool_call_message"
		})
		time.Sleep(5 * time.Millisecond)
		l.post("/v1/conversations/"+conv+"/cancel", nil)
		all := <-done
		if got := kinds(all); got[len(got)-3] != "stop_reason" || all[len(got)-3].chunk["stop_reason"] != "cancelled" {
			t.Errorf("the stream: %v", got)
		}
	})
}
