package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// scenario is what the runner needs to know of a scenario file.
type scenario struct {
	name   string
	Server string `json:"server"` // the kind of server it wants
	notYet bool   // named in notyet.txt
}

// load reads the kit's scenarios.
func load(kit string) ([]scenario, error) {
	listed, err := readList(filepath.Join(kit, "notyet.txt"))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(kit, "scenarios", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s := scenario{name: strings.TrimSuffix(filepath.Base(f), ".json")}
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		s.notYet = listed[s.name]
		all = append(all, s)
	}
	return all, nil
}

// readList reads a file of names; # starts a comment.
func readList(path string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		for name := range strings.FieldsSeq(line) {
			names[name] = true
		}
	}
	return names, nil
}

// wantsOpenAI says whether a scenario that may be played needs the OpenAI routes.
func wantsOpenAI(scenarios []scenario, all bool) bool {
	for _, s := range scenarios {
		if strings.HasPrefix(s.name, "openai-") && (all || !s.notYet) {
			return true
		}
	}
	return false
}

// counts is what wsdiff says at its end.
type counts struct{ passed, deviate, failed, notYet int }

func (c *counts) add(d counts) {
	c.passed += d.passed
	c.deviate += d.deviate
	c.failed += d.failed
	c.notYet += d.notYet
}

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d deviate, %d failed, %d not yet", c.passed, c.deviate, c.failed, c.notYet)
}

// readCounts reads the last line of wsdiff's output.
func readCounts(output string) (c counts, err error) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	last := lines[len(lines)-1]
	if _, err := fmt.Sscanf(last, "%d passed, %d deviate, %d failed, %d not yet", &c.passed, &c.deviate, &c.failed, &c.notYet); err != nil {
		return counts{}, fmt.Errorf("wsdiff ended with %q: %w", last, err)
	}
	return c, nil
}
