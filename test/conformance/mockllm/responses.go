package main

import "fmt"

// responses is the OpenAI responses format.
type responses struct {
	r      request
	id     string
	b      blocks
	seq    int
	output []any
}

func (s *responses) ev(kind string, fields obj) obj {
	fields["type"], fields["sequence_number"] = kind, s.seq
	s.seq++
	return fields
}

func (s *responses) body(status string, usage any) obj {
	out := s.output
	if out == nil {
		out = []any{}
	}
	return obj{"id": s.id, "object": "response", "created_at": 1700000000, "status": status, "model": s.r.Model,
		"output": out, "usage": usage, "error": nil, "incomplete_details": nil}
}

func (s *responses) start() []any {
	return []any{s.ev("response.created", obj{"response": s.body("in_progress", nil)}),
		s.ev("response.in_progress", obj{"response": s.body("in_progress", nil)})}
}

func (s *responses) item(kind, status string, content any) obj {
	id := fmt.Sprintf("%s_%d", kind, s.b.n)
	switch kind {
	case "message":
		return obj{"id": "msg_" + id, "type": "message", "role": "assistant", "status": status, "content": content}
	case "reasoning":
		return obj{"id": "rs_" + id, "type": "reasoning", "summary": content}
	}
	return nil
}

func (s *responses) closeBlock() (out []any) {
	switch s.b.open {
	case "message":
		part := obj{"type": "output_text", "text": s.b.buf, "annotations": []any{}}
		it := s.item("message", "completed", []any{part})
		out = append(out,
			s.ev("response.output_text.done", obj{"item_id": it["id"], "output_index": s.b.n, "content_index": 0, "text": s.b.buf}),
			s.ev("response.content_part.done", obj{"item_id": it["id"], "output_index": s.b.n, "content_index": 0, "part": part}),
			s.ev("response.output_item.done", obj{"output_index": s.b.n, "item": it}))
		s.output = append(s.output, it)
	case "reasoning":
		part := obj{"type": "summary_text", "text": s.b.buf}
		it := s.item("reasoning", "", []any{part})
		out = append(out,
			s.ev("response.reasoning_summary_text.done", obj{"item_id": it["id"], "output_index": s.b.n, "summary_index": 0, "text": s.b.buf}),
			s.ev("response.reasoning_summary_part.done", obj{"item_id": it["id"], "output_index": s.b.n, "summary_index": 0, "part": part}),
			s.ev("response.output_item.done", obj{"output_index": s.b.n, "item": it}))
		s.output = append(s.output, it)
	default:
		return nil
	}
	s.b = blocks{n: s.b.n + 1}
	return out
}

func (s *responses) open(kind string) (out []any) {
	if s.b.open == kind {
		return nil
	}
	out = s.closeBlock()
	s.b.open = kind
	it := s.item(kind, "in_progress", []any{})
	out = append(out, s.ev("response.output_item.added", obj{"output_index": s.b.n, "item": it}))
	if kind == "message" {
		return append(out, s.ev("response.content_part.added", obj{"item_id": it["id"], "output_index": s.b.n,
			"content_index": 0, "part": obj{"type": "output_text", "text": "", "annotations": []any{}}}))
	}
	return append(out, s.ev("response.reasoning_summary_part.added", obj{"item_id": it["id"], "output_index": s.b.n,
		"summary_index": 0, "part": obj{"type": "summary_text", "text": ""}}))
}

func (s *responses) text(t string) []any {
	out := s.open("message")
	s.b.buf += t
	return append(out, s.ev("response.output_text.delta", obj{"item_id": s.item("message", "", nil)["id"],
		"output_index": s.b.n, "content_index": 0, "delta": t}))
}

func (s *responses) think(t string) []any {
	out := s.open("reasoning")
	s.b.buf += t
	return append(out, s.ev("response.reasoning_summary_text.delta", obj{"item_id": s.item("reasoning", "", nil)["id"],
		"output_index": s.b.n, "summary_index": 0, "delta": t}))
}

func (s *responses) call(e event) []any {
	out := s.closeBlock()
	id := "fc_" + e.id
	it := func(status, args string) obj {
		return obj{"id": id, "type": "function_call", "call_id": e.id, "name": e.name, "arguments": args, "status": status}
	}
	out = append(out,
		s.ev("response.output_item.added", obj{"output_index": s.b.n, "item": it("in_progress", "")}),
		s.ev("response.function_call_arguments.delta", obj{"item_id": id, "output_index": s.b.n, "delta": e.text}),
		s.ev("response.function_call_arguments.done", obj{"item_id": id, "output_index": s.b.n, "arguments": e.text}),
		s.ev("response.output_item.done", obj{"output_index": s.b.n, "item": it("completed", e.text)}))
	s.output = append(s.output, it("completed", e.text))
	s.b.n++
	return out
}

func (s *responses) end(rep reply) []any {
	out := s.closeBlock()
	usage := obj{"input_tokens": rep.prompt, "output_tokens": rep.completion, "total_tokens": rep.prompt + rep.completion,
		"input_tokens_details": obj{"cached_tokens": 0}, "output_tokens_details": obj{"reasoning_tokens": 0}}
	if rep.finish == "length" {
		b := s.body("incomplete", usage)
		b["incomplete_details"] = obj{"reason": "max_output_tokens"}
		return append(out, s.ev("response.incomplete", obj{"response": b}))
	}
	return append(out, s.ev("response.completed", obj{"response": s.body("completed", usage)}))
}

func (s *responses) whole(rep reply) any {
	for _, e := range rep.events {
		switch e.kind {
		case "text":
			s.text(e.text)
		case "think":
			s.think(e.text)
		case "call":
			s.call(e)
		}
	}
	last := s.end(rep)
	return last[len(last)-1].(obj)["response"]
}
