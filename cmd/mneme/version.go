package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCommand struct{}

// Run prints what was built, and from what.
func (versionCommand) Run(p *program) error {
	fmt.Fprintln(p.stdout, describe(debug.ReadBuildInfo()))
	return nil
}

// describe is "mneme VERSION (commit …, go1.26.6, linux/amd64)".
func describe(info *debug.BuildInfo, ok bool) string {
	version, commit, changed := "devel", "", false
	if ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			version = v
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.modified":
				changed = s.Value == "true"
			}
		}
	}
	var details []string
	if commit != "" {
		c := "commit " + commit[:min(12, len(commit))]
		if changed {
			c += " with changes"
		}
		details = append(details, c)
	}
	details = append(details, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("mneme %s (%s)", version, strings.Join(details, ", "))
}

// version is the bare version, for protocols.
func version() string {
	_, after, _ := strings.Cut(describe(debug.ReadBuildInfo()), " ")
	v, _, _ := strings.Cut(after, " ")
	return v
}
