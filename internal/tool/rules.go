package tool

// Rules are permission rules from all sources (spec/harness.md section 3.3).
type Rules struct {
	Allow     []string
	Deny      []string
	Ask       []string
	AlwaysAsk []string
	// Directories are places besides the working directory that may be read
	// without asking.
	Directories []string
}
