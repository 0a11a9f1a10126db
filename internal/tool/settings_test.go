package tool_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

func TestReadRules(t *testing.T) {
	r := newRig(t)
	rules, err := tool.ReadRules(r.env.Cwd, r.path("home"))
	if diff := cmp.Diff(&tool.Rules{}, rules); diff != "" || err != nil {
		t.Errorf("without files (-want +got), %v:\n%s", err, diff)
	}
	r.file("home/.letta/settings.json", `{"permissions":{"allow":["Bash(ls:*)"],"deny":["Read(**/.env)"],"mode":"standard"},"other":1}`)
	r.file("work/.letta/settings.json", `{"permissions":{"allow":["Write(**)"],"ask":["Bash(make:*)"],"alwaysAsk":["Bash(git push:*)"],"additionalDirectories":["../shared","/abs","~/docs"]}}`)
	r.file("work/.letta/settings.local.json", `{"permissions":{"allow":["lookup"],"mode":"bypassPermissions"}}`)
	rules, err = tool.ReadRules(r.env.Cwd, r.path("home"))
	want := &tool.Rules{
		Allow: []string{"Bash(ls:*)", "Write(**)", "lookup"}, Deny: []string{"Read(**/.env)"}, Ask: []string{"Bash(make:*)"},
		AlwaysAsk: []string{"Bash(git push:*)"}, Directories: []string{r.path("shared"), "/abs", "~/docs"}, Mode: agent.ModeUnrestricted,
	}
	if diff := cmp.Diff(want, rules); diff != "" || err != nil {
		t.Errorf("merged (-want +got), %v:\n%s", err, diff)
	}
	// Where the home directory is the working directory, a file counts once.
	rules, err = tool.ReadRules(r.path("home"), r.path("home"))
	if diff := cmp.Diff([]string{"Bash(ls:*)"}, rules.Allow); diff != "" || err != nil {
		t.Errorf("at home (-want +got), %v:\n%s", err, diff)
	}
	r.env.Rules = &tool.Rules{Directories: []string{"~/docs"}}
	if d := r.decide("Read", in("file_path", r.path("home/docs/x"))); d.Verdict != tool.Allow {
		t.Errorf("additional directory: %+v", d)
	}
}

// What cannot be read may have meant to deny: then every call asks.
func TestBrokenSettings(t *testing.T) {
	for name, content := range map[string]string{
		"syntax":       `{"permissions":{"deny":["Bash(rm:*)"],}}`,
		"type":         `{"permissions":{"deny":"Bash(rm:*)"}}`,
		"a rule":       `{"permissions":{"deny":["Bash(rm:*"]}}`,
		"an ask rule":  `{"permissions":{"ask":["two words"]}}`,
		"a mode":       `{"permissions":{"mode":"yolo"}}`,
		"not a file":   "",
		"empty":        " ",
		"wrong object": `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if content == "" {
				r.file("work/.letta/settings.json/x", "")
			} else {
				r.file("work/.letta/settings.json", content)
			}
			r.file("home/.letta/settings.json", `{"permissions":{"allow":["Bash(make:*)"],"deny":["Bash(curl:*)"]}}`)
			rules, err := tool.ReadRules(r.env.Cwd, r.path("home"))
			if err == nil || !strings.Contains(err.Error(), r.path("work/.letta/settings.json")) {
				t.Fatalf("error %v does not name the file", err)
			}
			r.env.Rules = rules
			for _, mode := range modes {
				r.env.Mode = mode
				for _, command := range []string{"rm x", "make", "ls"} {
					if d := r.decide("Bash", in(bash(command)...)); d.Verdict != tool.Ask {
						t.Errorf("%s in %s: %+v", command, mode, d)
					}
				}
				if d := r.decide("Bash", in(bash("curl x")...)); d.Verdict != tool.Deny {
					t.Errorf("a rule of a good file is lost in %s: %+v", mode, d)
				}
			}
			var log strings.Builder
			t.Setenv("HOME", r.path("home"))
			if got := tool.LoadRules(r.env.Cwd, slog.New(slog.NewTextHandler(&log, nil))); !cmp.Equal(got, rules) || !strings.Contains(log.String(), "settings.json") {
				t.Errorf("LoadRules %+v, log %q", got, log.String())
			}
		})
	}
}
