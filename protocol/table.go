package protocol

import "slices"

// A Status says whether this server has a command.
type Status string

// The statuses.
const (
	Built  Status = "built"
	NotYet Status = "later"
)

// A RequestIDRule says what a command's request_id must be.
type RequestIDRule int

// The rules. An accepted empty id is echoed like any other.
const (
	RequestIDNone             RequestIDRule = iota // not looked at
	RequestIDOptional                              // a string if it is there
	RequestIDOptionalNonEmpty                      // a non-empty string if it is there
	RequestIDRequired                              // a string
	RequestIDNonEmpty                              // a non-empty string
)

func (r RequestIDRule) check(o *object) {
	switch r {
	case RequestIDOptional:
		o.optStr("request_id")
	case RequestIDOptionalNonEmpty:
		if o.has("request_id") {
			o.nonEmpty("request_id")
		}
	case RequestIDRequired:
		o.str("request_id")
	case RequestIDNonEmpty:
		o.nonEmpty("request_id")
	}
}

// A RuntimeRule says what a command's runtime must be. Any accepted command
// with a runtime subscribes the connection to it.
type RuntimeRule int

// The rules.
const (
	RuntimeNone      RuntimeRule = iota // the command has none
	RuntimeAny                          // required, agent_id may be null
	RuntimeWithAgent                    // required, agent_id is a non-empty string
)

// CommandInfo describes one command.
type CommandInfo struct {
	Name      string
	Group     string
	Status    Status
	RequestID RequestIDRule
	Runtime   RuntimeRule
	// Response is the type of the response; empty = there is none.
	Response string
	// New makes the empty body; nil = the body is a [Later].
	New func() Command
	// NewResponse makes the empty response body, which is also the data of a
	// failure; nil = none is typed.
	NewResponse func() any
	// Fields lists the fields of a command without typed body, beside
	// request_id and runtime; a ? marks those that may be missing.
	Fields []string
	Doc    string // one sentence
}

// build makes the empty body of a command type.
func build[T any, P interface {
	*T
	Command
}]() Command {
	return P(new(T))
}

// reply makes an empty response.
func reply[T any]() any { return new(T) }

// Lookup finds a command by its type.
func Lookup(name string) (CommandInfo, bool) {
	i, ok := commandIndex[name]
	if !ok {
		return CommandInfo{}, false
	}
	return Commands[i], true
}

// The index is a function of the table, made once.
var commandIndex = indexCommands()

func indexCommands() map[string]int {
	index := make(map[string]int, len(Commands))
	for i, c := range Commands {
		index[c.Name] = i
	}
	return index
}

// Groups returns the groups of the table in their order.
func Groups() []string {
	var groups []string
	for _, c := range Commands {
		if !slices.Contains(groups, c.Group) {
			groups = append(groups, c.Group)
		}
	}
	return groups
}
