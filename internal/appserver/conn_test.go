package appserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/appserver"
	"mneme/internal/auth"
	"mneme/internal/llm/fake"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/transcript"
	"mneme/protocol"
)

const patience = transcript.Patience

// A peer is a client of the server under test.
type peer struct {
	t  testing.TB
	ws *websocket.Conn
}

func dial(t testing.TB, s *transcript.Server) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, s.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	t.Cleanup(func() { ws.CloseNow() })
	return &peer{t, ws}
}

func (p *peer) send(text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next frame.
func (p *peer) read() (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	_, data, err := p.ws.Read(ctx)
	return string(data), err
}

// until reads until a frame holds the text, and returns it.
func (p *peer) until(text string) string {
	p.t.Helper()
	for {
		f, err := p.read()
		if err != nil {
			p.t.Fatalf("wait for %s: %v", text, err)
		}
		if strings.Contains(f, text) {
			return f
		}
	}
}

// start makes an agent and subscribes to its own conversation.
func start(t testing.TB, s *transcript.Server) (scope agent.Scope, rt string) {
	t.Helper()
	ag, err := s.Roster.CreateAgent(t.Context(), roster.AgentSpec{Name: "Ada"})
	if err != nil {
		t.Fatal(err)
	}
	_, conv, err := s.Roster.Resolve(t.Context(), ag.ID, agent.DefaultConversation)
	if err != nil {
		t.Fatal(err)
	}
	return agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}, fmt.Sprintf(`{"agent_id":%q,"conversation_id":"default"}`, ag.ID)
}

func (p *peer) sync(rt string) {
	p.t.Helper()
	p.send(`{"type":"sync","request_id":"s","runtime":` + rt + `}`)
	p.until("sync_response")
}

// flood publishes mib MiB of notes into a scope.
func flood(s *transcript.Server, scope agent.Scope, mib int) {
	note := agent.Status{Level: "info", Message: strings.Repeat("x", 64<<10)}
	for range mib * 16 {
		s.Runtime.Notify(scope, note)
	}
}

// Who does not read is closed with 1013; who reads gets everything.
func TestSlowReaderIsClosed(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	s.Door.SetCloseGrace(10 * patience) // the slow one reads again when the flood is over
	scope, rt := start(t, s)
	slow, quick := dial(t, s), dial(t, s)
	slow.sync(rt)
	quick.sync(rt)
	const mib = 40
	read := make(chan struct{}, mib) // a token per MiB that the quick one has
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(read)
		for n := range mib * 16 {
			if _, err := quick.read(); err != nil {
				t.Errorf("the other connection broke after %d frames: %v", n, err)
				return
			}
			if n%16 == 15 {
				read <- struct{}{}
			}
		}
	})
	for n := range mib {
		flood(s, scope, 1)
		if n >= 4 {
			<-read // however slow the machine is, the quick one keeps up
		}
	}
	wg.Wait()
	var err error
	for err == nil {
		_, err = slow.read()
	}
	if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("the slow connection ended with %v, want close code 1013", err)
	}
	quick.sync(rt)
}

// Whoever reads gets all answers, however many requests went ahead of them.
func TestAnswersWaitForTheirReader(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	scope, _ := start(t, s)
	text := []byte(strings.Repeat("\U0001F600", 99_000))
	var files []memory.FileChange
	for n := range 60 {
		files = append(files, memory.FileChange{Path: fmt.Sprintf("f%d.md", n), Content: text})
	}
	if _, _, err := s.Memory.Write(t.Context(), memory.Author{}, scope.AgentID, files, ""); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, command string
		sent, want    int // want counts frames
	}{
		{"many requests", `{"type":"read_memory_file","request_id":"r","path":"f1.md","agent_id":%q}`, 100, 100},
		{"one request with many answers", `{"type":"list_memory","request_id":"r","agent_id":%q}`, 1, 12},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := dial(t, s)
			for range tt.sent {
				p.send(fmt.Sprintf(tt.command, scope.AgentID))
			}
			time.Sleep(300 * time.Millisecond) // time to be flooded in
			for range tt.want {
				p.until(`"request_id":"r","success":true`)
			}
		})
	}
}

