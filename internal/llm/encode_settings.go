package llm

import (
	"encoding/json"
	"strconv"
	"strings"
)

func (e *encoder) maxTokens(limit int) {
	for _, key := range []string{"max_tokens", "max_output_tokens"} {
		if limit == 0 {
			limit, _ = strconv.Atoi(string(e.settings[key]))
		}
	}
	if limit <= 0 {
		return
	}
	if e.may(featNewMaxTokens) {
		e.raw(`,"max_completion_tokens":`)
	} else {
		e.raw(`,"max_tokens":`)
	}
	e.buf = strconv.AppendInt(e.buf, int64(limit), 10)
}

// passedOn are the settings that go into the request under their own name.
var passedOn = []string{
	"temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
	"seed", "stop", "verbosity", "service_tier", "response_format",
}

func (e *encoder) modelSettings() {
	if len(e.settings) == 0 {
		return
	}
	for _, key := range passedOn {
		e.setting(key, e.settings[key])
	}
	if len(e.tools) > 0 {
		e.setting("tool_choice", e.settings["tool_choice"])
		if v := e.settings["parallel_tool_calls"]; len(v) > 0 && string(v) != "null" && e.may(featParallel) {
			e.setting("parallel_tool_calls", v)
		}
	}
	if effort := e.effort(); effort != "" && e.may(featEffort) {
		e.raw(`,"reasoning_effort":`)
		e.str(effort)
	}
}

func (e *encoder) setting(key string, v json.RawMessage) {
	if len(v) == 0 || string(v) == "null" {
		return
	}
	e.raw(`,"` + key + `":`)
	e.buf = append(e.buf, v...)
}

// effort is the reasoning effort under any of its names. Level max is known to
// the newest models only; others get the one below.
func (e *encoder) effort() string {
	var nested struct {
		Effort string `json:"reasoning_effort"`
	}
	effort := scalar(e.settings["reasoning_effort"])
	if effort == "" {
		effort = scalar(e.settings["effort"])
	}
	if effort == "" && len(e.settings["reasoning"]) > 0 {
		_ = json.Unmarshal(e.settings["reasoning"], &nested) // another shape sets nothing
		effort = nested.Effort
	}
	if effort == "max" && !strings.Contains(e.model, "gpt-5.6") && !strings.Contains(e.model, "gpt-6") {
		effort = "xhigh"
	}
	return effort
}
