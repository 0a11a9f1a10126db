package appserver

import (
	"context"
	"strings"
	"sync"
	"time"

	"mneme/protocol"
)

// Limits of an outbox, in bytes of waiting frames.
const (
	coalesceAt  = 4 << 20
	overflowAt  = 16 << 20
	coalesceGap = 1 << 20 // how much must come in before it is tried again
	// answersAt is how much of answers may wait before the connection's commands
	// do: a client paces its answers by reading them.
	answersAt = 4 << 20
	// answerPatience is how long a command waits while no frame at all goes out.
	answerPatience = 2 * time.Minute
	// frameCost is what a waiting frame costs besides its body: envelope,
	// pointers, slice headers.
	frameCost = 256
	// keepQueue is how many slots an idle connection keeps.
	keepQueue = 32
)

// A frame is one message to clients. It is encoded once and shared by all
// outboxes that hold it, so it never changes.
type frame struct {
	typ  string // goes into the idempotency key
	body []byte // a complete JSON object
	// event is the stable id of what the frame tells; "" = the frame goes out as
	// it is, without envelope: responses and the bare events.
	event string
	// feed keeps frames of one conversation in order when others are joined.
	feed *feed
	// snapshot names what the frame shows: a newer frame of the same name and
	// feed makes it worthless. "" = it must be delivered.
	snapshot string
	// text is set for a piece of streamed text, which the next piece of the same
	// message can be appended to.
	text *protocol.TextDelta
	// answer is set for what a command of the connection asked for.
	answer bool
}

func (f *frame) cost() int { return len(f.body) + frameCost }

// An outbox holds the frames that wait for one connection's write loop.
type outbox struct {
	wake chan struct{} // holds a token while there is something to do

	mu      sync.Mutex // guards the rest; held for moments only
	queue   []*frame
	head    int           // frames before it are written
	bytes   int           // cost of the waiting frames and the one being written
	answers int           // the part of bytes that is answers
	writing int           // cost of the one being written
	asked   int           // the part of writing that is an answer
	room    chan struct{} // closed with the next frame that goes out; nil = nobody waits
	squeeze int           // bytes at which waiting frames are joined next
	ping    bool
	closing *closing
	done    bool // nobody writes any more
}

// A closing says how a connection ends.
type closing struct {
	code   int
	reason string
	drop   bool // what waits is not worth writing
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1), squeeze: coalesceAt}
}

// push queues frames. It never blocks. overflow is true when the frames that
// waited already are too many, so that the connection must go.
func (o *outbox) push(frames ...*frame) (overflow bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done || o.closing != nil {
		return false
	}
	for _, f := range frames {
		if o.bytes > o.squeeze {
			o.coalesce()
		}
		// One frame may be larger than the limit; what counts is what the client
		// has left unread before it. Answers have their own limit.
		if !f.answer && o.bytes-o.answers >= overflowAt {
			return true
		}
		o.add(f)
	}
	o.signal()
	return false
}

// pushAnswer queues an answer once there is room for answers. late is true when
// nothing went out for so long that the connection must go.
func (o *outbox) pushAnswer(ctx context.Context, f *frame) (late bool) {
	return o.whenRoom(ctx, func() {
		o.add(f)
		o.signal()
	})
}

// awaitRoom waits until there is room for answers; late is as of pushAnswer.
func (o *outbox) awaitRoom(ctx context.Context) (late bool) {
	return o.whenRoom(ctx, func() {})
}