// An update_model that waits for a provider holds up what builds on it, not what
// ends or serves a turn.
func TestUpdateModelKeepsItsPlace(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	hang := make(chan struct{})
	s.Door.SetHandler("update_model", func() {
		select {
		case <-hang:
		case <-t.Context().Done():
		}
	})
	_, rt := start(t, s)
	p := dial(t, s)
	p.send(`{"type":"update_model","request_id":"model","runtime":` + rt + `,"payload":{"model_handle":"some/model"}}`)
	p.send(`{"type":"abort_message","request_id":"abort","runtime":` + rt + `}`)
	p.until(`"request_id":"abort"`)
	p.send(`{"type":"app_server_info","request_id":"info"}`)
	p.until(`"request_id":"info"`)
	p.send(`{"type":"update_model","request_id":"model 2","runtime":` + rt + `,"payload":{"model_handle":"other/model"}}`)
	p.send(`{"type":"sync","request_id":"sync","runtime":` + rt + `}`)
	close(hang)
	var order []string
	for len(order) < 3 {
		f := p.until(`"request_id":`)
		for _, id := range []string{"model", "model 2", "sync"} {
			if strings.Contains(f, fmt.Sprintf(`_response","request_id":%q`, id)) {
				order = append(order, id)
			}
		}
	}
	if diff := cmp.Diff([]string{"model", "model 2", "sync"}, order); diff != "" {
		t.Errorf("answers, -want +got:\n%s", diff)
	}
}

// However much a conversation says, a client that never reads costs little.
func TestNeverReadingClientIsBounded(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	scope, rt := start(t, s)
	dial(t, s).sync(rt)
	before := heap()
	for range 4 {
		flood(s, scope, 30)
		if used := int64(heap()) - int64(before); used > 64<<20 {
			t.Fatalf("%d MiB are held for a client that does not read", used>>20)
		}
	}
}

func heap() uint64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Every frame is answered, whatever it is, and the connection stays.
func TestMalformedFramesAreAnswered(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	p := dial(t, s)
	bad := []string{
		"", "not json", "[1,2]", "null", `"text"`, "7", `{"hello":1}`, `{"type":5}`, `{"type":""}`, `{"type":"no_such_command","request_id":"x"}`,
		`{"type":"runtime_start"}`, `{"type":"runtime_start","request_id":1}`, `{"type":"runtime_start","request_id":"r","mode":"bogus"}`,
		`{"type":"sync","request_id":"s","runtime":{"agent_id":"","conversation_id":"default"}}`,
		`{"type":"sync","runtime":{"agent_id":"a","conversation_id":"default"},"recover_approvals":"x"}`,
		`{"type":"input","runtime":{"agent_id":"nobody","conversation_id":"default"},"payload":7}`,
		`{"type":"input","request_id":"i","runtime":{"agent_id":"nobody","conversation_id":"default"},"payload":{"kind":"create_message","messages":[]}}`,
		`{"type":"change_device_state","runtime":{"agent_id":"nobody","conversation_id":"default"},"payload":{}}`,
		`{"type":"external_tool_call_response","request_id":"nothing","error":"x"}`,
		`{"type":"execute_command","request_id":"e","runtime":{"agent_id":"a","conversation_id":"c"},"command_id":"clear"}`,
		`{"type":"terminal_input","terminal_id":"t","data":"x"}`, `{"type":"request_state"}`, `{"type":"ping"}`,
		`{"type":"agent_list","request_id":"l","query":{"limit":-1}}`, "\xff\xfe{}", `{"type":"pong"`, strings.Repeat("[", 20_000),
	}
	const total = 10_000
	go func() {
		for n := range total {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := p.ws.Write(ctx, websocket.MessageText, []byte(bad[n%len(bad)])); err != nil {
				t.Errorf("write: %v", err)
			}
			cancel()
		}
	}()
	for n := range total {
		f, err := p.read()
		if err != nil {
			t.Fatalf("after %d answers: %v", n, err)
		}
		var head struct {
			Type     string  `json:"type"`
			Error    string  `json:"error"`
			Success  *bool   `json:"success"`
			Accepted *bool   `json:"accepted"`
			ID       *string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(f), &head); err != nil {
			t.Fatalf("answer %d is not JSON: %s", n, f)
		}
		refused := head.Type == "error" || head.Success != nil && !*head.Success || head.Accepted != nil && !*head.Accepted
		if !refused || head.Error == "" {
			t.Fatalf("answer %d is no refusal with a text: %s", n, f)
		}
	}
	p.send(`{"type":"app_server_info","request_id":"still here"}`)
	p.until("still here")
}

// An error frame names the request that it answers, if that has a name.
func TestErrorFrameNamesItsRequest(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	p := dial(t, s)
	for command, want := range map[string]string{
		`{"type":"no_such_command","request_id":"x"}`: `{"type":"error","request_id":"x","code":"`,
		`{"type":"no_such_command"}`:                  `{"type":"error","code":"`,
		`{"type":"no_such_command","request_id":7}`:   `{"type":"error","code":"`,
	} {
		p.send(command)
		if got, err := p.read(); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, %v, want %s", command, got, err, want)
		}
	}
}

