package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/test/harness"
)

// restInstants are what a round may kill at: the head of an answer, or an item
// of a stream; "" = a random time.
var restInstants = []string{
	"", "", "", "answer", "ping", "assistant_message", "tool_call_message", "tool_return_message",
	"approval_request_message", "stop_reason", "usage_statistics",
}

// restWays are the ways to send, one worker each.
var restWays = []string{"create", "stream", "background", "async"}

func TestRESTKills(t *testing.T) {
	kills, seed := effort(t, 5)
	ctx := t.Context()
	bin, err := harness.Build(ctx, "mneme", "mockllm")
	if err != nil {
		t.Fatal(err)
	}
	c := &restCrash{t: t, group: &harness.Group{}, rnd: rand.New(rand.NewPCG(seed, 1))}
	defer c.group.Close()
	model, err := c.group.StartModel(ctx, bin)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	c.server = harness.Server{
		Bin: bin, Home: home, State: filepath.Join(home, "state"), Dir: home,
		Args: []string{"server", "--listen", "ws://127.0.0.1:0", "--rest"},
	}
	if err := c.server.Connect(ctx, model); err != nil {
		t.Fatal(err)
	}
	for i, way := range restWays {
		c.workers = append(c.workers, &restWorker{n: i, way: way})
	}
	for round := range kills {
		if err := c.round(ctx, round); err != nil {
			t.Fatalf("round %d (kill at %q): %v", round, c.instant, err)
		}
	}
	var answered, again int
	for _, w := range c.workers {
		answered, again = answered+w.answered, again+w.again
	}
	t.Logf("%d sends answered, %d of them sent again", answered, again)
}

// A restCrash is the whole test: one server at a time, and workers that live on.
type restCrash struct {
	t       *testing.T
	group   *harness.Group
	server  harness.Server
	rnd     *rand.Rand
	workers []*restWorker
	instant string
}

// A restWorker talks in one conversation through all rounds.
type restWorker struct {
	n                   int
	way                 string
	agent, conversation string
	sends               []*restSend

	answered, again int
}

// A restSend is one send: its otid, its text, and whether 200 came.
type restSend struct {
	otid, text string
	answered   bool
}

// round drives, kills, restarts and checks.
func (c *restCrash) round(ctx context.Context, n int) error {
	c.instant = restInstants[c.rnd.IntN(len(restInstants))]
	running, err := c.group.StartServer(ctx, c.server)
	if err != nil {
		return err
	}
	kill := sync.OnceFunc(running.Kill)
	defer kill()
	countdown := c.rnd.IntN(12)
	var mu sync.Mutex
	client := &restClient{url: running.HTTP(), seen: func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		if kind == c.instant {
			if countdown--; countdown == 0 {
				go kill()
			}
		}
	}}
	after := time.Duration(30+c.rnd.IntN(600)) * time.Millisecond
	if c.instant != "" {
		after = 1500 * time.Millisecond // should it not come often enough
	}
	timer := time.AfterFunc(after, kill)
	defer timer.Stop()
	var wg sync.WaitGroup
	errs := make([]error, len(c.workers))
	for i, w := range c.workers {
		rnd := rand.New(rand.NewPCG(c.rnd.Uint64(), 2))
		wg.Go(func() { errs[i] = w.drive(ctx, client, n, rnd) })
	}
	wg.Wait()
	<-running.Done()
	for i, err := range errs {
		if err != nil && !errors.Is(err, errGone) {
			return fmt.Errorf("worker %s: %w", c.workers[i].way, err)
		}
	}
	return c.check(ctx, n)
}

func (c *restCrash) check(ctx context.Context, round int) error {
	running, err := c.group.StartServer(ctx, c.server)
	if err != nil {
		return err
	}
	defer running.Kill()
	client := &restClient{url: running.HTTP()}
	for _, w := range c.workers {
		if w.conversation == "" {
			continue // killed before it was made
		}
		if err := w.check(ctx, client, round); err != nil {
			return fmt.Errorf("worker %s: %w\nlast words of the server: %s", w.way, err, running.Output())
		}
	}
	return nil
}

