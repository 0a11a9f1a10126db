package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"mneme/internal/server"
)

// The scripts in testdata run the real command line, each with a state of its
// own.
func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"mneme": func() { os.Exit(run()) }})
}

// leakless looks for goroutines that are left after the tests.
type leakless struct{ *testing.M }

func (l leakless) Run() int {
	code := l.M.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func TestScripts(t *testing.T) {
	bird := &parrot{release: map[string]chan struct{}{"WAIT": make(chan struct{}), "LONGER": make(chan struct{})}}
	model := httptest.NewServer(bird)
	t.Cleanup(model.Close)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("MNEME_HOME", filepath.Join(home, "state"))
			env.Setenv("MODEL_URL", model.URL+"/v1")
			env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"listening": waitListening,
			"terminate": terminate,
			"hanging":   bird.waitHanging,
			"release":   bird.letGo,
			"sleep":     func(*testscript.TestScript, bool, []string) { time.Sleep(1500 * time.Millisecond) },
		},
	})
}

// waitListening waits until a server holds $MNEME_HOME and listens, and sets URL
// to its address.
func waitListening(ts *testscript.TestScript, neg bool, args []string) {
	home := ts.Getenv("MNEME_HOME")
	for range 1000 {
		if h, err := server.HolderOf(home); err == nil && h != nil && h.URL != "" {
			ts.Setenv("URL", h.URL)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("no server holds %s", home)
}

// waitHanging waits until one more answer hangs than at the last time.
func (p *parrot) waitHanging(ts *testscript.TestScript, neg bool, args []string) {
	for range 2000 {
		if p.hangs.Load() > 0 {
			p.hangs.Add(-1)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("the model was not asked")
}

// letGo ends an answer to the message that waits.
func (p *parrot) letGo(ts *testscript.TestScript, _ bool, args []string) {
	select {
	case p.release[args[0]] <- struct{}{}:
	case <-time.After(patience):
		ts.Fatalf("nobody waits for the answer to %s", args[0])
	}
}

// terminate sends the server that holds $MNEME_HOME the signal TERM or INT.
func terminate(ts *testscript.TestScript, neg bool, args []string) {
	h, err := server.HolderOf(ts.Getenv("MNEME_HOME"))
	ts.Check(err)
	if h == nil || len(args) != 1 {
		ts.Fatalf("usage: terminate TERM|INT, with a server")
	}
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT}[args[0]]
	ts.Check(syscall.Kill(h.PID, sig))
}

// A parrot is a model provider. It calls a tool for a message "CALL name input",
// begins an answer that never ends for "HANG",
// answers "WAIT" and "LONGER" when they are released, and otherwise says what it was told last, or what the tool gave.
type parrot struct {
	hangs   atomic.Int64             // answers that have begun and do not end
	release map[string]chan struct{} // ends an answer to the message
}

func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"parrot","object":"model"}]}`)
		return
	}
	var req struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	last := req.Messages[len(req.Messages)-1]
	text := contentText(last.Content)
	if i := strings.LastIndex(text, "</system-reminder>"); i >= 0 {
		text = text[i+len("</system-reminder>"):]
	}
	text = strings.TrimSpace(text)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta any, finish any) {
		chunk, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
		fmt.Fprintf(w, "data: %s\n\n", chunk)
	}
	call, isCall := strings.CutPrefix(text, "CALL ")
	switch {
	case last.Role == "user" && isCall:
		name, input, _ := strings.Cut(call, " ")
		send(map[string]any{"tool_calls": []any{map[string]any{"index": 0, "id": "call_1", "type": "function",
			"function": map[string]any{"name": name, "arguments": input}}}}, nil)
		send(map[string]any{}, "tool_calls")
	case text == "HANG":
		send(map[string]any{"content": "I begin"}, nil)
		w.(http.Flusher).Flush()
		p.hangs.Add(1)
		<-r.Context().Done()
		return
	case p.release[text] != nil:
		p.hangs.Add(1)
		select {
		case <-p.release[text]:
		case <-r.Context().Done():
			return
		}
		send(map[string]any{"content": "I waited"}, "stop")
	case last.Role == "tool":
		send(map[string]any{"content": "The tool said: " + text}, "stop")
	default:
		send(map[string]any{"content": "You said: " + text}, "stop")
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// contentText joins the text of a message's content, a string or a list of parts.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	json.Unmarshal(raw, &parts) //nolint:errcheck // then there is no text
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}
