package transcript

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Play plays a transcript file. With update it writes the frames that came into
// the file instead of comparing them.
func Play(t *testing.T, path string, update bool) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, conns: map[string]*client{}, gates: &gates{}}
	frames := -1
	for i, f := range archive.Files {
		switch f.Name {
		case "model":
			p.model = string(f.Data)
		case "frames":
			frames = i
		default:
			t.Fatalf("%s: unknown section %s", path, f.Name)
		}
	}
	if frames < 0 {
		t.Fatalf("%s: no section frames", path)
	}
	model, err := parseModel(p.model, p.gates)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	p.server = Start(t, model, Options{})
	p.normal = newNormalizer(p.server.Dir)
	want := string(archive.Files[frames].Data)
	got := p.play(want)
	for _, c := range p.conns {
		c.ws.CloseNow()
	}
	if update {
		archive.Files[frames].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	if left := model.Left(); left > 0 {
		t.Errorf("%s: %d answers of the model were not asked for", path, left)
	}
}

// A player plays one transcript.
type player struct {
	t      *testing.T
	server *Server
	model  string
	gates  *gates
	normal *normalizer
	conns  map[string]*client
}

// play runs the lines and returns them with what really came.
func (p *player) play(script string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(script, "\n"), "\n") {
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasSuffix(name, "<"):
			continue
		case name == "open":
			close(p.gates.get(rest))
		case strings.HasSuffix(name, ">"):
			p.send(strings.TrimSuffix(name, ">"), rest)
		case strings.HasSuffix(name, "!") && rest == "close":
			name = strings.TrimSuffix(name, "!")
			p.client(name).ws.Close(websocket.StatusNormalClosure, "")
			delete(p.conns, name)
		case strings.HasSuffix(name, "."):
			name = strings.TrimSuffix(name, ".")
			fmt.Fprintln(&out, line)
			for _, f := range p.client(name).until(rest) {
				fmt.Fprintf(&out, "%s< %s\n", name, p.show(f))
			}
			continue
		case line != "" && !strings.HasPrefix(line, "#"):
			p.t.Fatalf("cannot read the line %q", line)
		}
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

func (p *player) show(f string) string {
	f, err := cutDevice(f)
	if err != nil {
		p.t.Errorf("%v", err)
	}
	return p.normal.frame(f)
}

func (p *player) send(name, text string) {
	text, err := p.normal.sent(text)
	if err != nil {
		p.t.Fatalf("%s> %s: %v", name, text, err)
	}
	text, _ = strings.CutPrefix(text, "raw ")
	p.client(name).send(text)
}

func (p *player) client(name string) *client {
	c := p.conns[name]
	if c == nil {
		c = dial(p.t, p.server.URL())
		p.conns[name] = c
	}
	return c
}

// A client is one connection of a transcript.
type client struct {
	t      *testing.T
	ws     *websocket.Conn
	seq    envelope
	probes int
}

func dial(t *testing.T, url string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	return &client{t: t, ws: ws}
}

func (c *client) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), Patience)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// until reads until the frames that goal names came.
func (c *client) until(goal string) (frames []string) {
	c.t.Helper()
	left := 1
	if name, count, ok := strings.Cut(goal, " x"); ok {
		n, err := strconv.Atoi(count)
		if err != nil {
			c.t.Fatal(err)
		}
		goal, left = name, n
	}
	probe := ""
	if goal == "settle" {
		c.probes++
		probe = fmt.Sprintf("probe-%d", c.probes)
		c.send(fmt.Sprintf(`{"type":"app_server_info","request_id":%q}`, probe))
	}
	for left > 0 {
		ctx, cancel := context.WithTimeout(c.t.Context(), Patience)
		_, data, err := c.ws.Read(ctx)
		cancel()
		if err != nil {
			for _, f := range frames {
				c.t.Logf("came: %.300s", f)
			}
			c.t.Fatalf("wait for %s: %v", goal, err)
		}
		frame := string(data)
		if err := c.seq.check(frame); err != nil {
			c.t.Errorf("%v in %s", err, frame)
		}
		var head struct {
			Type  string `json:"type"`
			ID    string `json:"request_id"`
			Delta struct {
				Type string `json:"message_type"`
			} `json:"delta"`
		}
		if err := json.Unmarshal(data, &head); err != nil {
			c.t.Fatalf("frame is not JSON: %v: %s", err, frame)
		}
		if probe != "" && head.ID == probe {
			return frames
		}
		frames = append(frames, frame)
		if head.Type == goal || head.Delta.Type == goal {
			left--
		}
	}
	return frames
}
