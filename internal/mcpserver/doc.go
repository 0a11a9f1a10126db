// Package mcpserver is the MCP door: thirteen tools, resources and prompts over
// any App Server, for coding tools that want memory and agents (spec/mcp.md).
//
//	client ─► front (path, Host, Origin, token, body) ─► SDK: legacy sessions │ modern, stateless
//	                                                          └─► tools, resources, prompts ─► Backend
//
// One endpoint serves both eras of the protocol. The SDK has a handler for each;
// the front reads a message just far enough to choose, and keeps the rules that
// the SDK does not: Origin and Host, tokens, sessions bound to their credential
// and limited in number, one JSON object instead of a stream where a client
// would not gain by one, errors in JSON. What is sent goes through an outbox per
// response (reply.go), so that a client that reads slowly stops nobody but
// itself.
//
// A Backend is the App Server: embedded.go works on roster, runtime and memory
// of the same process, bridge.go on a connection to another one. Everything
// above it is the same for both. Tools answer with one strict envelope; what is
// wrong with a call is a result that the model can read, never a protocol error.
//
// session_ask runs a turn that can change nothing (spec/mcp.md section 5.3). Where
// such a turn asks for an approval, the person in front of the client is asked:
// within the call in the legacy era, by input_required in the modern one. For
// the latter the turn waits in ask.go until the call is repeated.
//
// Everything that grows is bounded: sessions, stored events, waiting turns,
// outboxes, bodies.
package mcpserver
