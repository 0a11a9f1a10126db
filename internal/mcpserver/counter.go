package mcpserver

import "sync"

// counter counts what runs. Unlike a WaitGroup it may be waited for while more
// begins.
type counter struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil = nobody waits
}

func (c *counter) add(d int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n = max(c.n+d, 0); c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// clear lets nobody wait any longer.
func (c *counter) clear() {
	c.mu.Lock()
	n := c.n
	c.mu.Unlock()
	c.add(-n)
}

// run runs f in a goroutine that counts.
func (c *counter) run(f func()) {
	c.add(1)
	go func() {
		defer c.add(-1)
		f()
	}()
}

// wait waits until nothing runs.
func (c *counter) wait() {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.mu.Unlock()
	<-none
}
