// Package client talks to an App Server: mneme, or any other server of the
// protocol (spec/app-server-core.md).
//
//	c, err := client.Dial(ctx, "ws://127.0.0.1:4500", client.Options{})
//	rt, err := c.StartRuntime(ctx, protocol.RuntimeStart{AgentID: &id})
//	turn, err := rt.Send(ctx, "hello")
//	for ev, err := range turn.Events(ctx) { ... }
//	result, err := turn.Wait(ctx)
//
// A [Client] is one connection, or with [Options.Reconnect] a row of them. Its
// read loop is the only place where frames are looked at: it settles calls,
// moves turns on and fills the event queues, in the order in which the server
// sent the frames, and it never blocks.
//
// Calls are matched by request_id ([Call]). What no call waits for is an event:
// it goes to the [Turn] that runs in its runtime and to every [Subscription]
// that wants it. An event queue is bounded in events and bytes; a reader that
// falls behind gets what fitted and then [ErrSlow]. Nothing else suffers:
// [Turn.Wait] needs no reader.
//
// When the connection is lost, calls in flight fail with [ErrConnectionLost]:
// the client does not know what became of them. With Reconnect it dials again,
// starts the live runtimes again and waits for their replay. An input that the
// server had not acknowledged is sent again under its client_message_id, which
// the server uses to run it only once. A turn that ended while nobody listened
// fails with [ErrTurnLost]; its messages are in the conversation. Callers that
// come while the connection is down wait for it.
//
// mneme's own commands ([Client.MemorySnapshot], [Client.MemorySearch],
// [Client.StartEphemeral], [Client.WatchChanges]) are sent only to a server that
// announces them; another one gives [ErrUnsupported].
//
// All methods may be called by several goroutines at once.
package client
