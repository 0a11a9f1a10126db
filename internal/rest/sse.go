package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Times of streams.
const (
	// pingEvery is how long a stream is silent before a ping. Half-way a comment
	// goes out, which clients ignore, so that no proxy takes the stream for dead;
	// it goes out without pings too.
	pingEvery = 20 * time.Second
	// silence is how long a stream lives on nothing but pings.
	silence = 30 * time.Minute
	// writeWait is how long a client may take for what was sent to it.
	writeWait = time.Minute
)

// flushAt is how much a stream gathers before it writes, in bytes.
const flushAt = 16 << 10

// An sse writes a stream of server-sent events (spec/rest.md section 5.1). What
// is added is gathered until flush, or until it is much. The first flush writes
// the head of the answer. An error of any method means that the client is gone.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
	enc     *json.Encoder
	ids     bool // events have an id: line, their number
	begun   bool
}

func newSSE(w http.ResponseWriter, ids bool) *sse {
	s := &sse{w: w, control: http.NewResponseController(w), ids: ids}
	s.enc = json.NewEncoder(&s.buf)
	s.enc.SetEscapeHTML(false)
	return s
}

// add adds one chunk. Only errors have a name: clients drop other named events.
func (s *sse) add(c chunk) error {
	if s.ids {
		if n := numberOf(c); n > 0 {
			s.buf.WriteString("id: ")
			s.buf.Write(strconv.AppendInt(s.buf.AvailableBuffer(), int64(n), 10))
			s.buf.WriteByte('\n')
		}
	}
	if c.kind() == typeError {
		s.buf.WriteString("event: error\n")
	}
	s.buf.WriteString("data: ")
	if err := s.enc.Encode(c); err != nil { // it ends with a newline
		return fmt.Errorf("encode a chunk: %w", err)
	}
	s.buf.WriteByte('\n')
	if s.buf.Len() >= flushAt {
		return s.flush()
	}
	return nil
}

// numberOf is the number of a chunk, 0 = it has none.
func numberOf(c chunk) int {
	var n *int
	switch c := c.(type) {
	case variant:
		n = c.base().SeqID
	case *stopChunk:
		n = c.SeqID
	case *usageChunk:
		n = c.SeqID
	case *errorChunk:
		n = c.SeqID
	}
	if n == nil {
		return 0
	}
	return *n
}

// comment adds a line that clients ignore.
func (s *sse) comment() error {
	s.buf.WriteString(": keep-alive\n\n")
	return s.flush()
}

// done adds the end of the stream and writes everything.
func (s *sse) done() error {
	s.buf.WriteString("data: [DONE]\n\n")
	return s.flush()
}

// flush writes what was gathered, the head first.
func (s *sse) flush() error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("X-Accel-Buffering", "no")
		h.Set("X-Content-Type-Options", "nosniff")
		s.w.WriteHeader(http.StatusOK)
	}
	if err := s.deadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	_, err := s.w.Write(s.buf.Bytes())
	if s.buf.Cap() > 4*flushAt {
		s.buf = bytes.Buffer{} // one large event shall not stay in memory
	}
	s.buf.Reset()
	if err != nil {
		return fmt.Errorf("write a stream: %w", err)
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("write a stream: %w", err)
	}
	return nil
}

// close lets the connection serve other requests.
func (s *sse) close() { _ = s.deadline(time.Time{}) }

func (s *sse) deadline(t time.Time) error {
	if err := s.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("write a stream: %w", err)
	}
	return nil
}