// Commands that are known but not built say so by their own response.
func TestCommandsThatAreNotBuilt(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	p := dial(t, s)
	for _, info := range protocol.Commands {
		if info.Status != protocol.NotYet || info.Response == "" {
			continue
		}
		fields := map[string]any{"type": info.Name, "request_id": "r"}
		if info.Runtime != protocol.RuntimeNone {
			fields["runtime"] = map[string]string{"agent_id": "a", "conversation_id": "c"}
		}
		for _, name := range []string{"agent_id", "query", "text"} {
			fields[name] = "x"
		}
		if info.Name == "watch_changes" {
			fields["enabled"] = true
		}
		data, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		p.send(string(data))
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		out, err := protocol.ReadOutcome([]byte(f))
		if err != nil || out.OK || !strings.Contains(out.Error, "not available") {
			t.Errorf("%s is answered by %s", info.Name, f)
		}
		if info.RequestID != protocol.RequestIDNone && !strings.Contains(f, `"type":"`+info.Response+`"`) {
			t.Errorf("%s is answered by %s, want its %s", info.Name, f, info.Response)
		}
	}
}

// Every command of the protocol that is called built has a handler.
func TestAllBuiltCommandsAnswer(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	p := dial(t, s)
	for _, info := range protocol.Commands {
		if info.Status != protocol.Built || info.Response == "" {
			continue
		}
		p.send(fmt.Sprintf(`{"type":%q,"request_id":"r","runtime":{"agent_id":"a","conversation_id":"c"}}`, info.Name))
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		for strings.Contains(f, `"event_seq"`) { // the replay of sync
			if f, err = p.read(); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(f, "not available") {
			t.Errorf("%s is called built: %s", info.Name, f)
		}
	}
}

func TestFrameSizes(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	p, q := dial(t, s), dial(t, s)
	large := `{"type":"app_server_info","request_id":"large","padding":"` + strings.Repeat("x", 12<<20) + `"}`
	var wg sync.WaitGroup
	for _, c := range []*peer{p, q} {
		wg.Go(func() {
			c.send(large)
			c.until(`"large"`)
		})
	}
	wg.Wait()
	// Binary messages are read like text.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.ws.Write(ctx, websocket.MessageBinary, []byte(`{"type":"app_server_info","request_id":"binary"}`)); err != nil {
		t.Fatal(err)
	}
	p.until("binary")
	if testing.Short() {
		return
	}
	over := bytes.Repeat([]byte("x"), 100<<20+1)
	go p.ws.Write(ctx, websocket.MessageText, over) //nolint:errcheck // it breaks off
	_, err := p.read()
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusMessageTooBig || closed.Reason != "" {
		t.Errorf("a frame above the limit ends with %v, want close code 1009 without reason", err)
	}
	q.send(`{"type":"app_server_info","request_id":"unharmed"}`)
	q.until("unharmed")
}

// handshake opens a WebSocket by hand.
func handshake(t *testing.T, s *transcript.Server, extra string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.HTTP.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	path := "/ws"
	if p, rest, ok := strings.Cut(extra, "|"); ok {
		path, extra = p, rest
	}
	version := "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	if strings.Contains(extra, "Sec-WebSocket-Version") {
		version = ""
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s%s\r\n", path, version, extra)
	r := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read head: %v after %q", err, head.String())
		}
		head.WriteString(line)
		if line == "\r\n" {
			return conn, r, head.String()
		}
	}
}

