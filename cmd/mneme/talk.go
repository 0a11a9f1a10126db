package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"

	"mneme/client"
	"mneme/protocol"
)

// A talk is an interactive chat. Its own goroutine does everything; two others
// only wait, for lines and for events.
type talk struct {
	p       *program
	conn    *client.Client
	rt      *client.Runtime
	out     io.Writer
	signals <-chan os.Signal
	lines   chan string // closed at the end of the input
	color   bool
	turn    *client.Turn // the message of this terminal that is being answered; nil = none
}

// errLeave ends the talk.
var errLeave = errors.New("leave")

func newTalk(p *program, conn *client.Client, rt *client.Runtime, signals <-chan os.Signal) *talk {
	t := &talk{p: p, conn: conn, rt: rt, out: p.stdout, signals: signals, lines: make(chan string)}
	t.color = isatty.IsTerminal(p.stdout.Fd()) && p.getenv("NO_COLOR") == ""
	return t
}

// readLines hands over the lines of the input. It ends with the process: a
// terminal cannot be asked to stop reading.
func (t *talk) readLines() {
	defer close(t.lines)
	in := bufio.NewScanner(t.p.stdin)
	in.Buffer(make([]byte, 64<<10), 16<<20)
	for in.Scan() {
		t.lines <- in.Text()
	}
}

func (t *talk) welcome(name string, s *session) {
	where := "no server runs, so this command holds the state itself"
	if s.own == nil {
		where = fmt.Sprintf("through the server at %s", s.holder.URL)
	}
	info := t.rt.Info()
	if info.Agent != nil {
		name = info.Agent.Name + " on " + info.Agent.LLMConfig.Model
	}
	if info.Created.Agent {
		t.dim("New agent %s (%s).", name, t.rt.ID().AgentID)
	}
	t.dim("Talking to %s, %s.", name, where)
	t.dim("Ctrl-C stops an answer, Ctrl-D leaves, /help says more.")
}

// run reads messages and shows what comes of them, until the user leaves.
func (t *talk) run(ctx context.Context) error {
	go t.readLines()
	if err := t.takeUp(ctx); err != nil {
		return leaving(err)
	}
	for {
		line, err := t.ask("> ")
		if err != nil {
			return leaving(err)
		}
		switch text := strings.TrimSpace(line); {
		case text == "":
		case text == "/exit" || text == "/quit":
			return nil
		case text == "/help":
			t.help()
		case strings.HasPrefix(text, "/"):
			t.dim("There is no command %s; /help lists them.", text)
		default:
			if err := t.exchange(ctx, line); err != nil {
				return leaving(err)
			}
		}
	}
}

func leaving(err error) error {
	if errors.Is(err, errLeave) {
		return nil
	}
	return err
}

func (t *talk) help() {
	t.dim("Type a message and press Enter; end a line with \\ to go on in the next one.")
	t.dim("/exit or Ctrl-D leaves. Ctrl-C stops a running answer, a second one leaves.")
	t.dim("Approvals: y allows, n denies (n and a reason tells the agent why), a allows and remembers.")
}

