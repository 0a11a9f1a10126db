package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxAnswer bounds what one answer may make us hold: pieces of calls, and of
// reasoning that may turn out to hold calls.
const maxAnswer = 8 << 20

// errStopped says that the consumer left its loop.
var errStopped = errors.New("consumer left")

// An answer turns the events of one stream into parts. Text and reasoning are
// passed on at once; calls, usage and finish at the end, when they are whole.
type answer struct {
	src  Source
	req  *Request
	emit func(Part, error) bool

	filter    callFilter
	calls     callSet
	details   detailSet
	reasoning strings.Builder // kept only where it may hold calls
	usage     *wireUsage
	finish    string
	text      bool // visible text other than blanks came
	size      int
	pending   []byte // data that is no JSON yet: the event may have more lines
}

func newAnswer(src Source, req *Request, emit func(Part, error) bool) *answer {
	a := &answer{src: src, req: req, emit: emit}
	a.calls.tools = req.Tools
	a.filter.tools = req.Tools
	return a
}

// begun says whether the model has said anything yet.
func (a *answer) begun() bool {
	return a.text || len(a.calls.calls) > 0 || a.filter.held.Len() > 0
}

// data takes the value of one data line. Data that is no JSON waits for the
// rest of its event.
func (a *answer) data(b []byte) error {
	if len(a.pending) > 0 {
		a.pending = append(append(a.pending, '\n'), b...)
		if len(a.pending) > maxLine {
			return a.unreadable(errLongLine)
		}
		b = a.pending
	}
	var c chunk
	err := json.Unmarshal(b, &c)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		if len(a.pending) == 0 {
			a.pending = append(a.pending, b...)
		}
		return nil
	case err != nil:
		return a.unreadable(err)
	}
	a.pending = a.pending[:0]
	return a.chunk(&c, b)
}

// eventEnd is the blank line after an event.
func (a *answer) eventEnd() error {
	if len(a.pending) == 0 {
		return nil
	}
	var v any
	return a.unreadable(json.Unmarshal(a.pending, &v))
}

func (a *answer) unreadable(err error) error {
	return brokenStream(a.src, "sent something that is not a chat completion", err)
}

