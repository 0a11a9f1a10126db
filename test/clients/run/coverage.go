package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// An endpoint is a row of endpoints.json.
type endpoint struct {
	Method   string `json:"method"`
	Path     string `json:"path"`
	Call     string `json:"client_call"`
	Priority string `json:"priority"`

	good, bad int // answers 2xx, and 4xx
}

// neverRefused are the calls that have no argument that could be wrong.
var neverRefused = map[string]bool{
	"client.health": true, "client.models.embeddings.list": true,
}

// checkCoverage holds the calls that a suite has written down, a line each of
// method, path and status, against the table of endpoints.
func checkCoverage(table, calls string) error {
	data, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	var rows []endpoint
	if err := json.Unmarshal(data, &rows); err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	seen, err := os.ReadFile(calls)
	if err != nil {
		return fmt.Errorf("the suite has written down no calls: %w", err)
	}
	for line := range strings.Lines(string(seen)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("%q is no call", line)
		}
		count(rows, fields[0], fields[1], fields[2])
	}
	total := 0
	var missing []string
	for _, e := range rows {
		if e.Priority != "P0" {
			continue
		}
		total++
		if e.good == 0 {
			missing = append(missing, e.Call+" was never answered well")
		}
		if e.bad == 0 && !neverRefused[e.Call] {
			missing = append(missing, e.Call+" was never refused")
		}
	}
	if missing != nil {
		return fmt.Errorf("of the %d calls that must be there,\n  %s", total, strings.Join(missing, "\n  "))
	}
	fmt.Printf("clients: all %d calls were answered well and refused\n", total)
	return nil
}

// count adds a call to its row: the one whose path matches with most words.
func count(rows []endpoint, method, path, status string) {
	best, words := -1, -1
	for i, e := range rows {
		if n := matches(e.Path, path); e.Method == method && n > words {
			best, words = i, n
		}
	}
	code, err := strconv.Atoi(status)
	if best < 0 || err != nil {
		return
	}
	switch code / 100 {
	case 2:
		rows[best].good++
	case 4:
		rows[best].bad++
	}
}

// matches says how many segments of a path are words of the pattern, or -1 if
// it does not match.
func matches(pattern, path string) int {
	p, s := split(pattern), split(path)
	if len(p) != len(s) {
		return -1
	}
	words := 0
	for i, seg := range p {
		switch {
		case strings.HasPrefix(seg, "{") && s[i] != "":
		case seg == s[i]:
			words++
		default:
			return -1
		}
	}
	return words
}

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }
