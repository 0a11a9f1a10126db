package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"mneme/protocol"
)

// A fakeServer is a small App Server that works: it keeps conversations and a
// queue in memory and answers by echoing. What a message says decides what its
// turn does:
//
//	say X          answers X, one delta per word
//	wait           says "..." and runs until it is aborted or released
//	ask            asks for approval of a Bash call
//	tool N {json}  calls the external tool N
//	fail           ends in error
//	retry          says half of it, is asked again, says it all
//	flood N        N text deltas
//	drop           is taken, but the connection is cut before it is acknowledged
//
// It never sends a turn_id before the end if stock is set, as the reference.
type fakeServer struct {
	*httptest.Server
	stock bool

	running  sync.WaitGroup // turns
	mu       sync.Mutex
	conns    map[*fakeConn]struct{}
	runtimes map[protocol.Runtime]*fakeRuntime
	seen     map[string]*protocol.InputAccepted // by client_message_id
	turns    int
	accepted int      // handshakes
	log      []string // types of the frames received
	refuse   int      // HTTP status for handshakes, 0 = accept
	silent   bool     // runtime_start gets no answer
	gone     protocol.Runtime
	token    string
	// extensions are what the server has of mneme's own; nil = none.
	extensions *protocol.Extensions
}

type fakeRuntime struct {
	id      protocol.Runtime
	turn    *fakeTurn
	queue   []protocol.QueueItem
	pending []protocol.PendingControl
}

type fakeTurn struct {
	id, run  string
	keys     []string
	abort    chan struct{}
	aborted  bool
	release  chan struct{}
	released bool
	answer   chan *protocol.ApprovalResponse
	tool     chan *protocol.ExternalToolCallResponse
}

// stop aborts the turn, if there is one. The caller holds the server's mu.
func (t *fakeTurn) stop() {
	if t != nil && !t.aborted {
		t.aborted = true
		close(t.abort)
	}
}

type fakeConn struct {
	server *fakeServer
	ws     *websocket.Conn
	mu     sync.Mutex // serialises writes with their numbers
	seq    int64
	scopes map[protocol.Runtime]bool // guarded by server.mu
	// watching says that it asked for changes; guarded by server.mu.
	watching bool
}

func newFakeServer(t testing.TB) *fakeServer {
	s := startFakeServer()
	t.Cleanup(s.shutdown)
	return s
}

func startFakeServer() *fakeServer {
	s := &fakeServer{
		conns:    map[*fakeConn]struct{}{},
		runtimes: map[protocol.Runtime]*fakeRuntime{},
		seen:     map[string]*protocol.InputAccepted{},
	}
	s.Server = httptest.NewServer(s)
	return s
}

func (s *fakeServer) shutdown() {
	s.closeAll(websocket.StatusGoingAway, "")
	s.mu.Lock()
	for _, r := range s.runtimes {
		r.queue = nil
		r.turn.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
	s.Server.Close()
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse, token := s.refuse, s.token
	s.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		refuse = http.StatusUnauthorized
	}
	if refuse == 0 && r.URL.Path != "/ws" {
		refuse = http.StatusNotFound
	}
	if refuse != 0 {
		http.Error(w, "no", refuse)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	c := &fakeConn{server: s, ws: ws, scopes: map[protocol.Runtime]bool{}}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.accepted++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		ws.CloseNow()
	}()
	ws.SetReadLimit(1 << 20)
	for {
		_, data, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		c.handle(data)
	}
}

// closeAll closes every connection with a code; 0 cuts them.
func (s *fakeServer) closeAll(code websocket.StatusCode, reason string) {
	s.mu.Lock()
	var conns []*fakeConn
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		if code == 0 {
			c.ws.CloseNow()
		} else {
			c.ws.Close(code, reason)
		}
	}
}

func (s *fakeServer) received(typ string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if l == typ {
			n++
		}
	}
	return n
}

// broadcast sends raw bytes to all connections.
func (s *fakeServer) broadcast(raw string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.write([]byte(raw))
	}
}

// publish sends an event to the subscribers. The caller holds mu.
func (s *fakeServer) publish(rt protocol.Runtime, body protocol.EventBody) {
	frame, err := protocol.AppendEvent(nil, rt, body)
	if err != nil {
		panic(err)
	}
	for c := range s.conns {
		if c.scopes[rt] {
			c.event(frame, body.EventType())
		}
	}
}

// change tells of a change to those who asked. It says how many did.
func (s *fakeServer) change(body protocol.EventBody) (told int) {
	frame, err := protocol.AppendEvent(nil, protocol.Runtime{}, body)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.watching {
			c.write(frame)
			told++
		}
	}
	return told
}