// chunk takes one event.
func (a *answer) chunk(c *chunk, raw []byte) error {
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return streamError(a.src, parseError(c.Error), c.Error)
	}
	if len(c.Choices) == 0 && (c.Object == "error" || c.Message != "" && c.Usage == nil) {
		return streamError(a.src, parseError(raw), raw)
	}
	if c.Usage != nil {
		a.usage = c.Usage
	} else if c.XGroq != nil && c.XGroq.Usage != nil {
		a.usage = c.XGroq.Usage
	}
	for i := range c.Choices {
		if err := a.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) choice(c *choice) error {
	if c.Index != 0 {
		return nil // we ask for one answer only
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	d := &c.Delta
	if c.Message != nil && !a.begun() && d.empty() {
		d = c.Message // a whole answer in one event
	}
	if err := a.delta(d); err != nil {
		return err
	}
	if c.Finish != "" && c.Finish != "null" {
		a.finish = string(c.Finish)
	}
	return nil
}

func (d *delta) empty() bool {
	return d.Content == content{} && d.ReasoningContent == "" && d.Reasoning == "" && d.ReasoningText == "" &&
		len(d.ToolCalls) == 0 && d.FunctionCall == nil && d.Refusal == ""
}

func (a *answer) delta(d *delta) error {
	if err := a.thought(d); err != nil {
		return err
	}
	if err := a.say(a.filter.push(d.Content.text)); err != nil {
		return err
	}
	if err := a.say(string(d.Refusal)); err != nil {
		return err
	}
	for _, t := range d.ToolCalls {
		if err := a.call(t); err != nil {
			return err
		}
	}
	if d.FunctionCall != nil {
		return a.call(callDelta{Function: *d.FunctionCall})
	}
	return nil
}

// thought passes on reasoning, from the first field that has some: servers that
// fill several fill them with the same text.
func (a *answer) thought(d *delta) error {
	field, text := "", ""
	switch {
	case d.ReasoningContent != "":
		field, text = "reasoning_content", string(d.ReasoningContent)
	case d.Reasoning != "":
		field, text = "reasoning", string(d.Reasoning)
	case d.ReasoningText != "":
		field, text = "reasoning_text", string(d.ReasoningText)
	case d.Content.thinking != "":
		field, text = "content", d.Content.thinking
	}
	if len(d.ReasoningDetails) > 0 && string(d.ReasoningDetails) != "null" {
		if t := a.details.add(d.ReasoningDetails); text == "" {
			field, text = "reasoning_details", t
		}
	}
	if text == "" {
		return nil
	}
	if len(a.req.Tools) > 0 {
		if err := a.grow(len(text)); err != nil {
			return err
		}
		a.reasoning.WriteString(text)
	}
	return a.part(Part{Kind: PartReasoning, Text: text, Field: field})
}

func (a *answer) say(text string) error {
	if text == "" {
		return nil
	}
	a.text = a.text || strings.TrimSpace(text) != ""
	return a.part(Part{Kind: PartText, Text: text})
}

func (a *answer) call(d callDelta) error {
	if err := a.grow(len(d.ID) + len(d.Function.Name) + len(d.Function.Arguments)); err != nil {
		return err
	}
	if !a.calls.add(d) {
		return a.fail(fmt.Sprintf("asked for more than %d tool calls at once", maxCalls))
	}
	return nil
}

func (a *answer) grow(n int) error {
	a.size += n
	if a.size > maxAnswer {
		return a.fail(fmt.Sprintf("sent more than %d MiB in one answer", maxAnswer>>20))
	}
	return nil
}

// fail is an answer that asking again would not mend.
func (a *answer) fail(what string) error {
	e := brokenStream(a.src, what, nil)
	e.Retryable = false
	return e
}

func (a *answer) part(p Part) error {
	if !a.emit(p, nil) {
		return errStopped
	}
	return nil
}

// flush shows text that waited for the end of a call that never came.
func (a *answer) flush() error { return a.say(a.filter.release()) }

// end passes on what is left once the stream has ended well, and the finish.
// An answer without text and calls counts only if the provider said that it
// stopped (spec/app-server-core.md section 5.1); silence is an error.
func (a *answer) end() error {
	if err := a.recover(); err != nil {
		return err
	}
	finish, err := a.reason()
	if err != nil {
		return err
	}
	calls := a.calls.finish(a.req.Messages, finish == FinishLength || finish == FinishFilter)
	switch {
	case len(calls) > 0 && finish == FinishStop:
		finish = FinishCalls
	case len(calls) == 0 && finish == FinishCalls:
		return brokenStream(a.src, "announced a tool call but sent none", nil)
	case len(calls) == 0 && finish == FinishStop && !a.text && a.finish == "":
		return brokenStream(a.src, "answered with neither text nor a tool call", nil)
	case len(calls) == 0 && finish == FinishFilter && !a.text:
		return a.fail(fmt.Sprintf("withheld its answer (%s)", clip(a.finish, 80)))
	}
	if meta := a.details.meta(a.req.Model); meta != nil {
		if err := a.part(Part{Kind: PartReasoning, Field: "reasoning_details", Meta: meta}); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := a.part(Part{Kind: PartCall, Call: c}); err != nil {
			return err
		}
	}
	if a.usage != nil {
		if err := a.part(Part{Kind: PartUsage, Usage: a.usage.usage()}); err != nil {
			return err
		}
	}
	return a.part(Part{Kind: PartFinish, Finish: finish})
}

// recover reads calls that came as text, if there are no others.
func (a *answer) recover() error {
	var found []callDelta
	if len(a.calls.calls) == 0 {
		if a.filter.inCall {
			found = callsIn(a.filter.held.String(), a.req.Tools)
		} else if !a.text && a.filter.held.Len() == 0 {
			found = callsAtEnd(a.reasoning.String(), a.req.Tools)
		}
	}
	if found == nil {
		return a.flush()
	}
	a.filter.release()
	for i, d := range found {
		d.Index = &i // each is a call of its own
		if err := a.call(d); err != nil {
			return err
		}
	}
	return nil
}

// reason maps the provider's word for why the model stopped. None at all is a
// stop; one that is not known is not taken for success (case H10).
func (a *answer) reason() (Finish, error) {
	switch strings.ToLower(a.finish) {
	case "", "stop", "end_turn", "eos", "eos_token", "stop_token", "stop_sequence", "end", "complete", "completed", "finished":
		return FinishStop, nil
	case "tool_calls", "tool_call", "tool_use", "function_call":
		return FinishCalls, nil
	case "length", "max_tokens", "max_output_tokens", "model_length":
		return FinishLength, nil
	case "content_filter", "safety", "recitation", "refusal", "prohibited_content", "blocklist", "spii":
		return FinishFilter, nil
	case "malformed_function_call":
		return "", brokenStream(a.src, "made a tool call that it could not finish itself", nil)
	}
	return "", a.fail(fmt.Sprintf("stopped for a reason that is not known (%q)", clip(a.finish, 80)))
}
