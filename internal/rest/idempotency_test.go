package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
)

// keyed is a send with the otid of its message.
func keyed(otid, content string, more map[string]any) map[string]any {
	return with(map[string]any{"messages": []map[string]any{{"role": "user", "content": content, "otid": otid}}}, more)
}

func users(list []map[string]any) (n int) {
	for _, m := range list {
		if m["message_type"] == "user_message" {
			n++
		}
	}
	return n
}

// TestSameOTID sends messages again on every route: the turn runs once.
func TestSameOTID(t *testing.T) {
	tests := map[string]struct {
		path    string // of the agent's or the conversation's messages
		options map[string]any
	}{
		"agent":      {"agents", nil},
		"agent step": {"agents", map[string]any{"streaming": true}},
		"stream":     {"agents", map[string]any{"streaming": true, "stream_tokens": true}},
		"background": {"conversations", map[string]any{"stream_tokens": true, "background": true}},
		"answer":     {"conversations", map[string]any{"streaming": false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			reached := make(chan struct{})
			model := fake.New(fake.Answer{fake.Text("Hel"), fake.Signal(reached), fake.Gate(gate), fake.Text("lo")})
			r := start(t, model)
			a := r.agent(nil)
			path := "/v1/agents/" + a + "/messages"
			if test.path == "conversations" {
				path = "/v1/conversations/" + r.conversation(a) + "/messages"
			}
			body := keyed("otid-1", "hi", test.options)
			said := func(resp *response) string {
				resp.want(200)
				var list []map[string]any
				if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
					list = chunks(events(t, strings.NewReader(string(resp.Body))))
				} else {
					for _, m := range resp.object()["messages"].([]any) {
						list = append(list, m.(map[string]any))
					}
				}
				var b strings.Builder
				for _, s := range fold(t, list) {
					b.WriteString(s.Type + " " + s.ID + " " + s.OTID + " " + s.Text)
				}
				return b.String()
			}
			var wg sync.WaitGroup
			got := make([]string, 3)
			send := func(i int) { wg.Go(func() { got[i] = said(r.do("POST", path, body)) }) }
			send(0)
			<-reached
			send(1) // joins the running run
			send(2)
			time.Sleep(20 * time.Millisecond) // so that they are most likely on their way
			r.do("POST", path, keyed("otid-1", "other", test.options)).want(409, "CONFLICT", "otid")
			close(gate)
			wg.Wait()
			late := said(r.do("POST", path, body))
			if !strings.HasSuffix(late, " Hello") {
				t.Errorf("the answer is %q", late)
			}
			for i := range got {
				if got[i] != late {
					t.Errorf("answer %d is %q, that of the finished run %q", i, got[i], late)
				}
			}
			list := r.do("GET", strings.Split(path, "?")[0], nil).list()
			if n := users(list); n != 1 {
				t.Errorf("%d user messages are stored", n)
			}
			if n := len(model.Requests()); n != 1 {
				t.Errorf("the model was asked %d times", n)
			}
		})
	}
}

func TestAsync(t *testing.T) {
	gate := make(chan struct{})
	model := fake.NewFunc(func(req *llm.Request) fake.Answer {
		last := req.Messages[len(req.Messages)-1]
		return fake.Answer{fake.Gate(gate), fake.Text("re: " + agent.TextOf(last.Parts))}
	})
	r := start(t, model)
	a := r.agent(nil)
	path := "/v1/agents/" + a + "/messages/async"
	first := r.post(path, keyed("o1", "one", nil))
	for field, want := range map[string]any{"status": "created", "background": true, "agent_id": a, "conversation_id": nil, "stop_reason": nil, "callback_url": nil} {
		if first[field] != want {
			t.Errorf("%s is %v, want %v", field, first[field], want)
		}
	}
	if got := first["metadata"].(map[string]any)["run_type"]; got != "send_message_async" {
		t.Errorf("run_type %v", got)
	}
	second := r.post(path, say("two"))
	third := r.post(path, say("three"))
	again := r.post(path, keyed("o1", "one", nil))
	if again["id"] != first["id"] {
		t.Errorf("the same otid gave another run: %v", again)
	}
	if got := r.get("/v1/runs/" + text(second["id"]))["status"]; got != "created" {
		t.Errorf("the second run is %v", got)
	}
	active := ids(r.do("GET", "/v1/runs/?agent_id="+a+"&active=true", nil).list())
	if d := cmp.Diff([]string{text(third["id"]), text(second["id"]), text(first["id"])}, active); d != "" {
		t.Errorf("active runs: %s", d)
	}
	// One that waits is cancelled, the others run in order.
	if got := r.post("/v1/agents/"+a+"/messages/cancel", map[string]any{"run_ids": []any{second["id"], "run-x"}}); got[text(second["id"])] != "cancelled" || got["run-x"] != "failed" {
		t.Errorf("cancel: %v", got)
	}
	stopped := r.stream("POST", "/v1/runs/"+text(second["id"])+"/stream", nil)
	if d := cmp.Diff([]string{"stop_reason", "usage_statistics", "[DONE]"}, kinds(stopped)); d != "" || stopped[0].chunk["stop_reason"] != "cancelled" {
		t.Errorf("stream of a run that never began: %s %v", d, stopped[0].data)
	}
	close(gate)
	r.ended(text(third["id"]))
	run := r.get("/v1/runs/" + text(third["id"]))
	result := run["metadata"].(map[string]any)["result"].(map[string]any)
	messages := result["messages"].([]any)
	if run["status"] != "completed" || run["stop_reason"] != "end_turn" || text(messages[0].(map[string]any)["content"]) != "re: three" {
		t.Errorf("third run: %v", run)
	}
	if got := r.get("/v1/runs/" + text(second["id"])); got["status"] != "cancelled" || got["stop_reason"] != "cancelled" {
		t.Errorf("cancelled run: %v", got)
	}
}

