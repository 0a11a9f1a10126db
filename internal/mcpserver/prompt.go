package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/agent"
)

// A recipe is a prompt: what it takes and what it tells the model to do.
type recipe struct {
	prompt *mcp.Prompt
	text   func(args map[string]string) string
}

// recipes in the order in which they are listed.
func recipes() []recipe {
	agentArg := &mcp.PromptArgument{Name: "agent_id", Description: "Id or name of the agent.", Required: true}
	return []recipe{
		{
			prompt: &mcp.Prompt{
				Name: "recall", Title: "Recall", Description: "Answer from an agent's memory, with the places where it stands.",
				Arguments: []*mcp.PromptArgument{agentArg, {Name: "topic", Description: "What to recall.", Required: true}},
			},
			text: func(a map[string]string) string {
				return fmt.Sprintf("Call memory_search with agent_id %q and a query about: %s\nAnswer from its results only and name the path of each passage you use. If they do not hold the answer, search once more with other words; if there still is none, say that the memory does not hold it.", a["agent_id"], a["topic"])
			},
		},
		{
			prompt: &mcp.Prompt{
				Name: "remember", Title: "Remember", Description: "File one fact in an agent's memory, unless it is there.",
				Arguments: []*mcp.PromptArgument{agentArg, {Name: "fact", Description: "What to remember.", Required: true}},
			},
			text: func(a map[string]string) string {
				return fmt.Sprintf("The fact: %s\nFirst call memory_search with agent_id %q to see whether the memory holds it already. If it does, say where. If not, call memory_save once, with the fact as one complete sentence that is clear without this conversation, and report the path.", a["fact"], a["agent_id"])
			},
		},
		{
			prompt: &mcp.Prompt{
				Name: "consult", Title: "Consult", Description: "Put a question to an agent and report what it says.",
				Arguments: []*mcp.PromptArgument{agentArg, {Name: "question", Description: "What to ask.", Required: true}},
			},
			text: func(a map[string]string) string {
				return fmt.Sprintf("Call session_ask with agent_id %q and this message, adding what the agent must know from here: %s\nReport its reply as the agent's, without changing what it says.", a["agent_id"], a["question"])
			},
		},
		{
			prompt: &mcp.Prompt{Name: "bootstrap", Title: "Choose an agent", Description: "Find the agent to work with and keep its id."},
			text: func(map[string]string) string {
				return "Call agent_lookup without arguments. Choose the agent that fits what we are doing; if several do, ask me, and if none does, offer to make one with agent_create. Keep its id and use it as agent_id in every later call of these tools."
			},
		},
	}
}

func (s *Server) addPrompts() {
	for _, r := range recipes() {
		s.mcp.AddPrompt(r.prompt, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			for _, arg := range r.prompt.Arguments {
				if arg.Required && strings.TrimSpace(req.Params.Arguments[arg.Name]) == "" {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the prompt %s needs the argument %s", r.prompt.Name, arg.Name)}
				}
			}
			return &mcp.GetPromptResult{
				Description: r.prompt.Description,
				Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: r.text(req.Params.Arguments)}}},
			}, nil
		})
	}
}

const maxCompletions = 100

// complete offers values for the arguments that name an agent or a path of its
// memory.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.RequestTimeout, errRequestTimeout)
	defer cancel()
	var values []string
	var err error
	switch req.Params.Argument.Name {
	case "agent", "agent_id":
		values, err = s.agentNames(ctx)
	case "path":
		values, err = s.paths(ctx, req.Params.Context)
	}
	if err != nil {
		s.log.Debug("nothing to complete with", "err", err)
		values = nil // a completion that fails is one without values
	}
	values = completions(values, req.Params.Argument.Value)
	r := mcp.CompletionResultDetails{Values: values[:min(len(values), maxCompletions)], Total: len(values), HasMore: len(values) > maxCompletions}
	return &mcp.CompleteResult{Completion: r}, nil
}

func (s *Server) agentNames(ctx context.Context) ([]string, error) {
	all, err := s.backend.Agents(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, a := range all {
		if !a.Hidden {
			names = append(names, a.Name)
		}
	}
	return names, nil
}

// paths are those of the agent that the client has filled in before.
func (s *Server) paths(ctx context.Context, given *mcp.CompleteContext) ([]string, error) {
	if given == nil {
		return nil, agent.Errorf(agent.CodeNotFound, "no agent is given")
	}
	ref := given.Arguments["agent"]
	if ref == "" {
		ref = given.Arguments["agent_id"]
	}
	ag, err := resolve(ctx, s.backend, ref)
	if err != nil {
		return nil, err
	}
	snap, err := s.backend.Memory(ctx, ag.ID, Paths)
	if err != nil {
		return nil, err
	}
	paths := []string{}
	for _, f := range snap.served() {
		paths = append(paths, f.Path)
	}
	return paths, nil
}

// completions are the values that begin with a text, then those that contain
// it, each in order and once.
func completions(values []string, typed string) []string {
	want := fold(typed)
	slices.Sort(values)
	first, then := []string{}, []string{}
	for _, v := range slices.Compact(values) {
		switch f := fold(v); {
		case strings.HasPrefix(f, want):
			first = append(first, v)
		case strings.Contains(f, want):
			then = append(then, v)
		}
	}
	return append(first, then...)
}
