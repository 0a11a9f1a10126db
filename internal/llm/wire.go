package llm

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"mneme/internal/agent"
)

// A chunk is one event of a chat-completions stream, or a whole answer that is
// not streamed. Only what we use is decoded; the rest is skipped over.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
	XGroq   *struct {
		Usage *wireUsage `json:"usage"`
	} `json:"x_groq"`
	// Object, Message and Code belong to errors that lie bare in the event.
	Object  wireString `json:"object"`
	Message wireString `json:"message"`
	Code    wireString `json:"code"`
}

type choice struct {
	Index   int        `json:"index"`
	Delta   delta      `json:"delta"`
	Message *delta     `json:"message"`
	Finish  wireString `json:"finish_reason"`
	Usage   *wireUsage `json:"usage"`
}

type delta struct {
	Content          content         `json:"content"`
	ReasoningContent wireString      `json:"reasoning_content"`
	Reasoning        wireString      `json:"reasoning"`
	ReasoningText    wireString      `json:"reasoning_text"`
	ReasoningDetails json.RawMessage `json:"reasoning_details"`
	Refusal          wireString      `json:"refusal"`
	ToolCalls        []callDelta     `json:"tool_calls"`
	FunctionCall     *functionDelta  `json:"function_call"`
}

type callDelta struct {
	Index    *int          `json:"index"`
	ID       wireString    `json:"id"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      wireString `json:"name"`
	Arguments wireString `json:"arguments"`
}

// A wireString is a text that some servers send as a number, an object or a
// list: those are kept as their JSON. null is "".
type wireString string

func (s *wireString) UnmarshalJSON(b []byte) error {
	if b[0] == 'n' {
		*s = ""
		return nil
	}
	if b[0] != '"' {
		*s = wireString(b)
		return nil
	}
	text, err := unquote(b)
	*s = wireString(text)
	return err
}

// unquote decodes a JSON string, without detour when it holds no escapes.
func unquote(b []byte) (string, error) {
	if inner := b[1 : len(b)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	return s, err
}

// content is an answer's text: a string, or a list of parts among which may be
// thinking.
type content struct {
	text     string
	thinking string
}

func (c *content) UnmarshalJSON(b []byte) (err error) {
	*c = content{}
	switch b[0] {
	case '"':
		c.text, err = unquote(b)
	case '[':
		var parts []contentPart
		if err = json.Unmarshal(b, &parts); err != nil {
			return err
		}
		for _, p := range parts {
			c.text += string(p.Text)
			c.thinking += p.Thinking.text
		}
	}
	return err
}

type contentPart struct {
	Text     wireString `json:"text"`
	Thinking content    `json:"thinking"`
}

// wireUsage holds the token counts in the names of several providers.
type wireUsage struct {
	Prompt     count `json:"prompt_tokens"`
	Completion count `json:"completion_tokens"`
	Cached     count `json:"cached_tokens"`
	CacheHit   count `json:"prompt_cache_hit_tokens"`
	PromptMore *struct {
		Cached     count `json:"cached_tokens"`
		CacheWrite count `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionMore *struct {
		Reasoning count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (u *wireUsage) usage() agent.Usage {
	out := agent.Usage{
		Input: int(u.Prompt), Output: int(u.Completion),
		CacheRead: int(max(u.Cached, u.CacheHit)), Reported: true,
	}
	if m := u.PromptMore; m != nil {
		out.CacheRead = max(out.CacheRead, int(m.Cached))
		out.CacheWrite = int(m.CacheWrite)
	}
	if m := u.CompletionMore; m != nil {
		out.Reasoning = int(m.Reasoning)
	}
	return out
}

// A count is a number of tokens, however it is written: null and nonsense are 0.
type count int

func (c *count) UnmarshalJSON(b []byte) error {
	*c = 0
	if f, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64); err == nil && f > 0 && f < 1<<40 {
		*c = count(f)
	}
	return nil
}
