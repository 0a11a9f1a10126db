package main

// format renders a reply in one provider's wire form.
type format interface {
	start() []any
	text(tok string) []any
	think(tok string) []any
	call(e event) []any
	end(rep reply) []any
	whole(rep reply) any // non-streaming body
}

type obj = map[string]any

// newFormat is the format of the API that was asked.
func newFormat(r request, id string) format {
	switch r.API {
	case "chat":
		return &chat{r: r, id: "chatcmpl-" + id}
	case "anthropic":
		return &anthropic{r: r, id: "msg_" + id}
	}
	return &responses{r: r, id: "resp_" + id}
}

// merged joins the pieces of a reply that is sent as a whole.
func merged(rep reply) (text, think string, calls []event) {
	for _, e := range rep.events {
		switch e.kind {
		case "text":
			text += e.text
		case "think":
			think += e.text
		case "call":
			calls = append(calls, e)
		}
	}
	return text, think, calls
}

// blocks tracks the open content block of the formats that have them.
type blocks struct {
	open string
	n    int
	buf  string
}
