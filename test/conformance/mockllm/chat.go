package main

// chat is the OpenAI chat-completions format.
type chat struct {
	r     request
	id    string
	calls int
}

func (c *chat) chunk(delta obj, finish any) []any {
	return []any{obj{"id": c.id, "object": "chat.completion.chunk", "created": 1700000000, "model": c.r.Model,
		"choices": []any{obj{"index": 0, "delta": delta, "finish_reason": finish}}}}
}

func (c *chat) start() []any         { return c.chunk(obj{"role": "assistant", "content": ""}, nil) }
func (c *chat) text(t string) []any  { return c.chunk(obj{"content": t}, nil) }
func (c *chat) think(t string) []any { return c.chunk(obj{"reasoning_content": t}, nil) }

func (c *chat) call(e event) []any {
	i := c.calls
	c.calls++
	half := len(e.text) / 2
	first := c.chunk(obj{"tool_calls": []any{obj{"index": i, "id": e.id, "type": "function",
		"function": obj{"name": e.name, "arguments": e.text[:half]}}}}, nil)
	return append(first, c.chunk(obj{"tool_calls": []any{obj{"index": i,
		"function": obj{"arguments": e.text[half:]}}}}, nil)...)
}

func chatFinish(rep reply) string {
	if rep.finish == "tool" {
		return "tool_calls"
	}
	return rep.finish
}

func chatUsage(rep reply) obj {
	return obj{"prompt_tokens": rep.prompt, "completion_tokens": rep.completion, "total_tokens": rep.prompt + rep.completion}
}

func (c *chat) end(rep reply) []any {
	out := c.chunk(obj{}, chatFinish(rep))
	if c.r.Usage {
		out = append(out, obj{"id": c.id, "object": "chat.completion.chunk", "created": 1700000000,
			"model": c.r.Model, "choices": []any{}, "usage": chatUsage(rep)})
	}
	return append(out, "[DONE]")
}

func (c *chat) whole(rep reply) any {
	text, think, calls := merged(rep)
	msg := obj{"role": "assistant", "content": text}
	if think != "" {
		msg["reasoning_content"] = think
	}
	var tc []any
	for _, e := range calls {
		tc = append(tc, obj{"id": e.id, "type": "function", "function": obj{"name": e.name, "arguments": e.text}})
	}
	if tc != nil {
		msg["tool_calls"] = tc
	}
	return obj{"id": c.id, "object": "chat.completion", "created": 1700000000, "model": c.r.Model,
		"choices": []any{obj{"index": 0, "message": msg, "finish_reason": chatFinish(rep)}}, "usage": chatUsage(rep)}
}
