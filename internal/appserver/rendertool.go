package appserver

import (
	"bytes"
	"encoding/json"
	"strings"

	"mneme/internal/agent"
	"mneme/protocol"
)

// liveOutput renders the whole output so far of a running tool.
func (r *renderer) liveOutput(ev *agent.Event, p agent.CallOutput) protocol.Delta {
	text := liveText(p.Stdout, p.Stderr)
	d := &protocol.ToolReturnDelta{
		DeltaHead: protocol.DeltaHead{
			ID: "synthetic-tool-return-stream-" + p.CallID, Date: protocol.FormatTime(ev.At), RunID: ev.StepID,
		},
		Status: string(agent.StatusSuccess), ToolCallID: p.CallID, ToolReturn: protocol.Text(text),
	}
	ret := protocol.ToolReturn{ToolCallID: p.CallID, Status: d.Status, ToolReturn: d.ToolReturn}
	if len(p.Stdout) > 0 {
		ret.Stdout = p.Stdout
	}
	if len(p.Stderr) > 0 {
		ret.Stderr = p.Stderr
	}
	d.ToolReturns = []protocol.ToolReturn{ret}
	return d
}

// liveText is stdout and stderr without blank lines, at most its last 30,000
// bytes.
func liveText(stdout, stderr []string) string {
	const most = 30_000
	var b strings.Builder
	for _, lines := range [][]string{stdout, stderr} {
		for _, l := range lines {
			if strings.TrimSpace(l) == "" {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(l)
		}
	}
	text := b.String()
	if len(text) > most {
		text = strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

func (r *renderer) callReturned(ev *agent.Event, p agent.CallReturned) protocol.Delta {
	d := &protocol.ToolReturnDelta{
		DeltaHead: protocol.DeltaHead{ID: p.Message.ID, Date: protocol.FormatTime(ev.At), RunID: p.Call.StepID},
		Status:    string(callStatus(p.Call)), ToolCallID: p.Call.ID, ToolReturn: protocol.Text(returnText(p.Message.Parts)),
	}
	d.ToolReturns = []protocol.ToolReturn{{ToolCallID: p.Call.ID, Status: d.Status, ToolReturn: d.ToolReturn}}
	return d
}

// returnText shows a tool's result as text: an image is shown as the JSON of
// its part.
func returnText(parts []agent.Part) string {
	var out []string
	for _, p := range parts {
		switch p.Kind {
		case agent.PartText:
			out = append(out, p.Text)
		case agent.PartImage:
			if b, err := protocol.Marshal(protocol.ImagePart(p.MediaType, p.Data)); err == nil {
				out = append(out, string(b))
			}
		}
	}
	return strings.Join(out, "\n")
}

func userDelta(ev *agent.Event, p agent.InputJoined) protocol.Delta {
	m := p.Message
	d := &protocol.UserDelta{
		DeltaHead:   protocol.DeltaHead{ID: m.ID, Date: protocol.FormatTime(ev.At)},
		Content:     content(p.Raw, m.Parts),
		OTID:        m.OTID,
		CreatedByID: m.SenderID,
	}
	if m.ClientKey != "" {
		d.OTID = m.ClientKey
	}
	return d
}

// content is the wire form of a message's parts: as it was sent, where that is
// known.
func content(raw json.RawMessage, parts []agent.Part) protocol.Content {
	if raw != nil {
		var c protocol.Content
		if c.UnmarshalJSON(raw) == nil {
			return c
		}
	}
	return protocol.Parts(wireParts(parts)...)
}

// wireParts shows texts and images.
func wireParts(parts []agent.Part) []protocol.Part {
	out := []protocol.Part{}
	for _, p := range parts {
		switch p.Kind {
		case agent.PartText:
			out = append(out, protocol.TextPart(p.Text))
		case agent.PartImage:
			out = append(out, protocol.ImagePart(p.MediaType, p.Data))
		}
	}
	return out
}

// toolCall shows a call as the model made it.
func toolCall(c agent.CallPart) protocol.ToolCall {
	return protocol.ToolCall{ToolCallID: c.ID, Name: c.Name, Arguments: compact(c.Arguments)}
}

// toolArgs shows the arguments that a tool gets: the model's, unless a person
// changed them.
func toolArgs(c *agent.ToolCall) string {
	if len(c.Input) == 0 {
		return compact(c.Arguments)
	}
	return compact(string(c.Input))
}

// compact takes the space out of JSON text, as the reference's arguments have
// none; what is no JSON stays as it is.
func compact(text string) string {
	b := bytes.NewBuffer(make([]byte, 0, len(text)))
	if json.Compact(b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

func callStatus(c *agent.ToolCall) agent.CallStatus {
	if c.Result == nil {
		return agent.StatusError // withdrawn: it will not run
	}
	return c.Result.Status
}
