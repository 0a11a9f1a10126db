package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

// externalTimeout is how long a connection may take to run one of its tools.
const externalTimeout = 5 * time.Minute

// An ExternalGroup is tools of a connection: always visible, or, with a scope
// id, only in turns that name it.
type ExternalGroup struct {
	ScopeID string
	Tools   []agent.ToolDef
}

// externals are the tools that live connections run themselves. They are
// connection state: nothing of them is stored.
type externals struct {
	publish func(*agent.Event)

	mu     sync.Mutex // guards the rest
	scopes map[agent.Scope][]registration
	conns  map[string][]agent.Scope // where a connection is registered
	calls  map[string]*externalCall // by request id
}

type registration struct {
	conn   string
	groups []ExternalGroup
}

type externalCall struct {
	conn   string
	result chan agent.ToolResult // holds one
}

func (e *externals) init(publish func(*agent.Event)) {
	e.publish = publish
	e.scopes = map[agent.Scope][]registration{}
	e.conns = map[string][]agent.Scope{}
	e.calls = map[string]*externalCall{}
}

// remove takes a connection out of a scope. e.mu is held.
func (e *externals) remove(conn string, scope agent.Scope) {
	left := slices.DeleteFunc(e.scopes[scope], func(r registration) bool { return r.conn == conn })
	if len(left) == 0 {
		delete(e.scopes, scope)
	} else {
		e.scopes[scope] = left
	}
	scopes := slices.DeleteFunc(e.conns[conn], func(s agent.Scope) bool { return s == scope })
	if len(scopes) == 0 {
		delete(e.conns, conn)
	} else {
		e.conns[conn] = scopes
	}
}

// SetExternal replaces the tools that a connection runs for a scope; nil
// removes them.
func (m *Manager) SetExternal(conn string, scope agent.Scope, groups []ExternalGroup) {
	e := &m.externals
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(conn, scope)
	if len(groups) > 0 {
		e.scopes[scope] = append(e.scopes[scope], registration{conn, groups})
		e.conns[conn] = append(e.conns[conn], scope)
	}
}

// AnswerExternal hands in what a connection's tool gave; false if the request
// is not (or no longer) that connection's.
func (m *Manager) AnswerExternal(conn, requestID string, result agent.ToolResult) bool {
	e := &m.externals
	e.mu.Lock()
	defer e.mu.Unlock()
	call := e.calls[requestID]
	if call == nil || call.conn != conn {
		return false
	}
	delete(e.calls, requestID)
	call.result <- result
	return true
}

// Disconnect forgets a connection: its tools go, and calls it was to run fail.
func (m *Manager) Disconnect(conn string) {
	e := &m.externals
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, scope := range slices.Clone(e.conns[conn]) {
		e.remove(conn, scope)
	}
	for id, call := range e.calls {
		if call.conn == conn {
			delete(e.calls, id)
			call.result <- externalError("Listener connection closed")
		}
	}
}

// visible are the external tools of a turn: unscoped ones and those of the
// named scopes, of every connection; on a clash the originator's own wins, then
// the latest.
func (e *externals) visible(scope agent.Scope, origin string, scopes []string) []*tool.Tool {
	e.mu.Lock()
	defer e.mu.Unlock()
	byName := map[string]int{}
	var tools []*tool.Tool
	for _, r := range e.scopes[scope] {
		for _, g := range r.groups {
			if g.ScopeID != "" && !slices.Contains(scopes, g.ScopeID) {
				continue
			}
			for _, def := range g.Tools {
				t := e.tool(r.conn, scope, g.ScopeID, def)
				if i, clash := byName[def.Name]; !clash {
					byName[def.Name] = len(tools)
					tools = append(tools, t)
				} else if tools[i].External != origin {
					tools[i] = t
				}
			}
		}
	}
	return tools
}

func (e *externals) tool(conn string, scope agent.Scope, scopeID string, def agent.ToolDef) *tool.Tool {
	return &tool.Tool{
		Def: def, External: conn, Class: tool.Parallel,
		Run: func(ctx context.Context, c *tool.Call) agent.ToolResult {
			return e.run(ctx, conn, scope, scopeID, c)
		},
	}
}

// run asks the connection to run the call and waits for its answer.
func (e *externals) run(ctx context.Context, conn string, scope agent.Scope, scopeID string, c *tool.Call) agent.ToolResult {
	id := "external-tool-" + agent.NewUUID()
	call := &externalCall{conn: conn, result: make(chan agent.ToolResult, 1)}
	e.mu.Lock()
	_, here := e.conns[conn]
	if here {
		e.calls[id] = call
	}
	e.mu.Unlock()
	if !here {
		return externalError("Listener connection closed")
	}
	e.publish(&agent.Event{Scope: scope, At: time.Now(), Payload: agent.ExternalCall{
		To: conn, RequestID: id, ScopeID: scopeID,
		Call: &agent.ToolCall{ID: c.ID, Name: c.Name, Input: c.Input},
	}})
	timer := time.NewTimer(externalTimeout)
	defer timer.Stop()
	select {
	case r := <-call.result:
		return r
	case <-ctx.Done():
		e.drop(id)
		return agent.TextResult(agent.StatusError, textInterrupted)
	case <-timer.C:
		e.drop(id)
		return externalError(fmt.Sprintf("External tool call timed out: %s", c.Name))
	}
}

func (e *externals) drop(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.calls, id)
}

func externalError(text string) agent.ToolResult {
	return agent.TextResult(agent.StatusError, "External tool execution error: "+strings.TrimSpace(text))
}
