package appserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
)

// delta is a piece of text of a message.
func delta(f *feed, id string, n int64, text string) *frame {
	d := &protocol.TextDelta{Runtime: f.rt, ID: id, Text: text, Date: time.Unix(0, 0), RunID: "step-1", SeqID: n}
	return &frame{typ: "stream_delta", event: "e", feed: f, text: d, body: protocol.AppendTextDelta(nil, *d)}
}

func snap(f *feed, name, body string) *frame {
	return &frame{typ: name, event: "e", feed: f, snapshot: name, body: []byte(body)}
}

func plain(f *feed, body string) *frame {
	return &frame{typ: "x", event: "e", feed: f, body: []byte(body)}
}

// texts shows frames: pieces of text as "id:text", others as they are.
func texts(t *testing.T, bodies []string) (out []string) {
	t.Helper()
	for _, b := range bodies {
		var f struct {
			Delta struct {
				ID      string `json:"id"`
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"delta"`
		}
		if strings.HasPrefix(b, `{"type":"stream_delta"`) {
			if err := json.Unmarshal([]byte(b), &f); err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			b = f.Delta.ID + ":" + f.Delta.Content[0].Text
		}
		out = append(out, b)
	}
	return out
}

func TestOutboxCoalesces(t *testing.T) {
	f, g := testFeed(), testFeed()
	frames := []*frame{
		delta(f, "m1", 1, "a"), delta(f, "m1", 2, "b"), delta(g, "m2", 1, "x"), delta(f, "m1", 3, "c"),
		snap(f, snapLoop, "loop1"), snap(f, snapDevice, "device1"), delta(f, "m1", 4, "d"), delta(g, "m2", 2, "y"),
		snap(f, snapLoop, "loop2"), snap(g, snapLoop, "other"), plain(f, "keep"), delta(f, "m1", 5, "e"), delta(f, "m3", 1, "f"),
		snap(f, snapQueue, "queue1"), plain(f, "queue with removals"), snap(f, snapQueue, "queue2"),
		plain(nil, "response"),
	}
	tests := []struct {
		name     string
		coalesce bool
		want     []string
	}{
		{"below the limit everything goes out", false, []string{
			"m1:a", "m1:b", "m2:x", "m1:c", "loop1", "device1", "m1:d", "m2:y", "loop2", "other", "keep", "m1:e", "m3:f",
			"queue1", "queue with removals", "queue2", "response",
		}},
		// Pieces are joined over frames of other feeds, never over one of their own;
		// the newest snapshot stands where it came.
		{"above it pieces are joined and snapshots replaced", true, []string{
			"m1:abc", "m2:xy", "device1", "m1:d", "loop2", "other", "keep", "m1:e", "m3:f", "queue with removals", "queue2", "response",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newOutbox()
			o.push(frames...)
			if tt.coalesce {
				o.coalesce()
			}
			if diff := cmp.Diff(tt.want, texts(t, o.drain())); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if n := o.waiting(); n != 0 {
				t.Errorf("an empty outbox counts %d bytes", n)
			}
		})
	}
}

// A stream to somebody who does not read takes little more than its text.
func TestOutboxJoinsLongStream(t *testing.T) {
	f, o := testFeed(), newOutbox()
	var want strings.Builder
	for i := range 60_000 {
		word := fmt.Sprintf("word %d, ", i)
		want.WriteString(word)
		if o.push(delta(f, "m1", int64(i+1), word)) {
			t.Fatalf("overflow after %d pieces", i)
		}
		if n := o.waiting(); n > coalesceAt+2*coalesceGap {
			t.Fatalf("%d bytes wait after %d pieces of %d bytes in all", n, i, want.Len())
		}
	}
	var got strings.Builder
	for _, s := range texts(t, o.drain()) {
		got.WriteString(strings.TrimPrefix(s, "m1:"))
	}
	if got.String() != want.String() {
		t.Errorf("text changed: %d bytes instead of %d", got.Len(), want.Len())
	}
}

func TestOutboxOverflow(t *testing.T) {
	f, o := testFeed(), newOutbox()
	big := plain(f, strings.Repeat("x", 1<<20))
	pushed := 0
	for !o.push(big) {
		if pushed++; pushed > 20 {
			t.Fatal("no overflow")
		}
	}
	if pushed != 16 {
		t.Errorf("overflow after %d MiB, want 16", pushed)
	}
	if !o.end(closing{code: 1013, drop: true}) || o.end(closing{code: 1013, drop: true}) || o.end(closing{code: 1001}) {
		t.Error("end does not say whether it ends")
	}
	f1, _, end := o.next()
	if f1 != nil || end == nil || end.code != 1013 {
		t.Errorf("next after overflow: frame %v, closing %+v", f1, end)
	}
	if o.push(big) {
		t.Error("a closing outbox takes frames")
	}
	if n := o.waiting(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}

// What counts is what was left unread: one frame of any size goes out.
func TestOutboxTakesOneLargeFrame(t *testing.T) {
	o := newOutbox()
	large := plain(nil, strings.Repeat("x", overflowAt+1))
	if o.push(large) {
		t.Fatal("a large frame overflows an empty outbox")
	}
	if f, _, _ := o.next(); f != large {
		t.Fatal("the frame is gone")
	}
	// While it is being written it counts.
	if !o.push(plain(nil, "more")) {
		t.Error("the frame that is being written does not count")
	}
	o.written()
}

func TestOutboxWritesOutBeforeClosing(t *testing.T) {
	o := newOutbox()
	o.push(plain(nil, "last words"))
	o.end(closing{code: 1001})
	if o.push(plain(nil, "too late")); len(o.queue) != 1 {
		t.Error("a closing outbox takes frames")
	}
	if got := o.drain(); len(got) != 1 || got[0] != "last words" {
		t.Errorf("wrote %q", got)
	}
	if _, _, end := o.next(); end == nil || end.code != 1001 {
		t.Errorf("closing %+v", end)
	}
}

// Answers wait for room, events do not, and neither counts for the other.
func TestOutboxHoldsAnswersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		big := &frame{body: make([]byte, 1<<20), answer: true}
		var in atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if o.pushAnswer(t.Context(), big) {
					t.Error("too late with a client that reads")
				}
				in.Add(1)
			})
		}
		synctest.Wait()
		if n := in.Load(); n != 4 {
			t.Fatalf("%d answers of 1 MiB wait, want 4", n)
		}
		if o.push(plain(nil, strings.Repeat("x", overflowAt-1<<20))) || o.push(plain(nil, "event")) {
			t.Error("answers count as unread events")
		}
		for got := 0; got < 40; {
			time.Sleep(time.Minute)
			f, _, _ := o.next()
			o.written()
			if f == big {
				got++
			}
			synctest.Wait()
			if o.answers > answersAt+big.cost() {
				t.Fatalf("%d bytes of answers wait", o.answers)
			}
		}
		wg.Wait()
		o.drain()
		if o.waiting() != 0 || o.answers != 0 {
			t.Errorf("an empty outbox counts %d bytes, %d of answers", o.waiting(), o.answers)
		}
	})
}

// Waiting for room ends with the connection, the context or the patience.
func TestOutboxEndsWaitingForRoom(t *testing.T) {
	tests := []struct {
		name string
		end  func(o *outbox, cancel func())
		late bool
	}{
		{"closing", func(o *outbox, _ func()) { o.end(closing{code: 1001}) }, false},
		{"stopped", func(o *outbox, _ func()) { o.stop() }, false},
		{"context", func(_ *outbox, cancel func()) { cancel() }, false},
		{"nothing goes out", func(*outbox, func()) { time.Sleep(answerPatience) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				o := newOutbox()
				o.push(&frame{body: make([]byte, answersAt), answer: true})
				late := make(chan bool, 1)
				go func() { late <- o.awaitRoom(ctx) }()
				synctest.Wait()
				select {
				case <-late:
					t.Fatal("did not wait")
				default:
				}
				tt.end(o, cancel)
				if got := <-late; got != tt.late {
					t.Errorf("late = %v, want %v", got, tt.late)
				}
			})
		})
	}
}
