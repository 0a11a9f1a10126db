package llm

import (
	"context"
	"io"
	"time"
)

// An idleWatch cancels a request when nothing has been heard for too long. One
// goroutine uses it.
type idleWatch struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration // <= 0 = none
	fixed  bool          // a deadline is set: bytes do not move it
}

// watchIdle derives a context that ends with cause errIdle after idle without a
// sign of life. The caller must call stop.
func watchIdle(ctx context.Context, idle time.Duration) (context.Context, *idleWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &idleWatch{cancel: cancel, limit: idle}
	if idle > 0 {
		w.timer = time.AfterFunc(idle, w.expire)
	}
	return ctx, w
}

func (w *idleWatch) expire() { w.cancel(errIdle) }

// alive starts the time anew.
func (w *idleWatch) alive() {
	if w.limit > 0 && !w.fixed {
		w.timer.Reset(w.limit)
	}
}

// deadline ends the request after d, whatever still comes.
func (w *idleWatch) deadline(d time.Duration) {
	w.fixed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.expire)
		return
	}
	w.timer.Reset(d)
}

func (w *idleWatch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

// A watchedBody takes every byte read as a sign of life.
type watchedBody struct {
	body  io.Reader
	watch *idleWatch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.watch.alive()
	}
	return n, err
}
