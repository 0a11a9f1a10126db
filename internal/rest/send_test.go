package rest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A sseEvent is one event of a stream.
type sseEvent struct {
	id, name string
	data     string
	chunk    map[string]any
}

// events reads a stream to its end.
func events(t testing.TB, body io.Reader) []sseEvent {
	t.Helper()
	var all []sseEvent
	s := eventScanner(body)
	for {
		ev, ok := s()
		if !ok {
			return all
		}
		all = append(all, ev)
	}
}

// eventScanner reads events one by one; comments are left out.
func eventScanner(body io.Reader) func() (sseEvent, bool) {
	r := bufio.NewReader(body)
	return func() (ev sseEvent, ok bool) {
		for {
			line, err := r.ReadString('\n')
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "id: "):
				ev.id = line[4:]
			case strings.HasPrefix(line, "event: "):
				ev.name = line[7:]
			case strings.HasPrefix(line, "data: "):
				ev.data, ok = line[6:], true
				json.Unmarshal([]byte(ev.data), &ev.chunk)
			case line == "" && ok:
				return ev, true
			}
			if err != nil {
				return ev, false
			}
		}
	}
}

// stream sends a request whose answer must be a stream.
func (r *rig) stream(method, path string, body any) []sseEvent {
	r.t.Helper()
	resp := r.do(method, path, body)
	if resp.Status != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		r.t.Fatalf("%s: status %d, %s: %s", path, resp.Status, resp.Header.Get("Content-Type"), resp.Body)
	}
	return events(r.t, bytes.NewReader(resp.Body))
}

// kinds are the message types of a stream, [DONE] included.
func kinds(all []sseEvent) []string {
	var out []string
	for _, ev := range all {
		if ev.chunk == nil {
			out = append(out, ev.data)
			continue
		}
		out = append(out, text(ev.chunk["message_type"]))
	}
	return out
}
