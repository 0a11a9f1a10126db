package agent

import (
	"encoding/json"
	"time"
)

// DefaultBlockLimit is the most characters a block holds where nothing else is
// said (spec/harness.md section 4.1).
const DefaultBlockLimit = 100_000

// A Block is a labelled text that can be part of the core memory of agents.
// Unattached it is this row alone. Attached to an agent it is the file
// system/<label>.md of that agent's memory: on difference the file wins and the
// row follows.
type Block struct {
	ID          string
	Label       string
	Value       string
	Description *string
	Limit       int // characters
	ReadOnly    bool
	Hidden      *bool
	Tags        []string
	Metadata    json.RawMessage // JSON object; nil = none
	Extra       json.RawMessage // what only REST knows; nil = none
	// Version grows with every change of the row.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}
