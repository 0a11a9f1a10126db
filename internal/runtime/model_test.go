package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// TestRandomLives does random things to a conversation - inputs, repeats,
// answers, aborts, removals, restarts, crashes - and demands afterwards what
// must hold whatever happened.
func TestRandomLives(t *testing.T) {
	for i := range 12 {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { live(t, seed) })
	}
}

// effects counts what a tool did, by key.
type effects struct {
	mu   sync.Mutex
	runs map[string]int
}

func (e *effects) tool() *tool.Tool {
	return &tool.Tool{
		Def:   agent.ToolDef{Name: "Effect", Description: "acts", Parameters: json.RawMessage(`{"type":"object"}`)},
		Class: tool.Serial,
		Run: func(ctx context.Context, c *tool.Call) agent.ToolResult {
			var in struct{ Key string }
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return agent.TextResult(agent.StatusError, err.Error())
			}
			e.mu.Lock()
			e.runs[in.Key]++
			e.mu.Unlock()
			return agent.TextResult(agent.StatusSuccess, "did "+in.Key)
		},
	}
}

// effectModel answers a text that names an effect with a call for it, and its
// result with a text. It fails the test when it is shown an invalid history.
func effectModel(t *testing.T, rnd func(n int) int) *fake.Model {
	var mu sync.Mutex
	calls := 0
	return fake.NewFunc(func(req *llm.Request) fake.Answer {
		if err := valid(req.Messages); err != nil {
			t.Errorf("the model was shown an invalid history: %v", err)
		}
		last := req.Messages[len(req.Messages)-1]
		if last.Role == agent.RoleTool || !strings.Contains(agent.TextOf(last.Parts), "effect") {
			return fake.Answer{fake.Text("some ", "words")}
		}
		mu.Lock()
		calls++
		n := calls
		mu.Unlock()
		answer := fake.Answer{fake.Text("well")}
		for i := range 1 + rnd(2) {
			answer = append(answer, fake.CallID("", "Effect", fmt.Sprintf(`{"key":"e%d-%d"}`, n, i)))
		}
		return answer
	})
}

// valid says whether every call has exactly one result, right behind it.
func valid(msgs []*agent.Message) error {
	var open []string
	for _, m := range msgs {
		if m.Interrupted || m.Hidden {
			return fmt.Errorf("message %s should not be shown", m.ID)
		}
		if m.Role == agent.RoleTool {
			i := slices.Index(open, m.CallID)
			if i < 0 {
				return fmt.Errorf("the result of %s has no call", m.CallID)
			}
			open = slices.Delete(open, i, i+1)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("%v have no result before the %s message", open, m.Role)
		}
		for _, c := range m.Calls() {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%v have no result", open)
	}
	return nil
}

func live(t *testing.T, seed uint64) {
	src := rand.New(rand.NewPCG(seed, 3))
	var mu sync.Mutex
	rnd := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return src.IntN(n)
	}
	done := &effects{runs: map[string]int{}}
	r := setup(t, effectModel(t, rnd), withTools(done.tool()))
	modes := []agent.Mode{agent.ModeStandard, agent.ModeUnrestricted}
	accepted := map[string]string{} // key -> text
	for i := range 60 {
		switch rnd(12) {
		case 0, 1, 2, 3:
			k, text := fmt.Sprint("k", i), []string{"words", "effect"}[rnd(2)]
			if _, err := r.m.Submit(t.Context(), r.input(text, key(k), use("Effect")), nil); err != nil {
				t.Fatalf("submit: %v", err)
			}
			accepted[k] = text
		case 4:
			for k, text := range accepted {
				rc, err := r.m.Submit(t.Context(), r.input(text, key(k), use("Effect")), nil)
				if err != nil || !rc.Duplicate {
					t.Fatalf("repeat of %s: %+v, %v", k, rc, err)
				}
				break
			}
		case 5, 6:
			answerOne(t, r, rnd(3) > 0)
		case 7:
			if _, err := r.m.Abort(t.Context(), r.scope, "", nil); err != nil {
				t.Fatalf("abort: %v", err)
			}
		case 8:
			if _, err := r.m.ResumeQueue(t.Context(), r.scope, func(int) {}); err != nil {
				t.Fatalf("resume: %v", err)
			}
		case 9:
			mode := modes[rnd(2)]
			if err := r.m.ChangeSettings(t.Context(), r.scope, runtime.Change{Mode: &mode}); err != nil {
				t.Fatalf("mode: %v", err)
			}
		case 10:
			r.restart()
		case 11:
			r.crash()
		}
		if rnd(3) == 0 {
			time.Sleep(time.Duration(rnd(4)) * time.Millisecond)
		}
	}
	rest(t, r)
	checkLife(t, r, accepted, done)
}

// answerOne settles the call that is shown, if any.
func answerOne(t *testing.T, r *rig, allow bool) {
	s, err := r.m.Status(t.Context(), r.scope)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	if len(s.Pending) == 0 {
		return
	}
	err = r.m.Answer(t.Context(), r.scope, s.Pending[0].ID, runtime.Answer{Allow: allow, Message: "no"}, nil)
	if err != nil && agent.CodeOf(err) != agent.CodeNotPending {
		t.Fatalf("answer: %v", err)
	}
}

// rest lets everything that was accepted come to its end.
func rest(t *testing.T, r *rig) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		answerOne(t, r, true)
		if _, err := r.m.ResumeQueue(t.Context(), r.scope, func(int) {}); err != nil {
			t.Fatalf("resume: %v", err)
		}
		s, err := r.m.Status(t.Context(), r.scope)
		if err != nil {
			t.Fatalf("status: %v", err)
		}
		if !s.Processing && len(s.Queue) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the conversation does not come to rest: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
}

func checkLife(t *testing.T, r *rig, accepted map[string]string, done *effects) {
	t.Helper()
	msgs, err := r.st.Messages(t.Context(), store.MessageFilter{ConversationID: r.scope.ConversationID, Limit: 10000})
	if err != nil {
		t.Fatal(err)
	}
	seen, results, ids := map[string]int{}, map[string]int{}, map[string]bool{}
	for i, m := range msgs {
		if ids[m.ID] || i > 0 && m.Seq <= msgs[i-1].Seq {
			t.Errorf("message %s (%d) is out of order or stands twice", m.ID, m.Seq)
		}
		ids[m.ID] = true
		switch m.Role {
		case agent.RoleUser:
			seen[m.ClientKey]++
		case agent.RoleTool:
			results[m.CallID]++
		}
	}
	for k := range accepted {
		if seen[k] != 1 {
			t.Errorf("the input %s stands %d times in the history", k, seen[k])
		}
	}
	for _, m := range msgs {
		for _, c := range m.Calls() {
			if results[c.ID] != 1 {
				t.Errorf("the call %s has %d results", c.ID, results[c.ID])
			}
		}
	}
	for k, n := range done.runs {
		if n > 1 {
			t.Errorf("the effect %s happened %d times", k, n)
		}
	}
}
