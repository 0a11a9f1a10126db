package rest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
)

// A shown is what a client has of one variant once it has put the pieces together.
type shown struct {
	Type, ID, OTID, Step, Run string
	Text                      string
	Calls                     []string // "id name(arguments)"
}

// fold puts the pieces of a stream, or of a list, together as clients do.
func fold(t testing.TB, all []map[string]any) []shown {
	t.Helper()
	var out []shown
	calls := map[string]int{}
	for _, c := range all {
		s := shown{Type: text(c["message_type"]), ID: text(c["id"]), OTID: text(c["otid"]), Step: text(c["step_id"]), Run: text(c["run_id"])}
		switch s.Type {
		case "ping", "stop_reason", "usage_statistics", "error_message", "user_message", "system_message", "event_message", "approval_response_message":
			continue
		case "assistant_message":
			s.Text = text(c["content"])
		case "reasoning_message":
			s.Text = text(c["reasoning"])
		case "tool_return_message":
			for _, r := range c["tool_returns"].([]any) {
				m := r.(map[string]any)
				s.Calls = append(s.Calls, text(m["tool_call_id"])+" "+text(m["status"])+" "+text(m["tool_return"]))
			}
		case "tool_call_message", "approval_request_message":
			switch v := c["tool_calls"].(type) {
			case []any:
				for _, one := range v {
					m := one.(map[string]any)
					s.Calls = append(s.Calls, text(m["tool_call_id"])+" "+text(m["name"])+"("+text(m["arguments"])+")")
				}
			case map[string]any:
				s.Calls = []string{text(v["tool_call_id"]) + " " + text(v["name"]) + "(" + text(v["arguments"]) + ")"}
			}
		}
		i := slices.IndexFunc(out, func(o shown) bool { return o.ID == s.ID && o.OTID == s.OTID && o.Type == s.Type })
		if i < 0 {
			out = append(out, s)
			continue
		}
		out[i].Text += s.Text
		for _, call := range s.Calls {
			id, rest, _ := strings.Cut(call, " ")
			j := slices.IndexFunc(out[i].Calls, func(c string) bool { return strings.HasPrefix(c, id+" ") })
			if j < 0 {
				out[i].Calls = append(out[i].Calls, call)
				continue
			}
			// The name came first; this is a piece of the arguments.
			arguments := strings.TrimSuffix(strings.TrimPrefix(rest, "("), ")")
			out[i].Calls[j] = strings.TrimSuffix(out[i].Calls[j], ")") + arguments + ")"
		}
	}
	_ = calls
	return out
}

func chunks(all []sseEvent) []map[string]any {
	var out []map[string]any
	for _, ev := range all {
		if ev.chunk != nil {
			out = append(out, ev.chunk)
		}
	}
	return out
}

// pieces are texts that are hard to cut: several scripts, an emoji of several code
// points, line separators, and what JSON or SSE might take for their own.
var pieces = []string{
	"a", " b", "\n", "\n\n", "data: x", "héllo ", "日本", "👩‍👩‍👧", "\u2028", `"quoted\"`, "</script>", "مرحبا", "  ", ": c", "\r\n", "\t", "{}", "[DONE]",
}

func randomAnswer(r *rand.Rand, n int) fake.Answer {
	var a fake.Answer
	for range r.IntN(4) {
		var some []string
		for range 1 + r.IntN(5) {
			some = append(some, pieces[r.IntN(len(pieces))])
		}
		switch r.IntN(5) {
		case 0:
			a = append(a, fake.Part(partMeta(`{"n":`+strconv.Itoa(n)+`}`)))
		case 1, 2:
			a = append(a, fake.Reasoning(some...))
		default:
			a = append(a, fake.Text(some...))
		}
	}
	return a
}

// randomTurn is some answers with calls and a last one without.
func randomTurn(r *rand.Rand, n int) []fake.Answer {
	var turn []fake.Answer
	for i := range r.IntN(3) {
		a := randomAnswer(r, n)
		for j := range 1 + r.IntN(3) {
			name := []string{"TaskCreate", "TaskUpdate", "no_such_tool"}[r.IntN(3)]
			a = append(a, fake.CallID(fmt.Sprintf("c_%d_%d_%d", n, i, j), name, fmt.Sprintf(`{"text":%q}`, pieces[r.IntN(3)])))
		}
		turn = append(turn, a)
	}
	return append(turn, append(randomAnswer(r, n), fake.Text("end")))
}