// ask shows a prompt and reads a line, with its continuations.
func (t *talk) ask(prompt string) (string, error) {
	var all []string
	for {
		fmt.Fprint(t.out, prompt)
		select {
		case line, ok := <-t.lines:
			if !ok {
				fmt.Fprintln(t.out)
				return "", errLeave
			}
			if cut, more := strings.CutSuffix(line, `\`); more {
				all, prompt = append(all, cut), "… "
				continue
			}
			return strings.Join(append(all, line), "\n"), nil
		case <-t.signals:
			fmt.Fprintln(t.out)
			return "", errLeave
		case <-t.conn.Done():
			return "", t.conn.Err()
		}
	}
}

// exchange sends one message and shows its turn.
func (t *talk) exchange(ctx context.Context, text string) error {
	// Who leaves while an approval waits finds it again: the turn stays.
	keep := true
	turn, err := t.rt.SendInput(ctx, protocol.CreateMessage{
		Messages: []protocol.InputMessage{protocol.UserMessage(text, "")}, KeepRunning: &keep,
	})
	var refused *client.ServerError
	if errors.As(err, &refused) {
		t.warn("%s", refused.Message)
		return nil
	}
	if err != nil {
		return err
	}
	t.turn = turn
	defer func() { t.turn = nil }()
	if turn.Disposition() == protocol.Queued {
		t.dim("Queued behind what is running.")
	}
	err = t.show(ctx, func(ctx context.Context, yield func(protocol.Event)) {
		for ev, err := range turn.Events(ctx) {
			if err != nil {
				return // Wait says more
			}
			yield(ev)
		}
	})
	if err != nil {
		return err
	}
	result, err := turn.Wait(ctx)
	if errors.Is(err, client.ErrRemoved) {
		t.dim("Removed from the queue.")
		return nil
	}
	if err != nil {
		return explain(err)
	}
	t.finish(result.StopReason, result.Error)
	return nil
}

// takeUp asks what waited when the chat began, and shows the rest of a turn that
// is at work.
func (t *talk) takeUp(ctx context.Context) error {
	sub := t.rt.Subscribe() // before any answer, so that nothing of its turn is missed
	defer sub.Close()
	goesOn := false
	for _, waiting := range t.rt.Pending() {
		answered, err := t.decide(ctx, waiting.RequestID, &waiting.Request)
		if err != nil {
			return err
		}
		goesOn = goesOn || answered
	}
	if status := t.rt.Status().Status; !goesOn {
		if status == "" || status == protocol.WaitingOnInput {
			return nil
		}
		t.dim("An earlier message is still being answered.")
	}
	var end *protocol.TurnFinished
	err := t.show(ctx, func(ctx context.Context, yield func(protocol.Event)) {
		for end == nil {
			ev, err := sub.Next(ctx)
			if err != nil {
				return
			}
			yield(ev)
			end, _ = ev.Body.(*protocol.TurnFinished)
		}
	})
	if err == nil && end != nil {
		t.finish(end.StopReason, end.Error)
	}
	return err
}

// show renders the events that read yields until it returns. The first Ctrl-C
// aborts the turn, the second leaves.
func (t *talk) show(ctx context.Context, read func(ctx context.Context, yield func(protocol.Event))) error {
	events := make(chan protocol.Event)
	reading, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for range events { // until the reader is gone
		}
	}()
	go func() {
		defer close(events)
		read(reading, func(ev protocol.Event) {
			select {
			case events <- ev:
			case <-reading.Done():
			}
		})
	}()
	r := &renderer{talk: t}
	interrupted := false
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				r.newline()
				return nil
			}
			if ask, ok := ev.Body.(*protocol.ControlRequest); ok {
				r.newline()
				if _, err := t.decide(ctx, ask.RequestID, &ask.Request); err != nil {
					return err
				}
				continue
			}
			r.event(ev)
		case <-t.signals:
			r.newline()
			if interrupted {
				return errLeave
			}
			interrupted = true
			if _, err := t.stop(ctx); err != nil {
				return err
			}
		}
	}
}

// stop ends the turn that is shown. A message of this terminal that still waits
// leaves the queue instead: what runs then belongs to somebody else.
func (t *talk) stop(ctx context.Context) (bool, error) {
	if t.turn == nil || t.turn.Disposition() != protocol.Queued {
		return t.rt.Abort(ctx)
	}
	item, err := t.queued(ctx, t.turn.Key())
	if err != nil {
		return false, err
	}
	if item == "" { // its turn has begun
		return t.rt.Abort(ctx)
	}
	_, err = client.Call(ctx, t.conn, &protocol.RemoveQueueItem{Runtime: t.rt.ID(), ItemID: item})
	return err == nil, err
}

// queued is the id of the queued item of a message; "" = it does not wait.
func (t *talk) queued(ctx context.Context, key string) (string, error) {
	sub := t.rt.Subscribe()
	defer sub.Close()
	if err := t.rt.Sync(ctx); err != nil { // replays the queue
		return "", err
	}
	for {
		ev, err := sub.Next(ctx)
		if err != nil {
			return "", err
		}
		if queue, ok := ev.Body.(*protocol.QueueUpdate); ok {
			for _, item := range queue.Queue {
				if item.ClientMessageID == key {
					return item.ID, nil
				}
			}
			return "", nil
		}
	}
}

// finish says how a turn ended, unless it ended well.
func (t *talk) finish(reason protocol.StopReasonValue, text string) {
	switch {
	case reason == protocol.StopEndTurn:
	case reason == protocol.StopCancelled:
		t.dim("Stopped.")
	case text != "":
		t.warn("%s", text)
	default:
		t.warn("The answer ended early: %s.", reason)
	}
}

// decide asks for an approval, or puts a question of the agent. It says whether
// the answer counted: somebody else may have been faster.
func (t *talk) decide(ctx context.Context, requestID string, call *protocol.CanUseTool) (answered bool, err error) {
	answer := &protocol.ApprovalResponse{RequestID: requestID}
	if call.ToolName == "AskUserQuestion" {
		answer.Decision, err = t.question(call)
	} else {
		answer.Decision, err = t.approval(call)
	}
	if errors.Is(err, errInterrupted) {
		return t.stop(ctx)
	}
	if err != nil {
		return false, err
	}
	err = t.rt.Answer(ctx, answer)
	var refused *client.ServerError
	if errors.As(err, &refused) {
		t.dim("%s", refused.Message)
		return false, nil
	}
	return err == nil, err
}

// errInterrupted says that Ctrl-C came in place of an answer.
var errInterrupted = errors.New("interrupted")

// askInTurn is ask while a turn waits: Ctrl-C aborts the turn.
func (t *talk) askInTurn(prompt string) (string, error) {
	fmt.Fprint(t.out, prompt)
	select {
	case line, ok := <-t.lines:
		if !ok {
			fmt.Fprintln(t.out)
			return "", errLeave
		}
		return strings.TrimSpace(line), nil
	case <-t.signals:
		fmt.Fprintln(t.out)
		return "", errInterrupted
	case <-t.conn.Done():
		return "", t.conn.Err()
	}
}

// approval asks whether a call may run.
func (t *talk) approval(call *protocol.CanUseTool) (*protocol.Decision, error) {
	t.warn("%s wants to run: %s", call.ToolName, summary(json.RawMessage(call.Input)))
	for _, d := range call.Diffs {
		t.diff(d)
	}
	prompt := "Allow? [y]es, [n]o"
	for _, s := range call.PermissionSuggestions {
		prompt += ", [a]lways (" + s.Text + ")"
		break
	}
	for {
		line, err := t.askInTurn(prompt + " ")
		if err != nil {
			return nil, err
		}
		word, rest, _ := strings.Cut(line, " ")
		switch strings.ToLower(word) {
		case "y", "yes":
			return &protocol.Decision{Behavior: protocol.Allow}, nil
		case "a", "always":
			d := &protocol.Decision{Behavior: protocol.Allow}
			if len(call.PermissionSuggestions) > 0 {
				d.SelectedPermissionSuggestionIDs = []string{call.PermissionSuggestions[0].ID}
			}
			return d, nil
		case "n", "no":
			reason := strings.TrimSpace(rest)
			if reason == "" {
				reason = "The user does not want this tool to run."
			}
			return &protocol.Decision{Behavior: protocol.Deny, Message: &reason}, nil
		}
	}
}

// question is one question of AskUserQuestion.
type question struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
	MultiSelect bool `json:"multiSelect"`
}

// question puts the questions of an agent. The answer is the call's input with
// the answers beside the questions.
func (t *talk) question(call *protocol.CanUseTool) (*protocol.Decision, error) {
	var input struct {
		Questions []question `json:"questions"`
	}
	fields := map[string]json.RawMessage{}
	err := json.Unmarshal(call.Input, &input)
	if err == nil {
		err = json.Unmarshal(call.Input, &fields)
	}
	if err != nil {
		unreadable := "The questions could not be read."
		return &protocol.Decision{Behavior: protocol.Deny, Message: &unreadable}, nil
	}
	answers := map[string]string{}
	for _, q := range input.Questions {
		if answers[q.Question], err = t.choose(q); err != nil {
			return nil, err
		}
	}
	if fields["answers"], err = json.Marshal(answers); err != nil {
		return nil, err
	}
	updated, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return &protocol.Decision{Behavior: protocol.Allow, UpdatedInput: protocol.Some(protocol.Object(updated))}, nil
}

// choose reads the number of an option, several with commas where the question
// allows that, or an answer in one's own words.
func (t *talk) choose(q question) (string, error) {
	t.warn("%s", q.Question)
	for i, o := range q.Options {
		line := fmt.Sprintf("  %d  %s", i+1, o.Label)
		if o.Description != "" {
			line += ": " + o.Description
		}
		fmt.Fprintln(t.out, line)
	}
	prompt := "Number, or your own words: "
	if q.MultiSelect {
		prompt = "Numbers with commas, or your own words: "
	}
	for {
		line, err := t.askInTurn(prompt)
		if err != nil {
			return "", err
		}
		if line == "" {
			continue
		}
		var picked []string
		for word := range strings.SplitSeq(line, ",") {
			var n int
			if _, err := fmt.Sscanf(strings.TrimSpace(word)+"\n", "%d\n", &n); err != nil || n < 1 || n > len(q.Options) {
				return line, nil
			}
			picked = append(picked, q.Options[n-1].Label)
		}
		if len(picked) > 1 && !q.MultiSelect {
			continue
		}
		return strings.Join(picked, ", "), nil
	}
}
