package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// step is one directive of a script.
type step struct {
	Op   string
	Arg  string
	Opts map[string]string
}

var (
	injected  = regexp.MustCompile(`(?s)<(system-[a-z-]+|task-notification|memory_update)>.*?</(system-[a-z-]+|task-notification|memory_update)>`)
	directive = regexp.MustCompile(`^(?:THEN )?(SAY|THINK|CALL|ECHO_LAST_TOOL_RESULT|ERROR|SLOW|WAIT|TOKENS|USAGE|FINISH|DROP_MID_STREAM|MALFORMED|HANG|DUMP_REQUEST)(?: +(.*))?$`)
)

// parseScript splits the text into segments, one per model response. A segment
// ends after a run of CALL lines and before a line that starts with THEN.
func parseScript(text string) (segments [][]step) {
	var cur []step
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		m := directive.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		s := step{Op: m[1], Arg: m[2], Opts: map[string]string{}}
		for f := range strings.FieldsSeq(m[2]) {
			if k, v, ok := strings.Cut(f, "="); ok {
				s.Opts[k] = v
			}
		}
		afterCall := len(cur) > 0 && cur[len(cur)-1].Op == "CALL" && s.Op != "CALL"
		if len(cur) > 0 && (afterCall || strings.HasPrefix(line, "THEN ")) {
			segments = append(segments, cur)
			cur = nil
		}
		cur = append(cur, s)
	}
	if cur != nil {
		segments = append(segments, cur)
	}
	return segments
}

// script returns the text that steers this request, the number of responses
// already given to it, and the last tool result.
func (r request) script() (text string, done int, lastTool string) {
	start := -1
	for i := len(r.Messages) - 1; i >= 0 && start < 0; i-- {
		if m := r.Messages[i]; m.Role == "user" {
			if text = strings.TrimSpace(injected.ReplaceAllString(m.Text, "")); text != "" {
				start = i
			}
		}
	}
	prev := "user"
	for _, m := range r.Messages[start+1:] {
		if m.Role == "assistant" && prev != "assistant" {
			done++
		}
		if m.Role == "tool" {
			lastTool = m.Text
		}
		if m.Role != "user" {
			prev = m.Role
		}
	}
	return text, done, lastTool
}

// dump describes the request, for DUMP_REQUEST.
func (r request) dump() string {
	roles := []string{}
	for _, m := range r.Messages {
		roles = append(roles, m.Role)
	}
	tools := append([]string{}, r.Tools...)
	slices.Sort(tools)
	b, _ := json.Marshal(map[string]any{
		"api": r.API, "model": r.Model, "stream": r.Stream, "tools": tools,
		"roles": roles, "system": r.System != "",
	})
	return string(b)
}

// event is one thing the response does.
type event struct {
	kind string // text, think, call, wait, drop, malformed, hang
	text string // token, arguments
	name string
	id   string
	wait time.Duration
}

// reply is a whole response, before it is rendered.
type reply struct {
	events     []event
	delay      time.Duration // of each following token and call
	finish     string        // stop, tool, length
	errStatus  int
	retryAfter string
	prompt     int
	completion int
}

func (rep *reply) add(e event) { rep.events = append(rep.events, e) }

// emit adds the text, one token per word.
func (rep *reply) emit(kind, text string) {
	for _, t := range tokens(text) {
		rep.add(event{kind: kind, text: t, wait: rep.delay})
		rep.completion++
	}
}

// burst adds n numbered tokens, k per event.
func (rep *reply) burst(n, k int) {
	for i := 0; i < n; i += k {
		var b strings.Builder
		for j := i; j < min(i+k, n); j++ {
			if j > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "t%d", j)
		}
		rep.add(event{kind: "text", text: b.String(), wait: rep.delay})
	}
	rep.completion += n
}

// player answers requests by their scripts. It remembers only how often a
// failing one has failed, and the calls it made.
type player struct {
	mu     sync.Mutex
	calls  int
	failed map[[sha256.Size]byte]int
}

// failAgain counts the answers to one script and says whether to fail once more.
func (p *player) failAgain(key [sha256.Size]byte, times int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = map[[sha256.Size]byte]int{}
	}
	p.failed[key]++
	if p.failed[key] <= times {
		return true
	}
	delete(p.failed, key)
	return false
}

func (p *player) callID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	return fmt.Sprintf("call_%08d", p.calls)
}

// plan decides what the response to the request does.
func (p *player) plan(r request) reply {
	text, done, lastTool := r.script()
	rep := reply{finish: "stop", prompt: 100}
	segments := parseScript(text)
	if len(r.Tools) == 0 && strings.Contains(text, "CALL ") {
		segments = nil // a summariser that quotes a script, not a turn
	}
	switch {
	case len(segments) == 0 && len(text) > 2000:
		rep.emit("text", "summary of "+strconv.Itoa(len(r.Messages))+" messages")
		return rep
	case len(segments) == 0:
		rep.emit("text", "echo: "+text)
		return rep
	case done >= len(segments):
		rep.emit("text", "done")
		return rep
	}
	for _, s := range segments[done] {
		switch s.Op {
		case "ECHO_LAST_TOOL_RESULT":
			rep.emit("text", lastTool)
		case "DUMP_REQUEST":
			rep.add(event{kind: "text", text: r.dump()})
		case "CALL":
			name, args, _ := strings.Cut(s.Arg, " ")
			if args == "" {
				args = "{}"
			}
			rep.finish = "tool"
			rep.completion++
			rep.add(event{kind: "call", name: name, text: args, wait: rep.delay, id: p.callID()})
		case "ERROR":
			key := sha256.Sum256([]byte(r.System + "\x00" + text))
			if p.failAgain(key, number(s.Opts["times"], 1<<30)) {
				rep.errStatus = number(s.Arg, 500)
				rep.retryAfter = s.Opts["retry-after"]
				return rep
			}
		default:
			rep.perform(s)
		}
	}
	return rep
}

// perform carries out a directive that depends on nothing but itself.
func (rep *reply) perform(s step) {
	switch s.Op {
	case "SAY":
		rep.emit("text", unescape(s.Arg))
	case "THINK":
		rep.emit("think", unescape(s.Arg))
	case "TOKENS":
		rep.burst(number(s.Arg, 1), max(number(s.Opts["burst"], 1), 1))
	case "SLOW":
		rep.delay = time.Duration(number(s.Arg, 100)) * time.Millisecond
	case "WAIT":
		rep.add(event{kind: "wait", wait: time.Duration(number(s.Arg, 100)) * time.Millisecond})
	case "USAGE":
		rep.prompt = number(s.Opts["prompt"], rep.prompt)
	case "FINISH":
		rep.finish = s.Arg
	case "DROP_MID_STREAM", "MALFORMED", "HANG":
		kind, _, _ := strings.Cut(s.Op, "_")
		rep.add(event{kind: strings.ToLower(kind)})
	}
}

func tokens(s string) []string {
	var out []string
	for s != "" {
		n := strings.IndexByte(s[1:], ' ')
		if n < 0 {
			return append(out, s)
		}
		out, s = append(out, s[:n+1]), s[n+1:]
	}
	return out
}

func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(s)
}

func number(s string, def int) int {
	if f := strings.Fields(s); len(f) > 0 {
		if n, err := strconv.Atoi(f[0]); err == nil {
			return n
		}
	}
	return def
}
