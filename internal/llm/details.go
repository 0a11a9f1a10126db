package llm

import (
	"encoding/json"
	"slices"
)

// maxDetails bounds the structured reasoning of one answer, in bytes.
const maxDetails = 1 << 20

// A signedReasoning is what PartReasoning.Meta holds: structured reasoning and
// the model it was made by, which alone may see it again (bug-report case H09).
type signedReasoning struct {
	Model   string            `json:"model"`
	Details []json.RawMessage `json:"details"`
}

// detailsFor gives the details in meta when they come from this model.
func detailsFor(meta json.RawMessage, model string) []json.RawMessage {
	var s signedReasoning
	if json.Unmarshal(meta, &s) != nil || s.Model != model {
		return nil
	}
	return s.Details
}

// A detail is one element of reasoning_details. Texts are streamed in pieces
// that belong together as long as type and index stay the same.
type detail struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Summary   *string         `json:"summary,omitempty"`
	Signature json.RawMessage `json:"signature,omitempty"`
	ID        json.RawMessage `json:"id,omitempty"`
	Format    json.RawMessage `json:"format,omitempty"`
	Index     json.RawMessage `json:"index,omitempty"`
}

// detailSet collects structured reasoning. Elements that are no text are kept
// byte for byte.
type detailSet struct {
	done []json.RawMessage
	open *detail // the text that may go on
	size int
}

// add takes the reasoning_details of one event and returns the text in it.
func (s *detailSet) add(raw json.RawMessage) (text string) {
	var elems []json.RawMessage
	if json.Unmarshal(raw, &elems) != nil {
		return ""
	}
	for _, e := range elems {
		s.size += len(e)
		if s.size > maxDetails {
			return text
		}
		var d detail
		switch {
		case json.Unmarshal(e, &d) != nil || d.Text == nil && d.Summary == nil && d.Type != "reasoning.text":
			s.close()
			s.done = append(s.done, slices.Clone(e))
		case s.open != nil && s.open.Type == d.Type && string(s.open.Index) == string(d.Index):
			s.open.join(d)
		default:
			s.close()
			s.open = &d
		}
		text += value(d.Text) + value(d.Summary)
	}
	return text
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// join appends a later piece.
func (d *detail) join(later detail) {
	for _, f := range []struct{ to, from **string }{{&d.Text, &later.Text}, {&d.Summary, &later.Summary}} {
		if *f.from != nil {
			joined := value(*f.to) + **f.from
			*f.to = &joined
		}
	}
	for _, f := range []struct{ to, from *json.RawMessage }{
		{&d.Signature, &later.Signature}, {&d.ID, &later.ID}, {&d.Format, &later.Format},
	} {
		if len(*f.from) > 0 && string(*f.from) != "null" {
			*f.to = *f.from
		}
	}
}

func (s *detailSet) close() {
	if s.open == nil {
		return
	}
	if b, err := json.Marshal(s.open); err == nil { // strings and valid JSON: never fails
		s.done = append(s.done, b)
	}
	s.open = nil
}

// meta is everything collected, nil if there is nothing. Reasoning that was cut
// for its size would be refused, so it is left out as a whole.
func (s *detailSet) meta(model string) json.RawMessage {
	s.close()
	if len(s.done) == 0 || s.size > maxDetails {
		return nil
	}
	b, err := json.Marshal(signedReasoning{Model: model, Details: s.done})
	if err != nil { // never, as above
		return nil
	}
	return b
}
