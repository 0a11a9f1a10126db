// Package llm asks language models. The seam is one small interface: a Model
// streams the parts of one answer, and leaving the loop (or cancelling the
// context) cancels the request to the provider.
//
// The catalogue knows the providers (stored records, environment keys, local
// servers on their default ports), lists their models and resolves a handle
// "provider/model" to a Model. Chat completions, which carry most providers,
// are spoken by Chat; offline/ answers without any provider; fake/ is the
// scripted model of tests.
//
//	encode.go   request to JSON                 sse.go      lines of a stream
//	openai.go   the exchange over HTTP          wire.go     one event
//	errors.go   what failed, in one sentence    answer.go   events to parts
//	retry.go    whether to ask again            calls.go, recover.go, details.go
//	catalogue.go, connection.go, discover.go, connect.go, providers.go (the table)
//
// Servers differ; the differences are decided where an answer is put together
// (calls.go for tool calls, recover.go for calls that come as text) and by the
// features of a request that a server refuses, which are left out from then on.
//
// Errors are *Error: an agent.Error with one plain sentence that names the
// setting to change, plus what the retry rules need (spec/harness.md section
// 1.6): status codes decide, texts do not.
package llm

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"mneme/internal/agent"
)

// A Model answers requests. Implementations are safe for concurrent use.
type Model interface {
	// Stream asks the model and yields the parts of its answer in order. The
	// last pair is either a PartFinish with a nil error or a zero Part with a
	// non-nil error, always an *Error unless it is ctx's own. Stopping the loop
	// or cancelling ctx ends the provider's request at once.
	Stream(ctx context.Context, req *Request) iter.Seq2[Part, error]
}

// A Request is one question to a model.
type Request struct {
	Model  string // the provider's name of the model
	System string // compiled system prompt; "" = none
	// Messages are user, assistant, tool, notice and summary messages in the
	// order the model shall see them; every tool call has its result. The
	// client sends Message.Context in front of the parts. It must not change them.
	Messages  []*agent.Message
	Tools     []agent.ToolDef
	MaxOutput int // tokens; 0 = the provider's default
	// Settings are the agent's model settings (temperature, reasoning_effort,
	// parallel_tool_calls …), a JSON object or nil.
	Settings json.RawMessage
	// CacheKey is stable per conversation, for providers with prompt caches.
	CacheKey string
}

// A PartKind says which fields of a Part count.
type PartKind uint8

// The kinds of answer parts.
const (
	PartText PartKind = iota + 1 // Text: the next piece of visible text
	// PartReasoning is the next piece of reasoning: Text, Field, Signature, Meta.
	// A piece with Meta may have no Text: it is stored, and there is nothing to show.
	PartReasoning
	PartCall   // Call: one complete tool call
	PartUsage  // Usage: token counts; the last one holds
	PartFinish // Finish: why the model stopped; always last
)

// A Part is one piece of a streamed answer.
type Part struct {
	Kind      PartKind
	Finish    Finish
	Text      string
	Field     string          // the provider's field that reasoning came in
	Signature string          // the provider's, opaque
	Meta      json.RawMessage // the provider's, opaque
	Call      *agent.CallPart // ids are already unique within the answer
	Usage     agent.Usage
}

// Finish says why a model stopped.
type Finish string

// The reasons. A stream that ends without one is an error.
const (
	FinishStop   Finish = "stop"
	FinishCalls  Finish = "tool_calls"
	FinishLength Finish = "length"
	FinishFilter Finish = "content_filter"
)

// Plain is the part of an Error that users see. (Embedded under its own name,
// agent.Error would hide its Error method.)
type Plain = agent.Error

// An Error is a failed request.
type Error struct {
	Plain
	// RetryAfter is the provider's wish, 0 = none.
	RetryAfter time.Duration
	// Overflow says that the prompt was too long for the model.
	Overflow bool
}

// Unwrap gives the plain error to errors.As.
func (e *Error) Unwrap() error { return &e.Plain }

// Info describes a model of the catalogue.
type Info struct {
	Handle       string // provider/model
	Provider     string // provider id, such as lmstudio
	ProviderType string // what clients call its API family
	Name         string // the provider's name of the model
	Label        string
	Context      int // window in tokens
	// ContextSource says where Context comes from: loaded, configured,
	// provider, maximum, known or default.
	ContextSource string
	MaxOutput     int // tokens
	Endpoint      string
	Reasoning     bool
	Images        bool
}