// TestPieces plays random turns and compares what clients put together from streams
// with what is listed and answered.
func TestPieces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	model := fake.New()
	l := live(t, model)
	a := l.armed()
	for n := range 40 {
		conv := l.allowed(a, "TaskCreate", "TaskUpdate")
		model.Add(randomTurn(random, n)...)
		path := "/v1/conversations/" + conv + "/messages"
		tokens, background := n%4 < 3, n%2 == 0
		all := l.stream("POST", path, map[string]any{"input": "go", "stream_tokens": tokens, "background": background})
		got := fold(t, chunks(all))
		listed := fold(t, l.do("GET", path+"?order=asc&limit=1000", nil).list())
		if tokens {
			// What has nothing to stream comes after the rest of its message there.
			sortHidden(got)
			sortHidden(listed)
		}
		if d := cmp.Diff(listed, got); d != "" {
			t.Fatalf("seed %d, turn %d: the stream (+) differs from the list (-):\n%s", seed, n, d)
		}
		run := text(all[0].chunk["run_id"])
		ofRun := fold(t, l.do("GET", "/v1/runs/"+run+"/messages", nil).list())
		if tokens {
			sortHidden(ofRun)
		}
		if d := cmp.Diff(listed, ofRun); d != "" {
			t.Fatalf("seed %d, turn %d: the messages of the run (+) differ from the list (-):\n%s", seed, n, d)
		}
		if background {
			again := l.stream("POST", "/v1/runs/"+run+"/stream", nil)
			if d := cmp.Diff(data(all), data(again)); d != "" {
				t.Fatalf("seed %d, turn %d: the stream shown again differs:\n%s", seed, n, d)
			}
		}
		tail := kinds(all)[len(all)-3:]
		if d := cmp.Diff([]string{"stop_reason", "usage_statistics", "[DONE]"}, tail); d != "" {
			t.Fatalf("the end of the stream: %v", tail)
		}
	}
}

func data(all []sseEvent) []string {
	var out []string
	for _, ev := range all {
		out = append(out, ev.id+" "+ev.data)
	}
	return out
}

func sortHidden(all []shown) {
	slices.SortStableFunc(all, func(a, b shown) int {
		if a.ID != b.ID {
			return 0
		}
		ah, bh := a.Type == "hidden_reasoning_message", b.Type == "hidden_reasoning_message"
		switch {
		case ah == bh:
			return 0
		case ah:
			return 1
		}
		return -1
	})
}

// slowModel answers a turn of three steps in many pieces; feed lets pieces out.
func slowModel(feed <-chan struct{}) *fake.Model {
	return fake.NewFunc(func(req *llm.Request) fake.Answer {
		results := 0
		for _, m := range req.Messages {
			if m.Role == agent.RoleTool {
				results++
			}
		}
		var a fake.Answer
		for i := range 40 {
			a = append(a, fake.Gate(feed), fake.Text(fmt.Sprintf("w%d.%d ", results, i)))
		}
		if results < 2 {
			a = append(a, fake.CallID(fmt.Sprintf("c%d", results), "TaskCreate", `{"text":"x"}`))
		}
		return a
	})
}

