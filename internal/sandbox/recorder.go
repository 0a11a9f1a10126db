package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"mneme/internal/agent"
)

// A Capture is one output stream: all of it, or its head and tail.
type Capture struct {
	head, tail []byte
	Chars      int  // characters of the whole stream
	Cut        bool // the middle is missing
}

// String is the captured text as valid UTF-8, without NUL. Where the stream was
// cut it holds the head alone.
func (c Capture) String() string {
	if c.Cut {
		return clean(c.head)
	}
	return clean(append(bytes.Clone(c.head), c.tail...))
}

// Tail is the last n characters at most.
func (c Capture) Tail(n int) string {
	b := c.tail
	if !c.Cut {
		b = append(bytes.Clone(c.head), c.tail...)
	}
	return lastChars(clean(b), n)
}

// clean makes text of what a program wrote: no database or model takes NUL or
// broken UTF-8.
func clean(b []byte) string {
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

func lastChars(s string, n int) string {
	over := utf8.RuneCountInString(s) - n
	if over <= 0 {
		return s
	}
	for i := range s {
		if over == 0 {
			return s[i:]
		}
		over--
	}
	return ""
}

// A stream is a Capture in the making.
type stream struct {
	head  []byte
	tail  []byte // the last tailBytes at least, at most twice that
	total int64
	chars int
}

func (s *stream) add(b []byte) {
	s.total += int64(len(b))
	for _, c := range b {
		if utf8.RuneStart(c) {
			s.chars++
		}
	}
	if room := headBytes - len(s.head); room > 0 {
		n := min(room, len(b))
		s.head = append(s.head, b[:n]...)
		b = b[n:]
	}
	s.tail = append(s.tail, b...)
	if len(s.tail) > 2*tailBytes {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-tailBytes:]...)
	}
}

func (s *stream) capture() Capture {
	return Capture{
		head:  bytes.Clone(s.head),
		tail:  bytes.Clone(s.tail),
		Chars: s.chars,
		Cut:   s.total > int64(len(s.head)+len(s.tail)),
	}
}

// A recorder keeps the output of one process.
type recorder struct {
	dir  string
	path string // of the log file, made or not

	mu       sync.Mutex
	out, err stream
	early    []byte // both streams as they came, until the log file exists
	spilled  bool   // the log file exists
	dirty    bool   // grown since the last live report

	// The pump's own.
	file    *os.File
	written int64
	failed  error
}

func newRecorder(dir string) *recorder {
	if dir == "" {
		dir = os.TempDir()
	}
	return &recorder{dir: dir, path: filepath.Join(dir, "bash-"+agent.NewUUID()+".txt")}
}

// add records a chunk. It is called by the pump alone.
func (r *recorder) add(isErr bool, b []byte) {
	r.mu.Lock()
	if isErr {
		r.err.add(b)
	} else {
		r.out.add(b)
	}
	r.dirty = true
	if !r.spilled {
		r.early = append(r.early, b...)
	}
	spilled, full := r.spilled, len(r.early) > spillBytes
	r.mu.Unlock()

	switch {
	case spilled:
		r.write(b)
	case full:
		r.spill()
	}
}

// spill moves the log to its file. It is called by the pump alone.
func (r *recorder) spill() {
	r.mu.Lock()
	if r.spilled {
		r.mu.Unlock()
		return
	}
	early := r.early
	r.early, r.spilled = nil, true
	r.mu.Unlock()

	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		r.failed = err
		return
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		r.failed = err
		return
	}
	r.file = f
	r.write(early)
}

// write appends to the log file. An error ends the log, not the command.
func (r *recorder) write(b []byte) {
	if r.failed != nil || r.file == nil || r.written >= logBytes {
		return
	}
	room := logBytes - r.written
	if int64(len(b)) > room {
		b = append(bytes.Clone(b[:room]), fmt.Sprintf("\n[log stopped at %d MiB]\n", logBytes>>20)...)
	}
	n, err := r.file.Write(b)
	r.written += int64(n)
	r.failed = err
}

// finish closes the log file. It is called by the pump when both streams ended.
func (r *recorder) finish() {
	if r.file != nil {
		r.failed = errors.Join(r.failed, r.file.Close())
	}
}

// log is the path of the log file, "" while there is none.
func (r *recorder) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spilled {
		return r.path
	}
	return ""
}

// save writes what is still in memory to the log file, once the output has ended.
func (r *recorder) save() (string, error) {
	r.mu.Lock()
	early, spilled := r.early, r.spilled
	r.mu.Unlock()
	if spilled {
		return r.path, nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", fmt.Errorf("save output: %w", err)
	}
	if err := os.WriteFile(r.path, early, 0o600); err != nil {
		return "", fmt.Errorf("save output: %w", err)
	}
	r.mu.Lock()
	r.early, r.spilled = nil, true
	r.mu.Unlock()
	return r.path, nil
}

func (r *recorder) captures() (out, err Capture) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.capture(), r.err.capture()
}

// live returns the lines to report, or ok = false if nothing came since the
// last call.
func (r *recorder) live() (stdout, stderr []string, ok bool) {
	r.mu.Lock()
	dirty := r.dirty
	r.dirty = false
	r.mu.Unlock()
	if !dirty {
		return nil, nil, false
	}
	out, err := r.captures()
	errText := err.Tail(liveChars)
	outText := out.Tail(max(0, liveChars-utf8.RuneCountInString(errText)))
	return lines(outText), lines(errText), true
}

func lines(s string) []string {
	var out []string
	for line := range strings.Lines(s) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			out = append(out, line)
		}
	}
	return out
}
