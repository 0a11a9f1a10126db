package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine bounds one line of a stream: an answer sent as one piece fits, a
// server that never ends its line does not.
const maxLine = 8 << 20

// errLongLine is a line beyond maxLine.
var errLongLine = errors.New("a line of the answer is longer than 8 MiB")

// A lineKind says what a line of an event stream is for us.
type lineKind uint8

// The kinds. Comments, event names, ids and retry hints are lineOther: chat
// completions need none of them.
const (
	lineOther lineKind = iota
	lineBlank          // ends an event
	lineData
)

// A lineReader reads the lines of an event stream without copying those that
// fit its buffer. LF and CRLF end a line.
type lineReader struct {
	r     *bufio.Reader
	long  []byte // a line that did not fit
	begun bool
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 8<<10)}
}

// next returns the next line's kind and, for data, its value: valid until the
// next call. A last line without an end counts. The error is io.EOF at the
// end, else the reader's own or errLongLine.
func (l *lineReader) next() (lineKind, []byte, error) {
	line, err := l.line()
	if err != nil && (len(line) == 0 || err != io.EOF) {
		return lineOther, nil, err
	}
	if !l.begun {
		l.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) == 0 {
		return lineBlank, nil, nil
	}
	if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		return lineData, bytes.TrimPrefix(value, []byte(" ")), nil
	}
	// Errors come as "error: {…}" from some servers, and without any field
	// name from others.
	if value, ok := bytes.CutPrefix(line, []byte("error:")); ok {
		return lineData, append([]byte(`{"error":`), append(bytes.TrimSpace(value), '}')...), nil
	}
	if line[0] == '{' {
		return lineData, line, nil
	}
	return lineOther, nil, nil
}

// line returns the next line with its end.
func (l *lineReader) line() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	l.long = l.long[:0]
	for err == bufio.ErrBufferFull {
		l.long = append(l.long, line...)
		if len(l.long) > maxLine {
			return nil, errLongLine
		}
		line, err = l.r.ReadSlice('\n')
	}
	l.long = append(l.long, line...)
	return l.long, err
}
