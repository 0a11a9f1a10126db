package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// chatCommand talks to an agent: interactively, or once with -p.
type chatCommand struct {
	Text  *string `short:"p" name:"print" placeholder:"TEXT" help:"Send TEXT, print the answer and exit; - reads it from stdin."`
	Agent string  `placeholder:"NAME" help:"Name or id of the agent (${default}). A name that does not exist yet is created." default:"mneme"`
	Mode  string  `placeholder:"MODE" help:"Permission mode of this conversation from now on: standard, acceptEdits, unrestricted or strict."`
}

// Memory blocks of an agent that `mneme chat` makes.
const (
	firstPersona = "I am mneme. I remember what people tell me and what we work on together, and I keep my memory in order. When I do not know something, I say so."
	firstHuman   = "I do not know anything about the person I talk to yet. What I learn about them goes here."
)

// Run implements the command.
func (c *chatCommand) Run(p *program) (err error) {
	if strings.TrimSpace(c.Agent) == "" {
		return errors.New("--agent is empty; give the name or the id of an agent")
	}
	if !slices.Contains([]string{"", "standard", "acceptEdits", "unrestricted", "strict"}, c.Mode) {
		return fmt.Errorf("unsupported --mode %q; expected standard, acceptEdits, unrestricted or strict", c.Mode)
	}
	text := ""
	if c.Text != nil {
		if text, err = p.textOf(*c.Text); err != nil {
			return err
		}
	}
	ctx := context.Background()
	opening, opened := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	s, rt, err := c.open(opening, p)
	opened()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	defer func() { err = errors.Join(err, s.close()) }()
	if c.Text != nil {
		return p.once(ctx, rt, text, signals)
	}
	talk := newTalk(p, s.Client, rt, signals)
	talk.welcome(c.Agent, s)
	return talk.run(ctx)
}

// open connects to the state and starts the runtime. The command that holds the
// state may end between the two: then it is opened again.
func (c *chatCommand) open(ctx context.Context, p *program) (*session, *client.Runtime, error) {
	for try := 1; ; try++ {
		s, err := p.open(ctx, "chat")
		if err != nil {
			return nil, nil, err
		}
		rt, err := c.start(ctx, s)
		if err == nil {
			return s, rt, nil
		}
		var lost *client.ConnectionError
		again := s.own == nil && passing(s.holder) && errors.As(err, &lost) && try < openTries
		if cerr := s.close(); !again {
			return nil, nil, errors.Join(err, cerr)
		}
	}
}

// textOf reads the message of -p.
func (p *program) textOf(arg string) (string, error) {
	text := arg
	if arg == "-" {
		b, err := io.ReadAll(p.stdin)
		if err != nil {
			return "", fmt.Errorf("read stdin: %w", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return "", errors.New("there is nothing to send")
	}
	return text, nil
}

// start starts the runtime of the agent's own conversation in the current
// directory, and makes the agent where there is none.
func (c *chatCommand) start(ctx context.Context, s *session) (*client.Runtime, error) {
	start := protocol.RuntimeStart{Mode: protocol.Mode(c.Mode)}
	own := "default"
	start.ConversationID = &own
	if dir, err := os.Getwd(); err == nil {
		start.Cwd = protocol.Some(dir)
	}
	id, err := findAgent(ctx, s.Client, c.Agent)
	if err != nil {
		return nil, err
	}
	if id == "" {
		system := server.DefaultSystem()
		start.CreateAgent = &protocol.CreateAgent{Body: protocol.AgentBody{
			Name: &c.Agent, System: &system,
			MemoryBlocks: []protocol.MemoryBlock{{Label: "persona", Value: firstPersona}, {Label: "human", Value: firstHuman}},
		}}
	} else {
		start.AgentID = &id
	}
	return s.StartRuntime(ctx, start)
}

// findAgent finds an agent by its exact name or its id; "" = there is none.
func findAgent(ctx context.Context, c *client.Client, name string) (string, error) {
	limit := 1000
	list, err := client.Call(ctx, c, &protocol.AgentList{Query: &protocol.AgentQuery{QueryText: &name, Limit: &limit}})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, a := range list.Agents {
		if a.ID == name {
			return a.ID, nil
		}
		if a.Name == name {
			ids = append(ids, a.ID)
		}
	}
	switch len(ids) {
	case 0:
		if strings.HasPrefix(name, "agent-") {
			return "", fmt.Errorf("there is no agent %s", name)
		}
		return "", nil
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("%d agents are named %s; choose one with --agent: %s", len(ids), name, strings.Join(ids, ", "))
}

// What is answered to calls that ask when nobody can be asked.
const nobodyHere = "This tool needs a person's approval, and nobody can give it here: the message came from `mneme chat -p`. Do without the tool, or say what you would have done."

// once sends one message, prints the answer alone on stdout, and denies what
// would ask.
func (p *program) once(ctx context.Context, rt *client.Runtime, text string, signals <-chan os.Signal) error {
	if waiting := rt.Pending(); len(waiting) > 0 {
		return fmt.Errorf("this conversation waits for an answer about %s; give it in `mneme chat` first", waiting[0].Request.ToolName)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	turn, err := rt.Send(ctx, text)
	if err != nil {
		return err
	}
	interrupted := make(chan struct{})
	go func() {
		select {
		case <-signals:
			close(interrupted)
			rt.Abort(ctx) //nolint:errcheck // the turn's end tells
			<-signals     // the second one does not wait for the turn
			cancel()
		case <-ctx.Done():
		}
	}()
	denied := 0
	for ev, err := range turn.Events(ctx) {
		if err != nil {
			break // Wait says more
		}
		if ask, ok := ev.Body.(*protocol.ControlRequest); ok {
			denied++
			if err := rt.Deny(ctx, ask.RequestID, nobodyHere); err != nil {
				return err
			}
		}
	}
	result, err := turn.Wait(ctx)
	if err == nil {
		err = result.Err()
	}
	select {
	case <-interrupted:
		return errors.New("interrupted")
	default:
	}
	if err != nil {
		return explain(err)
	}
	if denied > 0 {
		say(p.stderr, "Note: %s needed an approval and got none; --mode lets more run.", plural(denied, "tool call"))
	}
	_, err = fmt.Fprintln(p.stdout, result.Text())
	return err
}

// explain says in plain words what the end of the connection means.
func explain(err error) error {
	var lost *client.ConnectionError
	if errors.As(err, &lost) && lost.Code == 1001 {
		return errors.New("the server stopped before the answer was complete; it goes on when a server starts again")
	}
	return err
}

// plural is "1 agent", "2 agents".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
