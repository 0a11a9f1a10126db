// Package fake is the scripted model of tests. It plays one Answer per request,
// in order, records what it was asked, and never sleeps: a test that needs an
// answer to wait puts a Gate into it.
//
//	m := fake.New(
//		fake.Answer{fake.Reasoning("hm"), fake.Text("let ", "me see"), fake.Call("Read", `{"file_path":"a"}`)},
//		fake.Answer{fake.Status(503, "overloaded")},
//		fake.Answer{fake.Text("half"), fake.Cut()},
//		fake.Answer{fake.Text("done")},
//	)
//
// Usage and finish are added where an answer does not say them. A request
// beyond the script fails with CodeInternal, so that a test sees it. A Model is
// safe for concurrent use; concurrent requests take answers in the order they
// arrive. NewFunc answers by looking at the request instead.
package fake

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// An Answer is what the model does with one request.
type Answer []Step

// A Step is one thing an answer does.
type Step func(p *play) error

// play is one running answer.
type play struct {
	ctx      context.Context
	req      *llm.Request
	yield    func(llm.Part, error) bool
	n        int // number of the request, from 1
	calls    int
	pieces   int
	usage    bool
	finished bool
}

// errStopped says that the consumer left its loop.
var errStopped = fmt.Errorf("consumer stopped")

func (p *play) part(part llm.Part) error {
	if err := p.ctx.Err(); err != nil {
		return p.ctx.Err()
	}
	if !p.yield(part, nil) {
		return errStopped
	}
	return nil
}

// Text answers pieces of visible text, one part each.
func Text(pieces ...string) Step {
	return func(p *play) error {
		for _, s := range pieces {
			p.pieces++
			if err := p.part(llm.Part{Kind: llm.PartText, Text: s}); err != nil {
				return err
			}
		}
		return nil
	}
}

// Reasoning answers pieces of reasoning on the field reasoning_content.
func Reasoning(pieces ...string) Step {
	return func(p *play) error {
		for _, s := range pieces {
			p.pieces++
			if err := p.part(llm.Part{Kind: llm.PartReasoning, Text: s, Field: "reasoning_content"}); err != nil {
				return err
			}
		}
		return nil
	}
}

// Call answers a tool call. Its id is call_<request>_<n>, both from 1.
func Call(name, arguments string) Step { return CallID("", name, arguments) }

// CallID answers a tool call with an id of the test's choice.
func CallID(id, name, arguments string) Step {
	return func(p *play) error {
		p.calls++
		callID := id
		if callID == "" {
			callID = fmt.Sprintf("call_%d_%d", p.n, p.calls)
		}
		return p.part(llm.Part{Kind: llm.PartCall, Call: &agent.CallPart{ID: callID, Name: name, Arguments: arguments}})
	}
}

// Part answers any part as it is.
func Part(part llm.Part) Step {
	return func(p *play) error {
		p.usage = p.usage || part.Kind == llm.PartUsage
		p.finished = p.finished || part.Kind == llm.PartFinish
		return p.part(part)
	}
}

// Usage reports token counts; without it 100 input tokens and one output token
// per piece are reported.
func Usage(u agent.Usage) Step {
	u.Reported = true
	return Part(llm.Part{Kind: llm.PartUsage, Usage: u})
}

// NoUsage reports nothing, as some providers do.
func NoUsage() Step {
	return func(p *play) error { p.usage = true; return nil }
}

// Finish ends the answer for a reason; without it stop, or tool_calls after a
// call. Steps behind it are not played.
func Finish(reason llm.Finish) Step {
	return Part(llm.Part{Kind: llm.PartFinish, Finish: reason})
}

// Err ends the answer with an error.
func Err(err error) Step {
	return func(*play) error { return err }
}

// Status ends the answer as a provider's HTTP error does.
func Status(status int, message string) Step {
	return func(p *play) error {
		return llm.StatusError(source(p.req), status, nil, []byte(message))
	}
}

// StatusRetryAfter is Status with a Retry-After header in seconds.
func StatusRetryAfter(status int, message string, seconds int) Step {
	return func(p *play) error {
		h := http.Header{"Retry-After": {strconv.Itoa(seconds)}}
		return llm.StatusError(source(p.req), status, h, []byte(message))
	}
}

// Overflow ends the answer as a provider does whose model has a smaller window.
func Overflow() Step {
	return Status(http.StatusBadRequest, `{"error":{"code":"context_length_exceeded","message":"maximum context length exceeded"}}`)
}

