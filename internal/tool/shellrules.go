package tool

import "mneme/internal/agent"

func (s *subject) harmlessShell() string            { return "" }
func (s *subject) shellAllowed(rules []rule) bool   { return false }
func (s *subject) shellTouches(r rule) bool         { return false }
func (s *subject) suggestShell() []agent.Suggestion { return nil }
