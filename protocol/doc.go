// Package protocol holds the frames of the App Server WebSocket protocol as Go
// types: commands, their responses, events and the deltas of a turn
// (spec/app-server-core.md, spec/app-server-commands.md). It imports only the
// standard library, so that a client needs nothing else of mneme.
//
// One JSON object per WebSocket message. A client sends commands; the server
// answers with responses, matched by request_id, and with events.
//
// Reading is strict in one direction only. Commands come from anybody, so
// [Parse] and [Frame.Decode] check every field that the protocol lists and
// name the one that is wrong and what would be right; unknown fields are
// ignored. What a server sends is read leniently ([DecodeEvent],
// [DecodeResponse]): unknown types and fields are kept as raw bytes, because a
// newer server must not break an older client.
//
// Writing has two halves. A body is encoded once, whoever receives it
// ([AppendEvent], or [AppendTextDelta] for the hot path); [AppendEnvelope] then
// adds what differs per connection (event_seq, emitted_at, idempotency_key)
// around the shared bytes. Strings are escaped for JSON only, never for HTML,
// and invalid UTF-8 is replaced.
//
// [Commands] is the one table of everything a client may send; docs/protocol.md
// is generated from it.
package protocol

//go:generate go run ./internal/gendocs -out ../docs/protocol.md
