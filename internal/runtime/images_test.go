package runtime_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
)

// onePixel is a PNG of one pixel.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func image(mediaType, data string) func(*agent.Input) {
	return func(in *agent.Input) {
		in.Messages[0].Parts = append(in.Messages[0].Parts, agent.Part{Kind: agent.PartImage, MediaType: mediaType, Data: data})
	}
}

func TestBadImages(t *testing.T) {
	for _, tc := range []struct{ name, mediaType, data, problem string }{
		{"not base64", "image/png", "?", "not base64"},
		{"another format", "image/jpeg", onePixel, "not image/jpeg"},
		{"unknown format", "image/tiff", onePixel, "media_type"},
		{"empty", "image/png", "", "not image/png"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := setup(t, fake.New(fake.Answer{fake.Text("ok")}))
			r.submit("look", image(tc.mediaType, tc.data))
			end := r.finished(1)
			if end.StopReason != agent.StopError || end.Error == nil || !strings.Contains(end.Error.Message, tc.problem) {
				t.Errorf("strict: ended as %+v", end)
			}
			r.submit("look again", image(tc.mediaType, tc.data), func(in *agent.Input) { in.Options.DropBadImages = true })
			if end := r.finished(2); end.StopReason != agent.StopEndTurn {
				t.Errorf("drop: ended as %+v", end)
			}
			for _, m := range r.model.Requests()[0].Messages {
				for _, p := range m.Parts {
					if p.Kind == agent.PartImage {
						t.Error("a bad image reached the model")
					}
				}
			}
		})
	}
}

func TestGoodImage(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("a dot")}))
	r.submit("look", image("image/png", onePixel))
	r.finished(1)
	if diff := cmp.Diff([]string{"user: look", "assistant: a dot"}, r.history()); diff != "" {
		t.Error(diff)
	}
}
