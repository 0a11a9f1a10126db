package rest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

var writeGolden = flag.Bool("golden", false, "rewrite the golden files of renderings")

// A script is a conversation that is rendered in every way.
type script struct {
	name   string
	rules  []map[string]any
	asks   bool // TaskUpdate needs an approval
	model  []fake.Answer
	sends  []map[string]any // bodies, without the options of streams
	expect int              // status of the last one that does not stream; 0 = 200
}

func say(s string) map[string]any { return map[string]any{"input": s} }

func with(body map[string]any, more map[string]any) map[string]any {
	out := map[string]any{}
	for _, m := range []map[string]any{body, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

var place = []map[string]any{{"name": "where_am_i", "description": "The user's place"}}

// answer is an item that answers waiting calls.
func answer(approvals ...map[string]any) map[string]any {
	return map[string]any{"messages": []map[string]any{{"type": "approval", "approvals": approvals}}}
}

func approve(call string) map[string]any {
	return map[string]any{"type": "approval", "tool_call_id": call, "approve": true}
}

func deny(call, reason string) map[string]any {
	return map[string]any{"type": "approval", "tool_call_id": call, "approve": false, "reason": reason}
}

func returned(call, result string) map[string]any {
	return map[string]any{"type": "tool", "tool_call_id": call, "tool_return": result, "status": "success", "stdout": []string{"out"}}
}

var scripts = []script{
	{
		name:  "text",
		model: []fake.Answer{{fake.Reasoning("Think", "ing"), fake.Text("Hel", "lo")}},
		sends: []map[string]any{say("hi")},
	},
	{
		name: "tools",
		model: []fake.Answer{
			{fake.Text("Let me see."), fake.CallID("c1", "TaskCreate", `{"text":"one"}`), fake.CallID("c2", "TaskUpdate", `{"text":"two"}`)},
			{fake.Reasoning("So"), fake.Text("Done.")},
		},
		sends: []map[string]any{say("go")},
	},
	{
		name: "approval",
		asks: true,
		model: []fake.Answer{
			{fake.Text("May I?"), fake.CallID("c1", "TaskUpdate", `{"text":"a"}`), fake.CallID("c2", "TaskCreate", `{"text":"b"}`), fake.CallID("c3", "TaskUpdate", `{"text":"c"}`)},
			{fake.Text("Thanks.")},
		},
		sends: []map[string]any{say("go"), answer(deny("c1", "not now"), approve("c3"))},
	},
	{
		name: "client_tool",
		model: []fake.Answer{
			{fake.CallID("c1", "where_am_i", `{}`)},
			{fake.Text("You are in Rome.")},
		},
		sends: []map[string]any{
			with(say("where?"), map[string]any{"client_tools": place}),
			with(answer(returned("c1", "Rome")), map[string]any{"client_tools": place}),
		},
	},
	{
		name:   "failure",
		model:  []fake.Answer{{fake.Text("ha"), fake.Status(401, "bad key")}},
		sends:  []map[string]any{say("hi")},
		expect: 401,
	},
	{
		name:  "length",
		model: []fake.Answer{{fake.Text("too lo"), fake.Finish("length")}},
		sends: []map[string]any{say("hi")},
	},
	{
		name:  "empty",
		model: []fake.Answer{{fake.NoUsage()}},
		sends: []map[string]any{say("hi")},
	},
	{
		name: "max_steps",
		model: []fake.Answer{
			{fake.CallID("c1", "TaskCreate", `{"text":"one"}`)},
		},
		sends: []map[string]any{with(say("go"), map[string]any{"max_steps": 1})},
	},
	{
		name:  "exit_rule",
		rules: []map[string]any{{"type": "exit_loop", "tool_name": "TaskCreate"}},
		model: []fake.Answer{
			{fake.CallID("c1", "TaskCreate", `{"text":"one"}`)},
		},
		sends: []map[string]any{say("go")},
	},
	{
		name:  "retry",
		model: []fake.Answer{{fake.Text("half"), fake.Cut()}, {fake.Text("whole")}},
		sends: []map[string]any{say("hi")},
	},
	{
		name:  "filtered",
		model: []fake.Answer{{fake.Reasoning("hm"), fake.Text("Hello")}},
		sends: []map[string]any{with(say("hi"), map[string]any{"include_return_message_types": []string{"reasoning_message"}})},
	},
	{
		name: "hidden_reasoning",
		model: []fake.Answer{{
			fake.Part(partMeta(`{"data":"secret"}`)), fake.Text("Hello"), fake.Part(partMeta(`{"data":"more"}`)),
			fake.CallID("c1", "TaskCreate", `{"text":"one"}`),
		}, {fake.Text("Done.")}},
		sends: []map[string]any{say("hi")},
	},
}

// TestRenderings shows every script in the three ways in which it can be seen.
func TestRenderings(t *testing.T) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			s.play(t, &b, "step stream", map[string]any{"streaming": true})
			// Live deltas may be joined on the way; those of a log are not.
			s.play(t, &b, "background token stream", map[string]any{"streaming": true, "stream_tokens": true, "background": true})
			s.play(t, &b, "answer", map[string]any{"streaming": false})
			file := filepath.Join("testdata", "renderings", s.name+".txt")
			if *writeGolden {
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("%s (-golden rewrites it):\n%s", file, d)
			}
		})
	}
}

