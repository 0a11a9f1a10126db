package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"mneme/protocol"
)

// Options are the settings of a [Client]. The zero value is good for a server
// without authentication.
type Options struct {
	Token  string      // sent as a bearer token; empty = none
	Header http.Header // sent with the handshake
	// ClientInfo is sent with every runtime_start that has none.
	ClientInfo *protocol.ClientInfo
	ReadLimit  int64 // bytes of the largest message that is read; 0 = 100 MiB
	// Buffer is how many events a queue holds for its reader; 0 = 8192. A
	// queue holds at most 64 MiB, but always one event.
	Buffer int
	// PingInterval is how often the server is pinged, and how long it may take
	// to answer; 0 = 30 s.
	PingInterval time.Duration
	// Reconnect makes the client dial again when the connection is lost; nil =
	// the client ends with its connection.
	Reconnect  *Backoff
	HTTPClient *http.Client // for the handshake; nil = http.DefaultClient
	Logger     *slog.Logger // nil = none
}

// Backoff says how to dial again. The waits double from Min to Max, each
// shortened by up to half at random.
type Backoff struct {
	Min, Max time.Duration // 0 = 100 ms and 10 s
	Attempts int           // dials in a row that may fail; 0 = no limit
}

const (
	defaultReadLimit = 100 << 20
	defaultBuffer    = 8192
	queueBytes       = 64 << 20
	defaultPing      = 30 * time.Second
	// handshakeTimeout bounds one attempt to dial again, and restoreTimeout
	// each call that starts a runtime again.
	handshakeTimeout = 30 * time.Second
	restoreTimeout   = time.Minute
	// settled is how long a connection must last for the waits between dials to
	// start anew.
	settled = 10 * time.Second
)

// A Client is connected to an App Server. Close it when done.
type Client struct {
	url    string
	opts   Options
	log    *slog.Logger
	prefix string // of request ids
	// ctx is the client's life: cancelled by Close, with the reason.
	ctx  context.Context
	stop context.CancelCauseFunc
	done chan struct{} // closed when every goroutine but the tools has ended

	tools     sync.WaitGroup // running external tools
	toolSlots chan struct{}

	mu       sync.Mutex
	link     *link         // current connection; nil = down or being restored. Guarded by mu, as all below
	ready    chan struct{} // closed while link is set
	ids      int           // request ids given
	pending  map[string]*call
	runtimes map[protocol.Runtime]*Runtime
	scopes   map[protocol.Runtime]*scope
	starting int // runtime_start calls in flight: scopes of unknown runtimes are kept
	subs     map[*Subscription]struct{}
	watching bool  // the server was asked for changes
	closing  bool  // Close was called
	ended    error // why the client has ended; nil = it lives
}