// ended waits for the end of a run.
func (r *rig) ended(run string) map[string]any {
	r.t.Helper()
	var got map[string]any
	waitFor(r.t, "the end of "+run, func() bool {
		got = r.get("/v1/runs/" + run)
		return got["completed_at"] != nil
	})
	return got
}

func TestBusy(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{})
	model := fake.New(
		fake.Answer{fake.Signal(reached), fake.Gate(gate), fake.Text("one")},
		fake.Answer{fake.Text("two")},
	)
	r := start(t, model)
	a := r.agent(nil)
	var wg sync.WaitGroup
	wg.Go(func() { r.post("/v1/agents/"+a+"/messages", say("one")) })
	<-reached
	run := r.do("GET", "/v1/runs/?agent_id="+a, nil).list()[0]
	for _, path := range []string{
		"POST /v1/conversations/" + a + "/messages", "POST /v1/conversations/default/messages",
		"POST /v1/agents/" + a + "/summarize", "POST /v1/conversations/" + a + "/compact",
	} {
		method, path, _ := strings.Cut(path, " ")
		resp := r.do(method, path, map[string]any{"input": "x", "agent_id": a})
		resp.want(409, "is currently being processed", "run_id="+text(run["id"]), `"run_id":"`+text(run["id"])+`"`)
		if resp.Header.Get("x-should-retry") != "false" {
			t.Errorf("%s: x-should-retry is %q", path, resp.Header.Get("x-should-retry"))
		}
	}
	r.do("PATCH", "/v1/agents/"+a+"/reset-messages", map[string]any{}).want(409, "is currently being processed")
	wg.Go(func() { r.post("/v1/agents/"+a+"/messages", say("two")) }) // waits
	waitFor(t, "the waiting send", func() bool { return len(model.Requests()) == 1 })
	close(gate)
	wg.Wait()
}

// TestWaitingTwice: a client that gave up waiting and tries again begins one turn.
func TestWaitingTwice(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{})
	model := fake.New(
		fake.Answer{fake.Signal(reached), fake.Gate(gate), fake.Text("one")},
		fake.Answer{fake.Text("two")},
	)
	r := start(t, model)
	a := r.agent(nil)
	path := "/v1/agents/" + a + "/messages"
	var wg sync.WaitGroup
	wg.Go(func() { r.post(path, say("one")) })
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if resp, err := r.http.Do(r.request(ctx, "POST", path, keyed("k", "two", nil))); err == nil {
			resp.Body.Close()
		}
	})
	time.Sleep(20 * time.Millisecond)
	cancel()
	got := make([]map[string]any, 2)
	for i := range got {
		wg.Go(func() { got[i] = r.post(path, keyed("k", "two", nil)) })
	}
	time.Sleep(20 * time.Millisecond)
	close(gate)
	wg.Wait()
	if d := cmp.Diff(got[0], got[1]); d != "" {
		t.Errorf("the answers differ:\n%s", d)
	}
	if n := users(r.do("GET", path, nil).list()); n != 2 {
		t.Errorf("%d user messages are stored", n)
	}
}

