package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"mneme/internal/agent"
)

// A fetch loads the image of a part that came as an URL.
type fetch struct {
	part *agent.Part
	url  string
}

// wirePart is a part of a content as it is sent. Which fields count depends on the
// type.
type wirePart struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
	// Source is the image: an URL, base64 data, or a file.
	Source *struct {
		Type      string  `json:"type"`
		URL       string  `json:"url"`
		MediaType *string `json:"media_type"`
		Data      *string `json:"data"`
		FileID    string  `json:"file_id"`
	} `json:"source"`
	Reasoning *string `json:"reasoning"`
	Signature *string `json:"signature"`
}

// readContent reads the content of a message: a text, or a list of parts. where is
// its place in the request.
func readContent(where string, raw json.RawMessage, role agent.Role) (parts []agent.Part, fetches []fetch, err error) {
	switch first(raw) {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, nil, unprocessable(where, "Input should be a string or a list of parts")
		}
		return []agent.Part{agent.Text(sentText(s))}, nil, nil
	case '[':
	case 0:
		return nil, nil, unprocessable(where, "Field required")
	default:
		return nil, nil, unprocessable(where, "Input should be a string or a list of parts")
	}
	var list []wirePart
	if err := unmarshalAt(where, raw, &list); err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return nil, nil, unprocessable(where, "A content needs at least one part")
	}
	parts = make([]agent.Part, len(list)) // fetches point into it
	for i, p := range list {
		url, err := readPart(where+"."+itoa(i), p, role, &parts[i])
		if err != nil {
			return nil, nil, err
		}
		if url != "" {
			fetches = append(fetches, fetch{&parts[i], url})
		}
	}
	return parts, fetches, nil
}

// sentText is a text as it is stored: without NUL, which databases do not take.
func sentText(s string) string { return strings.ReplaceAll(s, "\x00", "") }

// first is the first byte of a JSON value, 0 for none and for null.
func first(raw json.RawMessage) byte {
	for _, b := range raw {
		if b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			if b == 'n' {
				return 0
			}
			return b
		}
	}
	return 0
}

// readPart reads one part into to. url is set if its image has to be fetched.
func readPart(where string, p wirePart, role agent.Role, to *agent.Part) (url string, err error) {
	switch p.Type {
	case "text", "":
		if p.Text == nil {
			return "", unprocessable(where+".text", "Field required")
		}
		*to = agent.Text(sentText(*p.Text))
		return "", nil
	case "image":
		return readImage(where+".source", p, to)
	case "reasoning":
		if role != agent.RoleAssistant {
			break
		}
		if p.Reasoning == nil {
			return "", unprocessable(where+".reasoning", "Field required")
		}
		*to = agent.Part{Kind: agent.PartReasoning, Text: *p.Reasoning}
		if p.Signature != nil {
			to.Signature = *p.Signature
		}
		return "", nil
	}
	return "", unprocessable(where+".type", "A part of type %s cannot be sent in a message of role %s; send text or image", quoted(p.Type), role)
}

func readImage(where string, p wirePart, to *agent.Part) (url string, err error) {
	src := p.Source
	if src == nil {
		return "", unprocessable(where, "Field required")
	}
	to.Kind = agent.PartImage
	switch src.Type {
	case "url":
		if src.URL == "" {
			return "", unprocessable(where+".url", "Field required")
		}
		return src.URL, nil
	case "base64":
		if src.Data == nil || src.MediaType == nil {
			return "", unprocessable(where, "An image of type base64 needs media_type and data")
		}
	case "letta":
		if src.Data == nil || src.MediaType == nil {
			return "", badRequest("%s: the file %s is not known; send the image as url or base64", where, quoted(src.FileID))
		}
	default:
		return "", unprocessable(where+".type", "%s is not one of url, base64, letta", quoted(src.Type))
	}
	data, err := base64.StdEncoding.DecodeString(*src.Data)
	if err != nil {
		return "", badRequest("%s: the data of the image is not base64", where)
	}
	return "", setImage(where, to, *src.MediaType, data, *src.Data)
}

// maxImage is the largest image that is taken, in bytes.
const maxImage = 20 << 20

// setImage checks an image and puts it into a part. encoded is its data in base64,
// "" = not encoded yet.
func setImage(where string, to *agent.Part, mediaType string, data []byte, encoded string) error {
	if len(data) > maxImage {
		return badRequest("%s: the image is larger than %d MB", where, maxImage>>20)
	}
	found := imageType(data)
	if found == "" {
		return badRequest("%s: the image is not a PNG, JPEG, GIF or WebP", where)
	}
	if mediaType != found && !(mediaType == "image/jpg" && found == "image/jpeg") {
		return badRequest("%s: media_type is %s, but the data is %s", where, quoted(mediaType), found)
	}
	if encoded == "" {
		encoded = base64.StdEncoding.EncodeToString(data)
	}
	to.MediaType, to.Data = found, encoded
	return nil
}

// imageType tells the format of an image by its first bytes; "" = none that models
// take.
func imageType(data []byte) string {
	starts := func(at int, s string) bool { return len(data) >= at+len(s) && string(data[at:at+len(s)]) == s }
	switch {
	case starts(0, "\x89PNG\r\n\x1a\n"):
		return "image/png"
	case starts(0, "\xff\xd8\xff"):
		return "image/jpeg"
	case starts(0, "GIF87a"), starts(0, "GIF89a"):
		return "image/gif"
	case starts(0, "RIFF") && starts(8, "WEBP"):
		return "image/webp"
	}
	return ""
}

// load fetches the images that were sent as URLs, one after the other.
func (d *Door) load(ctx context.Context, fetches []fetch) error {
	for _, f := range fetches {
		mediaType, data, err := d.outbound.image(ctx, f.url)
		if err != nil {
			return badRequest("the image %s could not be fetched: %v", quoted(f.url), err)
		}
		if err := setImage("image "+quoted(f.url), f.part, mediaType, data, ""); err != nil {
			return err
		}
	}
	return nil
}

// unmarshalAt is unmarshal for a value inside of a body.
func unmarshalAt(where string, data []byte, v any) error {
	err := unmarshal(data, v)
	if h, ok := err.(*httpError); ok { //nolint:errorlint // it is what unmarshal returns
		if b, ok := h.Body.(validation); ok {
			b.Detail = where + b.Detail[len("body"):]
			h.Body = b
		}
	}
	return err
}
