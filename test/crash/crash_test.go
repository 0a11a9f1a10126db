// Package crash kills the real server, again and again, in the middle of its
// work, and checks after each restart that nothing accepted was lost and
// nothing ran twice.
//
// Each round drives several runtimes with plain turns, tools with countable
// side effects, approvals and queued inputs, kills the server with SIGKILL
// (after a random time, or at the very frame that a round has chosen), starts
// it again on the same state, lets everything come to rest and looks:
//
//   - an input that was accepted stands in the history exactly once; one whose
//     acknowledgement was lost is sent again under its id and then also does
//   - no message id stands there twice
//   - every tool call has exactly one result
//   - no command ran twice, and one that reports success did run
//   - an approval that was asked and not answered is asked again
//   - the next turn works
//
// The REST form (rest_test.go) does the same over HTTP: a send that was answered
// 200 is never lost, and one that was not is sent again under its otid and then
// ran once.
package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/test/harness"
)

const runtimes = 4

// instants are the frames at which a round may kill; "" = at a random time.
var instants = []string{
	"", "", "",
	"input_accepted", "control_request", "turn_finished",
	"client_tool_start", "client_tool_end", "tool_return_message",
	"assistant_message", "usage_statistics", "update_queue",
}

func TestKills(t *testing.T) {
	kills, seed := effort(t, 20)
	ctx := t.Context()
	bin, err := harness.Build(ctx, "mneme", "mockllm")
	if err != nil {
		t.Fatal(err)
	}
	c := &crash{t: t, group: &harness.Group{}, rnd: rand.New(rand.NewPCG(seed, 1)), effects: filepath.Join(t.TempDir(), "effects")}
	defer c.group.Close()
	model, err := c.group.StartModel(ctx, bin)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	c.server = harness.Server{
		Bin: bin, Home: home, State: filepath.Join(home, "state"), Dir: home,
		Args: []string{"server", "--listen", "ws://127.0.0.1:0", "--permission-mode", "unrestricted"},
	}
	if url := os.Getenv("MNEME_CRASH_DATABASE_URL"); url != "" { // an empty PostgreSQL database
		c.server.Env = append(c.server.Env, "MNEME_DATABASE_URL="+url)
	}
	if err := c.server.Connect(ctx, model); err != nil {
		t.Fatal(err)
	}
	for i := range runtimes {
		c.workers = append(c.workers, &worker{crash: c, n: i, mode: []string{"unrestricted", "standard"}[i%2]})
	}
	for round := range kills {
		if err := c.round(ctx, round); err != nil {
			t.Fatalf("round %d (kill at %q): %v", round, c.instant, err)
		}
	}
	slices.Sort(c.restarts)
	t.Logf("%d inputs accepted, %d sent again, %d approvals asked again; restart to ready: median %s, longest %s",
		c.accepted, c.resent, c.asked, c.restarts[len(c.restarts)/2], c.restarts[len(c.restarts)-1])
}