// drive sends until the server is gone.
func (w *restWorker) drive(ctx context.Context, c *restClient, round int, rnd *rand.Rand) error {
	if round%25 == 0 {
		*w = restWorker{n: w.n, way: w.way, answered: w.answered, again: w.again} // so that histories stay short
	}
	if w.conversation == "" {
		if err := w.begin(ctx, c); err != nil {
			return err
		}
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("s-%d-%d-%d", w.n, round, i)
		s := &restSend{otid: id, text: restScript(rnd, id)}
		w.sends = append(w.sends, s)
		if err := w.send(ctx, c, s); err != nil {
			return err
		}
		if rnd.IntN(4) == 0 && w.way == "async" {
			continue // the next one is queued behind it
		}
		if err := w.settle(ctx, c); err != nil {
			return err
		}
	}
}

// begin makes the worker's agent and conversation. Async sends have no route of
// a conversation, so they go to the agent's own.
func (w *restWorker) begin(ctx context.Context, c *restClient) error {
	var agent, conversation struct{ ID string }
	body := map[string]any{
		"name": "crash", "model": "lmstudio/mock-1", "tools": []string{"memory_insert"}, "include_base_tools": false,
		"memory_blocks": []any{map[string]any{"label": "log", "value": ""}},
	}
	if _, err := c.post(ctx, "/v1/agents/", body, &agent); err != nil {
		return err
	}
	w.agent = agent.ID
	if w.way == "async" {
		w.conversation = agent.ID
		return nil
	}
	_, err := c.post(ctx, "/v1/conversations/?agent_id="+agent.ID, map[string]any{}, &conversation)
	w.conversation = conversation.ID
	return err
}

// restScript is a text for the scripted model: talk, a write into memory, some
// of them, or a tool that the client runs.
func restScript(rnd *rand.Rand, id string) string {
	write := func(n int) string {
		return fmt.Sprintf(`CALL memory_insert {"label":"log","new_string":"<%s-%d>"}`, id, n)
	}
	switch rnd.IntN(4) {
	case 0:
		return "SLOW 5\nTOKENS 20\nSAY  done " + id
	case 1:
		return write(1) + "\nTHEN SAY done " + id
	case 2:
		return write(1) + "\nTHEN " + write(2) + "\nTHEN SAY done " + id
	default:
		return write(1) + "\nTHEN CALL lookup {\"q\":\"x\"}\nTHEN SAY done " + id
	}
}

// body is what a worker sends, with the flags of its way.
func (w *restWorker) body(message map[string]any) map[string]any {
	body := map[string]any{
		"messages":     []any{message},
		"client_tools": []any{map[string]any{"name": "lookup", "parameters": map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}}}},
	}
	switch w.way {
	case "create":
		body["streaming"] = false
	case "stream":
		body["stream_tokens"] = true
	case "background":
		body["background"], body["stream_tokens"] = true, true
	}
	return body
}

// send sends once, and notes whether it was answered.
func (w *restWorker) send(ctx context.Context, c *restClient, s *restSend) error {
	answered, err := w.say(ctx, c, map[string]any{"role": "user", "content": s.text, "otid": s.otid})
	if answered && !s.answered {
		s.answered = true
		w.answered++
	}
	return err
}

func (w *restWorker) say(ctx context.Context, c *restClient, message map[string]any) (answered bool, err error) {
	path := "/v1/conversations/" + w.conversation + "/messages"
	switch w.way {
	case "create":
		var response struct{ Messages []item }
		return c.post(ctx, path, w.body(message), &response)
	case "async":
		var run struct{ ID string }
		return c.post(ctx, "/v1/agents/"+w.agent+"/messages/async", w.body(message), &run)
	}
	items, answered, err := c.stream(ctx, path, w.body(message))
	if err == nil && w.way == "background" {
		err = checkNumbers(items)
	}
	return answered, err
}

// checkNumbers demands that the numbers of a logged run count from 1.
func checkNumbers(items []item) error {
	last := 0
	for _, it := range items {
		if it.Kind == "ping" && it.SeqID <= last {
			continue // keeps the connection alive
		}
		if it.SeqID != last+1 {
			return fmt.Errorf("seq_id %d follows %d", it.SeqID, last)
		}
		last = it.SeqID
	}
	return nil
}

// settle answers everything that asks and waits until the worker's runs have
// ended.
func (w *restWorker) settle(ctx context.Context, c *restClient) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var runs []struct{ ID, Status string }
		if err := c.get(ctx, "/v1/runs/?active=true&agent_id="+w.agent, &runs); err != nil {
			return err
		}
		if slices.ContainsFunc(runs, func(r struct{ ID, Status string }) bool { return r.Status == "running" }) {
			continue
		}
		// Runs that have not begun may wait for the answer, too.
		asked, err := w.asked(ctx, c)
		if err != nil || len(runs) == 0 && asked == nil {
			return err
		}
		if asked == nil {
			continue
		}
		answers := make([]any, len(asked))
		for i, call := range asked {
			answers[i] = map[string]any{"type": "tool", "tool_call_id": call.ID, "tool_return": "found", "status": "success"}
		}
		if _, err := w.say(ctx, c, map[string]any{"type": "approval", "approvals": answers}); err != nil {
			return err
		}
	}
	return fmt.Errorf("the runs of %s did not end within %s", w.agent, patience)
}

