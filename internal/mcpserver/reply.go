package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	keepAlive    = 15 * time.Second
	writeTimeout = 15 * time.Second // for one write to reach the network
	outboxBytes  = 4 << 20          // beyond what is being written; one event may be larger
)

// A reply is the ResponseWriter that the SDK writes to. It has three jobs.
//
// It decides how the response looks. The SDK always answers with a stream; where
// a stream would hold nothing but the answer, the client gets that as one JSON
// object. So nothing is sent until the first event is there: if it is the answer,
// it goes out as an object; if it is anything else, or if it is long in coming,
// the stream begins.
//
// It makes the plain texts with which the SDK refuses requests errors of
// JSON-RPC.
//
// It decouples. Events go to an outbox that a goroutine of the reply's own
// empties, with comments in between when it is quiet. The SDK writes to many
// clients in a row, and one that does not read must not hold up the others: when
// its outbox is full its connection ends.
type reply struct {
	w      http.ResponseWriter
	accept accepted
	batch  bool
	id     json.RawMessage       // of the request
	cut    context.CancelFunc    // ends the HTTP request
	wanted func() bool           // false once the client has cancelled the request
	whole  func(streamID string) // the answer went out as one object

	header  http.Header // what the SDK set, until it is sent
	mu      sync.Mutex
	status  int
	state   replyState
	held    [][]byte // events that wait for the decision
	plain   []byte   // body that is no stream
	batched []json.RawMessage
	queue   [][]byte
	queued  int
	wake    chan struct{}
	done    chan struct{}
	gone    chan struct{} // closed when the writer has ended; nil = none was started
	late    *time.Timer   // begins the stream of an answer that is long in coming
}

type replyState int

const (
	undecided replyState = iota
	streaming
	object // answered by one object, or by a body that is no stream
	closed // nothing more is sent
)

func newReply(w http.ResponseWriter, a accepted, streams bool) *reply {
	r := &reply{
		w: w, accept: a, header: http.Header{}, wanted: func() bool { return true }, whole: func(string) {}, cut: func() {},
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if streams && a.stream {
		r.accept.json = false
	}
	if r.accept.json && r.accept.stream {
		r.late = time.AfterFunc(keepAlive, r.hurry)
	}
	return r
}

// hurry begins the stream of an answer that is long in coming, so that nobody on
// the way takes the silence for a broken connection.
func (r *reply) hurry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == undecided && strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		r.accept.json = false
		r.stream()
		r.push([]byte(": keep-alive\n\n"))
	}
}

// Header implements http.ResponseWriter.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *reply) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.status = status
	}
}

// Flush does what the SDK wants of it by itself.
func (r *reply) Flush() {}

// Write implements http.ResponseWriter. The SDK writes an event in one call.
func (r *reply) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.status = http.StatusOK
	}
	switch {
	case r.state == closed:
		return len(p), nil
	case !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream"):
		r.plain = append(r.plain, p...)
	default:
		r.event(bytes.Clone(p))
	}
	return len(p), nil
}

// event takes one event of the stream. mu is held.
func (r *reply) event(p []byte) {
	id, data := parseEvent(p)
	var m message
	answer := len(data) > 0 && json.Unmarshal(data, &m) == nil && m.Method == ""
	if answer && !r.wanted() && r.state == streaming {
		r.state = closed // the client has cancelled: it gets no answer
		return
	}
	switch {
	case r.state == streaming || !r.accept.json:
		r.stream()
		r.push(p)
	case answer && r.batch:
		r.batched = append(r.batched, data)
	case answer:
		stream, _, _ := strings.Cut(id, "_")
		r.whole(stream)
		r.header.Set("Content-Type", "application/json")
		r.header.Del("Connection")
		r.plain, r.state, r.held = data, object, nil
	case !r.accept.stream:
		// A client that reads no stream hears nothing on the way.
	case len(data) == 0 && !bytes.Contains(p, []byte("retry:")) && !bytes.HasPrefix(p, []byte(":")):
		r.held = append(r.held, p) // the priming event
	default:
		r.stream()
		r.push(p)
	}
}