// effort is how many kills a test does, and the seed of its choices.
func effort(t *testing.T, kills int) (int, uint64) {
	t.Helper()
	if testing.Short() {
		t.Skip("the crash test starts real servers; -short leaves it out")
	}
	if s := os.Getenv("MNEME_CRASH_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("MNEME_CRASH_KILLS: %v", err)
		}
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("MNEME_CRASH_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("MNEME_CRASH_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("%d kills, MNEME_CRASH_SEED=%d", kills, seed)
	return kills, seed
}

// crash is the whole test: one server at a time, and workers that live on.
type crash struct {
	t        *testing.T
	group    *harness.Group
	server   harness.Server
	rnd      *rand.Rand
	effects  string // each command appends its key here
	workers  []*worker
	instant  string
	restarts []time.Duration

	accepted, resent, asked int
}

// A worker drives one runtime through all rounds.
type worker struct {
	crash *crash
	n     int
	mode  string
	at    *scope

	inputs []*input

	mu       sync.Mutex      // guards the rest
	waiting  map[string]bool // approvals that were asked and not answered
	answered map[string]bool
}

// An input is one text the worker sent.
type input struct {
	id, text string
	accepted bool
}

// round drives, kills, restarts and checks.
func (c *crash) round(ctx context.Context, n int) error {
	c.instant = instants[c.rnd.IntN(len(instants))]
	running, err := c.start(ctx)
	if err != nil {
		return err
	}
	kill := sync.OnceFunc(running.Kill)
	defer kill()
	countdown := int64(c.rnd.IntN(8))
	var mu sync.Mutex
	seen := func(f *frame) {
		if c.instant == "" || f.Type != c.instant && (f.Delta == nil || f.Delta.Kind != c.instant) {
			return
		}
		mu.Lock()
		countdown--
		now := countdown < 0
		mu.Unlock()
		if now {
			go kill()
		}
	}
	after := time.Duration(30+c.rnd.IntN(600)) * time.Millisecond
	if c.instant != "" {
		after = 1500 * time.Millisecond // should the frame not come often enough
	}
	time.AfterFunc(after, kill)
	seeds := make([]uint64, len(c.workers))
	for i := range seeds {
		seeds[i] = c.rnd.Uint64()
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(c.workers))
	for i, w := range c.workers {
		wg.Go(func() { errs <- w.drive(ctx, running.WebSocket, n, rand.New(rand.NewPCG(seeds[i], 2)), seen) })
	}
	wg.Wait()
	<-running.Done()
	for range c.workers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return c.check(ctx, n)
}

func (c *crash) start(ctx context.Context) (*harness.Running, error) {
	begin := time.Now()
	running, err := c.group.StartServer(ctx, c.server)
	if err == nil {
		c.restarts = append(c.restarts, time.Since(begin))
	}
	return running, err
}

// drive sends inputs until the server is gone.
func (w *worker) drive(ctx context.Context, url string, round int, rnd *rand.Rand, seen func(*frame)) error {
	note := func(f *frame) {
		if f.Type == "control_request" {
			w.mu.Lock()
			w.waiting[f.RequestID] = true
			w.mu.Unlock()
		}
		seen(f)
	}
	w.waiting, w.answered = map[string]bool{}, map[string]bool{}
	if round%25 == 0 {
		w.at, w.inputs = nil, nil // a new conversation, so that histories stay short
	}
	cl, err := connect(ctx, url, w.at, w.mode, note)
	if err != nil {
		return ignoreGone(err)
	}
	defer cl.close()
	cl.answers = func(id string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answered[id] = true // it need not be asked again
	}
	w.at = &cl.scope
	for i := 0; ; i++ {
		id := fmt.Sprintf("cm-%d-%d-%d", w.n, round, i)
		in := &input{id: id, text: w.script(rnd, id)}
		w.inputs = append(w.inputs, in)
		f, err := cl.send(ctx, in.id, in.text)
		if err != nil {
			return ignoreGone(err)
		}
		if !f.Accepted {
			return fmt.Errorf("%s was refused: %s", id, f.Error)
		}
		in.accepted = true
		if rnd.IntN(3) == 0 {
			continue // the next one is queued behind it
		}
		if w.mode == "standard" && rnd.IntN(4) == 0 {
			// Leave what asks alone for a while: the kill shall find it waiting.
			select {
			case <-cl.gone:
				return nil
			case <-time.After(300 * time.Millisecond):
			}
		}
		if err := cl.settle(ctx); err != nil {
			return ignoreGone(err)
		}
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, errGone) || strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "EOF") ||
		strings.Contains(err.Error(), "reset by peer") {
		return nil
	}
	return err
}

// script is a text for the scripted model: talk, a command with an effect, or
// several of them.
func (w *worker) script(rnd *rand.Rand, id string) string {
	effect := func(n int) string {
		return fmt.Sprintf(`CALL Bash {"command":"echo %s-%d >> %s","description":"count"}`, id, n, w.crash.effects)
	}
	switch rnd.IntN(4) {
	case 0:
		return "TOKENS 40"
	case 1:
		return "SLOW 5\nTOKENS 30"
	case 2:
		return effect(1) + "\nTHEN SAY done"
	default:
		return effect(1) + "\n" + effect(2) + "\nTHEN " + effect(3) + "\nTHEN SAY done"
	}
}