// whenRoom calls then, under the mutex, when there is room for answers. It does
// not when ctx or the connection ends first.
func (o *outbox) whenRoom(ctx context.Context, then func()) (late bool) {
	for {
		o.mu.Lock()
		ended := o.done || o.closing != nil
		if ended || o.answers < answersAt {
			if !ended {
				then()
			}
			o.mu.Unlock()
			return false
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		timer := time.NewTimer(answerPatience)
		select {
		case <-room:
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		}
		timer.Stop()
	}
}

// add queues one frame; the caller holds mu.
func (o *outbox) add(f *frame) {
	o.queue = append(o.queue, f)
	o.bytes += f.cost()
	if f.answer {
		o.answers += f.cost()
	}
}

// wakeWaiters has everybody look again who waits for room; the caller holds mu.
func (o *outbox) wakeWaiters() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// next takes the oldest frame, nil if there is none. The frame counts until
// written is called.
func (o *outbox) next() (f *frame, ping bool, end *closing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ping, o.ping = o.ping, false
	if o.head < len(o.queue) && (o.closing == nil || !o.closing.drop) {
		f = o.queue[o.head]
		o.queue[o.head] = nil
		o.head++
		o.writing, o.asked = f.cost(), 0
		if f.answer {
			o.asked = o.writing
		}
		return f, ping, nil
	}
	o.queue, o.head, o.squeeze = o.queue[:0], 0, coalesceAt
	if cap(o.queue) > keepQueue {
		o.queue = nil
	}
	return nil, ping, o.closing
}

// written says that the frame of the last next is out.
func (o *outbox) written() {
	o.mu.Lock()
	o.bytes -= o.writing
	o.answers -= o.asked
	o.writing, o.asked = 0, 0
	o.wakeWaiters()
	o.mu.Unlock()
}

// askPing has the write loop send a ping between two frames.
func (o *outbox) askPing() {
	o.mu.Lock()
	o.ping = true
	o.signal()
	o.mu.Unlock()
}

// end has the write loop close the connection, after what waits unless c.drop.
// It returns false if the connection was being closed in that way already.
func (o *outbox) end(c closing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done || o.closing != nil && (o.closing.drop || !c.drop) {
		return false
	}
	o.closing = &c
	if c.drop {
		o.queue, o.head, o.bytes, o.answers = nil, 0, o.writing, o.asked
	}
	o.wakeWaiters()
	o.signal()
	return true
}

// stop drops everything: nobody writes any more.
func (o *outbox) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.queue, o.head, o.bytes, o.answers, o.writing, o.asked = nil, 0, 0, 0, 0, 0
	o.wakeWaiters()
}

// waiting returns the cost of what waits, for tests and logs.
func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// coalesce joins and drops what can be joined and dropped. Frames of one feed
// keep their order: a piece of text is only appended to the feed's last frame.
func (o *outbox) coalesce() {
	type name struct {
		feed *feed
		what string
	}
	var out []*frame
	shown := map[name]int{}  // snapshot -> index in out
	last := map[*feed]int{}  // feed -> index of its last frame in out
	joins := map[int]*join{} // index -> pieces to append
	for _, f := range o.queue[o.head:] {
		if f.text != nil {
			if i, ok := last[f.feed]; ok && sameText(out[i], f) {
				if joins[i] == nil {
					joins[i] = &join{}
					joins[i].add(out[i])
				}
				joins[i].add(f)
				continue
			}
		}
		if f.snapshot != "" {
			key := name{f.feed, f.snapshot}
			if i, ok := shown[key]; ok {
				out[i] = nil
			}
			shown[key] = len(out)
		}
		if f.feed != nil {
			last[f.feed] = len(out)
		}
		out = append(out, f)
	}
	o.queue, o.head, o.bytes = out[:0], 0, o.writing
	for i, f := range out {
		if f == nil {
			continue
		}
		if j := joins[i]; j != nil {
			f = j.frame()
		}
		o.queue = append(o.queue, f)
		o.bytes += f.cost()
	}
	clear(out[len(o.queue):])
	o.squeeze = max(coalesceAt, o.bytes+coalesceGap)
}

func sameText(a, b *frame) bool {
	return a != nil && a.text != nil && a.text.ID == b.text.ID && a.text.Reasoning == b.text.Reasoning
}

// A join is a run of pieces of one message on its way to become one frame.
type join struct {
	text strings.Builder
	last *frame
}

func (j *join) add(f *frame) {
	j.text.WriteString(f.text.Text)
	j.last = f
}

func (j *join) frame() *frame {
	d := *j.last.text
	d.Text = j.text.String()
	f := *j.last
	f.text, f.body = &d, protocol.AppendTextDelta(nil, d)
	return &f
}
