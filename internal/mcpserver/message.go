package mcpserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Versions of the protocol, newest first.
var versions = mcp.SupportedProtocolVersions()

// legacyVersions are those that a session can negotiate.
func legacyVersions() []string {
	return slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return v >= versionModern })
}

// Codes of JSON-RPC that are not the SDK's (spec/mcp.md section 1).
const (
	codeSession = -32001 // the session is not, or no longer, there
	codeServer  = -32000 // anything else about HTTP
)

// A message is a JSON-RPC message as far as the front reads it.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// valid says whether this is a request, a notification or a response.
func (m *message) valid() bool {
	if m.JSONRPC != "2.0" {
		return false
	}
	if len(m.ID) > 0 {
		if c := m.ID[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	if m.Method != "" {
		return len(m.Result) == 0 && len(m.Error) == 0
	}
	return len(m.ID) > 0 && (len(m.Result) > 0) != (len(m.Error) > 0)
}

// isRequest says whether an answer is expected.
func (m *message) isRequest() bool { return m.Method != "" && len(m.ID) > 0 }

// A body is what a POST carries: one message, or in one old version a batch.
type body struct {
	raw      []byte
	messages []message
	batch    bool
}

// parseBody reads a body just far enough to know where it goes. code is the
// error's.
func parseBody(raw []byte) (b body, code int64, problem string) {
	b.raw = raw
	trimmed := bytes.TrimSpace(raw)
	if !json.Valid(trimmed) {
		return b, jsonrpc.CodeParseError, "the body is not JSON"
	}
	const not = "the body is not a JSON-RPC message"
	var err error
	switch trimmed[0] {
	case '[':
		b.batch = true
		err = json.Unmarshal(trimmed, &b.messages)
	case '{':
		b.messages = make([]message, 1)
		err = json.Unmarshal(trimmed, &b.messages[0])
	default:
		return b, jsonrpc.CodeInvalidRequest, not
	}
	if err != nil || len(b.messages) == 0 || slices.ContainsFunc(b.messages, func(m message) bool { return !m.valid() }) {
		return b, jsonrpc.CodeInvalidRequest, not
	}
	return b, 0, ""
}

// id is the request's for an error about it; null where there is none.
func (b *body) id() json.RawMessage {
	if !b.batch && len(b.messages) == 1 && b.messages[0].isRequest() {
		return b.messages[0].ID
	}
	return nil
}

// method is the one message's; "" for a batch.
func (b *body) method() string {
	if b.batch {
		return ""
	}
	return b.messages[0].Method
}

// hints is what a request's params say about how it wants to be served.
type paramHints struct {
	Name string `json:"name"`
	Meta struct {
		Version  *string         `json:"io.modelcontextprotocol/protocolVersion"`
		LogLevel *string         `json:"io.modelcontextprotocol/logLevel"`
		Token    json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
	RequestID json.RawMessage `json:"requestId"` // of notifications/cancelled
}

// hints reads the params leniently: what is wrong with them is the SDK's to say.
func (m *message) hints() (h paramHints) {
	if json.Unmarshal(m.Params, &h) != nil {
		// One field of a wrong type must not hide the others.
		var meta struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		if json.Unmarshal(m.Params, &meta) == nil {
			var v string
			if json.Unmarshal(meta.Meta[mcp.MetaKeyProtocolVersion], &v) == nil {
				h.Meta.Version = &v
			}
		}
	}
	return h
}

// streams says whether a request is answered by a stream from the start: where
// there will be more than the answer, or where it takes long.
func (b *body) streams() bool {
	return slices.ContainsFunc(b.messages, func(m message) bool {
		if m.Method == "subscriptions/listen" {
			return true
		}
		h := m.hints()
		return len(h.Meta.Token) > 0 && string(h.Meta.Token) != "null" || h.Meta.LogLevel != nil ||
			m.Method == "tools/call" && h.Name == "session_ask"
	})
}

// accepted is what a client can read.
type accepted struct{ json, stream bool }

// accepts reads the Accept header; without one a client takes anything.
func accepts(r *http.Request) (a accepted) {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return accepted{true, true}
	}
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		kind, params, _ := strings.Cut(part, ";")
		if refused(params) {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "*/*":
			a = accepted{true, true}
		case "application/json", "application/*":
			a.json = true
		case "text/event-stream", "text/*":
			a.stream = true
		}
	}
	return a
}

// refused says whether the parameters of a media range hold q=0.
func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(k, "q") && strings.Trim(v, "0.") == "" && v != "" {
			return true
		}
	}
	return false
}

// rpcError is an error response of JSON-RPC. A nil id is null.
func rpcError(id json.RawMessage, code int64, text string, data any) []byte {
	type object struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   object          `json:"error"`
	}{"2.0", id, object{code, text, data}})
	if err != nil {
		panic(err) // ids were valid, texts and data are ours
	}
	return raw
}
