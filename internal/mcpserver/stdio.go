package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdioDrain is for how long calls may go on once the client has closed its end:
// whoever pipes a file of requests in wants the answers.
const stdioDrain = 5 * time.Second

// Stdio serves one client over a pair of streams until ctx ends or the client
// closes its end.
func (s *Server) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	pending := &counter{}
	t := &mcp.IOTransport{Reader: &requestReader{ReadCloser: in, pending: pending}, Writer: &responseWriter{WriteCloser: out, pending: pending}}
	ss, err := s.mcp.Connect(ctx, t, nil)
	if err != nil {
		return fmt.Errorf("serve stdio: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- ss.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		s.end(errStopping)
		s.cut(errStopping)
		in.Close() //nolint:errcheck // ends the reader
		err = <-done
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve stdio: %w", err)
}

// A requestReader counts the requests that it lets through, and holds the end of
// its stream back until they are answered: the SDK drops what runs when it sees
// that.
type requestReader struct {
	io.ReadCloser
	pending *counter
	line    []byte
}

func (r *requestReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.line = eachLine(r.line, p[:n], func(m *message) {
		if m.isRequest() {
			r.pending.add(1)
		}
	})
	if errors.Is(err, io.EOF) {
		idle := make(chan struct{})
		go func() {
			defer close(idle)
			r.pending.wait()
		}()
		select {
		case <-idle:
		case <-time.After(stdioDrain):
			r.pending.clear()
			<-idle
		}
	}
	return n, err
}

// A responseWriter counts the answers to those requests.
type responseWriter struct {
	io.WriteCloser
	pending *counter
	line    []byte
}

func (w *responseWriter) Write(p []byte) (int, error) {
	n, err := w.WriteCloser.Write(p)
	w.line = eachLine(w.line, p, func(m *message) {
		if m.Method == "" && len(m.ID) > 0 {
			w.pending.add(-1)
		}
	})
	return n, err
}

// eachLine hands the messages of whole lines to see, and returns what is left.
func eachLine(rest, p []byte, see func(*message)) []byte {
	rest = append(rest, p...)
	for {
		line, more, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return rest
		}
		var m message
		if json.Unmarshal(line, &m) == nil {
			see(&m)
		}
		rest = more
	}
}
