package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"mneme/client"
	"mneme/protocol"
)

var quick = &client.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}

func TestConnectionLost(t *testing.T) {
	for _, test := range []struct {
		code   websocket.StatusCode
		reason string
		want   string
	}{
		{0, "", "connection lost: failed to get reader: failed to read frame header: EOF"},
		{websocket.StatusGoingAway, "", "connection lost: the server closed it with code 1001"},
		{websocket.StatusTryAgainLater, "reads too slowly", "connection lost: the server closed it with code 1013: reads too slowly"},
	} {
		s := newFakeServer(t)
		c := connect(t, s, client.Options{})
		rt := start(t, c)
		turn := send(t, rt, "wait")
		sub := c.Subscribe()
		call := make(chan error, 1)
		go func() {
			_, err := c.CallRaw(t.Context(), &protocol.Later{Type: "get_experiments"})
			call <- err
		}()
		until(t, "the call", func() bool { return s.received("get_experiments") == 1 })
		s.closeAll(test.code, test.reason)
		<-c.Done()
		_, turnErr := turn.Wait(t.Context())
		var subErr error
		for _, subErr = range sub.Events(t.Context()) {
		}
		_, sendErr := rt.Send(t.Context(), "say x")
		for name, err := range map[string]error{"client": c.Err(), "call": <-call, "turn": turnErr, "subscription": subErr, "send": sendErr} {
			var lost *client.ConnectionError
			if !errors.Is(err, client.ErrConnectionLost) || !errors.As(err, &lost) || lost.Code != max(0, int(test.code)) {
				t.Errorf("code %d, %s: %v", test.code, name, err)
			}
			if err != nil && err.Error() != test.want {
				t.Errorf("code %d, %s: got %q, want %q", test.code, name, err, test.want)
			}
		}
	}
}

// A turn that runs on while the connection is down is found again.
func TestReconnect(t *testing.T) {
	for _, code := range []websocket.StatusCode{0, websocket.StatusGoingAway, websocket.StatusTryAgainLater} {
		s := newFakeServer(t)
		c := connect(t, s, client.Options{Reconnect: quick})
		rt := start(t, c)
		sub := rt.Subscribe()
		running := send(t, rt, "wait")
		queued := send(t, rt, "say after it")
		s.closeAll(code, "")
		types := map[string]bool{}
		for ev, err := range sub.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			types[ev.Type] = true
			if ev.Type == "client.reconnected" {
				break
			}
		}
		if !types["client.disconnected"] {
			t.Error("the disconnection was not announced")
		}
		if s.received("runtime_start") != 2 || s.received("input") != 2 {
			t.Errorf("server got %d runtime_start and %d input", s.received("runtime_start"), s.received("input"))
		}
		s.release()
		if got := wait(t, running); got.StopReason != protocol.StopEndTurn || got.TurnID != "turn-1" || !got.Gap {
			t.Errorf("running turn: %+v", got)
		}
		if got := wait(t, queued); got.Text() != "after it " || got.Gap {
			t.Errorf("queued turn: %+v", got)
		}
		seen := false
		for ev, err := range running.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			seen = seen || ev.Type == "client.reconnected"
		}
		if !seen {
			t.Error("the turn's events do not tell of the gap")
		}
		wait(t, send(t, rt, "say and on"))
	}
}

// An input whose acknowledgement was lost is sent again and runs once.
func TestUnacknowledgedInputIsSentAgain(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: quick})
	rt := start(t, c)
	turn, err := rt.Send(t.Context(), "drop") // cut before the acknowledgement
	if err != nil {
		t.Fatal(err)
	}
	// Its turn may have ended before the client was back, and then nobody told
	// it how.
	if _, err := turn.Wait(t.Context()); err != nil && !errors.Is(err, client.ErrTurnLost) {
		t.Errorf("error %v", err)
	}
	if n := s.received("input"); n != 2 {
		t.Errorf("input was sent %d times", n)
	}
	s.mu.Lock()
	turns := s.turns
	s.mu.Unlock()
	if turns != 1 {
		t.Errorf("%d turns ran", turns)
	}
}

func TestTurnEndsWhileDown(t *testing.T) {
	for _, stock := range []bool{false, true} {
		s := newFakeServer(t)
		s.stock = stock
		c := connect(t, s, client.Options{Reconnect: quick})
		rt := start(t, c)
		turn := send(t, rt, "wait")
		s.mu.Lock()
		s.refuse = 503
		s.mu.Unlock()
		s.closeAll(0, "")
		until(t, "the connection's end", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 0 })
		s.release()
		s.running.Wait()
		s.mu.Lock()
		s.refuse = 0
		s.mu.Unlock()
		if _, err := turn.Wait(t.Context()); !errors.Is(err, client.ErrTurnLost) {
			t.Errorf("error %v", err)
		}
		var last error
		for _, err := range turn.Events(t.Context()) {
			last = err
		}
		if !errors.Is(last, client.ErrTurnLost) {
			t.Errorf("events end with %v", last)
		}
		wait(t, send(t, rt, "say on"))
	}
}

// Callers that come while the connection is down wait for the next one.
func TestCallsWaitForTheConnection(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: quick})
	rt := start(t, c)
	sub := c.Subscribe()
	s.mu.Lock()
	s.refuse = 503
	s.mu.Unlock()
	s.closeAll(0, "")
	if ev, err := sub.Next(t.Context()); err != nil || ev.Type != "client.disconnected" {
		t.Fatalf("%s, %v", ev.Type, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := rt.Send(ctx, "say x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("send while down: %v", err)
	}
	sent := make(chan error, 1)
	go func() {
		turn, err := rt.Send(t.Context(), "say y")
		if err == nil {
			_, err = turn.Wait(t.Context())
		}
		sent <- err
	}()
	s.mu.Lock()
	s.refuse = 0
	s.mu.Unlock()
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestReconnectGivesUp(t *testing.T) {
	for status, want := range map[int]func(error) bool{
		// Refused for good.
		401: func(err error) bool { var d *client.DialError; return errors.As(err, &d) && d.Status == 401 },
		// No attempts left.
		503: func(err error) bool { return errors.Is(err, client.ErrConnectionLost) },
	} {
		s := newFakeServer(t)
		c := connect(t, s, client.Options{Reconnect: &client.Backoff{Min: time.Millisecond, Max: time.Millisecond, Attempts: 3}})
		rt := start(t, c)
		turn := send(t, rt, "wait")
		s.mu.Lock()
		s.refuse = status
		s.mu.Unlock()
		s.closeAll(0, "")
		<-c.Done()
		if !want(c.Err()) {
			t.Errorf("status %d: client ended with %v", status, c.Err())
		}
		if _, err := turn.Wait(t.Context()); err == nil || err != c.Err() {
			t.Errorf("status %d: turn ended with %v", status, err)
		}
	}
}

// A message that is too large must not be sent again and again.
func TestTooLargeInputIsNotSentAgain(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: quick})
	rt := start(t, c)
	_, err := rt.Send(t.Context(), strings.Repeat("x", 2<<20))
	var lost *client.ConnectionError
	if !errors.As(err, &lost) || lost.Code != 1009 {
		t.Errorf("error %v", err)
	}
	wait(t, send(t, rt, "say on"))
}

// A runtime that the server refuses to start again is broken off; the others
// go on.
func TestRuntimeIsGone(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: quick})
	good := start(t, c)
	ephemeral, agent := true, "agent-2"
	short, err := c.StartRuntime(t.Context(), protocol.RuntimeStart{AgentID: &agent, Ephemeral: &ephemeral})
	if err != nil {
		t.Fatal(err)
	}
	turn := send(t, short, "wait")
	s.closeAll(0, "")
	if _, err := turn.Wait(t.Context()); !errors.Is(err, client.ErrConnectionLost) {
		t.Errorf("turn of an ephemeral runtime: %v", err)
	}
	if _, err := short.Send(t.Context(), "say x"); !errors.Is(err, client.ErrConnectionLost) {
		t.Errorf("send to an ephemeral runtime: %v", err)
	}
	wait(t, send(t, good, "say on"))

	s.mu.Lock()
	s.gone = good.ID()
	s.mu.Unlock()
	lost := send(t, good, "wait")
	s.closeAll(0, "")
	var refused *client.ServerError
	if _, err := lost.Wait(t.Context()); !errors.As(err, &refused) {
		t.Errorf("turn of a runtime that is gone: %v", err)
	}
	if _, err := good.Send(t.Context(), "say x"); !errors.As(err, &refused) {
		t.Errorf("send to a runtime that is gone: %v", err)
	}
	if _, err := client.Call(t.Context(), c, &protocol.AppServerInfo{}); err != nil {
		t.Error(err)
	}
}

// The connection may be lost again while runtimes are started again.
func TestLostWhileRestoring(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: quick})
	rt := start(t, c)
	turn := send(t, rt, "wait")
	s.mu.Lock()
	s.silent = true
	s.mu.Unlock()
	s.closeAll(0, "")
	for n := 2; n < 5; n++ {
		until(t, "another start", func() bool { return s.received("runtime_start") >= n })
		s.mu.Lock()
		s.silent = n < 4
		s.mu.Unlock()
		s.closeAll(0, "")
	}
	until(t, "the last start", func() bool { return s.received("runtime_start") >= 5 })
	if _, err := client.Call(t.Context(), c, &protocol.AppServerInfo{}); err != nil {
		t.Fatal(err)
	}
	s.release()
	wait(t, turn)
}

func TestCloseWhileDown(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: &client.Backoff{Min: time.Hour, Max: time.Hour}})
	rt := start(t, c)
	turn := send(t, rt, "wait")
	sub := c.Subscribe()
	s.closeAll(0, "")
	if _, err := sub.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := turn.Wait(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// A server that has vanished without closing is found out by pings.
func TestPing(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{PingInterval: 50 * time.Millisecond})
	rt := start(t, c)
	wait(t, send(t, rt, "say x"))
	s.mu.Lock() // nobody reads any more, so nobody answers pings
	defer s.mu.Unlock()
	go client.Call(t.Context(), c, &protocol.AppServerInfo{})
	<-c.Done()
	if err := c.Err(); !errors.Is(err, client.ErrConnectionLost) || !strings.Contains(err.Error(), "no answer to a ping") {
		t.Errorf("error %v", err)
	}
}
