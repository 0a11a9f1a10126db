package store

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"mneme/internal/agent"
)

const (
	// queueSize bounds the writes that wait for the committer. When it is full,
	// callers wait for room until their context ends.
	queueSize = 1024
	// batchSize bounds the writes of one transaction, and so how long the first
	// of them waits for the last.
	batchSize = 256
)

// An op is one write: all of it is committed or nothing.
type op struct {
	run   func(*tx) error
	state atomic.Int32
	// done receives the outcome once; its buffer lets the committer go on.
	done chan error
}

// The states of an op. Whoever moves it out of opQueued owns its fate: the
// committer by taking it, the caller by withdrawing it.
const (
	opQueued int32 = iota
	opTaken
	opWithdrawn
)

// A committer is the one goroutine that writes.
type committer struct {
	writer *writer
	log    *slog.Logger
	queue  chan *op
	stop   chan struct{} // closed by close
	ended  chan struct{} // closed when the goroutine has ended
	err    error         // of closing the writer; set before ended is closed
}

func newCommitter(w *writer, log *slog.Logger) *committer {
	c := &committer{
		writer: w, log: log,
		queue: make(chan *op, queueSize),
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	go c.loop()
	return c
}

// close lets the queue run empty and waits for the goroutine. To be called once.
func (c *committer) close() error {
	close(c.stop)
	<-c.ended
	return c.err
}

// do runs one write and waits until it is on disk. A context that ends before
// the committer took the write withdraws it; afterwards the result is what
// really happened.
func (c *committer) do(ctx context.Context, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{run: run, done: make(chan error, 1)}
	err := c.await(ctx, o)
	if p, ok := errors.AsType[*panicked](err); ok {
		panic(p)
	}
	return err
}

func (c *committer) await(ctx context.Context, o *op) error {
	select {
	case c.queue <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stop:
		return errClosed()
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if o.state.CompareAndSwap(opQueued, opWithdrawn) {
			return ctx.Err()
		}
	case <-c.ended:
		// Queued in the moment of the last look: nobody will take it.
		if o.state.CompareAndSwap(opQueued, opWithdrawn) {
			return errClosed()
		}
	}
	return <-o.done
}

func errClosed() error {
	return &agent.Error{Code: agent.CodeShutdown, Message: "The store is closed.", Retryable: true}
}

// loop commits whatever is queued, again and again, without waiting for more.
func (c *committer) loop() {
	defer close(c.ended)
	batch := make([]*op, 0, batchSize)
	for {
		select {
		case o := <-c.queue:
			batch = c.collect(append(batch[:0], o))
		case <-c.stop:
			if batch = c.collect(batch[:0]); len(batch) == 0 {
				c.err = c.writer.close()
				return
			}
		}
		c.commit(batch)
		clear(batch)
	}
}

// collect adds what is queued now.
func (c *committer) collect(batch []*op) []*op {
	for len(batch) < batchSize {
		select {
		case o := <-c.queue:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction. When that fails because of one of the
// writes, each runs in a transaction of its own.
func (c *committer) commit(batch []*op) {
	ops := batch[:0]
	for _, o := range batch {
		if o.state.CompareAndSwap(opQueued, opTaken) {
			ops = append(ops, o)
		}
	}
	if len(ops) == 0 {
		return
	}
	errs := make([]error, len(ops))
	if !c.writer.attempt(ops, errs) {
		c.log.Debug("write failed, running its batch one by one", "writes", len(ops))
		for i := range ops {
			c.writer.attempt(ops[i:i+1], errs[i:i+1])
		}
	}
	for i, o := range ops {
		o.done <- errs[i]
	}
}