// parseEvent is the id and the data of an event.
func parseEvent(p []byte) (id string, data []byte) {
	for line := range bytes.Lines(p) {
		line = bytes.TrimRight(line, "\n")
		if v, ok := bytes.CutPrefix(line, []byte("id: ")); ok {
			id = string(v)
		}
		if v, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = v
		}
	}
	return id, data
}

// stream begins the stream. mu is held.
func (r *reply) stream() {
	if r.state != undecided {
		return
	}
	r.state = streaming
	if r.status == 0 {
		r.status = http.StatusOK
	}
	h := r.w.Header()
	for k, v := range r.header {
		h[k] = v
	}
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	r.w.WriteHeader(r.status)
	r.gone = make(chan struct{})
	go r.send()
	for _, p := range r.held {
		r.push(p)
	}
	r.held = nil
}

// push gives an event to the outbox. mu is held.
func (r *reply) push(p []byte) {
	if r.state != streaming {
		return
	}
	if len(r.queue) > 0 && r.queued+len(p) > outboxBytes {
		r.state, r.queue, r.queued = closed, nil, 0
		r.cut()
		return
	}
	r.queue = append(r.queue, p)
	r.queued += len(p)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// send is the only writer of a stream. It ends when the reply is finished and
// the outbox empty, or when the network fails.
func (r *reply) send() {
	defer close(r.gone)
	control := http.NewResponseController(r.w)
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	write := func(p []byte) bool {
		// Where there are no deadlines, there is no network that could hang.
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := r.w.Write(p)
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			r.fail()
		}
		return err == nil
	}
	for finished := false; ; {
		r.mu.Lock()
		queue := r.queue
		r.queue, r.queued = nil, 0
		r.mu.Unlock()
		if len(queue) > 0 {
			if !write(bytes.Join(queue, nil)) {
				return
			}
			quiet.Reset(keepAlive)
			continue
		}
		if finished {
			return
		}
		select {
		case <-r.wake:
		case <-quiet.C:
			if !write([]byte(": keep-alive\n\n")) {
				return
			}
		case <-r.done:
			finished = true
		}
	}
}

// fail ends a reply whose network is gone.
func (r *reply) fail() {
	r.mu.Lock()
	r.state, r.queue = closed, nil
	r.mu.Unlock()
	r.cut()
}

// finish sends what is left once the SDK has returned.
func (r *reply) finish() {
	if r.late != nil {
		r.late.Stop()
	}
	r.mu.Lock()
	r.late = nil
	if r.state == undecided && len(r.held) > 0 {
		r.stream()
	} else if r.state == undecided {
		r.state = closed // hurry comes too late
	}
	if r.gone != nil {
		close(r.done)
		r.mu.Unlock()
		<-r.gone
		return
	}
	defer r.mu.Unlock()
	r.body()
}

// body sends a response that is no stream. mu is held.
func (r *reply) body() {
	if len(r.batched) > 0 {
		raw, err := json.Marshal(r.batched)
		if err == nil {
			r.header.Set("Content-Type", "application/json")
			r.plain = raw
		}
	}
	if r.status == 0 {
		r.status = http.StatusOK
		if len(r.plain) == 0 {
			r.status = http.StatusAccepted
		}
	}
	if r.status >= 400 && strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
		code := int64(codeServer)
		if r.status == http.StatusNotFound {
			code = codeSession
		} else if r.status == http.StatusBadRequest {
			code = jsonrpc.CodeInvalidRequest
		}
		r.plain = rpcError(r.id, code, line(string(r.plain)), nil)
		r.header.Set("Content-Type", "application/json")
	}
	h := r.w.Header()
	for k, v := range r.header {
		h[k] = v
	}
	if r.status == http.StatusAccepted || r.status == http.StatusNoContent {
		h.Del("Content-Type")
	} else {
		h.Set("Content-Length", strconv.Itoa(len(r.plain)))
	}
	// Where there are no deadlines, there is no network that could hang.
	_ = http.NewResponseController(r.w).SetWriteDeadline(time.Now().Add(bodyTimeout))
	r.w.WriteHeader(r.status)
	r.w.Write(r.plain) //nolint:errcheck // nobody is left to tell
}
