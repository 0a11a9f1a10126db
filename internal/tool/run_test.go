package tool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

// A journal notes what Run reports, in order.
type journal struct {
	events  []string
	results map[int]agent.ToolResult
	startErr,
	doneErr map[int]error
}

func (j *journal) start(i int) error {
	j.events = append(j.events, fmt.Sprintf("start %d", i))
	return j.startErr[i]
}

func (j *journal) done(i int, r agent.ToolResult) error {
	j.events = append(j.events, fmt.Sprintf("done %d", i))
	if j.results == nil {
		j.results = map[int]agent.ToolResult{}
	}
	j.results[i] = r
	return j.doneErr[i]
}

// takes is a tool that takes some (fake) time.
func takes(class tool.Class, d time.Duration) *tool.Tool {
	return &tool.Tool{Def: agent.ToolDef{Name: "t"}, Class: class, Run: func(ctx context.Context, c *tool.Call) agent.ToolResult {
		select {
		case <-time.After(d):
			return agent.TextResult(agent.StatusSuccess, c.ID)
		case <-ctx.Done():
			return tool.Interrupted()
		}
	}}
}

func scheduled(tools ...*tool.Tool) []tool.Scheduled {
	var calls []tool.Scheduled
	for i, t := range tools {
		calls = append(calls, tool.Scheduled{Tool: t, Call: &tool.Call{ID: fmt.Sprint(i), Name: "t", Input: in(), Env: &tool.Env{Cwd: "/w"}}})
	}
	return calls
}

func onFile(s *tool.Scheduled, path string) { s.Call.Input = in("file_path", path) }

func TestRunOrder(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		calls []tool.Scheduled
		files map[int]string
		want  []string
	}{
		"serial": {
			calls: scheduled(takes(tool.Serial, 30*ms), takes(tool.Serial, 10*ms), takes(tool.Serial, 20*ms)),
			want:  []string{"start 0", "done 0", "start 1", "done 1", "start 2", "done 2"},
		},
		"parallel beside serial": {
			calls: scheduled(takes(tool.Serial, 30*ms), takes(tool.Parallel, 10*ms), takes(tool.Parallel, 20*ms)),
			want:  []string{"start", "start", "start", "done 1", "done 2", "done 0"},
		},
		"one file": {
			calls: scheduled(takes(tool.PerFile, 30*ms), takes(tool.PerFile, 10*ms)),
			files: map[int]string{0: "/w/a", 1: "x/../a"},
			want:  []string{"start 0", "done 0", "start 1", "done 1"},
		},
		"two files": {
			calls: scheduled(takes(tool.PerFile, 30*ms), takes(tool.PerFile, 10*ms)),
			files: map[int]string{0: "a", 1: "b"},
			want:  []string{"start", "start", "done 1", "done 0"},
		},
		"write before shell before write": {
			calls: scheduled(takes(tool.PerFile, 20*ms), takes(tool.Serial, 10*ms), takes(tool.PerFile, 5*ms), takes(tool.PerFile, 7*ms)),
			files: map[int]string{0: "a", 2: "b", 3: "c"},
			want:  []string{"start 0", "done 0", "start 1", "done 1", "start", "start", "done 2", "done 3"},
		},
		"read after write of the file": {
			calls: scheduled(takes(tool.PerFile, 20*ms), takes(tool.Parallel, 5*ms), takes(tool.Parallel, 10*ms)),
			files: map[int]string{0: "a", 1: "a", 2: "b"},
			want:  []string{"start", "start", "done 2", "done 0", "start 1", "done 1"},
		},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, path := range c.files {
					onFile(&c.calls[i], path)
				}
				var j journal
				if err := tool.Run(t.Context(), c.calls, j.start, j.done); err != nil {
					t.Fatal(err)
				}
				// Calls that start at the same time do so in any order.
				got := slices.Clone(j.events)
				for i, e := range c.want {
					if e == "start" && strings.HasPrefix(got[i], "start") {
						got[i] = "start"
					}
				}
				if diff := cmp.Diff(c.want, got, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				for i := range c.calls {
					if text := agent.TextOf(j.results[i].Parts); text != fmt.Sprint(i) {
						t.Errorf("result %d is %q", i, text)
					}
				}
			})
		})
	}
}

