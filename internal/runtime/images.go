package runtime

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// maxImage is the largest image, in bytes, that is sent to a model.
const maxImage = 20 << 20

// magic are the first bytes of the image formats that models take.
var magic = map[string][]string{
	"image/png":  {"\x89PNG\r\n\x1a\n"},
	"image/jpeg": {"\xff\xd8\xff"},
	"image/gif":  {"GIF87a", "GIF89a"},
	"image/webp": {"RIFF"},
}

// checkImages looks at the images of an input before they become history: a
// history that a provider refuses would be refused for ever. A bad image is
// replaced by a note if drop is set, else it is the error that ends the turn
// (spec/app-server-core.md section 4.1, image_failure_mode).
func checkImages(in *agent.Input, drop bool) *agent.Error {
	for i := range in.Messages {
		msg := &in.Messages[i]
		for j, part := range msg.Parts {
			if part.Kind != agent.PartImage {
				continue
			}
			problem := imageProblem(part)
			if problem == "" {
				continue
			}
			msg.Parts = slices.Clone(msg.Parts)
			msg.Parts[j] = agent.Text(fmt.Sprintf("[An image was left out: %s]", problem))
			if !drop {
				return agent.Errorf(agent.CodeInvalid, "Failed to prepare image for model: %s", problem)
			}
		}
	}
	return nil
}

// imageProblem says what is wrong with an image, "" if nothing.
func imageProblem(p agent.Part) string {
	starts, known := magic[p.MediaType]
	if !known {
		return fmt.Sprintf("media_type %q is not one of image/png, image/jpeg, image/gif, image/webp", p.MediaType)
	}
	if base64.StdEncoding.DecodedLen(len(p.Data)) > maxImage {
		return fmt.Sprintf("it is larger than %d MB", maxImage>>20)
	}
	data, err := base64.StdEncoding.DecodeString(p.Data)
	if err != nil {
		return "its data is not base64"
	}
	if !slices.ContainsFunc(starts, func(s string) bool { return strings.HasPrefix(string(data[:min(len(data), len(s))]), s) }) {
		return "its data is not " + p.MediaType
	}
	return ""
}
