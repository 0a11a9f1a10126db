package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mneme/internal/agent"
)

//go:embed ask.md
var askText string

type askArgs struct {
	Questions []struct {
		Question string `json:"question"`
	} `json:"questions"`
	Answers map[string]json.RawMessage `json:"answers"`
}

func askTool() *Tool {
	t := define("AskUserQuestion", askText, `
		"questions":{"type":"array","minItems":1,"maxItems":4,"items":{"type":"object","properties":{
			"question":{"type":"string","description":"The whole question"},
			"header":{"type":"string","maxLength":12,"description":"A label of one or two words"},
			"options":{"type":"array","minItems":2,"maxItems":4,"items":{"type":"object","properties":{
				"label":{"type":"string","description":"The choice, in one to five words"},
				"description":{"type":"string","description":"What choosing it means"}},
				"required":["label","description"],"additionalProperties":false}},
			"multiSelect":{"type":"boolean","description":"Whether several options may be chosen"}},
			"required":["question","header","options","multiSelect"],"additionalProperties":false}},
		"answers":{"type":"object","additionalProperties":{"type":"string"},"description":"Filled in by the user's client"}`,
		"questions")
	t.Class, t.Interactive, t.ReadOnly = Parallel, true, true
	t.Run = func(_ context.Context, c *Call) agent.ToolResult {
		var in askArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		return answered(in)
	}
	return t
}

// answered tells the model what the user chose: the answers come in through the
// approval, as part of the input.
func answered(in askArgs) agent.ToolResult {
	var pairs []string
	seen := map[string]bool{}
	add := func(question string) {
		if answer, ok := in.Answers[question]; ok && !seen[question] {
			seen[question] = true
			pairs = append(pairs, fmt.Sprintf(`"%s"="%s"`, question, answerText(answer)))
		}
	}
	for _, q := range in.Questions {
		add(q.Question)
	}
	var rest []string
	for question := range in.Answers {
		rest = append(rest, question)
	}
	slices.Sort(rest)
	for _, question := range rest {
		add(question)
	}
	if len(pairs) == 0 {
		return failf("The user did not answer.")
	}
	return success("User has answered your questions: " + strings.Join(pairs, ", ") +
		". You can now continue with the user's answers in mind.")
}

// answerText is an answer as text; several choices are joined.
func answerText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ", ")
	}
	return string(raw)
}
