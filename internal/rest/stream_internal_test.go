package rest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mneme/internal/agent"
)

// A stillSource gives what it is told to.
type stillSource struct {
	signal chan struct{}
	events []*agent.Event
	looks  int
}

func (s *stillSource) ready() <-chan struct{}     { return s.signal }
func (s *stillSource) current() bool              { return true }
func (s *stillSource) look(context.Context) error { s.looks++; return nil }
func (s *stillSource) close()                     {}
func (s *stillSource) take(context.Context) ([]*agent.Event, error) {
	events := s.events
	s.events = nil
	return events, nil
}

func (s *stillSource) give(p agent.Payload) {
	s.events = append(s.events, &agent.Event{RunID: "run-1", MessageID: "message-1", At: time.Now(), Payload: p})
	s.signal <- struct{}{}
}

func quietStream(t *testing.T, v view, logged bool) (*stillSource, *httptest.ResponseRecorder, func() error) {
	d := &Door{}
	d.life, d.stop = context.WithCancel(t.Context())
	src := &stillSource{signal: make(chan struct{}, 1)}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	s := &stream{d: d, r: r, out: newSSE(w, logged), rend: newRenderer(v, "run-1", logged), src: src, pings: v.Pings}
	if v.Pings {
		if err := s.out.add(s.rend.ping(time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.serve() }()
	return src, w, func() error { return <-done }
}

// TestKeepAlive (bug report A17): a stream is never silent for long, pings come only
// where they are wanted, and repeat the last number.
func TestKeepAlive(t *testing.T) {
	for name, pings := range map[string]bool{"pings": true, "comments": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, w, wait := quietStream(t, view{Pings: pings, Tokens: true}, true)
				time.Sleep(150*time.Second + time.Millisecond)
				src.give(agent.TextDelta{Text: "late"})
				synctest.Wait()
				time.Sleep(21 * time.Second)
				src.give(agent.RunEnded{StopReason: agent.StopEndTurn})
				if err := wait(); err != nil {
					t.Fatal(err)
				}
				body := w.Body.String()
				comments, all := strings.Count(body, ": keep-alive\n\n"), strings.Count(body, `"message_type":"ping"`)
				wantComments, wantPings := 9, 9 // the first ping, 7 of 150 s, one of 21 s
				if !pings {
					wantComments, wantPings = 17, 0
				}
				if comments != wantComments || all != wantPings {
					t.Errorf("%d comments and %d pings:\n%s", comments, all, body)
				}
				if pings && (strings.Count(body, `"message_type":"ping","otid":null,"sender_id":null,"step_id":null,"is_err":null,"seq_id":1,`) != 8 || !strings.Contains(body, `"message_type":"ping","otid":null,"sender_id":null,"step_id":null,"is_err":null,"seq_id":2,`)) {
					t.Errorf("numbers of the pings:\n%s", body)
				}
				if src.looks == 0 {
					t.Error("nobody looked whether the run goes on")
				}
				h := w.Header()
				if h.Get("X-Accel-Buffering") != "no" || h.Get("Content-Type") != "text/event-stream; charset=utf-8" || !strings.HasSuffix(body, "data: [DONE]\n\n") {
					t.Errorf("%v\n%s", h, body)
				}
			})
		})
	}
}

// TestSilence: a stream on which nothing happens for half an hour ends; one that is
// not logged says so.
func TestSilence(t *testing.T) {
	for _, logged := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			_, w, wait := quietStream(t, view{Pings: true}, logged)
			begin := time.Now()
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d != silence {
				t.Errorf("it ended after %v", d)
			}
			body := w.Body.String()
			if told := strings.Contains(body, "event: error\n") && strings.Contains(body, "stream_incomplete"); told == logged || strings.Contains(body, "[DONE]") == logged {
				t.Errorf("logged %v: %s", logged, body[len(body)-300:])
			}
		})
	}
}