func (c *fakeConn) event(body []byte, typ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.ws.Write(context.Background(), websocket.MessageText, protocol.AppendEnvelope(nil, body, typ, c.seq, time.Now(), "id"))
}

func (c *fakeConn) write(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws.Write(context.Background(), websocket.MessageText, frame)
}

// handle answers one command, holding the server's mu.
func (c *fakeConn) handle(data []byte) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	f, cmd, err := protocol.DecodeCommand(data)
	s.log = append(s.log, f.Type)
	info, _ := protocol.Lookup(f.Type)
	if err != nil {
		var bad *protocol.PayloadError
		if errors.As(err, &bad) {
			c.frame("input_accepted", f.RequestID, &protocol.InputAccepted{Runtime: bad.Runtime, Error: bad.Ack})
			return
		}
		if info.Response == "" {
			c.frame("error", f.RequestID, &protocol.ErrorEvent{Code: "invalid_request", Error: err.Error()})
			return
		}
		frame, _ := protocol.AppendFailure(nil, info.Response, f.RequestID, err.Error(), nil)
		c.write(frame)
		return
	}
	reply := func(body any) {
		frame, err := protocol.AppendResponse(nil, info.Response, f.RequestID, body)
		if err != nil {
			panic(err)
		}
		c.write(frame)
	}
	if f.Runtime != nil {
		c.scopes[*f.Runtime] = true
	}
	switch cmd := cmd.(type) {
	case *protocol.AppServerInfo:
		info := &protocol.AppServerInfoResponse{Backend: "local", ProtocolVersion: 1}
		info.Capabilities.Mneme = s.extensions
		reply(info)
	case *protocol.WatchChanges:
		c.watching = cmd.Enabled
		reply(&protocol.WatchChangesResponse{Enabled: cmd.Enabled})
	case *protocol.AgentRetrieve:
		frame, _ := protocol.AppendFailure(nil, info.Response, f.RequestID, "Agent "+cmd.AgentID+" not found", info.NewResponse())
		c.write(frame)
	case *protocol.ListMemory:
		for i := range 3 {
			reply(&protocol.ListMemoryResponse{Entries: []protocol.MemoryEntry{{RelativePath: fmt.Sprint(i)}}, Total: 3, Done: i == 2})
		}
	case *protocol.RuntimeStart:
		c.start(f.RequestID, cmd)
	case *protocol.Sync:
		c.replay(s.runtimes[cmd.Runtime])
		reply(&protocol.SyncResponse{Runtime: cmd.Runtime})
	case *protocol.Input:
		c.input(f.RequestID, cmd)
	case *protocol.AbortMessage:
		r := s.runtimes[cmd.Runtime]
		running := r.turn != nil
		r.turn.stop()
		reply(&protocol.AbortMessageResponse{Runtime: cmd.Runtime, Aborted: running})
	case *protocol.RemoveQueueItem:
		r := s.runtimes[cmd.Runtime]
		removed := []protocol.QueueRemoval{{ClientMessageID: r.queue[0].ClientMessageID, Disposition: "cancelled"}}
		r.queue = nil
		reply(&protocol.RemoveQueueItemResponse{ItemID: cmd.ItemID})
		s.publish(r.id, &protocol.QueueUpdate{Removed: removed})
	case *protocol.ExternalToolsUpdate:
		reply(&protocol.ExternalToolsUpdateResponse{})
	case *protocol.ExternalToolCallResponse:
		for _, r := range s.runtimes {
			if r.turn != nil {
				r.turn.tool <- cmd
			}
		}
	case *protocol.Later:
		if cmd.Type == "get_experiments" {
			return // no answer at all
		}
		reply(cmd)
	case *protocol.ChangeDeviceState:
	default:
		panic(fmt.Sprintf("fake server: %s", f.Type))
	}
}

func (c *fakeConn) frame(typ string, id *string, body any) {
	frame, err := protocol.AppendFrame(nil, typ, id, body)
	if err != nil {
		panic(err)
	}
	c.write(frame)
}

