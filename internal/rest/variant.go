package rest

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"mneme/internal/agent"
)

// The types of message variants, as clients name them
// (spec/rest.md section 3).
const (
	typeSystem    = "system_message"
	typeUser      = "user_message"
	typeAssistant = "assistant_message"
	typeReasoning = "reasoning_message"
	typeHidden    = "hidden_reasoning_message"
	typeCall      = "tool_call_message"
	typeReturn    = "tool_return_message"
	typeRequest   = "approval_request_message"
	typeResponse  = "approval_response_message"
	typeSummary   = "summary_message"
	typeEvent     = "event_message"

	typePing  = "ping"
	typeStop  = "stop_reason"
	typeUsage = "usage_statistics"
	typeError = "error_message"
)

// messageTypes are the variants that a filter may name.
var messageTypes = []string{
	typeSystem, typeUser, typeAssistant, typeReasoning, typeHidden, typeCall, typeReturn,
	typeRequest, typeResponse, typeSummary, typeEvent,
}

// A variant is one shape in which a client sees a stored message, or a part of
// it. It is a pointer to one of the structs of this file.
type variant interface{ base() *head }

// A head are the fields that all variants have.
type head struct {
	ID       string  `json:"id"`
	Date     string  `json:"date"`
	Name     *string `json:"name"`
	Type     string  `json:"message_type"`
	OTID     *string `json:"otid"`
	SenderID *string `json:"sender_id"`
	StepID   *string `json:"step_id"`
	IsErr    *bool   `json:"is_err"` // true or null
	SeqID    *int    `json:"seq_id"` // in streams of logged runs
	RunID    *string `json:"run_id"`
}

func (h *head) base() *head { return h }

// number gives a chunk of a logged run its place in the stream.
func (h *head) number(n int) { h.SeqID = &n }

func (h *head) kind() string { return h.Type }

type (
	systemVariant struct {
		head
		Content string `json:"content"`
	}
	// A userVariant has its content as a text, or as a list of parts if it was not
	// exactly one text.
	userVariant struct {
		head
		Content any `json:"content"`
	}
	assistantVariant struct {
		head
		Content string `json:"content"`
	}
	reasoningVariant struct {
		head
		Source    string  `json:"source"`
		Reasoning string  `json:"reasoning"`
		Signature *string `json:"signature"`
	}
	hiddenVariant struct {
		head
		State  string  `json:"state"`
		Hidden *string `json:"hidden_reasoning"`
	}
	// A callVariant is a tool_call_message or an approval_request_message. In a
	// token stream both fields hold the same callDelta, else the first wireCall and
	// all of them.
	callVariant struct {
		head
		Call  any `json:"tool_call"`
		Calls any `json:"tool_calls"`
	}
	// A returnVariant repeats its first return in fields of its own, for old clients.
	returnVariant struct {
		head
		Return  string       `json:"tool_return"`
		Status  string       `json:"status"`
		CallID  string       `json:"tool_call_id"`
		Stdout  []string     `json:"stdout" null:"yes"`
		Stderr  []string     `json:"stderr" null:"yes"`
		Returns []wireReturn `json:"tool_returns"`
	}
	responseVariant struct {
		head
		Approvals []any   `json:"approvals"` // wireApproval and wireReturn
		Approve   *bool   `json:"approve"`
		RequestID *string `json:"approval_request_id"` // the id of the tool call
		Reason    *string `json:"reason"`
	}
	summaryVariant struct {
		head
		Summary string     `json:"summary"`
		Stats   *wireStats `json:"compaction_stats"`
	}
	eventVariant struct {
		head
		Event string         `json:"event_type"`
		Data  map[string]any `json:"event_data"`
	}
)

// A wireCall is a complete tool call; Arguments is JSON text as the model wrote it.
type wireCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	ID        string `json:"tool_call_id"`
}