// TestLeft: a client that goes does not stop the turn.
func TestLeft(t *testing.T) {
	gate, reached := make(chan struct{}), make(chan struct{}, 2)
	model := fake.NewFunc(func(*llm.Request) fake.Answer {
		return fake.Answer{fake.Text("a"), fake.Do(func(context.Context, *llm.Request) error { reached <- struct{}{}; return nil }), fake.Gate(gate), fake.Text("b")}
	})
	r := start(t, model)
	a := r.agent(nil)
	for i, options := range []map[string]any{{"streaming": false}, {"stream_tokens": true}} {
		conv := r.conversation(a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := r.http.Do(r.request(ctx, "POST", "/v1/conversations/"+conv+"/messages", with(say("x"), options)))
			if err == nil {
				for next, ok := eventScanner(resp.Body), true; ok; {
					_, ok = next()
				}
				resp.Body.Close()
			}
		}()
		<-reached
		cancel()
		<-done
		gate <- struct{}{}
		run := r.do("GET", "/v1/runs/?conversation_id="+conv, nil).list()[0]
		if got := r.ended(text(run["id"])); got["status"] != "completed" {
			t.Errorf("%d: the run is %v", i, got["status"])
		}
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	model := fake.New(fake.Answer{fake.Text("a"), fake.Gate(gate), fake.Text("b")}, fake.Answer{fake.Text("c")})
	r := start(t, model)
	a := r.agent(nil)
	conv := r.conversation(a)
	path := "/v1/conversations/" + conv + "/messages"
	ctx, cancel := context.WithTimeout(t.Context(), transcript.Patience)
	defer cancel()
	resp, err := r.http.Do(r.request(ctx, "POST", path, keyed("key-1", "hi", map[string]any{"background": true, "stream_tokens": true})))
	if err != nil {
		t.Fatal(err)
	}
	next := eventScanner(resp.Body)
	next()
	ev, _ := next()
	resp.Body.Close()
	run := text(ev.chunk["run_id"])
	stream := "/v1/runs/" + run + "/stream"
	check := func() {
		t.Helper()
		for _, position := range []any{"x", "12x", -1, 1.5, true, []int{1}} {
			r.do("POST", stream, map[string]any{"starting_after": position}).want(400, "INVALID_ARGUMENT")
		}
		r.do("GET", stream+"?starting_after=x", nil).want(400, "INVALID_ARGUMENT")
		req := r.request(t.Context(), "GET", stream, nil)
		req.Header.Set("Last-Event-ID", "abc")
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("Last-Event-ID abc: %d", resp.StatusCode)
		}
	}
	check()
	r.do("POST", stream, map[string]any{"starting_after": 7}).want(400, "POSITION_AHEAD", `"latest":2`)
	close(gate)
	r.ended(run)
	check()
	all := r.stream("POST", stream, "")
	last := len(all) - 1 // [DONE] has no number
	r.do("POST", stream, map[string]any{"starting_after": last + 1}).want(400, "POSITION_AHEAD", fmt.Sprintf(`"latest":%d`, last))
	if got := r.stream("POST", stream, map[string]any{"starting_after": last}); len(got) != 1 || got[0].data != "[DONE]" {
		t.Errorf("behind the last event: %v", data(got))
	}
	for _, body := range []any{nil, "null", "{}", map[string]any{"starting_after": nil}} {
		if d := cmp.Diff(data(all), data(r.stream("POST", stream, body))); d != "" {
			t.Errorf("body %v: %s", body, d)
		}
	}
	// The same by the conversation.
	byConv := "/v1/conversations/" + conv + "/stream"
	if d := cmp.Diff(data(all), data(r.stream("POST", byConv, map[string]any{"otid": "key-1"}))); d != "" {
		t.Errorf("by otid: %s", d)
	}
	r.do("POST", byConv, nil).want(400, "No active runs found for this conversation")
	r.do("POST", byConv, map[string]any{"otid": "none"}).want(404, "No run found for otid=none")
	r.do("POST", byConv, map[string]any{"run_id": "run-x"}).want(404)
	r.do("POST", "/v1/runs/run-x/stream", nil).want(400, "INVALID_ARGUMENT: Invalid run ID format")
	r.do("POST", "/v1/runs/run-00000000-0000-4000-8000-000000000000/stream", nil).want(404)
	r.post("/v1/agents/"+a+"/messages", say("x"))
	plain := r.do("GET", "/v1/runs/?agent_id="+a+"&background=false", nil).list()[0]
	r.do("POST", "/v1/runs/"+text(plain["id"])+"/stream", nil).want(400, "not created in background mode")
	// Past the retention.
	if _, err := r.Store.PruneEvents(t.Context(), time.Now().Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.do("POST", stream, nil).want(http.StatusGone, "EXPIRED", `"oldest":null`)
	old := fold(t, chunks(r.stream("POST", path, keyed("key-1", "hi", map[string]any{"background": true, "stream_tokens": true}))))
	if d := cmp.Diff(fold(t, chunks(all)), old); d != "" {
		t.Errorf("the stored messages (+) differ from the stream that is gone (-):\n%s", d)
	}
}

// TestF02FirstMessages: a hundred first messages at once, all with the same key, and
// as many with keys of their own: one turn for each key.
func TestF02FirstMessages(t *testing.T) {
	model := fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text("hello")} })
	l := live(t, model)
	a := l.armed()
	path := "/v1/agents/" + a + "/messages"
	var wg sync.WaitGroup
	answers := make([]string, 100)
	for i := range answers {
		wg.Go(func() { answers[i] = string(l.do("POST", path, keyed("first", "hi", nil)).want(200).Body) })
		if i%4 == 0 {
			wg.Go(func() { l.do("POST", path, keyed(fmt.Sprint("own-", i), "hi", nil)).want(200) })
		}
	}
	wg.Wait()
	for _, got := range answers {
		if got != answers[0] {
			t.Fatalf("one key, two answers:\n%s\n%s", answers[0], got)
		}
	}
	if n, asked := users(l.do("GET", path+"?limit=1000", nil).list()), len(model.Requests()); n != 26 || asked != 26 {
		t.Errorf("%d messages are stored, the model was asked %d times", n, asked)
	}
}