func (c *fakeConn) start(id *string, cmd *protocol.RuntimeStart) {
	s := c.server
	if s.silent {
		return
	}
	info, _ := protocol.Lookup("runtime_start")
	if err := cmd.Check(); err != nil {
		frame, _ := protocol.AppendFailure(nil, info.Response, id, err.Error(), info.NewResponse())
		c.write(frame)
		return
	}
	rt := protocol.Runtime{AgentID: "agent-1", ConversationID: fmt.Sprintf("conv-%d", len(s.runtimes)+1)}
	if cmd.AgentID != nil {
		rt.AgentID = *cmd.AgentID
	}
	if cmd.ConversationID != nil {
		rt.ConversationID = *cmd.ConversationID
	}
	if rt == s.gone {
		frame, _ := protocol.AppendFailure(nil, info.Response, id, "Agent "+rt.AgentID+" not found", info.NewResponse())
		c.write(frame)
		return
	}
	r := s.runtimes[rt]
	if r == nil {
		r = &fakeRuntime{id: rt}
		s.runtimes[rt] = r
	}
	c.scopes[rt] = true
	if cmd.WaitForReplay != nil && *cmd.WaitForReplay {
		defer func() {
			frame, _ := protocol.AppendResponse(nil, info.Response, id, &protocol.RuntimeStartResponse{Runtime: &rt})
			c.write(frame)
		}()
		c.replay(r)
		return
	}
	frame, _ := protocol.AppendResponse(nil, info.Response, id, &protocol.RuntimeStartResponse{Runtime: &rt})
	c.write(frame)
	c.replay(r)
}

func (c *fakeConn) replay(r *fakeRuntime) {
	if r == nil {
		return
	}
	send := func(body protocol.EventBody) {
		frame, err := protocol.AppendEvent(nil, r.id, body)
		if err != nil {
			panic(err)
		}
		c.event(frame, body.EventType())
	}
	for _, p := range r.pending {
		send(&protocol.ControlRequest{RequestID: p.RequestID, Request: p.Request, ConversationID: r.id.ConversationID})
	}
	send(&protocol.DeviceStatusUpdate{DeviceStatus: protocol.DeviceStatus{PendingControlRequests: r.pending}})
	send(c.server.loop(r))
	send(&protocol.QueueUpdate{Queue: r.queue})
	send(&protocol.SubagentUpdate{})
}

func (s *fakeServer) loop(r *fakeRuntime) *protocol.LoopStatusUpdate {
	loop := protocol.LoopStatus{Status: protocol.WaitingOnInput}
	if r.turn != nil {
		loop.Status = protocol.ProcessingAPIResponse
		loop.ActiveRunIDs = []string{r.turn.run}
		loop.ClientMessageIDsByRunID = map[string][]string{r.turn.run: r.turn.keys}
		if !s.stock {
			loop.TurnID = r.turn.id
		}
	}
	return &protocol.LoopStatusUpdate{LoopStatus: loop}
}

func (c *fakeConn) input(id *string, cmd *protocol.Input) {
	s := c.server
	r := s.runtimes[cmd.Runtime]
	if a, ok := cmd.Payload.(*protocol.ApprovalResponse); ok {
		ack := &protocol.InputAccepted{Runtime: cmd.Runtime, Accepted: len(r.pending) > 0 && r.pending[0].RequestID == a.RequestID}
		if !ack.Accepted {
			ack.Error = "Approval request is no longer pending"
		} else {
			r.pending = nil
			r.turn.answer <- a
		}
		c.frame("input_accepted", id, ack)
		return
	}
	msg := cmd.Payload.(*protocol.CreateMessage)
	key, text := "", ""
	if len(msg.Messages) > 0 {
		key, text = msg.Messages[0].ClientMessageID, msg.Messages[0].Content.Text()
	}
	if ack := s.seen[key]; key != "" && ack != nil {
		c.frame("input_accepted", id, ack)
		return
	}
	ack := &protocol.InputAccepted{Runtime: cmd.Runtime, Accepted: true, Disposition: protocol.Started}
	s.seen[key] = ack
	if r.turn != nil {
		ack.Disposition = protocol.Queued
		c.frame("input_accepted", id, ack)
		r.queue = append(r.queue, protocol.QueueItem{ID: "q", ClientMessageID: key, Kind: "message", Source: "user",
			Content: protocol.Text(text), EnqueuedAt: protocol.FormatTime(time.Now())})
		s.publish(r.id, &protocol.QueueUpdate{Queue: r.queue})
		return
	}
	turn := s.newTurn(r, key)
	if !s.stock {
		ack.TurnID = turn.id
	}
	if text == "drop" {
		s.running.Go(func() { s.run(r, turn, "say after all") })
		c.ws.CloseNow()
		return
	}
	c.frame("input_accepted", id, ack)
	s.running.Go(func() { s.run(r, turn, text) })
}

// newTurn makes the runtime's turn. The caller holds mu.
func (s *fakeServer) newTurn(r *fakeRuntime, key string) *fakeTurn {
	s.turns++
	turn := &fakeTurn{id: fmt.Sprintf("turn-%d", s.turns), run: fmt.Sprintf("step-%d", s.turns), abort: make(chan struct{}),
		release: make(chan struct{}), answer: make(chan *protocol.ApprovalResponse, 1), tool: make(chan *protocol.ExternalToolCallResponse, 1)}
	if key != "" {
		turn.keys = []string{key}
	}
	r.turn = turn
	return turn
}

