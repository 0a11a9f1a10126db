package rest_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"mneme/internal/llm/fake"
	"mneme/internal/rest"
	"mneme/internal/transcript"
)

// png is the beginning of an image, which is all that anybody looks at.
const png = "\x89PNG\r\n\x1a\nrest"

func TestSendValidation(t *testing.T) {
	r := start(t, nil)
	a := r.agent(nil)
	conv := r.conversation(a)
	image := base64.StdEncoding.EncodeToString([]byte(png))
	routes := map[string]string{
		"A": "/v1/agents/" + a + "/messages", "S": "/v1/agents/" + a + "/messages/stream",
		"Y": "/v1/agents/" + a + "/messages/async", "C": "/v1/conversations/" + conv + "/messages",
	}
	tests := []struct {
		routes string
		body   string
		status int
		text   string
	}{
		{"ASYC", ``, 422, "One of messages and input is required"},
		{"ASYC", `{`, 422, "not valid JSON"},
		{"ASYC", `[]`, 422, "body: Input should be an object"},
		{"ASYC", `{}`, 422, "One of messages and input is required"},
		{"ASYC", `{"messages":null,"input":null}`, 422, "One of messages and input is required"},
		{"ASYC", `{"messages":[{"role":"user","content":"x"}],"input":"x"}`, 422, "Only one of messages and input"},
		{"ASYC", `{"messages":[]}`, 422, "Messages must not be empty"},
		{"ASYC", `{"messages":{}}`, 422, "body.messages: Input should be an array"},
		{"ASYC", `{"messages":["x"]}`, 422, "body.messages.0: Input should be an object"},
		{"ASYC", `{"messages":[{"content":"x"}]}`, 422, "body.messages.0.role: Field required"},
		{"ASYC", `{"messages":[{"role":"tool","content":"x"}]}`, 422, "body.messages.0.role: \\\"tool\\\" is not one of user, system, assistant"},
		{"ASYC", `{"messages":[{"role":"user"}]}`, 422, "body.messages.0.content: Field required"},
		{"ASYC", `{"messages":[{"role":"user","content":7}]}`, 422, "body.messages.0.content: Input should be a string or a list of parts"},
		{"ASYC", `{"messages":[{"role":"user","content":[]}]}`, 422, "body.messages.0.content: A content needs at least one part"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 422, "body.messages.0.content.0.text: Field required"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"tool_call","id":"1"}]}]}`, 422, "body.messages.0.content.0.type"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, 422, "body.messages.0.content.0.source: Field required"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"disk"}}]}]}`, 422, "source.type"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"x"}}]}]}`, 422, "needs media_type and data"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"!"}}]}]}`, 400, "INVALID_ARGUMENT: body.messages.0.content.0.source: the data of the image is not base64"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]}`, 400, "the image is not a PNG"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + image + `"}}]}]}`, 400, "but the data is image/png"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"letta","file_id":"f"}}]}]}`, 400, "the file \\\"f\\\" is not known"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://127.0.0.1:1/x.png"}}]}]}`, 400, "INVALID_ARGUMENT: the image \\\"http://127.0.0.1:1/x.png\\\" could not be fetched: the address is private"},
		{"ASYC", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}]}]}`, 400, "only http and https"},
		{"ASYC", `{"messages":[{"type":"note","content":"x"}]}`, 422, "body.messages.0.type: \\\"note\\\" is not one of message, approval, tool_return"},
		{"ASYC", `{"messages":[{"role":"user","content":"x"},{"type":"approval","approvals":[{"type":"approval","tool_call_id":"1","approve":true}]}]}`, 422, "body.messages.1.type: An item of type approval must be the first"},
		{"ASYC", `{"messages":[{"type":"approval"}]}`, 400, "approvals are missing"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[]}]}`, 400, "approvals must not be empty"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"approval","approve":true}]}]}`, 422, "body.messages.0.approvals.0.tool_call_id: Field required"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"approval","tool_call_id":"1"}]}]}`, 422, "approvals.0.approve: Field required"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"word","tool_call_id":"1"}]}]}`, 422, "approvals.0.type"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"tool","tool_call_id":"1","tool_return":"x"}]}]}`, 422, "approvals.0.status: Field required"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"tool","tool_call_id":"1","tool_return":"x","status":"fine"}]}]}`, 422, "approvals.0.status"},
		{"ASYC", `{"messages":[{"type":"tool_return"}]}`, 422, "body.messages.0.tool_returns: Field required"},
		{"ASYC", `{"messages":[{"type":"tool_return","tool_returns":[{"tool_call_id":"1","status":"success"}]}]}`, 422, "tool_returns.0.tool_return: Field required"},
		{"ASYC", `{"messages":[{"type":"approval","approvals":[{"type":"approval","tool_call_id":"1","approve":true}]}]}`, 400, "No tool call is currently awaiting approval"},
		{"ASYC", `{"messages":[{"approve":true,"approval_request_id":"1"}]}`, 400, "No tool call is currently awaiting approval"},
		{"ASYC", `{"input":"x","max_steps":0}`, 422, "body.max_steps"},
		{"ASYC", `{"input":"x","max_steps":"many"}`, 422, "body.max_steps"},
		{"ASYC", `{"input":"x","top_logprobs":21}`, 422, "body.top_logprobs"},
		{"ASYC", `{"input":"x","include_return_message_types":["user_message","nothing"]}`, 422, "body.include_return_message_types.1: \\\"nothing\\\""},
		{"ASYC", `{"input":"x","client_tools":[{"description":"d"}]}`, 422, "body.client_tools.0.name: Field required"},
		{"ASYC", `{"input":"x","client_tools":[{"name":"n","parameters":[]}]}`, 422, "body.client_tools.0.parameters"},
		{"ASYC", `{"input":"x","client_skills":[{"name":"n","location":"l"}]}`, 422, "body.client_skills.0.description: Field required"},
		{"ASYC", `{"input":"x","enable_thinking":3}`, 422, "body.enable_thinking"},
		{"ASYC", `{"input":"x","override_model":"offline/none"}`, 404, "NOT_FOUND: Handle offline/none not found"},
		{"A", `{"input":"x","stream_tokens":true}`, 422, "body.stream_tokens"},
		{"A", `{"input":"x","background":true}`, 422, "body.background"},
		{"A", `{"input":"x","include_pings":false}`, 422, "body.include_pings"},
		{"Y", `{"input":"x","callback_url":"ftp://example.com/"}`, 422, "body.callback_url"},
	}
	for _, test := range tests {
		for _, route := range strings.Split(test.routes, "") {
			resp := r.do("POST", routes[route], test.body)
			if resp.Status != test.status || !strings.Contains(string(resp.Body), test.text) {
				t.Errorf("%s %s: status %d %s, want %d and %q", route, test.body, resp.Status, resp.Body, test.status, test.text)
			}
			if test.status == 400 && resp.Header.Get("x-should-retry") != "false" {
				t.Errorf("%s %s: x-should-retry is %q", route, test.body, resp.Header.Get("x-should-retry"))
			}
		}
	}
	unknown := "/v1/agents/agent-00000000-0000-4000-8000-000000000000/messages"
	r.do("POST", unknown, say("x")).want(404, `{"detail":"Agent not found"}`)
	r.do("POST", unknown, `{"messages":[]}`).want(422)
	r.do("POST", "/v1/agents/agent-1/messages", say("x")).want(422, "examples")
	r.do("POST", "/v1/conversations/default/messages", say("x")).want(422, "agent_id")
	r.do("POST", "/v1/conversations/conv-00000000-0000-4000-8000-000000000000/messages", say("x")).want(404)
}

func TestSendOptions(t *testing.T) {
	model := fake.New(
		fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")}, fake.Answer{fake.Text("three")}, fake.Answer{fake.Text("four")},
	)
	r := start(t, model)
	a := r.agent(nil)
	r.post("/v1/agents/"+a+"/messages", `{"messages":[
		{"role":"system","content":"Mind the gap.","otid":"s-1"},
		{"role":"assistant","content":"I said so.","otid":"a-1"},
		{"role":"user","content":[{"type":"text","text":"One"},{"type":"text","text":"two \u2028 😀\u0000!"}],"otid":"u-1","name":"Ann","sender_id":"identity-1"}
	],"enable_thinking":true,"override_system":"Be a cat.","client_skills":[{"name":"purr","description":"How to purr","location":"/skills/purr.md"}],
	"client_tools":[{"name":"where_am_i"}],"unknown_field":1}`)
	req := model.Requests()[0]
	if !strings.HasPrefix(req.System, "Be a cat.") || !strings.Contains(req.System, "purr: How to purr (/skills/purr.md)") {
		t.Errorf("system prompt: %q", req.System)
	}
	if n := len(req.Tools); n != 1 || string(req.Tools[0].Parameters) != `{"type":"object","properties":{}}` {
		t.Errorf("tools: %+v", req.Tools)
	}
	list := r.do("GET", "/v1/agents/"+a+"/messages", nil).list()
	var got []string
	for _, m := range list[1:] {
		otid := text(m["otid"])
		if text(m["message_type"]) == "assistant_message" && m["step_id"] != nil {
			otid = "made"
		}
		content := m["content"]
		if s, ok := content.(string); ok {
			got = append(got, text(m["message_type"])+" "+otid+" "+s)
			continue
		}
		parts := content.([]any)
		got = append(got, text(m["message_type"])+" "+otid+" "+text(parts[0].(map[string]any)["text"])+"|"+text(parts[1].(map[string]any)["text"])+" "+text(m["name"])+" "+text(m["sender_id"]))
	}
	want := []string{
		"system_message s-1 Mind the gap.", "assistant_message a-1 I said so.",
		"user_message u-1 One|two \u2028 😀! Ann identity-1", "assistant_message made one",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("listed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The next turn has neither the other system prompt nor the skills.
	r.post("/v1/agents/"+a+"/messages", say("again"))
	if s := model.Requests()[1].System; strings.Contains(s, "purr") || strings.Contains(s, "cat") || !strings.Contains(s, systemText) {
		t.Errorf("system prompt of the next turn: %q", s)
	}
	large := strings.Repeat("x", 1<<20)
	r.post("/v1/agents/"+a+"/messages", say(large))
	list = r.do("GET", "/v1/agents/"+a+"/messages?include_return_message_types=user_message&limit=1000", nil).list()
	if !slices.ContainsFunc(list, func(m map[string]any) bool { return text(m["content"]) == large }) {
		t.Errorf("a large text is not among the %d messages", len(list))
	}
}

func TestImages(t *testing.T) {
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here.png":
			w.Write([]byte(png))
		case "/moved":
			http.Redirect(w, r, "/here.png", http.StatusFound)
		case "/html":
			w.Write([]byte("<html>"))
		case "/large":
			w.Write(append([]byte(png), make([]byte, 20<<20)...))
		default:
			http.NotFound(w, r)
		}
	}))
	defer images.Close()
	model := fake.New(fake.Answer{fake.Text("a dot")})
	r := startWith(t, model, transcript.Options{}, func(c *rest.Config) { c.AllowPrivate = true })
	a := r.agent(nil)
	send := func(path string) *response {
		return r.do("POST", "/v1/agents/"+a+"/messages", `{"input":[{"type":"text","text":"what?"},{"type":"image","source":{"type":"url","url":"`+images.URL+path+`"}}]}`)
	}
	send("/html").want(400, "the image is not a PNG")
	send("/none").want(400, "the server answered 404")
	send("/large").want(400, "larger than 20 MB")
	send("/moved").want(200)
	want := `{"source":{"data":"` + base64.StdEncoding.EncodeToString([]byte(png)) + `"`
	resp := r.do("GET", "/v1/agents/"+a+"/messages?limit=2", nil)
	if !strings.Contains(string(resp.Body), strings.TrimPrefix(want, `{"source":{`)) || !strings.Contains(string(resp.Body), `"media_type":"image/png"`) {
		t.Errorf("listed: %s", resp.Body)
	}
	parts := model.Requests()[0].Messages
	if p := parts[len(parts)-1].Parts[1]; p.MediaType != "image/png" {
		t.Errorf("the model saw %+v", p)
	}
}
