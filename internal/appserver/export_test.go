package appserver

import (
	"context"
	"time"

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

// SetCloseGrace changes how long a connection that must go may take to hear of
// it. It must be called before the first connection.
func (d *Door) SetCloseGrace(grace time.Duration) { d.closeGrace = grace }

// MaxDetached is how many commands of a connection run side by side.
const MaxDetached = maxDetached
