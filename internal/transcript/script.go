package transcript

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

// gates are what answers of the model wait for, by name.
type gates struct {
	mu    sync.Mutex // guards named
	named map[string]chan struct{}
}

func (g *gates) get(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.named == nil {
		g.named = map[string]chan struct{}{}
	}
	if g.named[name] == nil {
		g.named[name] = make(chan struct{})
	}
	return g.named[name]
}

// parseModel reads the section model.
func parseModel(text string, g *gates) (*fake.Model, error) {
	var script []fake.Answer
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		var answer fake.Answer
		for line := range strings.SplitSeq(strings.TrimSpace(paragraph), "\n") {
			step, err := parseStep(line, g)
			if err != nil {
				return nil, err
			}
			answer = append(answer, step)
		}
		script = append(script, answer)
	}
	return fake.New(script...), nil
}

func parseStep(line string, g *gates) (fake.Step, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "text":
		return fake.Text(rest), nil
	case "think":
		return fake.Reasoning(rest), nil
	case "call":
		name, args, _ := strings.Cut(rest, " ")
		return fake.Call(name, args), nil
	case "status":
		code, message, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(code)
		return fake.Status(n, message), err
	case "overflow":
		return fake.Overflow(), nil
	case "cut":
		return fake.Cut(), nil
	case "hang":
		return fake.Hang(), nil
	case "length":
		return fake.Finish(llm.FinishLength), nil
	case "gate":
		return fake.Gate(g.get(rest)), nil
	}
	return nil, fmt.Errorf("model: unknown step %q", line)
}
