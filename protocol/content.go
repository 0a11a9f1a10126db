package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Content is what a message says: a string or a list of parts. It remembers
// which form it had and, when it was read, its bytes.
type Content struct {
	raw    json.RawMessage // as read; nil = made here
	text   string
	parts  []Part
	isText bool
}

// Text makes content in string form.
func Text(s string) Content { return Content{text: s, isText: true} }

// Parts makes content in list form.
func Parts(parts ...Part) Content { return Content{parts: parts} }

// IsZero reports whether there is no content at all.
func (c Content) IsZero() bool { return !c.isText && c.parts == nil && c.raw == nil }

// IsText reports whether the content is a string.
func (c Content) IsText() bool { return c.isText }

// Parts returns the content as parts; a string is one text part.
func (c Content) Parts() []Part {
	if c.isText {
		return []Part{TextPart(c.text)}
	}
	return slices.Clone(c.parts)
}

// Text returns the string, or the text parts one after another.
func (c Content) Text() string {
	if c.isText {
		return c.text
	}
	var b strings.Builder
	for _, p := range c.parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Raw returns the JSON of the content, the original bytes if it was read. It is
// nil if a part has neither a known type nor raw bytes.
func (c Content) Raw() json.RawMessage {
	raw, err := c.MarshalJSON()
	if err != nil {
		return nil
	}
	return raw
}

// Equal reports whether both say the same in the same form.
func (c Content) Equal(d Content) bool {
	return c.isText == d.isText && c.text == d.text && slices.EqualFunc(c.parts, d.parts, func(p, q Part) bool {
		a, errA := Marshal(p)
		b, errB := Marshal(q)
		return errA == nil && errB == nil && bytes.Equal(a, b)
	})
}

// MarshalJSON writes the form that the content has.
func (c Content) MarshalJSON() ([]byte, error) {
	switch {
	case c.raw != nil:
		return c.raw, nil
	case c.isText:
		return AppendString(nil, c.text), nil
	}
	return Marshal(List[Part](c.parts))
}

// UnmarshalJSON reads a string or a list of parts.
func (c *Content) UnmarshalJSON(data []byte) error {
	raw := bytes.Clone(bytes.TrimSpace(data))
	if len(raw) == 0 {
		return errors.New("content is empty")
	}
	if why := c.read(raw); why != "" {
		return fmt.Errorf("content%s", why)
	}
	return nil
}

// read takes valid JSON without copying it. It returns what is wrong with it, to
// be put right after the content's name.
func (c *Content) read(raw []byte) string {
	*c = Content{raw: raw}
	switch raw[0] {
	case '"':
		c.text, c.isText = unquote(raw), true
	case '[':
		c.parts = []Part{}
		for i, e := range elements(raw) {
			p, why := readPart(e)
			if why != "" {
				return fmt.Sprintf("[%d] %s", i, why)
			}
			c.parts = append(c.parts, p)
		}
	default:
		return " must be a string or an array of parts, not " + kindOf(raw)
	}
	return ""
}

// A Part is one piece of content. Types that are not text or image, and images
// with another source than base64 data, keep their bytes in Raw.
type Part struct {
	Type      string // "text", "image", or anything else
	Text      string // of a text part
	MediaType string // of an image, such as "image/png"
	Data      string // of an image, base64
	// Raw is the part as read; nil for one made here.
	Raw json.RawMessage
}

// TextPart makes a part of text.
func TextPart(s string) Part { return Part{Type: "text", Text: s} }

// ImagePart makes an image part from base64 data.
func ImagePart(mediaType, data string) Part {
	return Part{Type: "image", MediaType: mediaType, Data: data}
}

// readPart is lenient about what an image holds: an image that cannot be used
// is the turn's business (image_failure_mode), not a broken frame.
func readPart(raw []byte) (Part, string) {
	if raw[0] != '{' {
		return Part{}, "must be an object, not " + kindOf(raw)
	}
	ms, ok := splitObject(raw)
	if !ok {
		return Part{}, "has too many fields"
	}
	o := object{members: ms}
	p := Part{Raw: raw}
	if p.Type, ok = o.maybeStr("type"); !ok {
		return p, "must have a string type"
	}
	switch p.Type {
	case "text":
		if p.Text, ok = o.maybeStr("text"); !ok {
			return p, "must have a string text"
		}
	case "image":
		source, ok := o.get("source")
		if !ok || source[0] != '{' {
			break
		}
		if ms, ok = splitObject(source); !ok {
			return p, "has a source with too many fields"
		}
		src := object{members: ms}
		if kind, _ := src.maybeStr("type"); kind == "base64" {
			p.MediaType, _ = src.maybeStr("media_type")
			p.Data, _ = src.maybeStr("data")
		}
	}
	return p, ""
}

// MarshalJSON writes the original bytes of a part that was read.
func (p Part) MarshalJSON() ([]byte, error) {
	if p.Raw != nil {
		return p.Raw, nil
	}
	switch p.Type {
	case "text":
		dst := append([]byte(nil), `{"type":"text","text":`...)
		return append(AppendString(dst, p.Text), '}'), nil
	case "image":
		dst := append([]byte(nil), `{"type":"image","source":{"type":"base64","media_type":`...)
		dst = AppendString(dst, p.MediaType)
		dst = append(dst, `,"data":`...)
		return append(AppendString(dst, p.Data), "}}"...), nil
	}
	return nil, fmt.Errorf("part of type %q has no raw bytes", p.Type)
}

// UnmarshalJSON reads one part.
func (p *Part) UnmarshalJSON(data []byte) error {
	raw := bytes.Clone(data)
	got, why := readPart(raw)
	if why != "" {
		return fmt.Errorf("part %s", why)
	}
	*p = got
	return nil
}
