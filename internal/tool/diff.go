package tool

import (
	"encoding/json"
	"path/filepath"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"mneme/internal/workspace"
)

const (
	diffContext  = 3       // lines around a change
	maxDiffBytes = 1 << 20 // of either side
	maxDiffLines = 2_000   // over all hunks
)

// A fileDiff previews a write for the person who is asked (spec/harness.md
// section 3.6).
type fileDiff struct {
	Mode     string `json:"mode"` // advanced, fallback, unpreviewable
	FileName string `json:"fileName"`
	Reason   string `json:"reason,omitempty"`
	Hunks    []hunk `json:"hunks,omitempty"`
}

type hunk struct {
	OldStart int        `json:"oldStart"`
	OldLines int        `json:"oldLines"`
	NewStart int        `json:"newStart"`
	NewLines int        `json:"newLines"`
	Lines    []diffLine `json:"lines"`
}

type diffLine struct {
	Type    string `json:"type"` // add, remove, context
	Content string `json:"content"`
}

// diffs is the preview of a call that writes a file, from the file's content
// now; nil for other calls.
func diffs(c *Call) json.RawMessage {
	s := subjectOf(c)
	if s.kind != writes || s.path == "" || c.Name != "Write" && c.Name != "Edit" {
		return nil
	}
	b, err := json.Marshal([]fileDiff{preview(c, s.path)})
	if err != nil {
		return nil
	}
	return b
}

func preview(c *Call, path string) fileDiff {
	d := fileDiff{Mode: "advanced", FileName: filepath.Base(path)}
	old, err := workspace.ReadText(path)
	if err != nil && !workspace.IsMissing(err) {
		d.Mode, d.Reason = "unpreviewable", err.Error()
		return d
	}
	var next string
	if c.Name == "Write" {
		var in writeArgs
		if err := json.Unmarshal(c.Input, &in); err != nil {
			d.Mode, d.Reason = "fallback", err.Error()
			return d
		}
		next = in.Content
	} else {
		var in editArgs
		if err := json.Unmarshal(c.Input, &in); err != nil {
			d.Mode, d.Reason = "fallback", err.Error()
			return d
		}
		edited, err := in.apply(old)
		if err != nil {
			d.Mode, d.Reason = "fallback", err.Error()
			return d
		}
		next = edited.text
	}
	if len(old) > maxDiffBytes || len(next) > maxDiffBytes {
		d.Mode, d.Reason = "unpreviewable", "The file is too large to preview"
		return d
	}
	hunks, ok := hunksOf(old, next)
	if !ok {
		d.Mode, d.Reason = "unpreviewable", "The change is too large to preview"
		return d
	}
	d.Hunks = hunks
	return d
}

// hunksOf compares two texts by lines; ok is false if there are too many.
func hunksOf(old, next string) (hunks []hunk, ok bool) {
	u, err := udiff.ToUnifiedDiff("a", "b", old, udiff.Lines(old, next), diffContext)
	if err != nil {
		return nil, false
	}
	total := 0
	hunks = []hunk{}
	for _, uh := range u.Hunks {
		h := hunk{OldStart: uh.FromLine, NewStart: uh.ToLine, Lines: []diffLine{}}
		for _, line := range uh.Lines {
			l := diffLine{Type: "context", Content: strings.TrimRight(line.Content, "\r\n")}
			switch line.Kind {
			case udiff.Delete:
				l.Type = "remove"
				h.OldLines++
			case udiff.Insert:
				l.Type = "add"
				h.NewLines++
			default:
				h.OldLines++
				h.NewLines++
			}
			h.Lines = append(h.Lines, l)
		}
		if total += len(h.Lines); total > maxDiffLines {
			return nil, false
		}
		hunks = append(hunks, h)
	}
	return hunks, true
}
