package appserver

import (
	"context"

	"mneme/protocol"
)

// SetHandler replaces what a built command does. It must be called before the
// first connection.
func (d *Door) SetHandler(name string, f func()) {
	h := d.commands[name]
	run := h.run
	h.run = func(ctx context.Context, k *call, cmd protocol.Command) {
		f()
		run(ctx, k, cmd)
	}
	d.commands[name] = h
}

// MaxDetached is how many commands of a connection run side by side.
const MaxDetached = maxDetached
