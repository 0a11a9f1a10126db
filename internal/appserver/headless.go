package appserver

import (
	"context"
	"encoding/json"
	"reflect"

	"mneme/internal/agent"
	"mneme/protocol"
)

// setExecution stores the headless mode of a runtime, for all its connections,
// while somebody watches it; nil leaves it.
func (f *feed) setExecution(ctx context.Context, s *protocol.ExecutionSettings) error {
	if s == nil {
		return nil
	}
	f.mu.Lock()
	same := reflect.DeepEqual(f.execution, s)
	f.mu.Unlock()
	if same {
		return nil
	}
	state, err := f.door.rt.Status(ctx, f.scope)
	if err != nil {
		return err
	}
	if state.Processing || len(state.Queue) > 0 || len(state.Pending) > 0 {
		return agent.Errorf(agent.CodeBusy, "Cannot change execution settings while the conversation has active or queued work")
	}
	f.mu.Lock()
	f.execution = s
	f.mu.Unlock()
	return nil
}

// headless applies the execution settings to the options of an input.
func (f *feed) headless(o *agent.TurnOptions) {
	f.mu.Lock()
	s := f.execution
	f.mu.Unlock()
	if s == nil {
		return
	}
	o.Headless, o.WithUsage = true, true
	o.Allowed, o.Disallowed = s.AllowedTools, s.DisallowedTools
	if s.MaxTurns != nil {
		o.MaxSteps = *s.MaxTurns
	}
}

// mcpPart reads one content part of an external tool's result; false for types
// that are dropped.
func mcpPart(raw protocol.Object) (agent.Part, bool) {
	var p struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Data     string `json:"data"`
		MimeType string `json:"mimeType"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return agent.Part{}, false
	}
	switch p.Type {
	case "text":
		return agent.Text(p.Text), true
	case "image":
		return agent.Part{Kind: agent.PartImage, MediaType: p.MimeType, Data: p.Data}, true
	}
	return agent.Part{}, false
}
