package appserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// testInbound is a budget with small sizes.
func testInbound() *inbound {
	in := newInbound()
	in.smallFrame, in.mediumFrame, in.maxFrame = 1<<10, 8<<10, 100<<10
	return in
}

func ignore[T any](T) {}

func TestReadFrame(t *testing.T) {
	tests := []struct {
		name string
		size int
		err  error
		held int
	}{
		{"empty", 0, nil, 0},
		{"small", 1000, nil, 0},
		{"medium", 5000, nil, 1},
		{"large", 50_000, nil, 2},
		{"as large as may be", 100 << 10, nil, 2},
		{"too large", 100<<10 + 1, errFrameTooLarge, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := testInbound()
			want := bytes.Repeat([]byte("abc"), tt.size/3+1)[:tt.size]
			data, release, err := in.readFrame(t.Context(), iotest.HalfReader(bytes.NewReader(want)), ignore, ignore)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if held := len(in.medium) + len(in.large); held != tt.held {
				t.Errorf("%d pieces of budget are held, want %d", held, tt.held)
			}
			if err == nil {
				if !bytes.Equal(data, want) {
					t.Errorf("%d bytes came, not the %d that were sent", len(data), len(want))
				}
				release()
			}
			if held := len(in.medium) + len(in.large); held != 0 {
				t.Errorf("%d pieces are not given back", held)
			}
		})
	}
}

func TestReadFrameGivesBackOnError(t *testing.T) {
	in := testInbound()
	broken := errors.New("broken")
	r := io.MultiReader(bytes.NewReader(make([]byte, 50_000)), iotest.ErrReader(broken))
	if _, _, err := in.readFrame(t.Context(), r, ignore, ignore); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	if held := len(in.medium) + len(in.large); held != 0 {
		t.Errorf("%d pieces are not given back", held)
	}
}

// Many large frames at once never hold more than the budget, and all come
// through: whoever waits for a piece waits for somebody who needs no more.
func TestInboundBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := testInbound()
		var large, most atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				data, release, err := in.readFrame(t.Context(), bytes.NewReader(make([]byte, 90_000)), ignore, ignore)
				if err != nil || len(data) != 90_000 {
					t.Errorf("%d bytes, error %v", len(data), err)
					return
				}
				most.Store(max(most.Load(), large.Add(1)))
				time.Sleep(time.Millisecond)
				large.Add(-1)
				release()
			})
		}
		wg.Wait()
		if most.Load() != 1 {
			t.Errorf("%d frames of the largest kind at once", most.Load())
		}
	})
}

func TestInboundWaitEndsWithContext(t *testing.T) {
	in := testInbound()
	in.large <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	waits := func(on bool) {
		if on {
			cancel()
		}
	}
	_, _, err := in.readFrame(ctx, bytes.NewReader(make([]byte, 90_000)), ignore, waits)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(in.medium) != 0 {
		t.Error("the medium piece is not given back")
	}
}
