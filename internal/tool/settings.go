package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"mneme/internal/agent"
)

// maxSettings bounds a settings file.
const maxSettings = 1 << 20

// LoadRules is ReadRules with the user's home directory; what is wrong with the
// files goes to log.
func LoadRules(cwd string, log *slog.Logger) *Rules {
	home, _ := os.UserHomeDir() // "" = no settings of the user
	rules, err := ReadRules(cwd, home)
	if err != nil && log != nil {
		log.Warn("permission settings cannot be trusted: every call asks", "err", err)
	}
	return rules
}

// ReadRules merges the permission rules of ~/.letta/settings.json,
// <cwd>/.letta/settings.json and <cwd>/.letta/settings.local.json (spec/harness.md
// section 3.3). Missing files are fine.
//
// A file that cannot be read or parsed, and a malformed rule, may have meant to
// deny something: the error names each, and the rules that are returned beside
// it make every call ask.
func ReadRules(cwd, home string) (*Rules, error) {
	paths := []string{
		filepath.Join(cwd, ".letta", "settings.json"),
		filepath.Join(cwd, ".letta", "settings.local.json"),
	}
	if home != "" {
		paths = append([]string{filepath.Join(home, ".letta", "settings.json")}, paths...)
	}
	rules := &Rules{}
	var failed []error
	for _, path := range slices.Compact(paths) {
		if err := rules.read(path); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		rules.AlwaysAsk = append(rules.AlwaysAsk, "*")
	}
	return rules, errors.Join(failed...)
}

// settings is the part of a settings file that matters here.
type settings struct {
	Permissions struct {
		Allow       []string `json:"allow"`
		Deny        []string `json:"deny"`
		Ask         []string `json:"ask"`
		AlwaysAsk   []string `json:"alwaysAsk"`
		Directories []string `json:"additionalDirectories"`
		Mode        string   `json:"mode"`
	} `json:"permissions"`
}

func (r *Rules) read(path string) error {
	b, err := readSettings(path)
	if b == nil {
		return err
	}
	var s settings
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("permission rules in %s: %w", path, err)
	}
	p := &s.Permissions
	for _, list := range [][]string{p.Deny, p.Ask, p.AlwaysAsk, p.Allow} {
		for _, text := range list {
			if _, ok := parseRule(text); !ok {
				err = errors.Join(err, fmt.Errorf("permission rules in %s: %q is not a rule", path, text))
			}
		}
	}
	r.Allow = append(r.Allow, p.Allow...)
	r.Deny = append(r.Deny, p.Deny...)
	r.Ask = append(r.Ask, p.Ask...)
	r.AlwaysAsk = append(r.AlwaysAsk, p.AlwaysAsk...)
	for _, dir := range p.Directories {
		if !filepath.IsAbs(dir) && dir != "~" && (len(dir) < 2 || dir[:2] != "~/") {
			dir = filepath.Join(filepath.Dir(filepath.Dir(path)), dir)
		}
		r.Directories = append(r.Directories, dir)
	}
	if p.Mode != "" {
		mode, ok := agent.ParseMode(p.Mode)
		if !ok {
			return errors.Join(err, fmt.Errorf("permission mode in %s: unknown mode %q", path, p.Mode))
		}
		r.Mode = mode
	}
	return err
}

// readSettings returns nil for a file that is not there.
func readSettings(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxSettings) {
		err = errors.New("not a file of reasonable size")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("permission rules in %s: %w", path, err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}
