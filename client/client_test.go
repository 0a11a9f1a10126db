package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/client"
	"mneme/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect dials a server with a transport of its own, so that nothing lingers.
func connect(t testing.TB, s *fakeServer, o client.Options) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o.HTTPClient = &http.Client{Transport: transport}
	s.mu.Lock()
	before := s.accepted
	s.mu.Unlock()
	c, err := client.Dial(t.Context(), s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the server's side of the connection", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.accepted > before
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func start(t testing.TB, c *client.Client, tools ...client.Tool) *client.Runtime {
	t.Helper()
	agent := "agent-1"
	rt, err := c.StartRuntime(t.Context(), protocol.RuntimeStart{AgentID: &agent}, tools...)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func send(t testing.TB, rt *client.Runtime, text string) *client.Turn {
	t.Helper()
	turn, err := rt.Send(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func wait(t testing.TB, turn *client.Turn) client.TurnResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	result, err := turn.Wait(ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return result
}

// until waits for a condition that another goroutine brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

func TestCall(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	ctx := t.Context()

	info, err := client.Call(ctx, c, &protocol.AppServerInfo{})
	if err != nil || info.ProtocolVersion != 1 {
		t.Errorf("app_server_info: %+v, %v", info, err)
	}
	_, err = client.Call(ctx, c, &protocol.AgentRetrieve{AgentID: "x"})
	var failed *client.ServerError
	if !errors.As(err, &failed) || failed.Message != "Agent x not found" || err.Error() != "agent_retrieve: Agent x not found" {
		t.Errorf("agent_retrieve: %v", err)
	}
	memory, err := client.Call(ctx, c, &protocol.ListMemory{AgentID: "a"})
	if err != nil || len(memory.Entries) != 3 || memory.Entries[2].RelativePath != "2" || !memory.Done {
		t.Errorf("list_memory: %+v, %v", memory, err)
	}
	raw, err := c.CallRaw(ctx, &protocol.Later{Type: "read_file", Raw: json.RawMessage(`{"path":"/x"}`)})
	var file struct{ Path string }
	if err != nil || json.Unmarshal(raw, &file) != nil || file.Path != "/x" {
		t.Errorf("read_file: %s, %v", raw, err)
	}
}

// A command that the server does not know fails with what the server says.
func TestUnknownCommand(t *testing.T) {
	c := connect(t, newFakeServer(t), client.Options{})
	_, err := c.CallRaw(t.Context(), &protocol.Later{Type: "no_such_command"})
	var refused *client.ServerError
	if !errors.As(err, &refused) || refused.Command != "no_such_command" || refused.Message == "" {
		t.Errorf("error %v, want a ServerError with a text", err)
	}
}

func TestCallsInParallel(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	errs := make(chan error)
	for range 50 {
		go func() {
			_, err := client.Call(t.Context(), c, &protocol.AppServerInfo{})
			errs <- err
		}()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestCallGivesUpWithItsContext(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.CallRaw(ctx, &protocol.Later{Type: "get_experiments"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	// The connection is none the worse for it.
	if _, err := client.Call(t.Context(), c, &protocol.AppServerInfo{}); err != nil {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	s := newFakeServer(t)
	s.token = "secret"
	connect(t, s, client.Options{Token: "secret"})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	o := client.Options{Token: "wrong", HTTPClient: &http.Client{Transport: transport}}
	_, err := client.Dial(t.Context(), s.URL, o)
	var refused *client.DialError
	if !errors.As(err, &refused) || refused.Status != 401 || refused.Reason != "Unauthorized" {
		t.Errorf("wrong token: %v", err)
	}
	if _, err := client.Dial(t.Context(), s.URL+"/other", o); !errors.As(err, &refused) {
		t.Errorf("wrong path: %v", err)
	}
	for _, addr := range []string{"127.0.0.1:4500", "ftp://x", "ws://\x00", "ws://127.0.0.1:1"} {
		if _, err := client.Dial(t.Context(), addr, o); err == nil {
			t.Errorf("%q was accepted", addr)
		}
	}
}

func TestTurn(t *testing.T) {
	for _, stock := range []bool{false, true} {
		s := newFakeServer(t)
		s.stock = stock
		c := connect(t, s, client.Options{ClientInfo: &protocol.ClientInfo{Name: "test"}})
		rt := start(t, c)
		if rt.ID() != (protocol.Runtime{AgentID: "agent-1", ConversationID: "conv-1"}) || rt.Info().Runtime == nil {
			t.Fatalf("runtime %+v", rt.ID())
		}
		if rt.Status().Status != protocol.WaitingOnInput {
			t.Errorf("the replay was not seen: status %+v", rt.Status())
		}
		turn := send(t, rt, "say hello big world")
		if turn.Disposition() != protocol.Started || turn.Key() == "" {
			t.Errorf("disposition %q, key %q", turn.Disposition(), turn.Key())
		}
		var text strings.Builder
		var last string
		for ev, err := range turn.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			last = ev.Type
			if s, ok := ev.Body.(*protocol.StreamDelta); ok {
				text.WriteString(s.Text())
			}
		}
		if text.String() != "hello big world " || last != "turn_finished" {
			t.Errorf("stream %q, last event %s", text.String(), last)
		}
		result := wait(t, turn)
		if result.Text() != "hello big world " || result.StopReason != protocol.StopEndTurn || result.Err() != nil ||
			result.TurnID != "turn-1" || turn.ID() != "turn-1" || result.Usage.PromptTokens != 10 || len(result.Messages) != 1 {
			t.Errorf("result %+v", result)
		}
	}
}

func TestTurnThatFails(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	result := wait(t, send(t, rt, "fail"))
	if result.StopReason != protocol.StopError || result.Err() == nil || result.Err().Error() != "no model" {
		t.Errorf("result %+v", result)
	}
}

func TestRetryVoidsText(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	result := wait(t, send(t, rt, "retry"))
	want := []client.AssistantMessage{{ID: "message-turn-1", RunID: "step-1", Text: "half of it"}}
	if diff := cmp.Diff(want, result.Messages); diff != "" {
		t.Error(diff)
	}
}

func TestQueuedTurns(t *testing.T) {
	for _, stock := range []bool{false, true} {
		s := newFakeServer(t)
		s.stock = stock
		rt := start(t, connect(t, s, client.Options{}))
		first := send(t, rt, "wait")
		second := send(t, rt, "say second")
		if second.Disposition() != protocol.Queued {
			t.Errorf("disposition %q", second.Disposition())
		}
		s.release()
		if got := wait(t, first); got.TurnID != "turn-1" || got.Text() != "..." {
			t.Errorf("first: %+v", got)
		}
		if got := wait(t, second); got.TurnID != "turn-2" || got.Text() != "second " {
			t.Errorf("second: %+v", got)
		}
		// The second turn's events begin with its own message.
		for ev, err := range second.Events(t.Context()) {
			d, ok := ev.Body.(*protocol.StreamDelta)
			if err != nil || !ok || d.Delta.MessageType() != "user_message" {
				t.Errorf("first event of the second turn: %s %v", ev.Raw, err)
			}
			break
		}
	}
}

// A stock server can run two turns at once; their steps tell them apart.
func TestTurnsAtOnce(t *testing.T) {
	s := newFakeServer(t)
	s.stock = true
	rt := start(t, connect(t, s, client.Options{}))
	turn := send(t, rt, "wait")
	until(t, "the first delta", func() bool { return len(rt.Status().ActiveRunIDs) == 1 })
	publish := func(body protocol.EventBody) {
		frame, err := protocol.AppendEvent(nil, rt.ID(), body)
		if err != nil {
			t.Fatal(err)
		}
		s.broadcast(string(frame))
	}
	publish(&protocol.LoopStatusUpdate{LoopStatus: protocol.LoopStatus{Status: protocol.ProcessingAPIResponse, ActiveRunIDs: []string{"other"},
		ClientMessageIDsByRunID: map[string][]string{"other": {"cm-other"}, "step-1": {turn.Key()}}}})
	publish(&protocol.StreamDelta{Delta: &protocol.AssistantDelta{DeltaHead: protocol.DeltaHead{ID: "m", RunID: "other"}, Content: protocol.Text("not mine")}})
	publish(&protocol.TurnFinished{TurnID: "batch-other", RunID: "other", StopReason: protocol.StopError})
	s.release()
	if got := wait(t, turn); got.Text() != "..." || got.StopReason != protocol.StopEndTurn {
		t.Errorf("result %+v", got)
	}
}

func TestQueuedInputIsRemoved(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	rt := start(t, c)
	first := send(t, rt, "wait")
	second := send(t, rt, "say second")
	if _, err := client.Call(t.Context(), c, &protocol.RemoveQueueItem{Runtime: rt.ID(), ItemID: "q"}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Wait(t.Context()); !errors.Is(err, client.ErrRemoved) {
		t.Errorf("error %v", err)
	}
	s.release()
	wait(t, first)
}

func TestAbort(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	turn := send(t, rt, "wait")
	aborted, err := rt.Abort(t.Context())
	if err != nil || !aborted {
		t.Fatalf("abort: %v, %v", aborted, err)
	}
	if got := wait(t, turn); got.StopReason != protocol.StopCancelled || got.Err() == nil {
		t.Errorf("result %+v", got)
	}
	if aborted, err := rt.Abort(t.Context()); err != nil || aborted {
		t.Errorf("second abort: %v, %v", aborted, err)
	}
}

func TestApprovals(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	for _, test := range []struct {
		answer func(id string) error
		want   string
	}{
		{func(id string) error { return rt.Approve(t.Context(), id) }, "allowed"},
		{func(id string) error { return rt.Deny(t.Context(), id, "too risky") }, "denied: too risky"},
	} {
		turn := send(t, rt, "ask")
		for ev, err := range turn.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if req, ok := ev.Body.(*protocol.ControlRequest); ok {
				if p := rt.Pending(); len(p) != 1 || p[0].RequestID != req.RequestID {
					t.Errorf("pending %+v", p)
				}
				if err := test.answer(req.RequestID); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := wait(t, turn).Text(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	var failed *client.ServerError
	if err := rt.Approve(t.Context(), "perm-call-1"); !errors.As(err, &failed) || failed.Message != "Approval request is no longer pending" {
		t.Errorf("stale answer: %v", err)
	}
}

// A client that comes later sees what is pending.
func TestPendingAfterStart(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	turn := send(t, rt, "ask")
	until(t, "the request", func() bool { return len(rt.Pending()) == 1 })

	other := connect(t, s, client.Options{})
	id := rt.ID()
	rt2, err := other.StartRuntime(t.Context(), protocol.RuntimeStart{AgentID: &id.AgentID, ConversationID: &id.ConversationID})
	if err != nil {
		t.Fatal(err)
	}
	if p := rt2.Pending(); len(p) != 1 {
		t.Fatalf("pending %+v", p)
	}
	if err := rt2.Approve(t.Context(), rt2.Pending()[0].RequestID); err != nil {
		t.Fatal(err)
	}
	wait(t, turn)
	if err := rt2.Sync(t.Context()); err != nil || len(rt2.Pending()) != 0 {
		t.Errorf("pending after the answer: %+v, %v", rt2.Pending(), err)
	}
}

func TestTools(t *testing.T) {
	s := newFakeServer(t)
	tool := func(name, scope string, run func(context.Context, json.RawMessage) (*protocol.ToolResult, error)) client.Tool {
		return client.Tool{ExternalTool: protocol.ExternalTool{Name: name, Description: name}, Scope: scope, Run: run}
	}
	c := connect(t, s, client.Options{})
	rt := start(t, c,
		tool("lookup", "", func(_ context.Context, in json.RawMessage) (*protocol.ToolResult, error) {
			return protocol.TextResult("for " + string(in)), nil
		}),
		tool("lookup", "special", func(context.Context, json.RawMessage) (*protocol.ToolResult, error) {
			return protocol.TextResult("special"), nil
		}),
		tool("broken", "", func(context.Context, json.RawMessage) (*protocol.ToolResult, error) {
			return nil, errors.New("backend is down")
		}),
		tool("empty", "", func(context.Context, json.RawMessage) (*protocol.ToolResult, error) { return nil, nil }),
		tool("garbled", "", func(context.Context, json.RawMessage) (*protocol.ToolResult, error) {
			return &protocol.ToolResult{Content: []protocol.Object{protocol.Object("{")}}, nil
		}),
		tool("manual", "", nil),
	)
	for _, test := range []struct{ input, want string }{
		{`tool lookup {"q":1}`, `{"result":{"content":[{"type":"text","text":"for {\"q\":1}"}]}}`},
		{`tool special/lookup {}`, `{"result":{"content":[{"type":"text","text":"special"}]}}`},
		{`tool broken {}`, `{"error":"backend is down"}`},
		{`tool empty {}`, `{"error":"the tool returned nothing"}`},
	} {
		if got := wait(t, send(t, rt, test.input)).Text(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.input, got, test.want)
		}
	}
	if got := wait(t, send(t, rt, "tool garbled {}")).Text(); !strings.HasPrefix(got, `{"error":"the tool's result cannot be sent`) {
		t.Errorf("garbled: %s", got)
	}
	turn := send(t, rt, "tool manual {}")
	for ev, err := range turn.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if req, ok := ev.Body.(*protocol.ExternalToolCallRequest); ok {
			answer := &protocol.ExternalToolCallResponse{Result: protocol.TextResult("by hand")}
			if err := c.AnswerTool(t.Context(), req.RequestID, answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := wait(t, turn).Text(); !strings.Contains(got, "by hand") {
		t.Errorf("manual: %s", got)
	}
	if err := rt.SetTools(t.Context(), tool("lookup", "", func(context.Context, json.RawMessage) (*protocol.ToolResult, error) {
		return protocol.TextResult("new"), nil
	})); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, send(t, rt, "tool lookup {}")).Text(); !strings.Contains(got, "new") {
		t.Errorf("after SetTools: %s", got)
	}
}

func TestSubscriptions(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	all := c.Subscribe()
	rt, other := start(t, c), start(t, c)
	mine := rt.Subscribe()
	wait(t, send(t, other, "say not me"))
	wait(t, send(t, rt, "say me"))
	s.broadcast(`{"type":"from_the_future","x":[1]}`)

	for ev, err := range all.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "from_the_future" {
			if ev.Body != nil || string(ev.Raw) != `{"type":"from_the_future","x":[1]}` {
				t.Errorf("unknown event: %+v", ev)
			}
			break
		}
	}
	seen := 0
	for ev, err := range mine.Events(t.Context()) {
		if err != nil || ev.Runtime != rt.ID() {
			t.Fatalf("event of %+v, %v", ev.Runtime, err)
		}
		seen++
		if ev.Type == "turn_finished" {
			break
		}
	}
	if seen < 4 {
		t.Errorf("%d events", seen)
	}
	mine.Close()
	for err := error(nil); err == nil; {
		if _, err = mine.Next(t.Context()); err != nil && !errors.Is(err, client.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestSlowSubscriber(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Buffer: 10})
	rt := start(t, c)
	slow := c.Subscribe()
	turn := send(t, rt, "flood 100")
	result := wait(t, turn) // nobody read, and still the turn is known
	if result.Text() != strings.Repeat("x", 100) {
		t.Errorf("text %q", result.Text())
	}
	n := 0
	var last error
	for _, err := range slow.Events(t.Context()) {
		if last = err; err == nil {
			n++
		}
	}
	if n != 10 || !errors.Is(last, client.ErrSlow) {
		t.Errorf("subscription: %d events, then %v", n, last)
	}
	n, last = 0, nil
	for _, err := range turn.Events(t.Context()) {
		if last = err; err == nil {
			n++
		}
	}
	if n != 10 || !errors.Is(last, client.ErrSlow) {
		t.Errorf("turn: %d events, then %v", n, last)
	}
}

func TestMalformedFrames(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	sub := c.Subscribe()
	for _, frame := range []string{
		``, `not json`, `[1,2]`, `null`, `{"no":"type"}`, `{"type":7}`, "{\"type\":\"\xff\xfe",
		`{"type":"agent_list_response","request_id":5}`, `{"type":"agent_list_response","request_id":"of nobody","success":true}`,
		`{"type":"update_queue","queue":7}`, `{"type":"stream_delta"}`, `{"type":"stream_delta","delta":[]}`,
		`{"type":"turn_finished","runtime":"x"}`, `{"type":"update_loop_status","emitted_at":"yesterday"}`,
	} {
		s.broadcast(frame)
	}
	if _, err := client.Call(t.Context(), c, &protocol.AppServerInfo{}); err != nil {
		t.Fatal(err)
	}
	sub.Close()
	var got []string
	for ev, err := range sub.Events(t.Context()) {
		if err == nil {
			got = append(got, ev.Type)
			if ev.Body != nil {
				t.Errorf("%s has a body", ev.Raw)
			}
		}
	}
	want := []string{"agent_list_response", "agent_list_response", "update_queue", "stream_delta", "stream_delta", "turn_finished", "update_loop_status"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A response that cannot be read fails its call only.
func TestMalformedResponse(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	rt := start(t, c)
	_, err := c.CallRaw(t.Context(), &protocol.Later{Type: "read_file", Raw: json.RawMessage(`{"success":"maybe"}`)})
	if err == nil {
		t.Error("success is no boolean, and the call succeeded")
	}
	wait(t, send(t, rt, "say on"))
}

func TestRejectedInput(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	_, err := rt.SendInput(t.Context(), protocol.CreateMessage{Messages: []protocol.InputMessage{{Role: "robot"}}})
	var failed *client.ServerError
	if !errors.As(err, &failed) || failed.Command != "input" || !strings.Contains(failed.Message, "role must be one of") {
		t.Errorf("error %v", err)
	}
	if _, err := rt.SendInput(t.Context(), protocol.CreateMessage{Messages: []protocol.InputMessage{
		{Role: "user", Content: protocol.Parts(protocol.Part{Type: "odd"})}}}); err == nil {
		t.Error("a part that cannot be written was sent")
	}
	// An input without messages has no key and still a turn.
	turn, err := rt.SendInput(t.Context(), protocol.CreateMessage{})
	if err != nil || turn.Key() != "" {
		t.Fatalf("key %q, %v", turn.Key(), err)
	}
	wait(t, turn)
}

func TestStartRuntimeFails(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	_, err := c.StartRuntime(t.Context(), protocol.RuntimeStart{})
	var failed *client.ServerError
	if !errors.As(err, &failed) || failed.Message != "runtime_start requires an agent or conversation" {
		t.Errorf("error %v", err)
	}
}

// A second start of the same runtime gives the same handle.
func TestStartTwiceAndRelease(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	rt := start(t, c)
	id := rt.ID()
	no := false
	again, err := c.StartRuntime(t.Context(), protocol.RuntimeStart{AgentID: &id.AgentID, ConversationID: &id.ConversationID, WaitForReplay: &no})
	if err != nil || again != rt {
		t.Fatalf("handle %p, want %p, %v", again, rt, err)
	}
	turn := send(t, rt, "wait")
	rt.Release()
	if _, err := turn.Wait(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("turn of a released runtime: %v", err)
	}
	if _, err := rt.Send(t.Context(), "say x"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("send to a released runtime: %v", err)
	}
}

func TestClose(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{Reconnect: &client.Backoff{}})
	started, stopped := make(chan bool), make(chan error, 1)
	rt := start(t, c, client.Tool{ExternalTool: protocol.ExternalTool{Name: "slow"},
		Run: func(ctx context.Context, _ json.RawMessage) (*protocol.ToolResult, error) {
			close(started)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil, ctx.Err()
		}})
	sub := c.Subscribe()
	turn := send(t, rt, "tool slow {}")
	call := make(chan error, 1)
	go func() {
		_, err := c.CallRaw(t.Context(), &protocol.Later{Type: "get_experiments"})
		call <- err
	}()
	until(t, "the call", func() bool { return s.received("get_experiments") == 1 })
	<-started
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if len(stopped) != 1 {
		t.Error("Close did not wait for the tool")
	}
	if err := <-call; !errors.Is(err, client.ErrClosed) {
		t.Errorf("call: %v", err)
	}
	if _, err := turn.Wait(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("turn: %v", err)
	}
	var last error
	for _, err := range sub.Events(t.Context()) {
		last = err
	}
	if !errors.Is(last, client.ErrClosed) || !errors.Is(c.Err(), client.ErrClosed) {
		t.Errorf("subscription: %v, client: %v", last, c.Err())
	}
	<-c.Done()
	if _, err := client.Call(t.Context(), c, &protocol.AppServerInfo{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("call after Close: %v", err)
	}
	if _, err := c.Subscribe().Next(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("subscription after Close: %v", err)
	}
	c.Close() // twice does no harm
}

func TestTell(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	rt := start(t, c)
	strict := string(protocol.ModeStrict)
	if err := c.Tell(t.Context(), &protocol.ChangeDeviceState{Runtime: rt.ID(), Payload: protocol.DeviceStatePayload{Mode: &strict}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the command", func() bool { return s.received("change_device_state") == 1 })
	if err := c.Tell(t.Context(), &protocol.Later{Type: "x", Raw: json.RawMessage(`[`)}); err == nil {
		t.Error("a frame that is no JSON was sent")
	}
}

// More tool calls than may run at once are refused, not queued.
func TestTooManyTools(t *testing.T) {
	s := newFakeServer(t)
	goOn := make(chan struct{})
	rt := start(t, connect(t, s, client.Options{}), client.Tool{ExternalTool: protocol.ExternalTool{Name: "slow"},
		Run: func(context.Context, json.RawMessage) (*protocol.ToolResult, error) {
			<-goOn
			return protocol.TextResult("done"), nil
		}})
	frame, err := protocol.AppendEvent(nil, rt.ID(), &protocol.ExternalToolCallRequest{RequestID: "external-tool-1", ToolName: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	for range 70 {
		s.broadcast(string(frame))
	}
	until(t, "the refusals", func() bool { return s.received("external_tool_call_response") == 6 })
	close(goOn)
	until(t, "the results", func() bool { return s.received("external_tool_call_response") == 70 })
}

// Who gives up on an input does not disturb the runtime.
func TestSendGivesUpWithItsContext(t *testing.T) {
	s := newFakeServer(t)
	rt := start(t, connect(t, s, client.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rt.Send(ctx, "say x"); !errors.Is(err, context.Canceled) || s.received("input") != 0 {
		t.Errorf("error %v", err)
	}
	turn := send(t, rt, "wait")
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := turn.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	var last error
	for _, err := range turn.Events(ctx) {
		last = err
	}
	if !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("events: %v", last)
	}
	s.release()
	wait(t, turn)
}
