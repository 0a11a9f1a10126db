package offline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/offline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func user(text string) *agent.Message {
	return &agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}}
}

func notice(text string) *agent.Message {
	return &agent.Message{Role: agent.RoleNotice, Parts: []agent.Part{agent.Text(text)}}
}

func assistant(text string, calls ...agent.CallPart) *agent.Message {
	m := &agent.Message{Role: agent.RoleAssistant}
	if text != "" {
		m.Parts = append(m.Parts, agent.Text(text))
	}
	for i := range calls {
		m.Parts = append(m.Parts, agent.Part{Kind: agent.PartToolCall, Call: &calls[i]})
	}
	return m
}

func result(id string, status agent.CallStatus, text string) *agent.Message {
	return &agent.Message{Role: agent.RoleTool, CallID: id, Status: status, Parts: []agent.Part{agent.Text(text)}}
}

// core is a system prompt as it is compiled, with files by path.
func core(files ...string) string {
	var b strings.Builder
	b.WriteString("Be kind.\n\nReminder: <projection> names the file.\n\n<self>\n<projection>$MEMORY_DIR/system/persona.md</projection>\nI am a helpful agent.\n</self>\n\n<memory>\n")
	for i := 0; i < len(files); i += 2 {
		tag := strings.TrimSuffix(files[i][strings.LastIndexByte(files[i], '/')+1:], ".md")
		fmt.Fprintf(&b, "<%s>\n  <projection>$MEMORY_DIR/%s</projection>\n  <description>About %s</description>\n  %s\n</%s>\n", tag, files[i], tag, files[i+1], tag)
	}
	b.WriteString("</memory>\n\n<memory_metadata>\n- AGENT_ID: agent-1\n</memory_metadata>\n\n<available_skills>\n- `x`: dogs\n</available_skills>")
	return b.String()
}

var memoryTool = []agent.ToolDef{{Name: "Bash"}, {Name: "memory"}}

func ask(t *testing.T, req *llm.Request) (text string, calls []agent.CallPart, finish llm.Finish) {
	t.Helper()
	for p, err := range offline.New().Stream(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		switch p.Kind {
		case llm.PartText:
			text += p.Text
		case llm.PartCall:
			calls = append(calls, *p.Call)
		case llm.PartUsage:
			if !p.Usage.Reported || p.Usage.Input == 0 && req.System != "" || p.Usage.Output == 0 {
				t.Errorf("usage %+v", p.Usage)
			}
		case llm.PartFinish:
			finish = p.Finish
		}
	}
	return text, calls, finish
}

func TestRememberBeginsTheNotes(t *testing.T) {
	req := &llm.Request{System: core("system/human.md", "Name: Ada"), Tools: memoryTool, Messages: []*agent.Message{user("Please remember that my dog is called Rex.")}}
	text, calls, finish := ask(t, req)
	if text != "" || len(calls) != 1 || finish != llm.FinishCalls || calls[0].Name != "memory" {
		t.Fatalf("%q %v %s", text, calls, finish)
	}
	var args map[string]any
	if err := json.Unmarshal([]byte(calls[0].Arguments), &args); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"command": "create", "reason": "Remember: my dog is called Rex.", "file_path": "system/notes.md",
		"description": "Facts that I was asked to remember", "file_text": "- my dog is called Rex."}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Error(diff)
	}
	if _, again, _ := ask(t, req); again[0] != calls[0] {
		t.Errorf("not deterministic: %v, %v", calls, again)
	}

	// Stored, and the notice that memory changed.
	req.Messages = append(req.Messages, assistant("", calls...), result(calls[0].ID, agent.StatusSuccess, "Memory create committed locally (abc1234)."),
		notice("<memory_update>\nx\n\n<memory>\n<notes>\n  <projection>$MEMORY_DIR/system/notes.md</projection>\n  - my dog is called Rex.\n</notes>\n</memory>\n</memory_update>"))
	text, calls, finish = ask(t, req)
	if text != "I have noted in memory: my dog is called Rex." || len(calls) != 0 || finish != llm.FinishStop {
		t.Errorf("%q %v %s", text, calls, finish)
	}

	// The next wish appends; the same one again is known.
	req.Messages = append(req.Messages, assistant(text), user("remember: the cat is Tom"))
	_, calls, _ = ask(t, req)
	if len(calls) != 1 || !strings.Contains(calls[0].Arguments, `"command":"insert"`) || !strings.Contains(calls[0].Arguments, `"insert_line":2,"insert_text":"- the cat is Tom"`) {
		t.Errorf("%v", calls)
	}
	req.Messages[len(req.Messages)-1] = user("Remember that my dog is called Rex.")
	if text, calls, _ = ask(t, req); text != "My memory holds that already: my dog is called Rex." || len(calls) != 0 {
		t.Errorf("%q %v", text, calls)
	}
	// And it can be asked for, in this conversation and, from the prompt, in others.
	req.Messages[len(req.Messages)-1] = user("What do you know about my dog?")
	if text, _, _ = ask(t, req); text != "From my memory:\n- my dog is called Rex. (system/notes.md)" {
		t.Errorf("%q", text)
	}
}

