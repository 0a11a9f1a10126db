package appserver

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"mneme/internal/agent"
	"mneme/protocol"
)

// Upgrade answers a request on the socket path. The checks and their order are
// spec/app-server-core.md section 1.3; what is not an upgrade at all is 404.
func (d *Door) Upgrade(w http.ResponseWriter, r *http.Request) {
	_, channel := r.URL.Query()["channel"]
	switch {
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		w.WriteHeader(http.StatusNotFound)
		return
	case channel:
		reject(w, http.StatusUpgradeRequired, http.StatusText(http.StatusUpgradeRequired))
		return
	}
	if err := d.auth.Check(r); err != nil {
		reject(w, http.StatusUnauthorized, err.Error())
		return
	}
	// A valid token excuses a foreign Origin, never a foreign Host.
	if !d.guard.HostOK(r) || !d.auth.Enabled() && !d.guard.OriginOK(r) {
		reject(w, http.StatusForbidden, http.StatusText(http.StatusForbidden))
		return
	}
	if name := badHandshake(r); name != "" {
		w.Header().Set("Sec-WebSocket-Version", "13")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, "Missing or invalid "+name+" header")
		return
	}
	d.accept(w, r)
}

// badHandshake names the header that is wrong.
func badHandshake(r *http.Request) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	switch {
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return "Sec-WebSocket-Version"
	case err != nil || len(key) != 16:
		return "Sec-WebSocket-Key"
	}
	return ""
}

// accept makes the connection and starts its goroutines.
func (d *Door) accept(w http.ResponseWriter, r *http.Request) {
	tap := &hijackTap{ResponseWriter: w}
	c := &conn{
		id:       agent.NewID("conn"),
		door:     d,
		out:      newOutbox(),
		gone:     make(chan struct{}),
		detached: make(chan struct{}, maxDetached),
		subs:     map[protocol.Runtime]*subscription{},
	}
	ws, err := websocket.Accept(tap, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the Origin is checked by Upgrade
		CompressionMode:    websocket.CompressionDisabled,
		Subprotocols:       firstProtocol(r),
		OnPongReceived:     func(context.Context, []byte) { c.missed.Store(0) },
	})
	if err != nil {
		return // Accept has answered
	}
	ws.SetReadLimit(-1) // readFrame has the limit
	c.ws, c.net = ws, tap.conn
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if !d.add(c) {
		c.cancel(errConnStopping)
		ws.Close(websocket.StatusGoingAway, "")
	}
}

// firstProtocol is the first subprotocol that the client offers.
func firstProtocol(r *http.Request) []string {
	for p := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if p = strings.TrimSpace(p); p != "" {
			return []string{p}
		}
	}
	return nil
}

// reject answers an upgrade with a reason phrase of our own, which net/http
// cannot write, and closes the connection.
func reject(w http.ResponseWriter, code int, reason string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(code)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", code, reason)
}

// A hijackTap notes the network connection below a WebSocket.
type hijackTap struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *hijackTap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

// Unwrap lets http.ResponseController reach what is below.
func (t *hijackTap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Healthz answers the probes /healthz and /readyz, whatever the method.
func (d *Door) Healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, "ok\n")
}

// Info answers /app-server-info.
func (d *Door) Info(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := d.auth.Check(r); err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
		return
	}
	id := "http-info"
	body, err := protocol.AppendResponse(nil, "app_server_info_response", &id, d.info())
	if err != nil {
		d.log.Error("encode app_server_info", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Write(body)
}
