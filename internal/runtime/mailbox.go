package runtime

import "sync"

// A mailbox takes commands from anywhere and gives them to one reader in
// order. It is unbounded: what fills it are callers that wait for an answer,
// and the few workers of the actor itself.
type mailbox struct {
	mu     sync.Mutex
	cmds   []command
	closed bool
	signal chan struct{} // holds one token while cmds is not empty
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

// put adds a command; false if the reader is gone.
func (b *mailbox) put(cmd command) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.cmds = append(b.cmds, cmd)
	select {
	case b.signal <- struct{}{}:
	default:
	}
	return true
}

// take empties the mailbox.
func (b *mailbox) take() []command {
	b.mu.Lock()
	defer b.mu.Unlock()
	cmds := b.cmds
	b.cmds = nil
	return cmds
}

// closeIfEmpty closes a mailbox that holds nothing, so that no command is lost
// between the last look and the reader's leaving.
func (b *mailbox) closeIfEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.cmds) > 0 {
		return false
	}
	b.closed = true
	return true
}

// close closes the mailbox and returns what was left in it.
func (b *mailbox) close() []command {
	b.mu.Lock()
	defer b.mu.Unlock()
	cmds := b.cmds
	b.cmds, b.closed = nil, true
	return cmds
}
