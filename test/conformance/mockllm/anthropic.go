package main

import "encoding/json"

// anthropic is the Anthropic messages format.
type anthropic struct {
	r  request
	id string
	b  blocks
}

func (a *anthropic) start() []any {
	return []any{obj{"type": "message_start", "message": obj{"id": a.id, "type": "message", "role": "assistant",
		"model": a.r.Model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": obj{"input_tokens": 100, "output_tokens": 0}}}}
}

func (a *anthropic) closeBlock() (out []any) {
	if a.b.open == "thinking" {
		out = append(out, obj{"type": "content_block_delta", "index": a.b.n,
			"delta": obj{"type": "signature_delta", "signature": "bW9jaw=="}})
	}
	if a.b.open != "" {
		out = append(out, obj{"type": "content_block_stop", "index": a.b.n})
		a.b.n++
		a.b.open = ""
	}
	return out
}

func (a *anthropic) delta(kind string, block, delta obj) (out []any) {
	if a.b.open != kind || kind == "tool_use" {
		out = append(a.closeBlock(), obj{"type": "content_block_start", "index": a.b.n, "content_block": block})
		a.b.open = kind
	}
	return append(out, obj{"type": "content_block_delta", "index": a.b.n, "delta": delta})
}

func (a *anthropic) text(t string) []any {
	return a.delta("text", obj{"type": "text", "text": ""}, obj{"type": "text_delta", "text": t})
}

func (a *anthropic) think(t string) []any {
	return a.delta("thinking", obj{"type": "thinking", "thinking": "", "signature": ""},
		obj{"type": "thinking_delta", "thinking": t})
}

func (a *anthropic) call(e event) []any {
	return a.delta("tool_use", obj{"type": "tool_use", "id": "toolu_" + e.id, "name": e.name, "input": obj{}},
		obj{"type": "input_json_delta", "partial_json": e.text})
}

func (a *anthropic) stop(rep reply) string {
	switch rep.finish {
	case "tool":
		return "tool_use"
	case "length":
		return "max_tokens"
	}
	return "end_turn"
}

func (a *anthropic) end(rep reply) []any {
	return append(a.closeBlock(),
		obj{"type": "message_delta", "delta": obj{"stop_reason": a.stop(rep), "stop_sequence": nil},
			"usage": obj{"input_tokens": rep.prompt, "output_tokens": rep.completion}},
		obj{"type": "message_stop"})
}

func (a *anthropic) whole(rep reply) any {
	text, think, calls := merged(rep)
	content := []any{}
	if think != "" {
		content = append(content, obj{"type": "thinking", "thinking": think, "signature": "bW9jaw=="})
	}
	if text != "" {
		content = append(content, obj{"type": "text", "text": text})
	}
	for _, e := range calls {
		content = append(content, obj{"type": "tool_use", "id": "toolu_" + e.id, "name": e.name, "input": json.RawMessage(e.text)})
	}
	return obj{"id": a.id, "type": "message", "role": "assistant", "model": a.r.Model, "content": content,
		"stop_reason": a.stop(rep), "stop_sequence": nil,
		"usage": obj{"input_tokens": rep.prompt, "output_tokens": rep.completion}}
}
