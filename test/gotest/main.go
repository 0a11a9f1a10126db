// Command gotest runs `go test` with its own arguments and says aloud at the
// end which tests were skipped and why: a check that did not run must not look
// like one that passed.
//
// What it prints is what `go test` prints without -v: a line per package, and
// the output of tests that failed or did not end. Its exit code is that of
// `go test`.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		fail(err)
	}
	// Ctrl-C reaches go test as well; wait for what it still says. Caught and
	// not ignored, for a child inherits what is ignored.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		fail(err)
	}
	r := newReport(os.Stdout)
	readErr := r.read(out)
	err = cmd.Wait()
	r.end()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err := errors.Join(readErr, err); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gotest:", err)
	os.Exit(2)
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// line is one line that a test printed; the package's own have no test.
type line struct{ test, text string }

// report turns the events into what people read.
type report struct {
	out     io.Writer
	said    map[string][]line          // per package that still runs
	ended   map[string]map[string]bool // tests that passed or were skipped, per package
	skipped map[string][]string        // tests, by reason
	ok, bad int                        // packages
}

func newReport(out io.Writer) *report {
	return &report{out: out, said: map[string][]line{}, ended: map[string]map[string]bool{}, skipped: map[string][]string{}}
}

// read handles every event of the stream. Lines that are no events are passed on.
func (r *report) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		text, err := lines.ReadString('\n')
		if text != "" {
			var e event
			if json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
				fmt.Fprint(r.out, text)
			} else {
				r.event(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (r *report) event(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.said[e.Package] = append(r.said[e.Package], line{e.Test, e.Output})
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.packageEnds(e)
			return
		}
		if e.Action == "skip" {
			reason := r.reason(e)
			r.skipped[reason] = append(r.skipped[reason], e.Package+" "+e.Test)
		}
		if e.Action != "fail" {
			if r.ended[e.Package] == nil {
				r.ended[e.Package] = map[string]bool{}
			}
			r.ended[e.Package][e.Test] = true
		}
	}
}

// packageEnds prints the package's own lines, and all of the tests that did
// not end well if the package failed.
func (r *report) packageEnds(e event) {
	if e.Action == "fail" {
		r.bad++
	} else {
		r.ok++
	}
	for _, l := range r.said[e.Package] {
		own := l.test == ""
		if own && l.text == "PASS\n" || !own && (e.Action != "fail" || r.ended[e.Package][l.test] || strings.HasPrefix(l.text, "=== ")) {
			continue
		}
		fmt.Fprint(r.out, l.text)
	}
	delete(r.said, e.Package)
	delete(r.ended, e.Package)
}

// reason is what the test said when it was skipped, without the place.
func (r *report) reason(e event) string {
	reason := "no reason given"
	for _, l := range r.said[e.Package] {
		if l.test != e.Test || !strings.HasPrefix(l.text, " ") || strings.HasPrefix(strings.TrimSpace(l.text), "--- ") {
			continue
		}
		reason = strings.TrimSpace(l.text)
		if place, rest, ok := strings.Cut(reason, ": "); ok && strings.Contains(place, ".go:") {
			reason = rest
		}
	}
	return reason
}

// end prints the skipped tests by reason, and the sum.
func (r *report) end() {
	n := 0
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[reason]
		n += len(tests)
		fmt.Fprintf(r.out, "SKIPPED: %s\n", reason)
		for i, t := range tests {
			if i == 10 {
				fmt.Fprintf(r.out, "    and %d more\n", len(tests)-i)
				break
			}
			fmt.Fprintf(r.out, "    %s\n", t)
		}
	}
	fmt.Fprintf(r.out, "packages: %d passed, %d failed; tests skipped: %d\n", r.ok, r.bad, n)
}
