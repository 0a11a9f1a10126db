package tool

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // decoders for images that must be made smaller
	"image/jpeg"
	"image/png"
	"net/http"
	"path/filepath"

	"mneme/internal/agent"
	"mneme/internal/workspace"
)

var imageTypes = []string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".heif"}

// The limits of spec/harness.md section 1.8.
const (
	maxImageFile   = 20 << 20 // bytes on disk
	maxImageBytes  = 5 << 20  // bytes sent
	maxImageSide   = 2000     // pixels
	maxImagePixels = 100_000_000
)

// readImage returns a text and the image, made smaller where it exceeds the
// limits.
func readImage(env *Env, path string) agent.ToolResult {
	b, err := workspace.Read(path, maxImageFile)
	if err != nil {
		return fileError(env, path, err)
	}
	kind := http.DetectContentType(b)
	switch kind {
	case "image/png", "image/jpeg", "image/gif":
		if b, kind, err = fitImage(b, kind); err != nil {
			return failf("Cannot read image %s: %v", path, err)
		}
	case "image/webp":
		if len(b) > maxImageBytes {
			return failf("The image is larger than 5 MB: %s. Make it smaller first.", path)
		}
	default:
		return failf("Cannot show %s: models take png, jpg, gif and webp. Convert it first.", path)
	}
	return agent.ToolResult{Status: agent.StatusSuccess, Parts: []agent.Part{
		agent.Text(fmt.Sprintf("Image %s (%s, %d bytes)", filepath.Base(path), kind, len(b))),
		{Kind: agent.PartImage, MediaType: kind, Data: base64.StdEncoding.EncodeToString(b)},
	}}
}

// fitImage scales an image down until it keeps the limits.
func fitImage(b []byte, kind string) ([]byte, string, error) {
	conf, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, "", err
	}
	side := max(conf.Width, conf.Height)
	if side <= maxImageSide && len(b) <= maxImageBytes {
		return b, kind, nil
	}
	if conf.Width*conf.Height > maxImagePixels {
		return nil, "", fmt.Errorf("%d x %d pixels are too many", conf.Width, conf.Height)
	}
	src, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, "", err
	}
	for side = min(side, maxImageSide); side > 0; side = side * 3 / 4 {
		small := scale(src, side)
		var out bytes.Buffer
		kind = "image/png"
		err := png.Encode(&out, small)
		if err == nil && out.Len() > maxImageBytes {
			kind = "image/jpeg"
			out.Reset()
			err = jpeg.Encode(&out, small, &jpeg.Options{Quality: 85})
		}
		if err != nil {
			return nil, "", err
		}
		if out.Len() <= maxImageBytes {
			return out.Bytes(), kind, nil
		}
	}
	return nil, "", fmt.Errorf("it cannot be made small enough")
}

// scale averages boxes of pixels so that the longer side becomes side.
func scale(src image.Image, side int) image.Image {
	from := src.Bounds()
	w, h := from.Dx(), from.Dy()
	longer := max(w, h)
	side = min(side, longer)
	dst := image.NewRGBA(image.Rect(0, 0, max(1, w*side/longer), max(1, h*side/longer)))
	to := dst.Bounds()
	for y := range to.Dy() {
		y0, y1 := span(y, to.Dy(), h)
		for x := range to.Dx() {
			x0, x1 := span(x, to.Dx(), w)
			var r, g, b, a, n uint64
			for sy := y0; sy < y1; sy++ {
				for sx := x0; sx < x1; sx++ {
					pr, pg, pb, pa := src.At(from.Min.X+sx, from.Min.Y+sy).RGBA()
					r, g, b, a, n = r+uint64(pr), g+uint64(pg), b+uint64(pb), a+uint64(pa), n+1
				}
			}
			dst.Set(x, y, color.RGBA64{R: uint16(r / n), G: uint16(g / n), B: uint16(b / n), A: uint16(a / n)})
		}
	}
	return dst
}

// span is the range of source pixels behind one of n target pixels.
func span(i, n, total int) (from, to int) {
	from = i * total / n
	return from, max(from+1, (i+1)*total/n)
}
