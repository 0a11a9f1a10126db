package main

import "strings"

// message is one turn of the conversation.
type message struct {
	Role string // user, assistant or tool
	Text string
}

// request is a completion request of any of the APIs.
type request struct {
	API      string
	Model    string
	Stream   bool
	Usage    bool // chat streams: send the usage chunk
	System   string
	Messages []message
	Tools    []string
}

// textOf flattens a content value: a string, a list of parts, or nested parts.
func textOf(v any) string {
	switch c := v.(type) {
	case string:
		return c
	case []any:
		var parts []string
		for _, p := range c {
			if t := textOf(p); t != "" {
				parts = append(parts, t)
			}
		}
		return strings.Join(parts, "\n")
	case map[string]any:
		for _, k := range []string{"text", "content", "output"} {
			if c[k] != nil {
				return textOf(c[k])
			}
		}
	}
	return ""
}

func str(v any) string { s, _ := v.(string); return s }

func list(v any) []any { l, _ := v.([]any); return l }

func toolNames(v any) (names []string) {
	for _, t := range list(v) {
		m, _ := t.(map[string]any)
		if f, ok := m["function"].(map[string]any); ok {
			m = f
		}
		if n := str(m["name"]); n != "" {
			names = append(names, n)
		}
	}
	return names
}

func parseRequest(api string, body map[string]any) request {
	r := request{API: api, Model: str(body["model"]), Tools: toolNames(body["tools"])}
	r.Stream, _ = body["stream"].(bool)
	if o, ok := body["stream_options"].(map[string]any); ok {
		r.Usage, _ = o["include_usage"].(bool)
	}
	r.System = textOf(body["system"]) + textOf(body["instructions"])
	add := func(role, text string) { r.Messages = append(r.Messages, message{role, text}) }
	items := list(body["messages"])
	if api == "responses" {
		if s, ok := body["input"].(string); ok {
			add("user", s)
		}
		items = list(body["input"])
	}
	for _, it := range items {
		m, _ := it.(map[string]any)
		switch role, kind := str(m["role"]), str(m["type"]); {
		case role == "system" || role == "developer":
			r.System += textOf(m["content"])
		case role == "tool":
			add("tool", textOf(m["content"]))
		case kind == "function_call_output":
			add("tool", textOf(m["output"]))
		case role == "assistant" || kind == "function_call" || kind == "reasoning":
			add("assistant", textOf(m["content"]))
		case role == "user":
			// Anthropic puts tool results into user messages.
			var texts []any
			parts, ok := m["content"].([]any)
			if !ok {
				texts = []any{m["content"]}
			}
			for _, p := range parts {
				if pm, _ := p.(map[string]any); str(pm["type"]) == "tool_result" {
					add("tool", textOf(pm["content"]))
				} else {
					texts = append(texts, p)
				}
			}
			if t := textOf(texts); t != "" {
				add("user", t)
			}
		}
	}
	return r
}