// asked are the calls that wait for the client.
func (w *restWorker) asked(ctx context.Context, c *restClient) ([]call, error) {
	history, err := c.history(ctx, w.conversation)
	var asked []call
	for _, m := range history {
		switch m.Kind {
		case "approval_request_message":
			asked = m.Calls
		case "approval_response_message", "tool_return_message":
			asked = nil
		}
	}
	return asked, err
}

// check sends again what was not answered, and looks at everything.
func (w *restWorker) check(ctx context.Context, c *restClient, round int) error {
	if err := w.settle(ctx, c); err != nil {
		return err
	}
	for _, s := range w.sends {
		if s.answered {
			continue
		}
		if err := w.send(ctx, c, s); err != nil {
			return fmt.Errorf("%s, sent again: %w", s.otid, err)
		}
		w.again++
		if err := w.settle(ctx, c); err != nil {
			return err
		}
	}
	id := fmt.Sprintf("s-%d-%d-next", w.n, round)
	last := &restSend{otid: id, text: "SAY done " + id}
	w.sends = append(w.sends, last)
	if err := w.send(ctx, c, last); err != nil {
		return fmt.Errorf("the next turn: %w", err)
	}
	if err := w.settle(ctx, c); err != nil {
		return fmt.Errorf("the next turn: %w", err)
	}
	history, err := c.history(ctx, w.conversation)
	if err != nil {
		return err
	}
	var block struct{ Value string }
	if err := c.get(ctx, "/v1/agents/"+w.agent+"/core-memory/blocks/log", &block); err != nil {
		return err
	}
	return w.checkHistory(history, block.Value)
}

// checkHistory demands that every send stands there once and was done once.
func (w *restWorker) checkHistory(history []item, memory string) error {
	variants, sends, answers := map[string]bool{}, map[string]int{}, map[string]int{}
	calls, results := map[string]call{}, map[string]string{}
	for _, m := range history {
		key := m.ID + m.OTID
		if variants[key] {
			return fmt.Errorf("the message %s (%s, otid %s) stands twice in the history", m.ID, m.Kind, m.OTID)
		}
		variants[key] = true
		switch m.Kind {
		case "user_message":
			sends[m.OTID]++
		case "assistant_message":
			if _, id, ok := strings.Cut(fmt.Sprint(m.Content), "done "); ok {
				answers[id]++
			}
		case "tool_call_message", "approval_request_message":
			for _, call := range m.Calls {
				calls[call.ID] = call
			}
		case "tool_return_message":
			for _, r := range m.Returns {
				if _, twice := results[r.CallID]; twice {
					return fmt.Errorf("the call %s has two results", r.CallID)
				}
				results[r.CallID] = r.Status
			}
		}
	}
	for _, s := range w.sends {
		if sends[s.otid] != 1 || answers[s.otid] != 1 {
			return fmt.Errorf("%s stands %d times in the history and has %d answers:\n%s", s.otid, sends[s.otid], answers[s.otid], outline(history))
		}
	}
	return checkWrites(calls, results, memory)
}

// outline is a history in few words, for error messages.
func outline(history []item) string {
	var b strings.Builder
	for _, m := range history[max(0, len(history)-30):] {
		fmt.Fprintf(&b, "  %s %s %.60q\n", m.Kind, m.OTID, m.Content)
	}
	return b.String()
}

// checkWrites demands a result for every call, that no call wrote twice, and
// that one that reports success did write.
func checkWrites(calls map[string]call, results map[string]string, memory string) error {
	for id, call := range calls {
		status, ok := results[id]
		if !ok {
			return fmt.Errorf("the call %s has no result", id)
		}
		if call.Name != "memory_insert" {
			continue
		}
		_, rest, _ := strings.Cut(call.Arguments, "<")
		key, _, _ := strings.Cut(rest, ">")
		n := strings.Count(memory, "<"+key+">")
		if n > 1 || status == "success" && n == 0 {
			return fmt.Errorf("the write %s, which reports %s, stands %d times in memory", key, status, n)
		}
	}
	return nil
}
