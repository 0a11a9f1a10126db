package appserver

import (
	"context"
	"errors"
	"io"
	"time"
)

// Sizes of inbound frames, in bytes.
const (
	maxFrame    = 100 << 20 // more closes the connection with 1009
	smallFrame  = 1 << 20   // up to here a frame needs no budget
	mediumFrame = 8 << 20
	// readChunk bounds one read, so that progress can be seen.
	readChunk = 64 << 10
	// stallAfter is how long a reader may hold budget without a byte coming in.
	stallAfter = 30 * time.Second
)

// errFrameTooLarge ends a connection with close code 1009.
var errFrameTooLarge = errors.New("frame is larger than 100 MiB")

// An inbound budget bounds the memory of all frames above smallFrame that the
// process is reading or working on: 256 MiB. It is handed out in fixed pieces
// (16 frames of up to mediumFrame, of which one may grow to maxFrame), taken in
// that order, so that readers that wait for each other cannot exist: the holder
// of the one large piece waits for nobody. A reader without a piece waits.
type inbound struct {
	smallFrame, mediumFrame, maxFrame int // smaller in tests

	medium chan struct{} // 16 x (1 + 8) MiB: the buffer and the one it grew from
	large  chan struct{} // 1 x (8 + 100) MiB
}

func newInbound() *inbound {
	return &inbound{
		smallFrame: smallFrame, mediumFrame: mediumFrame, maxFrame: maxFrame,
		medium: make(chan struct{}, 16), large: make(chan struct{}, 1),
	}
}

// A reading is one frame being read.
type reading struct {
	budget *inbound
	held   []chan struct{}
	buf    []byte
}

// readFrame reads one message to its end. progress is called for every piece
// that came in, wait around waiting for budget. release gives the budget back:
// the caller calls it when it no longer needs the bytes.
func (in *inbound) readFrame(ctx context.Context, r io.Reader, progress func(holds bool), wait func(bool)) (data []byte, release func(), err error) {
	f := &reading{budget: in}
	for {
		if len(f.buf) == cap(f.buf) {
			if err := f.grow(ctx, wait); err != nil {
				f.release()
				return nil, nil, err
			}
		}
		free := f.buf[len(f.buf):cap(f.buf)]
		n, err := r.Read(free[:min(len(free), readChunk)])
		f.buf = f.buf[:len(f.buf)+n]
		progress(len(f.held) > 0)
		if len(f.buf) > in.maxFrame {
			f.release()
			return nil, nil, errFrameTooLarge
		}
		if err == io.EOF {
			return f.buf, f.release, nil
		}
		if err != nil {
			f.release()
			return nil, nil, err
		}
	}
}

// grow makes room for more.
func (f *reading) grow(ctx context.Context, wait func(bool)) error {
	size := max(512, 2*cap(f.buf))
	switch {
	case cap(f.buf) < f.budget.smallFrame:
	case len(f.held) == 0:
		if err := f.take(ctx, f.budget.medium, wait); err != nil {
			return err
		}
		size = f.budget.mediumFrame
	default:
		if err := f.take(ctx, f.budget.large, wait); err != nil {
			return err
		}
		size = f.budget.maxFrame + 1 // one byte more tells a frame that is too large
	}
	buf := make([]byte, len(f.buf), size)
	copy(buf, f.buf)
	f.buf = buf
	return nil
}

func (f *reading) take(ctx context.Context, piece chan struct{}, wait func(bool)) error {
	select {
	case piece <- struct{}{}:
	default:
		wait(true)
		defer wait(false)
		select {
		case piece <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.held = append(f.held, piece)
	return nil
}

func (f *reading) release() {
	for _, piece := range f.held {
		<-piece
	}
	f.held = nil
}