// A callDelta is a piece of a tool call in a token stream.
type callDelta struct {
	Name      *string `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	ID        string  `json:"tool_call_id"`
}

// A wireReturn is the result of one call: a text, or parts if it has images.
type wireReturn struct {
	Type   string   `json:"type"` // tool
	Return any      `json:"tool_return"`
	Status string   `json:"status"`
	CallID string   `json:"tool_call_id"`
	Stdout []string `json:"stdout" null:"yes"`
	Stderr []string `json:"stderr" null:"yes"`
}

// A wireApproval is a person's word on one call.
type wireApproval struct {
	Type    string  `json:"type"` // approval
	CallID  string  `json:"tool_call_id"`
	Approve bool    `json:"approve"`
	Reason  *string `json:"reason"`
}

// wireStats are the numbers of a compaction.
type wireStats struct {
	Trigger        string `json:"trigger"`
	TokensBefore   *int   `json:"context_tokens_before"`
	TokensAfter    *int   `json:"context_tokens_after"`
	Window         int    `json:"context_window"`
	MessagesBefore int    `json:"messages_count_before"`
	MessagesAfter  int    `json:"messages_count_after"`
}

// A wireText and a wireImage are parts of contents.
type (
	wireText struct {
		Type      string  `json:"type"` // text
		Text      string  `json:"text"`
		Signature *string `json:"signature"`
	}
	wireImage struct {
		Type   string      `json:"type"` // image
		Source imageSource `json:"source"`
	}
	imageSource struct {
		Type      string  `json:"type"` // base64
		MediaType string  `json:"media_type"`
		Data      string  `json:"data"`
		Detail    *string `json:"detail"`
	}
)

// What streams have besides messages.
type (
	pingChunk struct{ head }
	stopChunk struct {
		Type   string  `json:"message_type"`
		Reason string  `json:"stop_reason"`
		RunID  *string `json:"run_id,omitempty"` // with SeqID, in logged runs
		SeqID  *int    `json:"seq_id,omitempty"`
	}
	usageChunk struct {
		Type       string   `json:"message_type"`
		Completion int      `json:"completion_tokens"`
		Prompt     int      `json:"prompt_tokens"`
		Total      int      `json:"total_tokens"`
		Steps      int      `json:"step_count"`
		RunIDs     []string `json:"run_ids" null:"yes"`
		CacheRead  *int     `json:"cached_input_tokens"`
		CacheWrite *int     `json:"cache_write_tokens"`
		Reasoning  *int     `json:"reasoning_tokens"`
		Context    *int     `json:"context_tokens"`
		RunID      *string  `json:"run_id,omitempty"`
		SeqID      *int     `json:"seq_id,omitempty"`
	}
	errorChunk struct {
		Type      string  `json:"message_type"`
		RunID     string  `json:"run_id"`
		ErrorType string  `json:"error_type"`
		Message   string  `json:"message"`
		Detail    *string `json:"detail"`
		SeqID     *int    `json:"seq_id"`
	}
)

func (c *stopChunk) number(n int)  { c.SeqID = &n }
func (c *stopChunk) kind() string  { return typeStop }
func (c *usageChunk) number(n int) { c.SeqID = &n }
func (c *usageChunk) kind() string { return typeUsage }
func (c *errorChunk) number(n int) { c.SeqID = &n }
func (c *errorChunk) kind() string { return typeError }

// newHead makes the head of variant index of a stored message.
func newHead(typ string, m *agent.Message, index int) head {
	h := head{ID: m.ID, Date: messageDate(m.CreatedAt), Type: typ, OTID: new(variantOTID(m.ID, index))}
	h.RunID, h.StepID = text(m.RunID), text(m.StepID)
	if m.Interrupted {
		h.IsErr = new(true)
	}
	return h
}

// text is nil for "".
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// uuidOf reads the uuid of an id; ok is false for ids of another form.
func uuidOf(id string) (b [16]byte, ok bool) {
	i := strings.IndexByte(id, '-')
	if i < 0 || len(id)-i-1 != 36 {
		return b, false
	}
	digits := strings.ReplaceAll(id[i+1:], "-", "")
	if len(digits) != 32 {
		return b, false
	}
	_, err := hex.Decode(b[:], []byte(digits))
	return b, err == nil
}

// variantOTID is the otid of variant index of a stored message: its uuid with the
// index in the lowest seven bits.
func variantOTID(messageID string, index int) string {
	b, ok := uuidOf(messageID)
	if !ok {
		return messageID
	}
	b[15] = b[15]&0x80 | byte(min(index, 0x7f))
	return agent.FormatUUID(b)
}

// requestID is the id of the approval request that a stored message shows: its
// uuid minus one. The lowest seven bits of a message's uuid are never all zero.
func requestID(messageID string) string { return shiftID(messageID, -1) }

// requestOwner is the message whose approval request has the id.
func requestOwner(id string) string { return shiftID(id, 1) }

func shiftID(id string, by int) string {
	b, ok := uuidOf(id)
	if !ok {
		return id
	}
	b[15] += byte(by)
	return "message-" + agent.FormatUUID(b)
}

// statsOf reads the numbers stored with a summary. The triggers have names of
// their own over REST (spec/rest.md section 5.6).
func statsOf(raw json.RawMessage) *wireStats {
	var s wireStats
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	s.Trigger = triggerName(s.Trigger)
	return &s
}

func triggerName(stored string) string {
	switch stored {
	case "context_window_limit":
		return "post_step_context_check"
	case "context_window_overflow":
		return "context_window_exceeded"
	}
	return stored
}

// chunkDate is the date of a chunk that no stored message stands behind.
func chunkDate(at time.Time) string { return messageDate(at) }