// Who does not answer three pings is dropped; the pings are empty.
func TestHalfOpenConnectionIsDropped(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{PingEvery: 20 * time.Millisecond})
	alive := dial(t, s)
	go func() { // reading answers pings
		for {
			if _, _, err := alive.ws.Read(context.Background()); err != nil {
				return
			}
		}
	}()
	_, r, _ := handshake(t, s, "")
	rest, err := io.ReadAll(r)
	if want := []byte{0x89, 0, 0x89, 0, 0x89, 0}; !bytes.Equal(rest, want) {
		t.Errorf("a silent client got % x (%v), want three pings and the end", rest, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := alive.ws.Ping(ctx); err != nil {
		t.Errorf("the connection that answers: %v", err)
	}
	alive.ws.CloseNow()
}

func TestUpgrade(t *testing.T) {
	open := transcript.Start(t, fake.New(), transcript.Options{Origins: []string{"https://app.example"}})
	token := auth.Options{Mode: auth.ModeToken, SHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"} // "test"
	guarded := transcript.Start(t, fake.New(), transcript.Options{Auth: token})
	const rejected = "Connection: close\r\nContent-Length: 0\r\n\r\n"
	tests := []struct {
		name   string
		server *transcript.Server
		extra  string
		want   string // beginning of the answer
	}{
		{"accepted", open, "", "HTTP/1.1 101 Switching Protocols\r\n"},
		{"split channels", open, "/ws?channel=|", "HTTP/1.1 426 Upgrade Required\r\n" + rejected},
		{"split channels before the credential", guarded, "/ws?channel=control|", "HTTP/1.1 426 Upgrade Required\r\n" + rejected},
		{"no credential", guarded, "", "HTTP/1.1 401 missing websocket bearer token\r\n" + rejected},
		{"wrong credential", guarded, "Authorization: Bearer wrong\r\n", "HTTP/1.1 401 invalid websocket bearer token\r\n" + rejected},
		{"credential before Origin", guarded, "Origin: http://evil.example\r\n", "HTTP/1.1 401 missing"},
		{"credential", guarded, "Authorization: bearer   test\r\n", "HTTP/1.1 101"},
		{"foreign Origin with a credential", guarded, "Authorization: Bearer test\r\nOrigin: http://evil.example\r\n", "HTTP/1.1 101"},
		{"foreign Origin", open, "Origin: http://evil.example\r\n", "HTTP/1.1 403 Forbidden\r\n" + rejected},
		{"allowed Origin", open, "Origin: https://app.example\r\n", "HTTP/1.1 101"},
		{"version", open, "Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "HTTP/1.1 400 Bad Request\r\n"},
		{"key", open, "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", "HTTP/1.1 400 Bad Request\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, head := handshake(t, tt.server, tt.extra)
			if !strings.HasPrefix(head, tt.want) {
				t.Errorf("answer %q, want it to begin with %q", head, tt.want)
			}
		})
	}
	_, _, head := handshake(t, open, "Sec-WebSocket-Protocol: first, second\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
	if !strings.Contains(head, "Sec-Websocket-Protocol: first\r\n") || strings.Contains(head, "Extensions") {
		t.Errorf("answer %q: want the first subprotocol and no compression", head)
	}
}

func TestHTTP(t *testing.T) {
	token := auth.Options{Mode: auth.ModeToken, SHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
	s := transcript.Start(t, fake.New(), transcript.Options{Auth: token})
	tests := []struct {
		method, path, token string
		status              int
		kind, body          string // body is a beginning
	}{
		{"GET", "/readyz", "", 200, "text/plain", "ok\n"},
		{"POST", "/readyz", "", 200, "text/plain", "ok\n"},
		{"GET", "/app-server-info", "", 401, "application/json", `{"error":"missing websocket bearer token"}`},
		{"GET", "/app-server-info", "test", 200, "application/json", `{"type":"app_server_info_response","request_id":"http-info","success":true,`},
		{"GET", "/ws", "test", 404, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, s.HTTP.URL+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.token != "" {
				req.Header.Set("Authorization", "Bearer "+tt.token)
			}
			resp, err := s.HTTP.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.kind || !strings.HasPrefix(string(body), tt.body) {
				t.Errorf("%d %s %q", resp.StatusCode, resp.Header.Get("Content-Type"), body)
			}
		})
	}
}

// A server that stops tells its clients, after what they have to hear.
func TestCloseTellsClients(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	scope, rt := start(t, s)
	p := dial(t, s)
	p.sync(rt)
	s.Runtime.Notify(scope, agent.Status{Level: "info", Message: "last words"})
	var wg sync.WaitGroup
	wg.Go(s.Close)
	var err error
	heard := false
	for err == nil {
		var f string
		f, err = p.read()
		heard = heard || strings.Contains(f, "last words")
	}
	wg.Wait()
	if !heard {
		t.Error("what was said before is lost")
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the connection ended with %v, want close code 1001", err)
	}
	if _, _, err := websocket.Dial(t.Context(), s.URL(), nil); err == nil {
		t.Error("a closed door takes connections")
	}
}

// The commands of one connection that concern runtimes take effect in the order
// in which they came, however many are sent at once.
func TestOrder(t *testing.T) {
	s := transcript.Start(t, fake.NewFunc(nil), transcript.Options{})
	_, rt := start(t, s)
	p := dial(t, s)
	for i := range 50 {
		p.send(fmt.Sprintf(`{"type":"sync","request_id":"s%d","runtime":%s}`, i, rt))
		p.send(fmt.Sprintf(`{"type":"agent_list","request_id":"l%d"}`, i))
	}
	var syncs []string
	var want []string
	lists := 0
	for i := range 50 {
		want = append(want, fmt.Sprintf("s%d", i))
	}
	for len(syncs) < 50 || lists < 50 {
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		var head struct{ Type, Request_ID string }
		if err := json.Unmarshal([]byte(f), &head); err != nil {
			t.Fatal(err)
		}
		switch head.Type {
		case "sync_response":
			syncs = append(syncs, head.Request_ID)
		case "agent_list_response":
			lists++
		}
	}
	if diff := cmp.Diff(want, syncs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A panic is the failure of its command only.
func TestPanicIsAnswered(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	boom := func() { panic("boom") }
	for _, name := range []string{"app_server_info", "agent_list", "external_tool_call_response"} {
		s.Door.SetHandler(name, boom)
	}
	p := dial(t, s)
	p.send(`{"type":"app_server_info","request_id":"1"}`)
	p.send(`{"type":"external_tool_call_response","request_id":"2","error":"x"}`)
	p.send(`{"type":"agent_list","request_id":"3"}`)
	for _, want := range []string{
		`{"type":"app_server_info_response","request_id":"1","success":false,"error":"Internal error`,
		`{"type":"error","request_id":"2","code":"internal","error":"Internal error`,
		`{"type":"agent_list_response","request_id":"3","success":false,"error":"Internal error`,
	} {
		if got, err := p.read(); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestDetachedCommandsAreBounded(t *testing.T) {
	s := transcript.Start(t, fake.New(), transcript.Options{})
	const commands = 3 * appserver.MaxDetached
	var running, most atomic.Int32
	entered, leave := make(chan struct{}, commands), make(chan struct{})
	s.Door.SetHandler("agent_list", func() {
		most.Store(max(most.Load(), running.Add(1)))
		entered <- struct{}{}
		<-leave
		running.Add(-1)
	})
	p := dial(t, s)
	for n := range commands {
		p.send(fmt.Sprintf(`{"type":"agent_list","request_id":"%d"}`, n))
	}
	for n := range commands {
		<-entered
		if n >= appserver.MaxDetached-1 {
			leave <- struct{}{}
		}
	}
	close(leave)
	for range commands {
		p.until("agent_list_response")
	}
	if n := most.Load(); n != appserver.MaxDetached {
		t.Errorf("%d commands ran side by side, want %d", n, appserver.MaxDetached)
	}
}

// A turn that nobody watches any more is cancelled, unless it asked not to be.
func TestOrphanedTurn(t *testing.T) {
	tests := []struct {
		name, keep string
		want       agent.StopReason
	}{
		{"cancelled", "", agent.StopCancelled},
		{"kept", `,"keep_running":true`, agent.StopEndTurn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			open := make(chan struct{})
			model := fake.New(fake.Answer{fake.Gate(open), fake.Text("done")})
			s := transcript.Start(t, model, transcript.Options{OrphanGrace: time.Millisecond})
			_, rt := start(t, s)
			p := dial(t, s)
			p.send(`{"type":"input","request_id":"i","runtime":` + rt +
				`,"payload":{"kind":"create_message","messages":[{"role":"user","content":"hi"}]` + tt.keep + `}}`)
			var ack struct {
				Turn string `json:"turn_id"`
			}
			if err := json.Unmarshal([]byte(p.until("input_accepted")), &ack); err != nil {
				t.Fatal(err)
			}
			p.ws.CloseNow()
			if tt.keep != "" {
				close(open)
			}
			var turn *agent.Turn
			for deadline := time.Now().Add(patience); turn == nil || turn.StopReason == ""; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the turn goes on")
				}
				var err error
				if turn, err = s.Store.Turn(t.Context(), ack.Turn); err != nil {
					t.Fatal(err)
				}
			}
			if turn.StopReason != tt.want {
				t.Errorf("the turn ended with %q, want %q", turn.StopReason, tt.want)
			}
		})
	}
}

// BenchmarkStream takes one long answer from the model to a client. One op is
// one piece of text.
func BenchmarkStream(b *testing.B) {
	answer := fake.Answer{}
	for range b.N {
		answer = append(answer, fake.Text("word "))
	}
	s := transcript.Start(b, fake.New(answer), transcript.Options{})
	_, rt := start(b, s)
	p := dial(b, s)
	b.ResetTimer()
	p.send(`{"type":"input","request_id":"i","runtime":` + rt +
		`,"payload":{"kind":"create_message","messages":[{"role":"user","content":"hi"}]}}`)
	p.until(`"turn_finished"`)
}