func TestRememberFails(t *testing.T) {
	base := func() *llm.Request {
		return &llm.Request{System: core(), Tools: memoryTool, Messages: []*agent.Message{user("remember that A is B")}}
	}
	// The file is there after all: append. No second try after that.
	req := base()
	_, calls, _ := ask(t, req)
	req.Messages = append(req.Messages, assistant("", calls...), result(calls[0].ID, agent.StatusError, "system/notes.md exists already; change it with str_replace or insert."))
	_, second, _ := ask(t, req)
	if len(second) != 1 || !strings.Contains(second[0].Arguments, "insert") || second[0].ID == calls[0].ID {
		t.Fatalf("%v", second)
	}
	req.Messages = append(req.Messages, assistant("", second...), result(second[0].ID, agent.StatusError, "Nope."))
	if text, calls, _ := ask(t, req); text != `I could not store "A is B" (Nope).` || len(calls) != 0 {
		t.Errorf("%q %v", text, calls)
	}
	// The file is gone: begin it.
	req = base()
	req.System = core("system/notes.md", "- x")
	_, calls, _ = ask(t, req)
	req.Messages = append(req.Messages, assistant("", calls...), result(calls[0].ID, agent.StatusError, "There is no memory file system/notes.md."))
	if _, second, _ = ask(t, req); len(second) != 1 || !strings.Contains(second[0].Arguments, "create") {
		t.Errorf("%v", second)
	}
	// A person said no.
	req = base()
	_, calls, _ = ask(t, req)
	req.Messages = append(req.Messages, assistant("", calls...), result(calls[0].ID, agent.StatusError, "User declined"))
	if text, calls, _ := ask(t, req); !strings.Contains(text, "User declined") || len(calls) != 0 {
		t.Errorf("%q %v", text, calls)
	}
	// No tool.
	req = base()
	req.Tools = nil
	if text, calls, _ := ask(t, req); !strings.Contains(text, "no memory tool") || len(calls) != 0 {
		t.Errorf("%q %v", text, calls)
	}
}

func TestSeveralMessagesAtOnce(t *testing.T) {
	req := &llm.Request{System: core("system/human.md", "Lives in Kyoto"), Tools: memoryTool,
		Messages: []*agent.Message{user("remember that A is B"), user("Remember: C is D"), user("Where do I live? In Kyoto?")}}
	_, calls, _ := ask(t, req)
	if len(calls) != 2 || !strings.Contains(calls[0].Arguments, "create") || !strings.Contains(calls[1].Arguments, "insert") || calls[0].ID == calls[1].ID {
		t.Fatalf("%v", calls)
	}
	req.Messages = append(req.Messages, assistant("", calls...), result(calls[0].ID, agent.StatusSuccess, "ok"), result(calls[1].ID, agent.StatusSuccess, "ok"))
	text, calls, _ := ask(t, req)
	if text != "I have noted in memory: A is B; C is D.\n\nFrom my memory:\n- Lives in Kyoto (system/human.md)" || len(calls) != 0 {
		t.Errorf("%q %v", text, calls)
	}
}