// release lets the waiting turns go on.
func (s *fakeServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runtimes {
		if r.turn != nil && !r.turn.released {
			r.turn.released = true
			close(r.turn.release)
		}
	}
}

// run is a turn, from its first event to its last.
func (s *fakeServer) run(r *fakeRuntime, turn *fakeTurn, text string) {
	publish := func(body protocol.EventBody) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.publish(r.id, body)
	}
	s.mu.Lock()
	s.publish(r.id, s.loop(r))
	s.mu.Unlock()
	done := &protocol.TurnFinished{TurnID: turn.id, StopReason: protocol.StopEndTurn, RunID: turn.run}
	head := func(id string) protocol.DeltaHead { return protocol.DeltaHead{ID: id, RunID: turn.run} }
	say := func(id, text string) {
		publish(&protocol.StreamDelta{Delta: &protocol.AssistantDelta{DeltaHead: head(id),
			Content: protocol.Parts(protocol.TextPart(text))}})
	}
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "say":
		for w := range strings.SplitSeq(rest, " ") {
			say("message-"+turn.id, w+" ")
		}
	case "wait":
		say("message-"+turn.id, "...")
		select {
		case <-turn.abort:
			done.StopReason = protocol.StopCancelled
		case <-turn.release:
		}
	case "ask":
		request := protocol.CanUseTool{Subtype: "can_use_tool", ToolName: "Bash", ToolCallID: "call-1"}
		s.mu.Lock()
		r.pending = []protocol.PendingControl{{RequestID: "perm-call-1", Request: request}}
		s.publish(r.id, &protocol.ControlRequest{RequestID: "perm-call-1", Request: request, ConversationID: r.id.ConversationID})
		s.mu.Unlock()
		select {
		case a := <-turn.answer:
			if a.Decision.Behavior == protocol.Allow {
				say("message-"+turn.id, "allowed")
			} else {
				say("message-"+turn.id, "denied: "+*a.Decision.Message)
			}
		case <-turn.abort:
			done.StopReason = protocol.StopCancelled
		}
	case "tool":
		name, input, _ := strings.Cut(rest, " ")
		scope, name, scoped := strings.Cut(name, "/")
		if !scoped {
			scope, name = "", scope
		}
		req := &protocol.ExternalToolCallRequest{RequestID: "external-tool-1", ToolCallID: "call-1", ToolName: name, Input: protocol.Object(input)}
		if scoped {
			req.ScopeID = &scope
		}
		frame, err := protocol.AppendEvent(nil, r.id, req)
		if err != nil {
			panic(err)
		}
		s.broadcast(string(frame))
		select {
		case a := <-turn.tool:
			out, _ := protocol.Marshal(a)
			say("message-"+turn.id, string(out))
		case <-turn.abort:
		}
	case "fail":
		publish(&protocol.StreamDelta{Delta: &protocol.LoopErrorDelta{Message: "no model", StopReason: "error"}})
		done.StopReason, done.Error = protocol.StopError, "no model"
	case "retry":
		say("message-void", "half of")
		publish(&protocol.StreamDelta{Delta: &protocol.RetryDelta{DeltaHead: head("lifecycle"), Reason: "llm_api_error", Attempt: 1}})
		say("message-"+turn.id, "half of it")
		publish(&protocol.StreamDelta{SubagentID: "sub", Delta: &protocol.AssistantDelta{DeltaHead: head("m"), Content: protocol.Text("not mine")}})
	case "flood":
		var n int
		fmt.Sscan(rest, &n)
		for range n {
			say("message-"+turn.id, "x")
		}
	}
	publish(&protocol.StreamDelta{Delta: &protocol.UsageDelta{DeltaHead: head("usage"), Usage: protocol.Usage{PromptTokens: 10, TotalTokens: 11}}})
	s.finish(r, done)
}

// finish ends the turn and takes the next input from the queue.
func (s *fakeServer) finish(r *fakeRuntime, done *protocol.TurnFinished) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.turn, r.pending = nil, nil
	s.publish(r.id, s.loop(r))
	s.publish(r.id, done)
	if len(r.queue) == 0 {
		return
	}
	item := r.queue[0]
	r.queue = r.queue[1:]
	s.publish(r.id, &protocol.StreamDelta{Delta: &protocol.UserDelta{Content: item.Content, OTID: item.ClientMessageID}})
	s.publish(r.id, &protocol.QueueUpdate{Queue: r.queue, Removed: []protocol.QueueRemoval{{ClientMessageID: item.ClientMessageID, Disposition: "dequeued"}}})
	turn := s.newTurn(r, item.ClientMessageID)
	s.running.Go(func() { s.run(r, turn, item.Content.Text()) })
}
