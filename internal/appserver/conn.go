package appserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"mneme/internal/agent"
	"mneme/protocol"
)

const (
	// maxDetached is how many commands of one connection run beside its read
	// loop. With more the reader waits, so a client that does not wait for its
	// answers slows down only itself.
	maxDetached = 16
	// maxMissed is how many pings in a row may stay unanswered.
	maxMissed = 3
	// closeGrace is how long a connection that must go may take to hear of it.
	closeGrace = 5 * time.Second
	// keepBuffer is the largest write buffer that an idle connection keeps.
	keepBuffer = 1 << 10
)

// Causes with which a connection's context ends.
var (
	errConnClosed   = errors.New("connection closed")
	errConnStopping = errors.New("server is stopping")
)

// A conn is one WebSocket. Its fields are set before its goroutines start.
type conn struct {
	id   string // origin of what it sends, owner of its external tools
	door *Door
	ws   *websocket.Conn
	net  net.Conn
	out  *outbox

	// ctx ends when the connection or the server does; handlers run under it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the read loop has ended

	// missed counts pings since the last sign of life. reading is false while
	// the reader is busy with a command or waits for budget: nobody would see a
	// pong then.
	missed  atomic.Int32
	reading atomic.Bool
	stall   *time.Timer // runs while a large frame comes in; read loop only

	lane     chan struct{}  // closed when the lane is free; nil = it is; read loop only
	detached chan struct{}  // a token per detached command
	work     sync.WaitGroup // detached commands

	mu       sync.Mutex // guards the rest
	subs     map[protocol.Runtime]*subscription
	commits  []string // the latest memory commits it was told of
	watching bool     // it asked for changes: commits are named to it
}

// run serves the connection until it ends.
func (c *conn) run() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writeLoop()
	}()
	err := c.readLoop()
	if errors.Is(err, errFrameTooLarge) {
		c.out.end(closing{code: int(websocket.StatusMessageTooBig), drop: true})
		select {
		case <-written:
		case <-time.After(closeGrace):
		}
	}
	c.cancel(errConnClosed)
	close(c.gone)
	c.net.Close()
	c.out.stop()
	<-written
	c.work.Wait()
	c.leaveAll()
	c.ws.CloseNow()
	c.door.log.Debug("connection closed", "conn", c.id, "err", err)
}

// readLoop reads and runs commands until the connection fails.
func (c *conn) readLoop() error {
	for {
		if c.out.awaitRoom(c.ctx) {
			c.tooSlow()
		}
		c.reading.Store(true)
		// Contexts of the library close the socket, at the cost of a timer per
		// frame; closing c.net does the same.
		_, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return err
		}
		data, release, err := c.readFrame(r)
		if err != nil {
			return err
		}
		c.reading.Store(false)
		c.dispatch(data, release)
	}
}

func (c *conn) readFrame(r io.Reader) ([]byte, func(), error) {
	progress := func(holds bool) {
		c.missed.Store(0)
		switch {
		case !holds:
		case c.stall == nil:
			c.stall = time.AfterFunc(stallAfter, c.drop)
		default:
			c.stall.Reset(stallAfter)
		}
	}
	wait := func(on bool) {
		c.reading.Store(!on)
		if on && c.stall != nil {
			c.stall.Stop()
		}
	}
	data, release, err := c.door.inbound.readFrame(c.ctx, r, progress, wait)
	if c.stall != nil {
		c.stall.Stop()
	}
	return data, release, err
}

// writeLoop is the only one that writes data frames to the socket.
func (c *conn) writeLoop() {
	defer func() {
		c.out.stop()
		c.net.Close() // ends the read loop
	}()
	var seq int64
	var buf []byte
	for {
		f, ping, end := c.out.next()
		if ping && !c.writePing() {
			return
		}
		switch {
		case f != nil:
			body := f.body
			if f.event != "" {
				seq++
				buf = protocol.AppendEnvelope(buf[:0], f.body, f.typ, seq, time.Now(), f.event)
				body = buf
			}
			err := c.ws.Write(context.Background(), websocket.MessageText, body)
			c.out.written()
			if err != nil {
				return
			}
		case end != nil:
			// Close waits for the client's answer, for some seconds.
			c.ws.Close(websocket.StatusCode(end.code), end.reason)
			return
		default:
			if cap(buf) > keepBuffer {
				buf = nil
			}
			select {
			case <-c.out.wake:
			case <-c.gone:
				return
			}
		}
	}
}

// writePing sends an empty ping. The library's Ping would wait for the pong in
// a goroutine of its own; between two frames the socket can be written to
// directly, since what the library writes meanwhile (a pong, a close frame)
// leaves it in one piece.
func (c *conn) writePing() bool {
	_, err := c.net.Write([]byte{0x89, 0x00})
	return err == nil
}

// tick is called by the door every PingEvery.
func (c *conn) tick() {
	if !c.reading.Load() {
		return
	}
	if c.missed.Add(1) > maxMissed {
		c.drop()
		return
	}
	c.out.askPing()
}

// drop ends the connection at once: the client sees a reset.
func (c *conn) drop() { c.net.Close() }

// send queues frames for this connection.
func (c *conn) send(frames ...*frame) {
	if c.out.push(frames...) {
		c.tooSlow()
	}
}

// answer queues an answer of the read loop, which has seen that there is room.
func (c *conn) answer(body []byte) { c.send(&frame{body: body, answer: true}) }

// tooSlow ends a connection that does not read what it asked for or subscribed
// to.
func (c *conn) tooSlow() {
	if c.out.end(closing{code: int(websocket.StatusTryAgainLater), reason: "client reads too slowly", drop: true}) {
		c.door.log.Warn("connection reads too slowly and is closed", "conn", c.id)
		// The write loop may be stuck in a frame that the client does not take.
		time.AfterFunc(c.door.closeGrace, c.drop)
	}
}

// dispatch runs one command, here or beside the read loop.
func (c *conn) dispatch(data []byte, release func()) {
	f, cmd, err := protocol.DecodeCommand(data)
	k := &call{conn: c, frame: f}
	if err != nil {
		defer release()
		c.refuse(k, err)
		return
	}
	h, ok := c.door.commands[f.Type]
	if !ok {
		defer release()
		k.fail(agent.Errorf(agent.CodeNotBuilt, "%s is not available on this server yet", f.Type), nil)
		return
	}
	beside := h.detached != nil && h.detached(cmd)
	if (h.lane || !beside) && (h.overtakes == nil || !h.overtakes(cmd)) && !c.awaitLane() {
		release()
		return
	}
	if !beside {
		defer release()
		c.handle(k, h, cmd)
		return
	}
	select {
	case c.detached <- struct{}{}:
	case <-c.ctx.Done():
		release()
		return
	}
	free := make(chan struct{})
	if h.lane {
		c.lane = free
	}
	c.work.Go(func() {
		defer func() {
			<-c.detached
			release()
			close(free)
		}()
		k.beside = true
		c.handle(k, h, cmd)
	})
}

// awaitLane waits for the command in the lane; false if the connection ends.
func (c *conn) awaitLane() bool {
	if c.lane == nil {
		return true
	}
	select {
	case <-c.lane:
		c.lane = nil
		return true
	case <-c.ctx.Done():
		return false
	}
}

// handle runs a handler; its panic is this command's failure only.
func (c *conn) handle(k *call, h handler, cmd protocol.Command) {
	defer func() {
		if p := recover(); p != nil {
			c.door.log.Error("panic in command", "type", k.frame.Type, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			k.fail(errInternal, nil)
		}
	}()
	h.run(c.ctx, k, cmd)
}