// check restarts the server and looks at everything.
func (c *crash) check(ctx context.Context, round int) error {
	running, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer running.Kill()
	for _, w := range c.workers {
		if w.at == nil {
			continue // killed before its runtime was made
		}
		if err := w.check(ctx, running.WebSocket, round); err != nil {
			return fmt.Errorf("worker %d (%s): %w\nlast words of the server: %s", w.n, w.mode, err, running.Output())
		}
	}
	return nil
}

func (w *worker) check(ctx context.Context, url string, round int) error {
	cl, err := connect(ctx, url, w.at, w.mode, nil)
	if err != nil {
		return err
	}
	defer cl.close()
	if err := w.checkAskedAgain(cl); err != nil {
		return err
	}
	if err := cl.settle(ctx); err != nil {
		return err
	}
	for _, in := range w.inputs {
		if in.accepted {
			continue
		}
		f, err := cl.send(ctx, in.id, in.text)
		if err != nil {
			return err
		}
		if !f.Accepted {
			return fmt.Errorf("%s, sent again, was refused: %s", in.id, f.Error)
		}
		in.accepted = true
		w.crash.resent++
		if err := cl.settle(ctx); err != nil {
			return err
		}
	}
	last := &input{id: fmt.Sprintf("cm-%d-%d-next", w.n, round), text: "SAY still here", accepted: true}
	w.inputs = append(w.inputs, last)
	if f, err := cl.send(ctx, last.id, last.text); err != nil || !f.Accepted {
		return fmt.Errorf("the next turn was not taken: %v %+v", err, f)
	}
	if err := cl.settle(ctx); err != nil {
		return fmt.Errorf("the next turn: %w", err)
	}
	history, err := cl.history(ctx)
	if err != nil {
		return err
	}
	w.crash.accepted += len(w.inputs)
	return w.checkHistory(history)
}

// checkAskedAgain demands that what was asked and not answered is asked again,
// unless its turn has asked something later since.
func (w *worker) checkAskedAgain(cl *client) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.waiting {
		if w.answered[id] {
			continue
		}
		cl.mu.Lock()
		again := cl.pending[id]
		cl.mu.Unlock()
		if !again {
			return fmt.Errorf("the approval %s was asked before the crash, not answered, and is not asked again", id)
		}
		w.crash.asked++
	}
	return nil
}

func (w *worker) checkHistory(history []listed) error {
	ids, inputs := map[string]int{}, map[string]int{}
	calls, results := map[string]string{}, map[string]string{}
	for _, m := range history {
		ids[m.ID]++
		switch m.Kind {
		case "user_message":
			inputs[m.OTID]++
		case "approval_request_message":
			calls[m.ToolCall.ID] = m.ToolCall.Arguments
		case "tool_return_message":
			if _, twice := results[m.CallID]; twice {
				return fmt.Errorf("the call %s has two results", m.CallID)
			}
			results[m.CallID] = m.Status
		}
	}
	for id, n := range ids {
		if n > 1 && !strings.Contains(id, ":") {
			// Records of one stored message share its id only with a suffix.
			return fmt.Errorf("the message id %s stands %d times in the history", id, n)
		}
	}
	for _, in := range w.inputs {
		if inputs[in.id] != 1 {
			return fmt.Errorf("the input %s stands %d times in the history", in.id, inputs[in.id])
		}
	}
	return w.checkEffects(calls, results)
}

func (w *worker) checkEffects(calls, results map[string]string) error {
	data, err := os.ReadFile(w.crash.effects)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ran := map[string]int{}
	for line := range strings.Lines(string(data)) {
		ran[strings.TrimSpace(line)]++
	}
	for key, n := range ran {
		if n > 1 {
			return fmt.Errorf("the command %s ran %d times", key, n)
		}
	}
	for id, arguments := range calls {
		status, ok := results[id]
		if !ok {
			return fmt.Errorf("the call %s has no result", id)
		}
		_, rest, _ := strings.Cut(arguments, "echo ")
		key, _, _ := strings.Cut(rest, " ")
		if status == "success" && ran[key] != 1 {
			return fmt.Errorf("the command %s reports success and ran %d times", key, ran[key])
		}
	}
	return nil
}
