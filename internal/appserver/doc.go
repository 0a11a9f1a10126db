// Package appserver is the App Server door: the WebSocket protocol by which
// apps drive agents live (spec/app-server-core.md, spec/app-server-commands.md).
//
//	        socket                               runtime (one actor per conversation)
//	   read │  ▲ write                                  │ events
//	        ▼  │                                        ▼
//	conn: read loop   write loop ◄── outbox ◄── feed (one per watched conversation)
//	        │              ▲                            renders an event once
//	        ▼              │
//	   command table ──────┘ responses
//
// A Door holds the connections and the feeds. A conn has two goroutines that
// die together: the read loop runs the commands, the write loop alone writes.
// Commands that concern runtimes run in the read loop, so that they take effect
// in the order in which they came; the others run beside it, at most
// maxDetached at a time, then the reader waits. update_model may have to ask
// providers: it runs beside too, in a lane of one, and what follows waits for it
// unless it ends or serves the turn at work, as abort_message does. Every frame gets an answer: the
// command's response, or an `error` frame; a bad frame never closes a socket.
//
// A feed is the door's one subscription to a conversation. Its handler runs in
// the publisher's goroutine: it encodes the event once and puts the same bytes
// into the outbox of each connection. An outbox is bounded by bytes, not by
// frames: above coalesceAt pieces of one message are joined and snapshots
// replace older ones, at overflowAt the connection is closed with 1013. Answers
// have a limit of their own, answersAt, at which commands wait. So a
// slow reader costs a bounded amount of memory and nobody's time. The write loop
// adds what differs per connection (event_seq, emitted_at, idempotency_key)
// when it writes.
//
// The door decides nothing about a turn and keeps nothing that runtime_start or
// sync cannot rebuild.
package appserver