// TestResume cuts a background stream at 50 random points, and restarts the server
// four times meanwhile: every event comes once and in order.
func TestResume(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	feed := make(chan struct{}, 1<<16)
	l := live(t, slowModel(feed))
	conv := l.allowed(l.armed(), "TaskCreate")

	var got []string
	run := ""
	ended := false
	// read takes some events of a stream that goes on behind what was read.
	read := func(method, path string, body any, most int, change ...func(*http.Request)) {
		t.Helper()
		for range most {
			feed <- struct{}{} // a piece for each event, and a few are lost by restarts
		}
		ctx, cancel := context.WithTimeout(t.Context(), transcript.Patience)
		defer cancel()
		patience := time.AfterFunc(300*time.Millisecond, cancel) // another cut
		defer patience.Stop()
		req := l.request(ctx, method, path, body)
		for _, f := range change {
			f(req)
		}
		resp, err := l.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("%s: status %d", path, resp.StatusCode)
		}
		next := eventScanner(resp.Body)
		for range most {
			ev, ok := next()
			if !ok {
				return // the server was stopped
			}
			if ev.data == "[DONE]" {
				ended = true
				return
			}
			run = text(ev.chunk["run_id"])
			if ev.id != strconv.Itoa(len(got)+1) || ev.chunk["seq_id"] != float64(len(got)+1) {
				t.Fatalf("seed %d: event %s (seq_id %v) came after event %d: %s", seed, ev.id, ev.chunk["seq_id"], len(got), ev.data)
			}
			got = append(got, ev.data)
		}
	}
	read("POST", "/v1/conversations/"+conv+"/messages",
		map[string]any{"input": "go", "stream_tokens": true, "background": true}, 3)
	for cut := range 50 {
		if ended {
			break
		}
		if cut%12 == 11 {
			l.restart()
		}
		after := len(got)
		body := map[string]any{"starting_after": after, "include_pings": false}
		switch cut % 4 {
		case 0:
			read("POST", "/v1/runs/"+run+"/stream", body, random.IntN(6))
		case 1:
			read("POST", "/v1/conversations/"+conv+"/stream", with(body, map[string]any{"run_id": run}), random.IntN(6))
		case 2:
			read("GET", "/v1/runs/"+run+"/stream", nil, random.IntN(6), func(r *http.Request) { r.Header.Set("Last-Event-ID", strconv.Itoa(after)) })
		default:
			read("GET", "/v1/runs/"+run+"/stream?starting_after="+strconv.Itoa(after), nil, random.IntN(6))
		}
	}
	close(feed)
	for !ended {
		rest := l.stream("POST", "/v1/runs/"+run+"/stream", map[string]any{"starting_after": len(got)})
		for _, ev := range rest {
			if ended = ev.data == "[DONE]"; !ended {
				got = append(got, ev.data)
			}
		}
	}
	all := l.stream("POST", "/v1/runs/"+run+"/stream", nil)
	var again []string
	for _, ev := range all[:len(all)-1] {
		again = append(again, ev.data)
	}
	if d := cmp.Diff(got, again); d != "" {
		t.Errorf("seed %d: what was read in pieces (-) differs from the whole (+):\n%s", seed, d)
	}
	restarts := 0
	voided := map[string]bool{}
	for _, c := range chunks(all) {
		if c["event_type"] == "restart" {
			restarts++
			for _, id := range c["event_data"].(map[string]any)["voided"].([]any) {
				voided[text(id)] = true
			}
		}
	}
	if restarts == 0 {
		t.Errorf("no restart was told")
	}
	kept := slices.DeleteFunc(fold(t, chunks(all)), func(s shown) bool { return voided[s.ID] })
	listed := fold(t, l.do("GET", "/v1/conversations/"+conv+"/messages?order=asc", nil).list())
	if d := cmp.Diff(listed, kept); d != "" {
		t.Errorf("seed %d: the stream (+) differs from the list (-):\n%s", seed, d)
	}
}

// TestFreeAtDone sends the next message as soon as [DONE] is there, over and over
// (spec/rest.md section 15, number 9).
func TestFreeAtDone(t *testing.T) {
	model := fake.NewFunc(func(req *llm.Request) fake.Answer {
		if last := req.Messages[len(req.Messages)-1]; last.Role == agent.RoleTool {
			return fake.Answer{fake.Text("done")}
		}
		return fake.Answer{fake.Text("a", "b"), fake.Call("where_am_i", `{}`)}
	})
	r := start(t, model)
	conv := r.conversation(r.agent(nil))
	path := "/v1/conversations/" + conv + "/messages"
	options := map[string]any{"client_tools": place, "stream_tokens": true}
	for i := range 100 {
		options["background"] = i%2 == 0
		ask := r.untilDone(path, with(say("where?"), options))
		call := ""
		for _, ev := range ask {
			if c, ok := ev.chunk["tool_call"].(map[string]any); ok {
				call = text(c["tool_call_id"])
			}
		}
		r.untilDone(path, with(answer(returned(call, "Rome")), options))
	}
}

// untilDone reads a stream up to [DONE] and not to the end of the connection.
func (r *rig) untilDone(path string, body any) []sseEvent {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), transcript.Patience)
	defer cancel()
	resp, err := r.http.Do(r.request(ctx, "POST", path, body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		var b [4096]byte
		n, _ := resp.Body.Read(b[:])
		r.t.Fatalf("%s: status %d: %s", path, resp.StatusCode, b[:n])
	}
	next := eventScanner(resp.Body)
	var all []sseEvent
	for {
		ev, ok := next()
		if !ok {
			r.t.Fatalf("%s: the stream ended without [DONE]", path)
		}
		all = append(all, ev)
		if ev.data == "[DONE]" {
			return all
		}
	}
}