func TestWishes(t *testing.T) {
	for in, want := range map[string]string{
		"remember that X is Y":                      "X is Y",
		"Remember: X is Y":                          "X is Y",
		"remember X is Y":                           "X is Y",
		"REMEMBER THAT X":                           "X",
		"Can you please remember that I like tea?":  "I like tea",
		"Could you remember what I said?":           "",
		"Please, remember that I like\n  green tea": "I like green tea",
		"Hi there, remember that X":                 "X",
		"don't forget that X":                       "X",
		"Don’t forget: X":                           "X",
		"keep in mind that X":                       "X",
		"note that X":                               "X",
		"Save this: X":                              "X",
		"remember: - X":                             "X",
		"Do you remember X?":                        "",
		"remember me?":                              "",
		"remember":                                  "",
		"save the file to disk":                     "",
		"I remember that day":                       "",
		"note to self":                              "",
	} {
		req := &llm.Request{Tools: memoryTool, Messages: []*agent.Message{user(in)}}
		_, calls, _ := ask(t, req)
		got := ""
		if len(calls) > 0 {
			var args struct {
				Text string `json:"file_text"`
			}
			_ = json.Unmarshal([]byte(calls[0].Arguments), &args)
			got = strings.TrimPrefix(args.Text, "- ")
		}
		if got != want {
			t.Errorf("%q: stores %q, want %q", in, got, want)
		}
	}
}

func TestRecall(t *testing.T) {
	system := core("system/human.md", "Name: Ada\nWorks on compilers in Zürich\n好きな食べ物は寿司です",
		"system/notes.md", "- The server password policy changed in May\n- Rex is a dog\n- Tom is a cat")
	for in, want := range map[string]string{
		"What do you know about Rex?":                 "- Rex is a dog (system/notes.md)",
		"what do you remember about dogs":             "- Rex is a dog (system/notes.md)",
		"Tell me what you know about compilers":       "- Works on compilers in Zürich (system/human.md)",
		"Who is Tom?":                                 "- Tom is a cat (system/notes.md)",
		"What is my name?":                            "", // asks for nothing but "name"
		"Do you remember the password policy?":        "- The server password policy changed in May (system/notes.md)",
		"寿司 ?":                                        "- 好きな食べ物は寿司です (system/human.md)",
		"What do you know about ZÜRICH, please?":      "- Works on compilers in Zürich (system/human.md)",
		"What do you know about whales?":              "nothing about whales",
		"What is the airspeed of an unladen swallow?": "",
		"What do you know about dogs in the skills?":  "- Rex is a dog (system/notes.md)",
	} {
		text, calls, _ := ask(t, &llm.Request{System: system, Tools: memoryTool, Messages: []*agent.Message{user(in)}})
		if len(calls) > 0 {
			t.Errorf("%q: calls %v", in, calls)
		}
		switch {
		case want == "":
			if !strings.Contains(text, "`mneme connect`") {
				t.Errorf("%q: %q", in, text)
			}
		case strings.HasPrefix(want, "- "):
			if text != "From my memory:\n"+want {
				t.Errorf("%q: %q", in, text)
			}
		case !strings.Contains(text, want):
			t.Errorf("%q: %q", in, text)
		}
	}
	// Everything.
	for _, in := range []string{"What do you know?", "What do you know about me?", "what do you remember"} {
		text, _, _ := ask(t, &llm.Request{System: system, Messages: []*agent.Message{user(in)}})
		if strings.Count(text, "\n- ") != 7 || !strings.Contains(text, "I am a helpful agent. (system/persona.md)") {
			t.Errorf("%q: %q", in, text)
		}
	}
	if text, _, _ := ask(t, &llm.Request{Messages: []*agent.Message{user("What do you know about me?")}}); !strings.Contains(text, "nothing yet") {
		t.Errorf("%q", text)
	}
}

