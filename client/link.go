package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"mneme/protocol"
)

// A link is one WebSocket connection with its three goroutines: a reader, the
// only writer, and one that pings. They end together.
type link struct {
	conn *websocket.Conn
	out  chan []byte // frames to write; a full one makes its senders wait
	ctx  context.Context
	stop context.CancelCauseFunc
	done chan struct{} // closed when all goroutines have ended
	born time.Time
	over bool // its end has been seen to; guarded by the client's mu
	// extensions is what the server has of mneme's own; nil = not asked yet.
	// Guarded by the client's mu.
	extensions *protocol.Extensions
}

// outQueue is how many frames may wait to be written. Callers wait beyond it.
const outQueue = 64

// dial opens the WebSocket.
func dial(ctx context.Context, o *Options, addr string) (*websocket.Conn, error) {
	header := o.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if o.Token != "" {
		header.Set("Authorization", "Bearer "+o.Token)
	}
	conn, resp, err := websocket.Dial(ctx, addr, &websocket.DialOptions{HTTPClient: o.HTTPClient, HTTPHeader: header})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			reason := strings.TrimSpace(strings.TrimPrefix(resp.Status, fmt.Sprint(resp.StatusCode)))
			return nil, &DialError{Status: resp.StatusCode, Reason: reason}
		}
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	conn.SetReadLimit(o.ReadLimit)
	return conn, nil
}

// socketURL completes an address: without a path it means /ws.
func socketURL(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return "", fmt.Errorf("server address: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return "", fmt.Errorf("server address %q must start with ws:// or wss://", addr)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws"
	}
	return u.String(), nil
}

// startLink runs a connection under ctx. Receive gets every message and must
// not block.
func startLink(ctx context.Context, conn *websocket.Conn, ping time.Duration, receive func(*link, []byte)) *link {
	l := &link{conn: conn, out: make(chan []byte, outQueue), done: make(chan struct{}), born: time.Now()}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { l.read(receive) })
	wg.Go(l.write)
	wg.Go(func() { l.ping(ping) })
	go func() {
		wg.Wait()
		conn.CloseNow()
		close(l.done)
	}()
	return l
}

func (l *link) read(receive func(*link, []byte)) {
	for {
		_, data, err := l.conn.Read(l.ctx)
		if err != nil {
			l.stop(connectionError(err))
			return
		}
		receive(l, data)
	}
}

func (l *link) write() {
	for {
		select {
		case frame := <-l.out:
			if err := l.conn.Write(l.ctx, websocket.MessageText, frame); err != nil {
				// The reader knows better why, if the server closed.
				select {
				case <-l.ctx.Done():
				case <-time.After(time.Second):
					l.stop(connectionError(err))
				}
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// ping finds out that a peer has vanished without closing.
func (l *link) ping(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ctx, cancel := context.WithTimeout(l.ctx, every)
			err := l.conn.Ping(ctx)
			late := ctx.Err() != nil && l.ctx.Err() == nil
			cancel()
			if late {
				l.stop(&ConnectionError{Err: fmt.Errorf("no answer to a ping within %s", every)})
			}
			if err != nil {
				return // the connection has ended, and the reader says why
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// send gives a frame to the writer. Its error is the link's end or ctx's.
func (l *link) send(ctx context.Context, frame []byte) error {
	select {
	case l.out <- frame:
		return nil
	case <-l.ctx.Done():
		return l.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// err says why the link has ended.
func (l *link) err() error { return context.Cause(l.ctx) }

func connectionError(err error) *ConnectionError {
	e := &ConnectionError{Err: err}
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		e.Code, e.Reason = int(closed.Code), closed.Reason
	}
	return e
}
