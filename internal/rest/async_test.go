package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/rest"
)

// A listener takes callbacks.
type listener struct {
	*httptest.Server
	mu     sync.Mutex
	status []int // of the next answers; then 200
	bodies []map[string]any
	at     []time.Time
}

func listen(t *testing.T, status ...int) *listener {
	l := &listener{status: status}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var body map[string]any
		json.Unmarshal(data, &body)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bodies, l.at = append(l.bodies, body), append(l.at, time.Now())
		code := 200
		if len(l.status) > 0 {
			code, l.status = l.status[0], l.status[1:]
		}
		if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("callback %s with %s", r.Method, r.Header.Get("Content-Type"))
		}
		if code == 0 {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bodies)
}

func echo(*llm.Request) fake.Answer { return fake.Answer{fake.Text("done")} }

func private(l *life) { l.change = func(c *rest.Config) { c.AllowPrivate = true } }

func TestCallback(t *testing.T) {
	tests := map[string]struct {
		status []int
		tries  int
		code   any // callback_status_code
		fault  bool
	}{
		"at once":            {nil, 1, 200.0, false},
		"after 5xx":          {[]int{503}, 2, 200.0, false},
		"after a broken one": {[]int{0}, 2, 200.0, false},
		"refused":            {[]int{404}, 1, 404.0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := listen(t, test.status...)
			l := live(t, fake.NewFunc(echo), private)
			a := l.armed()
			run := l.post("/v1/agents/"+a+"/messages/async", with(say("x"), map[string]any{"callback_url": to.URL + "/done"}))
			if run["callback_url"] != to.URL+"/done" {
				t.Errorf("callback_url is %v", run["callback_url"])
			}
			var got map[string]any
			waitFor(t, "the callback", func() bool {
				got = l.get("/v1/runs/" + text(run["id"]))
				return to.count() == test.tries && got["callback_status_code"] == test.code
			})
			if got["status"] != "completed" || got["callback_sent_at"] == nil || (got["callback_error"] != nil) != test.fault {
				t.Errorf("the run: %v", got)
			}
			body := to.bodies[len(to.bodies)-1]
			result := body["metadata"].(map[string]any)["result"].(map[string]any)
			if body["run_id"] != run["id"] || body["status"] != "completed" || body["completed_at"] == nil ||
				text(result["messages"].([]any)[0].(map[string]any)["content"]) != "done" {
				t.Errorf("told: %v", body)
			}
			if test.tries == 2 && to.at[1].Sub(to.at[0]) < time.Second {
				t.Errorf("tried again after %v", to.at[1].Sub(to.at[0]))
			}
		})
	}
}

// TestCallbackRestart: what is owed is told after a restart, and no more than that.
func TestCallbackRestart(t *testing.T) {
	to := listen(t, 500)
	l := live(t, fake.NewFunc(echo), private)
	a := l.armed()
	run := l.post("/v1/agents/"+a+"/messages/async", with(say("x"), map[string]any{"callback_url": to.URL}))
	waitFor(t, "the first try", func() bool {
		return l.get("/v1/runs/" + text(run["id"]))["callback_status_code"] == 500.0
	})
	l.restart()
	waitFor(t, "the second try", func() bool {
		return l.get("/v1/runs/" + text(run["id"]))["callback_status_code"] == 200.0
	})
	if n := to.count(); n != 2 {
		t.Errorf("told %d times", n)
	}
}

// TestCallbackPrivate: addresses inside are refused unless they are allowed, whatever
// becomes of the run.
func TestCallbackPrivate(t *testing.T) {
	to := listen(t)
	l := live(t, fake.NewFunc(echo))
	a := l.armed()
	run := l.post("/v1/agents/"+a+"/messages/async", with(say("x"), map[string]any{"callback_url": to.URL}))
	var got map[string]any
	waitFor(t, "the refusal", func() bool {
		got = l.get("/v1/runs/" + text(run["id"]))
		return got["callback_error"] != nil
	})
	if got["status"] != "completed" || got["callback_error"] != "the address is private" || got["callback_status_code"] != nil || to.count() != 0 {
		t.Errorf("the run: %v", got)
	}
}

// TestShutdown (bug report A03): streams end when the server does. One that is logged
// has no end, so that its client comes back; others say what happens.
func TestShutdown(t *testing.T) {
	for _, background := range []bool{false, true} {
		reached := make(chan struct{})
		model := fake.New(fake.Answer{fake.Text("half"), fake.Signal(reached), fake.Hang()}, fake.Answer{fake.Text("whole")})
		l := live(t, model)
		a := l.armed()
		done, begun := make(chan []sseEvent, 1), make(chan struct{})
		go func() {
			resp, err := l.http.Do(l.request(t.Context(), "POST", "/v1/agents/"+a+"/messages", map[string]any{
				"input": "x", "streaming": true, "stream_tokens": true, "background": background,
			}))
			if err != nil {
				t.Error(err)
			}
			close(begun)
			defer resp.Body.Close()
			done <- events(t, resp.Body)
		}()
		<-reached
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := l.Door.Close(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		got := kinds(<-done)
		if last := got[len(got)-1]; background && last != "assistant_message" && last != "ping" {
			t.Errorf("a background stream ended with %v", got)
		} else if !background && (last != "[DONE]" || got[len(got)-2] != "error_message") {
			t.Errorf("a stream ended with %v", got)
		}
		l.restart()
		run := text(l.do("GET", "/v1/runs/?agent_id="+a, nil).list()[0]["id"])
		if got := l.ended(run); got["status"] != "completed" {
			t.Errorf("afterwards the run is %v", got["status"])
		}
	}
}
