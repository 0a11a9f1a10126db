package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/protocol"
)

// A tool is one of the thirteen: what is published of it and what it does.
type tool struct {
	name, title, about string
	params             []param
	refuses            map[string]string // arguments that people expect, and why there are none
	data               string            // JSON Schema of data
	hints              hints
	// long tools run a turn; all others are bounded by RequestTimeout.
	long bool
	run  func(ctx context.Context, c *call) (any, error)
}

// hints are the annotations of a tool.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

// tools in the order in which they are listed.
func tools(cfg *Config) []*tool {
	return slices.Concat(agentTools(cfg), serverTools(), memoryTools(cfg), []*tool{askTool()})
}

// definition is what clients see.
func (t *tool) definition() *mcp.Tool {
	return &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.about,
		InputSchema: inputSchema(t.params), OutputSchema: outputSchema(t.data),
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: t.hints.readOnly, DestructiveHint: &t.hints.destructive,
			IdempotentHint: t.hints.idempotent, OpenWorldHint: &t.hints.openWorld,
		},
	}
}

// outputSchema is the schema of the envelope around data.
func outputSchema(data string) map[string]any {
	failure := map[string]any{
		"type": "object", "required": []string{"code", "message"}, "additionalProperties": false,
		"properties": map[string]any{
			"code":    map[string]any{"type": "string", "enum": codes},
			"message": map[string]any{"type": "string"},
		},
	}
	branch := func(ok bool, key string, value any) map[string]any {
		return map[string]any{
			"required": []string{"ok", key}, "additionalProperties": false,
			"properties": map[string]any{"ok": map[string]any{"const": ok}, key: value},
		}
	}
	return map[string]any{
		"type": "object", "required": []string{"ok"},
		"properties": map[string]any{"ok": map[string]any{"type": "boolean"}},
		"oneOf":      []any{branch(true, "data", json.RawMessage(data)), branch(false, "error", failure)},
	}
}

// A call is one call of a tool.
type call struct {
	*Server
	req  *mcp.CallToolRequest
	args args
	meta mcp.Meta // side facts of the answer
}

// note adds a side fact under the key letta/<name>.
func (c *call) note(name string, value any) {
	if c.meta == nil {
		c.meta = mcp.Meta{}
	}
	c.meta["letta/"+name] = value
}

// warn adds a warning.
func (c *call) warn(text string) {
	list, _ := c.meta["letta/warnings"].([]string)
	c.note("warnings", append(list, text))
}

// handler makes the SDK's handler of a tool.
func (s *Server) handler(t *tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := &call{Server: s, req: req}
		data, err := s.call(ctx, t, c)
		if result, ok := data.(*mcp.CallToolResult); ok && err == nil {
			return result, nil // the client is asked for something first
		}
		var protocolError *jsonrpc.Error
		if errors.As(err, &protocolError) {
			return nil, protocolError
		}
		if err != nil {
			return s.failed(t, c, err)
		}
		return c.answer(envelope{OK: true, Data: data})
	}
}

// call checks the arguments and runs the tool.
func (s *Server) call(ctx context.Context, t *tool, c *call) (any, error) {
	question, err := s.confirmed(ctx, t, c)
	if question != nil || err != nil {
		return question, err
	}
	if c.args, err = t.parse(c.req.Params.Arguments); err != nil {
		return nil, err
	}
	if !t.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.cfg.RequestTimeout, errRequestTimeout)
		defer cancel()
	}
	data, err := t.run(ctx, c)
	if err != nil && ctx.Err() != nil && !isAnswer(err) {
		// What a cancelled call fails with matters less than why.
		err = context.Cause(ctx)
	}
	return data, err
}

// parse checks the arguments of a call.
func (t *tool) parse(raw json.RawMessage) (args, error) {
	if fields, err := splitArgs(raw); err == nil {
		for _, name := range slices.Sorted(maps.Keys(t.refuses)) {
			if _, given := fields[name]; given {
				return nil, invalid("%s", t.refuses[name])
			}
		}
	}
	return parseArgs(t.params, raw)
}

// isAnswer says that an error was made to be shown.
func isAnswer(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// envelope is the answer of every tool; no other keys exist at these levels.
type envelope struct {
	OK    bool     `json:"ok"`
	Data  any      `json:"data,omitempty"`
	Error *failure `json:"error,omitempty"`
}

type failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// answer makes the result: the envelope twice, structured and as text.
func (c *call) answer(e envelope) (*mcp.CallToolResult, error) {
	raw, err := protocol.Marshal(e)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Meta: c.meta, IsError: !e.OK, StructuredContent: json.RawMessage(raw),
		Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}},
	}, nil
}

// failed answers with what went wrong. Details of our own faults go to the log,
// under a reference that the answer names.
func (s *Server) failed(t *tool, c *call, err error) (*mcp.CallToolResult, error) {
	e := explain(err)
	message := e.Message
	switch {
	case e.Code == CodeInternal:
		ref := reference()
		message = strings.TrimSuffix(message, ".") + " (reference " + ref + ")."
		s.log.Error("tool failed", "tool", t.name, "reference", ref, "err", err)
	case e.Err != nil:
		s.log.Debug("tool failed", "tool", t.name, "code", e.Code, "err", e.Err)
	}
	if len(e.Candidates) > 0 {
		c.note("candidates", e.Candidates)
	}
	return c.answer(envelope{Error: &failure{Code: e.Code, Message: message}})
}

// reference marks a log line so that an answer can name it.
func reference() string { return strings.ToLower(rand.Text()[:10]) }

// agent resolves the argument agent_id.
func (c *call) agent(ctx context.Context) (*Agent, error) {
	return resolve(ctx, c.backend, c.args.text("agent_id"))
}

// timeOf shows a time; "" for none.
func timeOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return protocol.FormatTime(t)
}
