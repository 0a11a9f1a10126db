package rest_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/store"
	"mneme/internal/tool"
	"mneme/internal/transcript"
)

// The tests of this file are named after the reports of real users that they come
// from.

// TestA02OneEnd: every kind of turn has one end, in one order, on every kind of
// answer. After an error there is no usage: the contract says so
// (spec/rest.md section 5.2).
func TestA02OneEnd(t *testing.T) {
	call := func(name string) fake.Answer { return fake.Answer{fake.CallID("c1", name, `{"text":"x"}`)} }
	tests := map[string]struct {
		model []fake.Answer
		then  map[string]any // answers what waits
		stop  string
	}{
		"plain":         {[]fake.Answer{{fake.Text("a")}}, nil, "end_turn"},
		"no usage":      {[]fake.Answer{{fake.Text("a"), fake.NoUsage()}}, nil, "end_turn"},
		"tool":          {[]fake.Answer{call("TaskCreate"), {fake.Text("a")}}, nil, "end_turn"},
		"unknown tool":  {[]fake.Answer{call("nothing"), {fake.Text("a")}}, nil, "end_turn"},
		"panic":         {[]fake.Answer{call("TaskGet"), {fake.Text("a")}}, nil, "end_turn"},
		"asks":          {[]fake.Answer{call("TaskUpdate")}, nil, "requires_approval"},
		"allowed":       {[]fake.Answer{call("TaskUpdate"), {fake.Text("a")}}, answer(approve("c1")), "end_turn"},
		"denied":        {[]fake.Answer{call("TaskUpdate"), {fake.Text("a")}}, answer(deny("c1", "no")), "end_turn"},
		"client tool":   {[]fake.Answer{call("where_am_i"), {fake.Text("a")}}, answer(returned("c1", "x")), "end_turn"},
		"failure":       {[]fake.Answer{{fake.Status(400, "no")}}, nil, "llm_api_error"},
		"later failure": {[]fake.Answer{call("TaskCreate"), call("TaskCreate"), call("TaskCreate"), {fake.Text("a"), fake.Status(400, "no")}}, nil, "llm_api_error"},
		"length":        {[]fake.Answer{{fake.Text("a"), fake.Finish(llm.FinishLength)}}, nil, "max_tokens_exceeded"},
	}
	broken := func(l *life) {
		l.tools = append(l.tools, &tool.Tool{
			Def: agent.ToolDef{Name: "TaskGet", Parameters: []byte(`{"type":"object"}`)},
			Run: func(context.Context, *tool.Call) agent.ToolResult { panic("a tool is broken") },
		})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, options := range []map[string]any{
				{"streaming": false}, {"stream_tokens": false}, {"stream_tokens": true}, {"background": true}, {"include_pings": false},
			} {
				l := live(t, fake.New(test.model...), broken)
				conv := l.allowed(l.armed(), "TaskCreate", "TaskGet")
				path := "/v1/conversations/" + conv + "/messages"
				options = with(options, map[string]any{"client_tools": place})
				resp := l.do("POST", path, with(say("x"), options))
				if test.then != nil {
					resp = l.do("POST", path, with(test.then, options))
				}
				run := l.do("GET", "/v1/runs/?conversation_id="+conv+"&limit=1", nil).list()[0]
				failed := test.stop == "llm_api_error"
				if run["stop_reason"] != test.stop || (run["status"] == "failed") != (failed || test.stop == "max_tokens_exceeded") {
					t.Errorf("%s: the run is %v, %v", name, run["status"], run["stop_reason"])
				}
				switch {
				case options["streaming"] == false && failed, options["include_pings"] == false && name == "failure":
					resp.want(400, `"type":"llm_bad_request"`)
				case options["streaming"] == false:
					out := resp.object()
					if out["stop_reason"].(map[string]any)["stop_reason"] != test.stop || out["usage"].(map[string]any)["message_type"] != "usage_statistics" {
						t.Errorf("%s: %s", name, resp.Body)
					}
				default:
					all := events(t, bytes.NewReader(resp.Body))
					got := kinds(all)
					want := []string{"stop_reason", "usage_statistics", "[DONE]"}
					if failed {
						want[1] = "error_message"
					}
					if len(got) < 3 || !cmp.Equal(got[len(got)-3:], want) || strings.Count(string(resp.Body), `"message_type":"stop_reason"`) != 1 {
						t.Errorf("%s %v: %v", name, options["background"], got)
					} else if stop := all[len(got)-3].chunk["stop_reason"]; stop != test.stop {
						t.Errorf("%s: stop reason %v", name, stop)
					}
				}
				l.stop()
			}
		})
	}
}