func TestOutbox(t *testing.T) {
	delta := func(part int, s string, seq int64) *agent.Event {
		return &agent.Event{RunID: "run-1", MessageID: "m", Seq: seq, Payload: agent.TextDelta{Part: part, Text: s}}
	}
	t.Run("joins", func(t *testing.T) {
		o := newOutbox("run-1", true, false)
		piece := strings.Repeat("x", 7)
		want := 0
		for i := range 50_000 {
			o.put(delta(i/20_000, piece, 0))
			want += len(piece)
		}
		o.put(&agent.Event{RunID: "run-2", Payload: agent.RunEnded{}})
		events, lost := o.take()
		got := 0
		for _, ev := range events {
			got += len(ev.Payload.(agent.TextDelta).Text)
		}
		if lost || got != want || len(events) > 100 {
			t.Errorf("lost %v, %d bytes of %d in %d events", lost, got, want, len(events))
		}
	})
	t.Run("bound", func(t *testing.T) {
		o := newOutbox("run-1", true, false)
		for range 40 {
			o.put(&agent.Event{RunID: "run-1", Payload: agent.AnswerStored{Message: &agent.Message{Parts: []agent.Part{agent.Text(strings.Repeat("x", 1<<19))}}}})
		}
		if events, lost := o.take(); !lost || len(events) > 0 {
			t.Errorf("lost %v, %d events", lost, len(events))
		}
	})
	t.Run("log", func(t *testing.T) {
		o := newOutbox("run-1", true, true)
		for i := range 1000 {
			o.put(delta(0, "x", int64(i+1)))
		}
		o.put(&agent.Event{RunID: "run-1", Payload: agent.LoopChanged{}}) // not stored
		if events, lost := o.take(); !lost || len(events) > 0 || o.hinted() {
			t.Errorf("lost %v, %d events", lost, len(events))
		}
		o.put(delta(0, "y", 1001))
		if events, lost := o.take(); lost || len(events) != 1 {
			t.Errorf("afterwards: lost %v, %d events", lost, len(events))
		}
	})
}

func TestVariantIDs(t *testing.T) {
	const id = "message-33f67366-8617-4c98-bc1e-ff826b8e01d6"
	for index, want := range map[int]string{
		0: "33f67366-8617-4c98-bc1e-ff826b8e0180", 1: "33f67366-8617-4c98-bc1e-ff826b8e0181", 200: "33f67366-8617-4c98-bc1e-ff826b8e01ff",
	} {
		if got := variantOTID(id, index); got != want {
			t.Errorf("variant %d: %s", index, got)
		}
	}
	if got := requestID(id); got != "message-33f67366-8617-4c98-bc1e-ff826b8e01d5" || requestOwner(got) != id {
		t.Errorf("request %s", got)
	}
	for _, odd := range []string{"", "x", "message-1", "m-33f67366-8617-4c98-bc1e-ff826b8e01dg"} {
		if variantOTID(odd, 1) != odd || requestID(odd) != odd {
			t.Errorf("%q has become another id", odd)
		}
	}
}

// FuzzSendBody: no body makes the decoder fail in another way than with an answer.
func FuzzSendBody(f *testing.F) {
	for _, s := range []string{
		`{"input":"x"}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"url","url":"http://x"}}],"otid":"1"}]}`,
		`{"messages":[{"type":"approval","approvals":[{"type":"approval","tool_call_id":"1","approve":false,"reason":"r"},{"type":"tool","tool_call_id":"2","tool_return":[{"type":"text","text":"x"}],"status":"error"}]},{"role":"user","content":"y"}]}`,
		`{"messages":[{"type":"tool_return","tool_returns":[{"tool_call_id":"1","tool_return":"x","status":"success"}]}]}`, `{"messages":null}`, `[]`, `{"messages":[null]}`,
		`{"client_tools":[{"name":"n"}],"client_skills":[{}],"input":[],"max_steps":1e3,"enable_thinking":"True"}`, `{"messages":[{"approve":true,"approval_request_id":null}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b sendBody
		if err := unmarshal(body, &b); err != nil {
			if asHTTP(err).Status != http.StatusUnprocessableEntity {
				t.Fatalf("%s: %v", body, err)
			}
			return
		}
		if err := b.check(); err != nil {
			if s := asHTTP(err).Status; s != http.StatusUnprocessableEntity && s != http.StatusBadRequest {
				t.Fatalf("%s: %v", body, err)
			}
			return
		}
		p := &b.parsed
		if len(p.messages) == 0 && p.reply == nil {
			t.Fatalf("%s: nothing to send", body)
		}
		for _, m := range p.messages {
			if len(m.Parts) == 0 || m.OTID == "" {
				t.Fatalf("%s: %+v", body, m)
			}
		}
		if p.reply != nil && len(p.reply.answers) == 0 {
			t.Fatalf("%s: an answer without answers", body)
		}
		again := p.digest()
		if again == "" || again != p.digest() {
			t.Fatalf("%s: digest %q", body, again)
		}
	})
}

func TestPublicAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8:443": true, "[2606:4700::1111]:443": true, "127.0.0.1:80": false, "10.1.2.3:80": false, "192.168.0.1:80": false,
		"172.16.0.1:80": false, "169.254.169.254:80": false, "100.64.0.1:80": false, "0.0.0.0:80": false, "[::1]:80": false,
		"[fd00::1]:80": false, "[fe80::1]:80": false, "[::ffff:127.0.0.1]:80": false, "[64:ff9b::7f00:1]:80": false,
		"[2002:7f00:1::]:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false,
	} {
		if got := publicOnly("tcp", address, nil) == nil; got != want {
			t.Errorf("%s: public %v", address, got)
		}
	}
}