// A newer notice holds, and a file that is gone is forgotten.
func TestNoticesHold(t *testing.T) {
	system := core("system/notes.md", "- The key is under the mat", "system/old.md", "The key of old")
	req := &llm.Request{System: system, Messages: []*agent.Message{
		notice("<memory_update>\n<memory>\n<notes>\n  <projection>$MEMORY_DIR/system/notes.md</projection>\n  - The key is in the drawer\n  <sub>\n    <projection>$MEMORY_DIR/system/notes/sub.md</projection>\n    The spare key is lost\n  </sub>\n</notes>\n</memory>\n\nNo longer in your memory:\n- $MEMORY_DIR/system/old.md\n</memory_update>"),
		notice("- $MEMORY_DIR/system/notes.md is mentioned elsewhere"),
		user("What do you know about the key?"),
	}}
	want := "From my memory:\n- The key is in the drawer (system/notes.md)\n- The spare key is lost (system/notes/sub.md)"
	if text, _, _ := ask(t, req); text != want {
		t.Errorf("%q", text)
	}
}

func TestHelp(t *testing.T) {
	for _, msgs := range [][]*agent.Message{{user("Write a poem.")}, {user("hello")}, {}, nil, {user("  ")}} {
		text, calls, finish := ask(t, &llm.Request{Messages: msgs, Tools: memoryTool})
		if !strings.Contains(text, "`mneme connect`") || !strings.Contains(text, "offline") || len(calls) > 0 || finish != llm.FinishStop {
			t.Errorf("%q %v %s", text, calls, finish)
		}
	}
}

func TestDigest(t *testing.T) {
	var b strings.Builder
	b.WriteString("Sum up:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "[user] question %d\nwith a second line\n[assistant] answer %d %s\n", i, i, strings.Repeat("long ", 100))
	}
	text, _, _ := ask(t, &llm.Request{System: "You sum up.", Messages: []*agent.Message{user(b.String())}})
	for _, s := range []string{"[user] question 0 with a second line", "[assistant] answer 99 long", "\n…\n"} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is missing in %q", s, text)
		}
	}
	if n := strings.Count(text, "\n"); n != 41 || len(text) > 12000 {
		t.Errorf("%d lines, %d bytes", n, len(text))
	}
}

func TestStreamsWordByWord(t *testing.T) {
	var texts []string
	req := &llm.Request{Messages: []*agent.Message{user("hello")}}
	for p := range offline.New().Stream(t.Context(), req) {
		if p.Kind == llm.PartText {
			texts = append(texts, p.Text)
		}
	}
	if len(texts) < 20 || texts[0] != "I " || strings.ContainsAny(strings.TrimSpace(texts[1]), " \n") {
		t.Errorf("%q", texts)
	}
	n := 0
	for range offline.New().Stream(t.Context(), req) {
		n++
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	for _, e := range offline.New().Stream(ctx, req) {
		cancel()
		err = e
	}
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%v, %d", err, n)
	}
	cancel()
}

// Nothing that a prompt or a user holds makes it fail.
func FuzzAnswer(f *testing.F) {
	f.Add(core("system/notes.md", "- x"), "remember that y", "<memory_update>")
	f.Add("<projection>$MEMORY_DIR/</projection>\n</>\n<a>\n<projection>$MEMORY_DIR/a</projection>", "what do you know about a?", "No longer in your memory:\n- $MEMORY_DIR/a")
	f.Fuzz(func(t *testing.T, system, text, update string) {
		req := &llm.Request{System: system, Tools: memoryTool, Messages: []*agent.Message{notice(update), user(text)}}
		said, calls, finish := "", 0, llm.Finish("")
		for p, err := range offline.New().Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			said += p.Text
			if p.Kind == llm.PartCall {
				calls++
				if !json.Valid([]byte(p.Call.Arguments)) {
					t.Errorf("arguments %q", p.Call.Arguments)
				}
			}
			finish = p.Finish
		}
		if (said == "") == (calls == 0) || finish == "" {
			t.Errorf("said %q, %d calls, finish %q", said, calls, finish)
		}
	})
}
