package main

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/internal/server"
)

const patience = 20 * time.Second // for what must happen, never a measure of speed

// A terminal is the user's side of an interactive chat.
type terminal struct {
	t       *testing.T
	keys    *os.File // what is typed
	getenv  func(string) string
	signals chan os.Signal
	done    chan error // what the talk returned

	mu   sync.Mutex // guards seen
	seen strings.Builder
}

func (term *terminal) Write(b []byte) (int, error) {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.Write(b)
}

// text is what was shown so far.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) typeLine(line string) {
	term.t.Helper()
	if _, err := io.WriteString(term.keys, line+"\n"); err != nil {
		term.t.Fatal(err)
	}
}

// expect waits until the text has appeared n times.
func (term *terminal) expect(text string, n int) {
	term.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if strings.Count(term.text(), text) >= n {
			return
		}
	}
	term.t.Fatalf("no %q in:\n%s", text, term.text())
}

func (term *terminal) ends() {
	term.t.Helper()
	select {
	case err := <-term.done:
		if err != nil {
			term.t.Error(err)
		}
	case <-time.After(patience):
		term.t.Fatalf("the chat does not end:\n%s", term.text())
	}
}

// chatting starts a chat with a new agent on the scripted model.
func chatting(t *testing.T) *terminal {
	t.Helper()
	model := httptest.NewServer(&parrot{})
	t.Cleanup(model.Close)
	home := t.TempDir()
	env := map[string]string{"HOME": home, "MNEME_HOME": home + "/state", "LMSTUDIO_BASE_URL": model.URL + "/v1", "MNEME_MODEL": "lmstudio/parrot"}
	return sitDown(t, func(n string) string { return env[n] })
}

// sitDown starts a chat with the agent in a terminal of its own.
func sitDown(t *testing.T, getenv func(string) string) *terminal {
	t.Helper()
	stdin, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{stdin: stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: getenv}
	s, err := p.open(t.Context(), "chat")
	if err != nil {
		t.Fatal(err)
	}
	command := &chatCommand{Agent: "tester"}
	rt, err := command.start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, getenv: getenv, keys: keys, signals: make(chan os.Signal, 4), done: make(chan error, 1)}
	talk := newTalk(p, s.Client, rt, term.signals)
	talk.out = term
	go func() { term.done <- talk.run(context.Background()) }()
	t.Cleanup(func() {
		keys.Close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
		for range talk.lines { // until its reader is gone
		}
		stdin.Close()
	})
	return term
}

func TestInterruptStopsTheAnswer(t *testing.T) {
	term := chatting(t)
	term.typeLine("HANG")
	term.expect("I begin", 1)
	term.signals <- os.Interrupt
	term.expect("Stopped.", 1)
	term.typeLine("still there?")
	term.expect("You said: still there?", 1)
	term.typeLine("one \\")
	term.typeLine("two")
	term.expect("You said: one \ntwo\n> ", 1)
	term.signals <- os.Interrupt // at the prompt
	term.ends()
}

func TestInterruptLeavesTheTurnOfAnotherTerminal(t *testing.T) {
	first := chatting(t)
	first.expect("> ", 1)
	second := sitDown(t, first.getenv)
	second.expect("> ", 1)
	first.typeLine("HANG")
	first.expect("I begin", 1)
	second.typeLine("me too")
	second.expect("Queued behind", 1)
	second.signals <- os.Interrupt
	second.expect("Removed from the queue.", 1)
	if strings.Contains(first.text(), "Stopped.") {
		t.Errorf("the other terminal's answer was stopped:\n%s", first.text())
	}
	first.signals <- os.Interrupt
	first.expect("Stopped.", 1)
	if strings.Contains(first.text(), "me too") {
		t.Errorf("the removed message was answered:\n%s", first.text())
	}
	second.keys.Close()
	second.ends()
}

func TestInterruptInsteadOfAnApproval(t *testing.T) {
	term := chatting(t)
	term.typeLine(`CALL Bash {"command":"touch x","description":"d"}`)
	term.expect("Allow?", 1)
	term.signals <- os.Interrupt
	term.expect("Stopped.", 1)
	term.typeLine(`CALL Bash {"command":"touch x","description":"d"}`)
	term.expect("Allow?", 2)
	term.typeLine("what?")
	term.expect("Allow?", 3)
	term.typeLine("n")
	term.expect("The tool said: The user does not want this tool to run.", 1)
	term.keys.Close() // Ctrl-D
	term.ends()
}

func TestCommandsOfTheChat(t *testing.T) {
	term := chatting(t)
	term.typeLine("/nope")
	term.expect("There is no command /nope", 1)
	term.typeLine("/help")
	term.expect("Approvals:", 1)
	term.typeLine("/exit")
	term.ends()
}

func TestReachable(t *testing.T) {
	for in, want := range map[string]string{
		"ws://0.0.0.0:4500/ws":    "ws://127.0.0.1:4500/ws",
		"ws://[::]:4500/ws":       "ws://[::1]:4500/ws",
		"ws://127.0.0.1:1/deep":   "ws://127.0.0.1:1/deep",
		"ws://localhost:4500/ws":  "ws://localhost:4500/ws",
		"ws://192.0.2.1:4500/ws":  "ws://192.0.2.1:4500/ws",
		"ws://[2001:db8::1]:1/ws": "ws://[2001:db8::1]:1/ws",
	} {
		if got := reachable(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestHolderWithoutAddress(t *testing.T) {
	p := &program{getenv: func(string) string { return "" }}
	_, err := p.dialHolder(t.Context(), server.Holder{PID: 7})
	if err == nil || !strings.Contains(err.Error(), "pid 7") {
		t.Errorf("got %v", err)
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[31mred\x07\tb\nc\u009b"); got != "a[31mred\tb\nc" {
		t.Errorf("got %q", got)
	}
}