// Cut ends the answer as a connection does that breaks in its middle.
func Cut() Step {
	return func(p *play) error {
		return &llm.Error{Plain: agent.Error{
			Code: agent.CodeModel, Retryable: true,
			Message: fmt.Sprintf("Fake broke off its answer for model %q.", p.req.Model),
		}}
	}
}

// Hang says nothing more until the request is cancelled.
func Hang() Step {
	return func(p *play) error {
		<-p.ctx.Done()
		return p.ctx.Err()
	}
}

// Gate waits until open is closed or receives a value.
func Gate(open <-chan struct{}) Step {
	return func(p *play) error {
		select {
		case <-open:
			return nil
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// Signal closes reached when the answer gets there: once, so for one answer.
func Signal(reached chan<- struct{}) Step {
	return func(*play) error { close(reached); return nil }
}

// Do runs a function of the test, for what no other step does.
func Do(f func(ctx context.Context, req *llm.Request) error) Step {
	return func(p *play) error { return f(p.ctx, p.req) }
}

func source(req *llm.Request) llm.Source {
	return llm.Source{Provider: "fake", Label: "Fake", Model: req.Model, BaseURL: "http://fake.invalid/v1"}
}

// A Model plays a script.
type Model struct {
	answer func(req *llm.Request) Answer // nil = script

	mu       sync.Mutex // guards what follows
	script   []Answer
	requests []*llm.Request
	changed  chan struct{} // closed and replaced with each request
}

var _ llm.Model = (*Model)(nil)

// New returns a model that plays the script.
func New(script ...Answer) *Model {
	return &Model{script: script, changed: make(chan struct{})}
}

// NewFunc returns a model that asks f, which must be safe for concurrent use
// and must not change the request.
func NewFunc(f func(req *llm.Request) Answer) *Model {
	return &Model{answer: f, changed: make(chan struct{})}
}

// Add appends to the script.
func (m *Model) Add(script ...Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script = append(m.script, script...)
}

// Requests returns copies of the requests so far: what they held when they
// were made.
func (m *Model) Requests() []*llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Left counts the answers that nobody has asked for.
func (m *Model) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.script)
}

// Wait returns once n requests have been made, or ctx's error.
func (m *Model) Wait(ctx context.Context, n int) error {
	for {
		m.mu.Lock()
		got, changed := len(m.requests), m.changed
		m.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d requests made: %w", got, n, ctx.Err())
		}
	}
}

// take records a request and gives its answer and number.
func (m *Model) take(req *llm.Request) (Answer, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, snapshot(req))
	close(m.changed)
	m.changed = make(chan struct{})
	n := len(m.requests)
	if m.answer != nil {
		return nil, n
	}
	if len(m.script) == 0 {
		return Answer{Err(agent.Errorf(agent.CodeInternal, "the fake model's script has no answer for request %d", n))}, n
	}
	a := m.script[0]
	m.script = m.script[1:]
	return a, n
}

// Stream plays the next answer.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Part, error] {
	return func(yield func(llm.Part, error) bool) {
		answer, n := m.take(req)
		if m.answer != nil {
			answer = m.answer(req)
		}
		p := &play{ctx: ctx, req: req, yield: yield, n: n}
		if err := p.run(answer); err != nil && err != errStopped {
			if plain, ok := err.(*agent.Error); ok {
				err = &llm.Error{Plain: *plain}
			}
			yield(llm.Part{}, err)
		}
	}
}

func (p *play) run(answer Answer) error {
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	for _, step := range answer {
		if err := step(p); err != nil {
			return err
		}
		if p.finished {
			return nil
		}
	}
	if !p.usage {
		if err := Usage(agent.Usage{Input: 100, Output: p.pieces})(p); err != nil {
			return err
		}
	}
	if p.calls > 0 {
		return Finish(llm.FinishCalls)(p)
	}
	return Finish(llm.FinishStop)(p)
}

// snapshot copies a request with its messages and their parts, which its maker
// goes on changing.
func snapshot(req *llm.Request) *llm.Request {
	c := *req
	c.Messages = make([]*agent.Message, len(req.Messages))
	for i, m := range req.Messages {
		mc := *m
		mc.Parts = slices.Clone(m.Parts)
		c.Messages[i] = &mc
	}
	c.Tools = slices.Clone(req.Tools)
	c.Settings = slices.Clone(req.Settings)
	return &c
}