func TestRunAbort(t *testing.T) {
	cause := errors.New("aborted")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var j journal
		calls := scheduled(takes(tool.Serial, time.Hour), takes(tool.Serial, time.Hour), takes(tool.Parallel, time.Hour))
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		begin := time.Now()
		if err := tool.Run(ctx, calls, j.start, j.done); !errors.Is(err, cause) {
			t.Errorf("Run: %v, want the cause", err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("Run returned after %v", took)
		}
		if slices.Contains(j.events, "start 1") || len(j.events) != 4 {
			t.Errorf("events %v", j.events)
		}
		for _, i := range []int{0, 2} {
			if diff := cmp.Diff(tool.Interrupted(), j.results[i]); diff != "" {
				t.Errorf("result %d (-want +got):\n%s", i, diff)
			}
		}
	})
	// All that started had ended: nothing was kept from starting.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var j journal
		calls := scheduled(takes(tool.Parallel, time.Minute))
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := tool.Run(ctx, calls, j.start, j.done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestRunJournalFails(t *testing.T) {
	failure := errors.New("no lease")
	t.Run("start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ran := false
			spy := &tool.Tool{Run: func(context.Context, *tool.Call) agent.ToolResult { ran = true; return agent.ToolResult{} }}
			j := journal{startErr: map[int]error{1: failure}}
			calls := scheduled(takes(tool.Parallel, time.Minute), spy, takes(tool.Serial, time.Minute))
			calls[1].Tool.Class = tool.Serial
			if err := tool.Run(t.Context(), calls, j.start, j.done); !errors.Is(err, failure) {
				t.Errorf("Run: %v", err)
			}
			if ran || slices.Contains(j.events, "done 1") || slices.Contains(j.events, "start 2") {
				t.Errorf("ran %v, events %v", ran, j.events)
			}
			if r, started := j.results[0]; started && agent.TextOf(r.Parts) != "Interrupted by user" {
				t.Errorf("the running call went on: %+v", r)
			}
		})
	})
	t.Run("done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			j := journal{doneErr: map[int]error{0: failure}}
			calls := scheduled(takes(tool.Serial, time.Second), takes(tool.Serial, time.Second), takes(tool.Parallel, time.Hour))
			if err := tool.Run(t.Context(), calls, j.start, j.done); !errors.Is(err, failure) {
				t.Errorf("Run: %v", err)
			}
			if slices.Contains(j.events, "start 1") {
				t.Errorf("events %v", j.events)
			}
		})
	})
}

func TestRunPanic(t *testing.T) {
	var log strings.Builder
	boom := &tool.Tool{Run: func(context.Context, *tool.Call) agent.ToolResult { panic("boom") }}
	calls := scheduled(boom, takes(tool.Serial, 0))
	calls[0].Call.Env.Log = slog.New(slog.NewTextHandler(&log, nil))
	var j journal
	if err := tool.Run(t.Context(), calls, j.start, j.done); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(agent.TextResult(bad, "Error executing tool: boom"), j.results[0]); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if agent.TextOf(j.results[1].Parts) != "1" {
		t.Errorf("the next call: %+v", j.results[1])
	}
	if !strings.Contains(log.String(), "tool panicked") || !strings.Contains(log.String(), "run_test.go") {
		t.Errorf("log %q", log.String())
	}
}

// Callbacks never overlap, whatever runs at once, and results are clamped.
func TestRunCallbacksAreSerial(t *testing.T) {
	long := &tool.Tool{Class: tool.Parallel, Run: func(context.Context, *tool.Call) agent.ToolResult {
		return agent.TextResult(agent.StatusSuccess, strings.Repeat("x", 50_000))
	}}
	var tools []*tool.Tool
	for range 50 {
		tools = append(tools, long)
	}
	var mu sync.Mutex
	count := 0
	enter := func() {
		if !mu.TryLock() {
			t.Error("two callbacks at once")
			return
		}
		count++
		mu.Unlock()
	}
	err := tool.Run(t.Context(), scheduled(tools...), func(int) error { enter(); return nil }, func(_ int, r agent.ToolResult) error {
		enter()
		if n := len(r.Parts[0].Text); n > 32_000 {
			t.Errorf("a result of %d characters", n)
		}
		return nil
	})
	if err != nil || count != 100 {
		t.Errorf("%d callbacks, %v", count, err)
	}
}

func TestRunClientTool(t *testing.T) {
	var j journal
	if err := tool.Run(t.Context(), scheduled(&tool.Tool{}), j.start, j.done); err != nil {
		t.Fatal(err)
	}
	if j.results[0].Status != bad {
		t.Errorf("a client tool ran here: %+v", j.results[0])
	}
}