// play plays the script on a server of its own, and lists the messages at the end.
func (s *script) play(t *testing.T, b *bytes.Buffer, title string, options map[string]any) {
	t.Helper()
	l := live(t, fake.New(s.model...))
	defer l.stop()
	a := l.armed(s.rules...)
	allowed := []string{"TaskCreate", "TaskUpdate"}
	if s.asks {
		allowed = allowed[:1]
	}
	conv := l.allowed(a, allowed...)
	n := newNames()
	for i, body := range s.sends {
		fmt.Fprintf(b, "== %s %d\n", title, i+1)
		resp := l.do("POST", "/v1/conversations/"+conv+"/messages", with(body, options))
		if options["streaming"] == false {
			want := 200
			if s.expect != 0 && i == len(s.sends)-1 {
				want = s.expect
			}
			resp.want(want)
			var out map[string]json.RawMessage
			resp.into(&out)
			for _, key := range []string{"messages", "stop_reason", "usage", "logprobs", "turns", "error"} {
				if v, ok := out[key]; ok {
					fmt.Fprintf(b, "%s: %s\n", key, n.normal(lines(v)))
				}
			}
			continue
		}
		resp.want(200)
		b.WriteString(n.normal(strings.TrimSpace(string(resp.Body))) + "\n")
	}
	if options["stream_tokens"] != nil {
		return
	}
	for _, query := range []string{"", "&include_err=true&include_return_message_types=assistant_message&include_return_message_types=summary_message"} {
		fmt.Fprintf(b, "== listing after %s%s\n", title, query)
		list := l.do("GET", "/v1/conversations/"+conv+"/messages?order=asc"+query, nil).want(200)
		b.WriteString(n.normal(lines(list.Body)) + "\n")
	}
}

// lines puts the items of a JSON list on lines of their own.
func lines(raw []byte) string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, v := range list {
		b.WriteString("\n" + string(v))
	}
	return b.String()
}

var (
	uuidText = regexp.MustCompile(`([a-z_]+-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	dateText = regexp.MustCompile(`"date":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"`)
	// systemText holds dates and ids of its own.
	systemLine = regexp.MustCompile(`(?m)^.*"message_type":"system_message".*\n?`)
)

// names give ids short names that say how they belong together: message-1, its
// approval request message-1-request, the otid of its second variant message-1/1.
type names struct {
	by    map[string]string
	count map[string]int
}

func newNames() *names { return &names{by: map[string]string{}, count: map[string]int{}} }

func (n *names) normal(s string) string {
	s = systemLine.ReplaceAllString(s, "")
	s = dateText.ReplaceAllString(s, `"date":"…"`)
	return uuidText.ReplaceAllStringFunc(s, n.name)
}

func (n *names) name(id string) string {
	if name, ok := n.by[id]; ok {
		return name
	}
	uuid := id[len(id)-36:]
	prefix := id[:len(id)-36]
	if prefix == "message-" {
		if owner, ok := n.by[prefix+shift(uuid, 1)]; ok {
			n.by[id] = owner + "-request"
			return n.by[id]
		}
		n.by["otid "+clear(uuid)] = fmt.Sprintf("message-%d", n.count[prefix]+1)
	}
	if prefix == "" {
		if owner, ok := n.by["otid "+clear(uuid)]; ok {
			return fmt.Sprintf("%s/%d", owner, last(uuid)&0x7f)
		}
		prefix = "uuid-"
	}
	n.count[prefix]++
	n.by[id] = prefix + strconv.Itoa(n.count[prefix])
	return n.by[id]
}

func last(uuid string) uint64 {
	v, _ := strconv.ParseUint(uuid[len(uuid)-2:], 16, 8)
	return v
}

func shift(uuid string, by int) string {
	return uuid[:len(uuid)-2] + fmt.Sprintf("%02x", byte(int(last(uuid))+by))
}

func clear(uuid string) string { return uuid[:len(uuid)-2] + fmt.Sprintf("%02x", last(uuid)&0x80) }

func partMeta(meta string) llm.Part {
	return llm.Part{Kind: llm.PartReasoning, Field: "reasoning_details", Meta: json.RawMessage(meta)}
}
