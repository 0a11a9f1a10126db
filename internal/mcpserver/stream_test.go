package mcpserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/memory"
)

// A client that does not read holds up nobody else, and is cut off once it is too
// far behind.
func TestSlowReader(t *testing.T) {
	r := start(t, nil)
	id := r.agent("vole")
	slow := r.session("2025-11-25", "")
	for i := range 200 {
		uri := fmt.Sprintf("letta://agents/%s/memory/notes/%s%03d.md", id, strings.Repeat("x", 90), i)
		r.legacy(slow, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":%q}}`, uri))
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n",
		strings.TrimPrefix(r.http.URL, "http://"), token, slow)

	updated := make(chan string, 1000)
	cs := r.connect(true, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
	})
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "letta://agents/" + id + "/memory"}); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		var changes []memory.FileChange
		for i := range 200 {
			changes = append(changes, memory.FileChange{Path: fmt.Sprintf("notes/%s%03d.md", strings.Repeat("x", 90), i), Content: fmt.Appendf(nil, "%d", round)})
		}
		if _, _, err := r.app.Memory.Write(t.Context(), memory.Author{}, id, changes, "round"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-updated:
		case <-time.After(5 * time.Second): // far below what a write to the slow one may take
			t.Fatal("a slow client holds up another")
		}
	}
}

func TestStdio(t *testing.T) {
	for _, version := range []string{"2025-11-25", ""} {
		t.Run("version "+version, func(t *testing.T) {
			r := start(t, saying("the cat is grey")())
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- r.server.Stdio(t.Context(), inR, outW) }()
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			cs, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if o := r.call(cs, "agent_create", map[string]any{"name": "vole"}); !o.OK {
				t.Errorf("%s", o.raw)
			}
			if o := r.call(cs, "session_ask", map[string]any{"agent_id": "vole", "message": "well?"}); !o.OK || o.text(t, "reply") != "the cat is grey" {
				t.Errorf("%s", o.raw)
			}
			inW.Close()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("at the end: %v", err)
				}
			case <-time.After(patience):
				t.Error("stdio does not end with its input")
			}
			outW.Close()
			cs.Close()
		})
	}
}

// At the end of the server a listening client gets its stream's result.
func TestShutdownEndsStreams(t *testing.T) {
	r := start(t, nil)
	body, headers := r.request("subscriptions/listen", map[string]any{"notifications": map[string]any{"resourcesListChanged": true}})
	resp := r.open(t.Context(), "POST", "/mcp", body, headers...)
	defer resp.Body.Close()
	first := readUntil(t, resp.Body, "acknowledged")
	if !bytes.Contains([]byte(first), []byte("subscriptionId")) {
		t.Errorf("acknowledged by %s", first)
	}
	session := r.session("2025-11-25", "")
	get := r.open(t.Context(), "GET", "/mcp", nil, "Mcp-Session-Id", session)
	defer get.Body.Close()
	readUntil(t, get.Body, "ok")
	r.server.Close()
	if rest := readUntil(t, resp.Body, ""); !strings.Contains(rest, `"result"`) {
		t.Errorf("the stream ends with %q", rest)
	}
	readUntil(t, get.Body, "")
}