// TestA07RudeClients: two hundred streams are torn down while events flow; every
// route answers afterwards, and nothing is left of them.
func TestA07RudeClients(t *testing.T) {
	gate := make(chan struct{})
	var begun atomic.Int32
	model := fake.NewFunc(func(*llm.Request) fake.Answer {
		a := fake.Answer{fake.Do(func(context.Context, *llm.Request) error { begun.Add(1); return nil })}
		for range 200 {
			a = append(a, fake.Text(strings.Repeat("x", 100)))
		}
		return append(a, fake.Gate(gate), fake.Text("end"))
	})
	l := live(t, model)
	a := l.armed()
	before := runtime.NumGoroutine()
	const n = 100
	var conns []net.Conn
	var convs []string
	for i := range n {
		conv := l.conversation(a)
		convs = append(convs, conv)
		c, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"input":"x","stream_tokens":true,"background":%v}`, i%2 == 0)
		fmt.Fprintf(c, "POST /v1/conversations/%s/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", conv, len(body), body)
		conns = append(conns, c)
	}
	waitFor(t, "the streams", func() bool { return begun.Load() == n })
	for _, c := range conns {
		c.(*net.TCPConn).SetLinger(0) // ends with a reset
		c.Close()
	}
	l.do("GET", "/v1/agents/", nil).want(200)
	l.do("GET", "/v1/agents/"+a+"/messages", nil).want(200)
	l.do("GET", "/v1/runs/?active=true", nil).want(200)
	close(gate)
	waitFor(t, "the runs", func() bool { return len(l.do("GET", "/v1/runs/?active=true", nil).list()) == 0 })
	for _, conv := range convs {
		if got := l.do("GET", "/v1/conversations/"+conv+"/messages?limit=1", nil).list(); !strings.HasSuffix(text(got[0]["content"]), "xend") {
			t.Fatalf("the answer of %s ends with %q", conv, text(got[0]["content"]))
		}
	}
	l.http.CloseIdleConnections()
	// An actor and its timers linger for each conversation.
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() < before+n+30 })
}

// TestA09SlowReader: fifty thousand small deltas, read in stalls: nothing is lost, and
// nobody waits for the reader.
func TestA09SlowReader(t *testing.T) {
	const pieces = 50_000
	done := make(chan struct{})
	model := fake.NewFunc(func(*llm.Request) fake.Answer {
		return fake.Answer{
			fake.Do(func(context.Context, *llm.Request) error { return nil }),
			func() fake.Step {
				var all []string
				for i := range pieces {
					all = append(all, fmt.Sprint(i, " "))
				}
				return fake.Text(all...)
			}(),
			fake.Do(func(context.Context, *llm.Request) error { close(done); return nil }),
		}
	})
	l := live(t, model)
	a := l.armed()
	ctx, cancel := context.WithTimeout(t.Context(), transcript.Patience)
	defer cancel()
	resp, err := l.http.Do(l.request(ctx, "POST", "/v1/agents/"+a+"/messages", map[string]any{"input": "x", "streaming": true, "stream_tokens": true}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-done // the model is not held up by a reader that does not read
	next := eventScanner(resp.Body)
	var got strings.Builder
	n := 0
	for {
		ev, ok := next()
		if !ok || ev.data == "[DONE]" {
			break
		}
		if n++; n%200 == 0 {
			time.Sleep(time.Millisecond)
		}
		got.WriteString(text(ev.chunk["content"]))
	}
	list := l.do("GET", "/v1/agents/"+a+"/messages?limit=1", nil).list()
	if want := text(list[0]["content"]); got.String() != want || !strings.HasSuffix(want, "49999 ") {
		t.Errorf("%d bytes came of %d", got.Len(), len(want))
	}
}

// TestA16OwnRun: what a cancelled turn still says is not in the stream of the next.
func TestA16OwnRun(t *testing.T) {
	reached := make(chan struct{})
	model := fake.New(
		fake.Answer{fake.Reasoning("old"), fake.Text("old"), fake.Signal(reached), fake.Hang()},
		fake.Answer{fake.Reasoning("thinking"), fake.Status(400, "no")},
		fake.Answer{fake.Text("new")},
	)
	l := live(t, model)
	conv := l.conversation(l.armed())
	path := "/v1/conversations/" + conv
	var wg sync.WaitGroup
	wg.Go(func() { l.stream("POST", path+"/messages", map[string]any{"input": "1", "stream_tokens": true}) })
	<-reached
	l.post(path+"/cancel", nil)
	wg.Wait()
	for i, want := range []string{"", "new"} {
		all := l.stream("POST", path+"/messages", map[string]any{"input": "2", "stream_tokens": true})
		var said string
		runs := map[any]bool{}
		for _, ev := range all {
			if ev.chunk["message_type"] == "assistant_message" {
				said += text(ev.chunk["content"])
			}
			if run := ev.chunk["run_id"]; run != nil {
				runs[run] = true
			}
		}
		if said != want || len(runs) != 1 {
			t.Errorf("turn %d said %q in %d runs", i+2, said, len(runs))
		}
	}
}

// TestA06NeverSilent, A05 and the rest of resuming: see TestPositions, TestResume.

// TestD03CompactionTold: a compaction within a turn is told where it is asked for, and
// nowhere else; its numbers are right.
func TestD03CompactionTold(t *testing.T) {
	for _, options := range []map[string]any{
		{"streaming": false}, {"streaming": false, "include_compaction_messages": true},
		{"background": true}, {"background": true, "include_compaction_messages": true}, {"stream_tokens": true, "include_compaction_messages": true},
	} {
		model := fake.NewFunc(func(req *llm.Request) fake.Answer {
			last := req.Messages[len(req.Messages)-1]
			if req.Tools == nil && strings.Contains(req.System, "summ") && !strings.Contains(agent.TextOf(last.Parts), "now") {
				return fake.Answer{fake.Text("They talked.")}
			}
			return fake.Answer{fake.Text("ok"), fake.Usage(agent.Usage{Input: 7000, Output: 10})}
		})
		l := live(t, model)
		a := l.agent(map[string]any{"include_base_tools": false, "context_window_limit": 8000, "system": "Be brief. You never summarise."})
		path := "/v1/agents/" + a + "/messages"
		for i := range 4 {
			l.post(path, say(fmt.Sprint("word ", i, strings.Repeat(" filler", 300))))
		}
		conv := "/v1/conversations/" + a + "/messages"
		resp := l.do("POST", conv, with(say("now"), options))
		resp.want(200)
		list := l.do("GET", path+"?include_return_message_types=summary_message&limit=100", nil).list()
		if len(list) == 0 {
			t.Fatalf("nothing was compacted: %s", resp.Body)
		}
		stats := list[len(list)-1]["compaction_stats"].(map[string]any)
		if stats["trigger"] != "post_step_context_check" || stats["messages_count_before"].(float64) <= stats["messages_count_after"].(float64) {
			t.Errorf("stats: %v", stats)
		}
		old := l.do("GET", path+"?include_return_message_types=user_message&limit=100", nil).list()
		packed := 0
		for _, m := range old {
			if strings.Contains(text(m["content"]), `"type":"system_alert"`) && strings.Contains(text(m["content"]), "compaction_stats") {
				packed++
			}
		}
		if packed != len(list) {
			t.Errorf("%d packed summaries for %d", packed, len(list))
		}
		told := strings.Count(string(resp.Body), `"message_type":"summary_message"`)
		announced := strings.Count(string(resp.Body), `"event_type":"compaction"`)
		want := 0
		if options["include_compaction_messages"] == true {
			want = 1
		}
		if told != want || announced != want || strings.Contains(string(resp.Body), "system_alert") {
			t.Errorf("%v: told %d times, announced %d times: %s", options, told, announced, resp.Body)
		}
	}
}

// TestCompactRoutes: reset, summarize and compact of spec/rest.md sections 8.7 and 8.8.
func TestCompactRoutes(t *testing.T) {
	model := fake.NewFunc(func(req *llm.Request) fake.Answer {
		if len(req.Tools) == 0 && req.CacheKey == "" {
			return fake.Answer{fake.Text("They talked.")}
		}
		return fake.Answer{fake.Text("ok")}
	})
	l := live(t, model)
	a := l.armed()
	path := "/v1/agents/" + a
	if got := l.post(path+"/summarize", nil); got["summary"] != "" || got["num_messages_before"] != 1.0 || got["num_messages_after"] != 1.0 {
		t.Errorf("nothing to sum up: %v", got)
	}
	conv := l.conversation(a)
	l.do("POST", "/v1/conversations/"+conv+"/compact", nil).want(400, "Summarization failed to reduce the number of messages")
	for i := range 3 {
		l.post(path+"/messages", say(fmt.Sprint("word ", i)))
	}
	l.do("POST", path+"/summarize", map[string]any{"compaction_settings": map[string]any{"mode": "none"}}).want(422, "compaction_settings.mode")
	got := l.post(path+"/summarize", map[string]any{"compaction_settings": map[string]any{"mode": "all", "clip_chars": nil}})
	if got["summary"] != "They talked." || got["num_messages_before"] != 7.0 || got["num_messages_after"] != 2.0 {
		t.Errorf("summarize: %v", got)
	}
	if got := l.get(path)["message_ids"].([]any); len(got) != 2 {
		t.Errorf("context: %v", got)
	}
	all := l.do("GET", path+"/messages?limit=100", nil).list()
	if n := users(all); n != 4 { // the summary shows as one
		t.Errorf("%d user messages are listed", n)
	}
	l.do("PATCH", path+"/reset-messages", nil).want(422)
	st := l.patch(path+"/reset-messages", map[string]any{"add_default_initial_messages": true})
	if got := st["message_ids"].([]any); st["id"] != a || len(got) != 1 {
		t.Errorf("reset: %v", got)
	}
	after := l.do("GET", path+"/messages?limit=100", nil).list()
	if len(after) != len(all)+1 || users(after) != 4 {
		t.Errorf("after the reset %d messages are listed, before it %d", len(after), len(all))
	}
}

// TestJ05Search: messages of all forms are found by their text, also those that the
// model no longer sees.
func TestJ05Search(t *testing.T) {
	model := fake.New(
		fake.Answer{fake.Reasoning("pondering marmalade"), fake.Text("I like toast.")},
		fake.Answer{fake.Text("Fine.")},
	)
	l := live(t, model)
	a := l.armed()
	path := "/v1/agents/" + a
	l.post(path+"/messages", say("Where is my umbrella?"))
	conv := l.conversation(a)
	l.post("/v1/conversations/"+conv+"/messages", map[string]any{"streaming": false, "messages": []map[string]any{
		{"role": "user", "content": []map[string]any{{"type": "text", "text": "First the zeppelin,"}, {"type": "text", "text": "then the café."}}},
	}})
	l.patch(path+"/reset-messages", map[string]any{})
	find := func(query string, more map[string]any) []map[string]any {
		t.Helper()
		return l.do("POST", "/v1/messages/search", with(map[string]any{"query": query}, more)).list()
	}
	for query, typ := range map[string]string{
		"umbrella": "user_message", "toast": "assistant_message", "marmalade": "reasoning_message", "zeppelin": "user_message", "CAFÉ": "user_message",
	} {
		got := find(query, nil)
		if len(got) == 0 || got[0]["message_type"] != typ || got[0]["message_id"] == nil || got[0]["id"] != nil || got[0]["agent_id"] != a || got[0]["created_at"] == nil {
			t.Errorf("%s: %v", query, got)
		}
	}
	if got := find("zeppelin", map[string]any{"conversation_id": conv}); len(got) != 1 || got[0]["conversation_id"] != conv {
		t.Errorf("in the conversation: %v", got)
	}
	for name, more := range map[string]map[string]any{
		"another agent": {"agent_id": "agent-00000000-0000-4000-8000-000000000001"}, "before": {"end_date": "2001-01-01T00:00:00Z"},
		"own": {"conversation_id": "default", "agent_id": a},
	} {
		if got := find("zeppelin", more); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, body := range []string{`{}`, `{"query":"x","limit":0}`, `{"query":"x","limit":101}`, `{"query":"x","search_mode":"magic"}`, `{"query":"x","start_date":"soon"}`} {
		l.do("POST", "/v1/messages/search", body).want(422)
	}
}

// TestF01AllDoors: inputs of every kind meet in one conversation; each that was taken
// is answered once.
func TestF01AllDoors(t *testing.T) {
	model := fake.NewFunc(func(req *llm.Request) fake.Answer {
		last := req.Messages[len(req.Messages)-1]
		return fake.Answer{fake.Text("re " + agent.TextOf(last.Parts))}
	})
	l := live(t, model)
	a := l.armed()
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := map[string]bool{}
	take := func(s string) { mu.Lock(); defer mu.Unlock(); taken[s] = true }
	own, err := l.st.OwnConversation(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		for kind, path := range map[string]string{
			"sync": "/v1/agents/" + a + "/messages", "async": "/v1/agents/" + a + "/messages/async", "conversation": "/v1/conversations/" + a + "/messages",
		} {
			wg.Go(func() {
				said := fmt.Sprint(kind, " ", i)
				resp := l.do("POST", path, say(said))
				switch resp.Status {
				case 200:
					take(said)
				case 409:
					if kind != "conversation" {
						t.Errorf("%s: %s", said, resp.Body)
					}
				default:
					t.Errorf("%s: %d %s", said, resp.Status, resp.Body)
				}
			})
		}
		wg.Go(func() {
			said := fmt.Sprint("app ", i)
			_, err := l.rt.Submit(t.Context(), &agent.Input{
				AgentID: a, ConversationID: own.ID, Door: agent.DoorSchedule, Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(said)}}},
			}, nil)
			if err != nil {
				t.Errorf("%s: %v", said, err)
			}
			take(said)
		})
	}
	wg.Wait()
	waitFor(t, "the queue to be empty", func() bool { return len(l.do("GET", "/v1/runs/?active=true", nil).list()) == 0 && !busy(t, l, own) })
	msgs, err := l.st.Messages(t.Context(), store.MessageFilter{ConversationID: own.ID})
	if err != nil {
		t.Fatal(err)
	}
	asked, answered := map[string]int{}, 0
	for _, m := range msgs {
		switch m.Role {
		case agent.RoleUser:
			asked[agent.TextOf(m.Parts)]++
		case agent.RoleAssistant:
			answered++
		}
	}
	for said := range taken {
		if asked[said] != 1 {
			t.Errorf("%q is stored %d times", said, asked[said])
		}
	}
	if len(asked) != len(taken) || answered == 0 {
		t.Errorf("%d messages were taken, %d are stored", len(taken), len(asked))
	}
}

func busy(t *testing.T, l *life, conv *agent.Conversation) bool {
	s, err := l.rt.Status(t.Context(), agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID})
	return err == nil && (s.Processing || len(s.Queue) > 0)
}
