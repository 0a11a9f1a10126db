package llm_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// events joins event bodies as most providers send them.
func events(bodies ...string) string {
	var b strings.Builder
	for _, s := range bodies {
		b.WriteString("data: " + s + "\n\n")
	}
	return b.String()
}

// d is an event with a delta and no finish reason.
func d(delta string) string {
	return `{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

// fin is an event with a finish reason.
func fin(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const done = "[DONE]"

func text(s string) string { return d(`{"content":"` + s + `"}`) }

func call(id, name, args string) agent.CallPart {
	return agent.CallPart{ID: id, Name: name, Arguments: args}
}

// Streams as servers send them, well formed or not, that must be understood
// (bug-report case H08 and the rules of spec/harness.md sections 1.1 and 1.4).
func TestStreamUnderstood(t *testing.T) {
	readArgs := `{"file_path":"a"}`
	wire := `{\"file_path\":\"a\"}`
	tests := []struct {
		name string
		body string
		want outcome
	}{
		{"text", events(d(`{"role":"assistant","content":""}`), text("Hel"), text("lo"), fin("stop"), done),
			outcome{Text: "Hello", Finish: llm.FinishStop}},
		{"crlf, no space, comments, event names, byte order mark",
			"\ufeff: hi\r\n\r\nevent: chunk\r\nid: 1\r\ndata:" + text("a") + "\r\n\r\n: OPENROUTER PROCESSING\r\n\r\nretry: 5\r\ndata:" + fin("stop") + "\r\n\r\ndata:[DONE]\r\n\r\n",
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"one newline between events", "data: " + text("a") + "\ndata: " + text("b") + "\ndata: " + fin("stop") + "\ndata: [DONE]\n",
			outcome{Text: "ab", Finish: llm.FinishStop}},
		{"an event over several data lines", "data: {\"choices\":[\ndata: {\"delta\":{\"content\":\"x\"},\ndata: \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
			outcome{Text: "x", Finish: llm.FinishStop}},
		{"last line without an end", strings.TrimRight(events(text("a"), fin("stop")), "\n"),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"escapes and unicode", events(d(`{"content":"\"q\" \\ \n \u00e9 \ud83d\ude00 日本 </x>"}`), fin("stop"), done),
			outcome{Text: "\"q\" \\ \n é 😀 日本 </x>", Finish: llm.FinishStop}},
		{"no [DONE] after the finish reason", events(text("a"), fin("stop")),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"no finish reason before [DONE]", events(text("a"), done),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"no finish reason after a call", events(d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"`+wire+`"}}]}`), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"empty finish reasons", events(`{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"null"}]}`, fin("stop"), done),
			outcome{Text: "ab", Finish: llm.FinishStop}},
		{"usage in an event of its own", events(text("a"), fin("stop"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`, done),
			outcome{Text: "a", Finish: llm.FinishStop, Usage: agent.Usage{Input: 9, Output: 2, CacheRead: 4, Reasoning: 1, Reported: true}}},
		{"usage in the last event, null before", events(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9.0,"completion_tokens":"2","prompt_tokens_details":null}}`, done),
			outcome{Text: "a", Finish: llm.FinishStop, Usage: agent.Usage{Input: 9, Output: 2, Reported: true}}},
		{"usage inside the choice, and cache hits", events(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_cache_hit_tokens":3}}]}`, done),
			outcome{Text: "a", Finish: llm.FinishStop, Usage: agent.Usage{Input: 5, Output: 1, CacheRead: 3, Reported: true}}},
		{"usage of Groq", events(text("a"), `{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":1}}}`, done),
			outcome{Text: "a", Finish: llm.FinishStop, Usage: agent.Usage{Input: 5, Output: 1, Reported: true}}},
		{"events without choices", events(`{"choices":[]}`, `{"prompt_filter_results":[]}`, text("a"), `{"choices":null}`, fin("stop"), done),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"other choices are ignored", events(`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}`, fin("stop"), done),
			outcome{Text: "yes", Finish: llm.FinishStop}},
		{"content as parts", events(d(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}`), fin("stop"), done),
			outcome{Text: "a", Reasoning: "hm", Field: "content", Finish: llm.FinishStop}},
		{"a refusal is shown", events(d(`{"refusal":"I cannot"}`), fin("stop"), done),
			outcome{Text: "I cannot", Finish: llm.FinishStop}},
		{"reasoning_content", events(d(`{"reasoning_content":"th"}`), d(`{"reasoning_content":"ink"}`), text("a"), fin("stop"), done),
			outcome{Text: "a", Reasoning: "think", Field: "reasoning_content", Finish: llm.FinishStop}},
		{"reasoning", events(d(`{"reasoning":"think","content":null}`), text("a"), fin("stop"), done),
			outcome{Text: "a", Reasoning: "think", Field: "reasoning", Finish: llm.FinishStop}},
		{"reasoning_text", events(d(`{"reasoning_text":"think"}`), text("a"), fin("stop"), done),
			outcome{Text: "a", Reasoning: "think", Field: "reasoning_text", Finish: llm.FinishStop}},
		{"the same reasoning on two fields counts once", events(d(`{"reasoning_content":"think","reasoning":"think"}`), text("a"), fin("stop"), done),
			outcome{Text: "a", Reasoning: "think", Field: "reasoning_content", Finish: llm.FinishStop}},
		{"call in pieces", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"Read","arguments":""}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"file_"}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"arguments":"path\":\"a\"}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"parallel calls, pieces interleaved", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read"}},{"index":1,"id":"c2","function":{"name":"Bash"}}]}`),
			d(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"command\":"}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"arguments":"`+wire+`"}}]}`),
			d(`{"tool_calls":[{"index":1,"function":{"arguments":"\"ls\"}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs), call("c2", "Bash", `{"command":"ls"}`)}, Finish: llm.FinishCalls}},
		{"finish stop after calls", events(d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"`+wire+`"}}]}`), fin("stop"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"index missing, told apart by id", events(
			d(`{"tool_calls":[{"id":"c1","function":{"name":"Read","arguments":"{\"file_path\":"}}]}`),
			d(`{"tool_calls":[{"function":{"arguments":"\"a\"}"}}]}`),
			d(`{"tool_calls":[{"id":"c2","function":{"name":"Read","arguments":"{}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs), call("c2", "Read", `{}`)}, Finish: llm.FinishCalls}},
		{"index used again with a new id", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"`+wire+`"}}]}`),
			d(`{"tool_calls":[{"index":0,"id":"c2","function":{"name":"Read","arguments":"{}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs), call("c2", "Read", `{}`)}, Finish: llm.FinishCalls}},
		{"id and name repeated in every piece", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"{\"file_path\""}}]}`),
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":":\"a\"}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"a new id in every piece", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"{\"file_path\""}}]}`),
			d(`{"tool_calls":[{"index":0,"id":"c9","function":{"arguments":":\"a\"}"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"name in pieces", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Re"}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"name":"ad"}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"arguments":"`+wire+`"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"arguments as an object", events(d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":{"file_path":"a"}}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"no arguments", events(d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":""}},{"index":1,"id":"c2","function":{"name":"Read"}},{"index":2,"id":"c3","function":{"name":"Read","arguments":null}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", "{}"), call("c2", "Read", "{}"), call("c3", "Read", "{}")}, Finish: llm.FinishCalls}},
		{"arguments that are no JSON stay as they are", events(d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"{\"file_path\": \"a"}}]}`), fin("tool_calls"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", `{"file_path": "a`)}, Finish: llm.FinishCalls}},
		{"cut off by the limit: the unfinished call is left out", events(
			d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"`+wire+`"}},{"index":1,"id":"c2","function":{"name":"Read","arguments":"{\"fil"}}]}`), fin("length"), done),
			outcome{Calls: []agent.CallPart{call("c1", "Read", readArgs)}, Finish: llm.FinishLength}},
		{"tool_calls null", events(d(`{"content":"a","tool_calls":null,"function_call":null}`), fin("stop"), done),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"a whole message in a stream event", events(`{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`, done),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"a message that repeats what was streamed", events(text("a"), `{"choices":[{"index":0,"delta":{},"message":{"content":"a"},"finish_reason":"stop"}]}`, done),
			outcome{Text: "a", Finish: llm.FinishStop}},
		{"length", events(text("a"), fin("length"), done), outcome{Text: "a", Finish: llm.FinishLength}},
		{"length before any text", events(d(`{"reasoning":"x"}`), fin("MAX_TOKENS"), done), outcome{Reasoning: "x", Field: "reasoning", Finish: llm.FinishLength}},
		{"filter", events(text("a"), fin("content_filter"), done), outcome{Text: "a", Finish: llm.FinishFilter}},
		{"safety", events(text("a"), fin("SAFETY"), done), outcome{Text: "a", Finish: llm.FinishFilter}},

		// Calls that come as text.
		{"call in text", events(text("Let me look.\\n<tool"), text(`_call>\n{\"name\": \"Read\", \"argu`), text(`ments\": {\"file_path\":\"a\"}}\n</tool_call>`), fin("stop"), done),
			outcome{Text: "Let me look.\n", Calls: []agent.CallPart{call("*", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"two calls in text", events(text(`<tool_call>{\"name\":\"Read\",\"arguments\":`+wire+`}</tool_call>\n<tool_call>{\"name\":\"Bash\",\"arguments\":{}}</tool_call>\n`), fin("stop"), done),
			outcome{Calls: []agent.CallPart{call("*", "Read", readArgs), call("*", "Bash", "{}")}, Finish: llm.FinishCalls}},
		{"call in text, in tags", events(text(`<tool_call>\n<function=Read>\n<parameter=file_path>\na \"b\"\n</parameter>\n<parameter=limit>\n5\n</parameter>\n</function>\n</tool_call>`), fin("stop"), done),
			outcome{Calls: []agent.CallPart{call("*", "Read", `{"file_path":"a \"b\"","limit":5}`)}, Finish: llm.FinishCalls}},
		{"call in text, bare tags", events(text(`<function=Bash><parameter=command>ls</parameter></function>`), fin("stop"), done),
			outcome{Calls: []agent.CallPart{call("*", "Bash", `{"command":"ls"}`)}, Finish: llm.FinishCalls}},
		{"call in reasoning", events(d(`{"reasoning_content":"I will read. <tool_call>{\"name\":\"Read\",\"arguments\":`+wire+`}</tool_call>"}`), fin("stop"), done),
			outcome{Reasoning: `I will read. <tool_call>{"name":"Read","arguments":{"file_path":"a"}}</tool_call>`, Field: "reasoning_content",
				Calls: []agent.CallPart{call("*", "Read", readArgs)}, Finish: llm.FinishCalls}},
		{"an example of a call is text", events(text(`Write <tool_call>{\"name\":\"Read\",\"arguments\":{}}</tool_call> to read.`), fin("stop"), done),
			outcome{Text: `Write <tool_call>{"name":"Read","arguments":{}}</tool_call> to read.`, Finish: llm.FinishStop}},
		{"an example in a code fence is text", events(text("```\\n<tool_call>{\\\"name\\\":\\\"Read\\\"}</tool_call>\\n"), text("```"), fin("stop"), done),
			outcome{Text: "```\n<tool_call>{\"name\":\"Read\"}</tool_call>\n```", Finish: llm.FinishStop}},
		{"a call of a tool that is not offered is text", events(text(`<tool_call>{\"name\":\"Nope\",\"arguments\":{}}</tool_call>`), fin("stop"), done),
			outcome{Text: `<tool_call>{"name":"Nope","arguments":{}}</tool_call>`, Finish: llm.FinishStop}},
		{"half a call is text", events(text(`a <tool_call>{\"name\":\"Read\"`), fin("stop"), done),
			outcome{Text: `a <tool_call>{"name":"Read"`, Finish: llm.FinishStop}},
		{"real calls win over text", events(text(`<tool_call>{\"name\":\"Bash\"}</tool_call>`), d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"Read","arguments":"{}"}}]}`), fin("tool_calls"), done),
			outcome{Text: `<tool_call>{"name":"Bash"}</tool_call>`, Calls: []agent.CallPart{call("c1", "Read", "{}")}, Finish: llm.FinishCalls}},
		{"less-than signs are no calls", events(text("a < b"), text(" <"), text("b> <f"), text("unc> <"), fin("stop"), done),
			outcome{Text: "a < b <b> <func> <", Finish: llm.FinishStop}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parts, err := collect(t.Context(), chat(t, serve(t, stream(tt.body))), question())
			if err != nil {
				t.Fatal(err)
			}
			got := summary(parts)
			for i := range got.Calls {
				if i < len(tt.want.Calls) && tt.want.Calls[i].ID == "*" && madeID.MatchString(got.Calls[i].ID) {
					got.Calls[i].ID = "*"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if last := parts[len(parts)-1]; last.Kind != llm.PartFinish {
				t.Errorf("the last part is of kind %d", last.Kind)
			}
		})
	}
}

var madeID = regexp.MustCompile(`^call_[0-9a-f]{24}$`)

func TestCallIDsAreUnique(t *testing.T) {
	body := events(
		d(`{"tool_calls":[{"index":0,"function":{"name":"Read","arguments":"{}"}}]}`),
		d(`{"tool_calls":[{"index":1,"id":"same","function":{"name":"Read","arguments":"{}"}}]}`),
		d(`{"tool_calls":[{"index":2,"id":"same","function":{"name":"Bash","arguments":"{}"}}]}`),
		d(`{"tool_calls":[{"index":3,"id":"old","function":{"name":"Bash","arguments":"{}"}}]}`),
		d(`{"tool_calls":[{"index":4,"id":77,"function":{"name":"Bash","arguments":"{}"}}]}`),
		d(`{"function_call":{"name":"Read","arguments":"{\"a\""}}`), d(`{"function_call":{"arguments":":1}"}}`), fin("function_call"), done)
	req := question()
	req.Messages = append(req.Messages,
		&agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: "old", Name: "Read"}}}},
		&agent.Message{Role: agent.RoleTool, CallID: "old", Parts: []agent.Part{agent.Text("x")}})
	parts, err := collect(t.Context(), chat(t, serve(t, stream(body))), req)
	if err != nil {
		t.Fatal(err)
	}
	calls := summary(parts).Calls
	if len(calls) != 6 {
		t.Fatalf("%d calls: %v", len(calls), calls)
	}
	seen := map[string]bool{"old": true}
	for i, c := range calls {
		if seen[c.ID] {
			t.Errorf("id %q used twice", c.ID)
		}
		seen[c.ID] = true
		if made := madeID.MatchString(c.ID); made != (i == 0 || i == 2 || i == 3 || i == 5) {
			t.Errorf("call %d has id %q", i, c.ID)
		}
	}
	if calls[4].ID != "77" || calls[5].Arguments != `{"a":1}` {
		t.Errorf("got %v", calls[4:])
	}
}

// Streams that must end in an error (cases A12, H08, H10).
func TestStreamRefused(t *testing.T) {
	tests := []struct {
		name  string
		body  string
		text  string // shown before the error
		code  agent.Code
		retry bool
		says  string
	}{
		{"cut before any finish", events(text("par"), text("tial")), "partial", agent.CodeModel, true, "in the middle"},
		{"cut with held text", events(text("a <tool_call>{")), "a <tool_call>{", agent.CodeModel, true, "in the middle"},
		{"nothing at all", "", "", agent.CodeModel, true, "in the middle"},
		{"[DONE] without an answer", events(done), "", agent.CodeModel, true, "neither text nor a tool call"},
		{"calls announced, none sent", events(text("a"), fin("tool_calls"), done), "a", agent.CodeModel, true, "announced a tool call"},
		{"malformed call", events(text("a"), fin("MALFORMED_FUNCTION_CALL"), done), "a", agent.CodeModel, true, "could not finish"},
		{"unknown reason", events(text("a"), fin("aliens"), done), "a", agent.CodeModel, false, `"aliens"`},
		{"nothing but a filter", events(fin("content_filter"), done), "", agent.CodeModel, false, "withheld its answer"},
		{"not JSON", events(text("a"), `{"broken`), "a", agent.CodeModel, true, "not a chat completion"},
		{"not JSON, then [DONE]", events(text("a")) + "data: {\"broken\ndata: [DONE]\n\n", "a", agent.CodeModel, true, "not a chat completion"},
		{"not an object", events(text("a"), `42`), "a", agent.CodeModel, true, "not a chat completion"},
		{"choices of another type", events(text("a"), `{"choices":"x"}`), "a", agent.CodeModel, true, "not a chat completion"},
		{"error object", events(text("a"), `{"error":{"message":"boom","code":"server_oops"}}`), "a", agent.CodeModel, false, "boom"},
		{"error object with a status", events(text("a"), `{"id":"x","error":{"message":"slow","code":429},"choices":[]}`), "a", agent.CodeModelRateLimit, true, "429"},
		{"error object with a status as text", events(`{"error":{"message":"down","code":"503"}}`), "", agent.CodeModel, true, "503"},
		{"error as text", events(`{"error":"boom"}`), "", agent.CodeModel, false, "boom"},
		{"bare error object", events(`{"object":"error","message":"boom","type":"X","code":400}`), "", agent.CodeModel, false, "boom"},
		{"error field", "error: {\"message\":\"boom\",\"code\":500}\n\n", "", agent.CodeModel, true, "500"},
		{"error without a field", "{\"error\":{\"message\":\"boom\"}}\n\n", "", agent.CodeModel, false, "boom"},
		{"error event", "event: error\ndata: {\"error\":{\"message\":\"boom\"}}\n\n", "", agent.CodeModel, false, "boom"},
		{"overflow in the stream", events(`{"error":{"message":"This model's maximum context length is 4096 tokens"}}`), "", agent.CodeModelOverflow, false, "longer than"},
		{"too many calls", events(manyCalls(129), fin("tool_calls"), done), "", agent.CodeModel, false, "128"},
		{"line without an end", "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 9<<20), "", agent.CodeModel, true, "not a chat completion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parts, err := collect(t.Context(), chat(t, serve(t, stream(tt.body))), question())
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("parts %v, error %v", parts, err)
			}
			if got := summary(parts).Text; got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			if e.Code != tt.code || e.Retryable != tt.retry || !strings.Contains(e.Message, tt.says) {
				t.Errorf("code %s, retryable %v: %s (%s)", e.Code, e.Retryable, e.Message, e.Detail)
			}
			if !strings.Contains(e.Message, "LM Studio") || !strings.Contains(e.Message, `"m"`) {
				t.Errorf("provider and model are not named: %s", e.Message)
			}
			if e.Overflow != (tt.code == agent.CodeModelOverflow) {
				t.Errorf("overflow %v", e.Overflow)
			}
		})
	}
}

func manyCalls(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"id":"c` + strings.Repeat("x", i) + `","function":{"name":"Read","arguments":"{}"}}`)
	}
	return d(`{"tool_calls":[` + b.String() + `]}`)
}

// An answer that the provider ended without a word is an answer: the turn ends
// (spec/app-server-core.md section 5.1).
func TestEmptyAnswers(t *testing.T) {
	for name, body := range map[string]string{
		"empty":          events(d(`{"content":""}`), fin("stop"), done),
		"only blanks":    events(text("\\n \\n"), fin("stop"), done),
		"only reasoning": events(d(`{"reasoning":"hm"}`), fin("stop"), done),
	} {
		t.Run(name, func(t *testing.T) {
			parts, err := collect(t.Context(), chat(t, serve(t, stream(body))), question())
			if err != nil {
				t.Fatal(err)
			}
			if last := parts[len(parts)-1]; last.Finish != llm.FinishStop {
				t.Errorf("ended with %+v", last)
			}
		})
	}
}