// Dial connects to the App Server at addr: a ws:// or wss:// address, whose
// path is /ws unless it has one. The context bounds the handshake only.
func Dial(ctx context.Context, addr string, o Options) (*Client, error) {
	addr, err := socketURL(addr)
	if err != nil {
		return nil, err
	}
	if o.ReadLimit == 0 {
		o.ReadLimit = defaultReadLimit
	}
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	if o.PingInterval == 0 {
		o.PingInterval = defaultPing
	}
	c := &Client{
		url:       addr,
		opts:      o,
		log:       o.Logger,
		done:      make(chan struct{}),
		toolSlots: make(chan struct{}, maxTools),
		ready:     make(chan struct{}),
		pending:   map[string]*call{},
		runtimes:  map[protocol.Runtime]*Runtime{},
		scopes:    map[protocol.Runtime]*scope{},
		subs:      map[*Subscription]struct{}{},
		prefix:    newID("c"),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	conn, err := dial(ctx, &c.opts, c.url)
	if err != nil {
		return nil, err
	}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	l := startLink(c.ctx, conn, o.PingInterval, c.receive)
	c.setReady(l)
	go c.supervise(l)
	return c, nil
}

// Close ends the connection, the client and its turns and subscriptions, and
// waits for the tools that still run; their context is cancelled.
func (c *Client) Close() error {
	c.mu.Lock()
	l := c.link
	c.closing = true
	c.mu.Unlock()
	if l != nil {
		// A server that does not answer in time is left alone.
		timer := time.AfterFunc(time.Second, func() { c.stop(ErrClosed) })
		defer timer.Stop()
		l.conn.Close(websocket.StatusNormalClosure, "")
	}
	c.stop(ErrClosed)
	<-c.done
	c.tools.Wait()
	return nil
}

// Done is closed when the client has ended: by Close, or because the connection
// was lost for good. [Client.Err] says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the client has ended: ErrClosed, a *ConnectionError, or a
// *DialError. It is nil while the client lives.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// supervise follows the connections of the client, one after the other.
func (c *Client) supervise(l *link) {
	defer close(c.done)
	attempt := 0
	for {
		<-l.done
		cause := c.disconnected(l)
		if time.Since(l.born) > settled {
			attempt = 0
		}
		next, err := c.redial(cause, &attempt)
		if err != nil {
			c.end(err)
			return
		}
		l = next
		if err := c.restore(l, cause); err != nil {
			c.log.Warn("connection lost while runtimes were started again", "error", err)
			l.stop(err)
			continue
		}
		c.log.Info("reconnected", "server", c.url, "attempts", attempt)
		c.setReady(l)
		c.announce(&Reconnected{Attempts: attempt})
	}
}

// redial opens the next connection, or says why there is none. Attempt counts
// the dials since a connection last settled.
func (c *Client) redial(cause error, attempt *int) (*link, error) {
	policy := c.opts.Reconnect
	if policy == nil || cause == ErrClosed {
		return nil, cause
	}
	c.log.Warn("connection lost, dialling again", "server", c.url, "error", cause)
	for failed := 0; policy.Attempts == 0 || failed < policy.Attempts; failed++ {
		*attempt++
		select {
		case <-time.After(policy.wait(*attempt)):
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
		ctx, cancel := context.WithTimeout(c.ctx, handshakeTimeout)
		conn, err := dial(ctx, &c.opts, c.url)
		cancel()
		if err == nil {
			return startLink(c.ctx, conn, c.opts.PingInterval, c.receive), nil
		}
		var refused *DialError
		if errors.As(err, &refused) && refused.permanent() {
			return nil, err
		}
		c.log.Debug("dial failed", "server", c.url, "attempt", *attempt, "error", err)
	}
	return nil, cause
}

// wait is how long to wait before the n-th dial in a row, n from 1.
func (b *Backoff) wait(n int) time.Duration {
	least, most := b.Min, b.Max
	if least <= 0 {
		least = 100 * time.Millisecond
	}
	if most <= 0 {
		most = 10 * time.Second
	}
	d := most
	if n <= 30 {
		d = min(most, least<<(n-1))
	}
	return d/2 + rand.N(d/2+1)
}

// setReady lets callers use the connection, unless it has already ended.
func (c *Client) setReady(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	close(c.ready)
}

// disconnected fails what hung on a connection that has ended, and returns why
// it did.
func (c *Client) disconnected(l *link) error {
	cause := c.whyEnded(l)
	c.mu.Lock()
	l.over = true
	wasReady := c.link == l
	if wasReady {
		c.link = nil
		c.ready = make(chan struct{})
	}
	for id, call := range c.pending {
		if call.link == l {
			delete(c.pending, id)
			call.fail(cause)
		}
	}
	again := c.opts.Reconnect != nil && cause != ErrClosed
	for _, r := range c.runtimes {
		r.disconnected(cause, again)
	}
	c.mu.Unlock()
	if again && wasReady {
		c.announce(&Disconnected{Err: cause})
	}
	return cause
}

// whyEnded says why a connection has ended: because the owner wanted it, or
// else what the network or the server said.
func (c *Client) whyEnded(l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return ErrClosed
	}
	return l.err()
}

// end fails everything; the client is of no use afterwards.
func (c *Client) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = reason
	for id, call := range c.pending {
		delete(c.pending, id)
		call.fail(reason)
	}
	for _, r := range c.runtimes {
		for _, t := range slices.Clone(r.turns) {
			t.fail(reason)
		}
	}
	for s := range c.subs {
		s.queue.close(reason)
	}
	c.stop(reason) // wakes the callers that wait for a connection
}

// acquire waits for a connection that can be used. A context that has ended
// gets none, so that nothing is sent for it.
func (c *Client) acquire(ctx context.Context) (*link, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
		l, ready := c.link, c.ready
		c.mu.Unlock()
		if err := c.ctx.Err(); err != nil {
			return nil, context.Cause(c.ctx)
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-ready:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
