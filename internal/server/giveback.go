package server

import (
	"context"
	"runtime/debug"
	"time"
)

// restTick is how often the server looks whether it is at rest.
const restTick = 5 * time.Second

// giveBack returns memory to the operating system when work has come to rest:
// the collector keeps what a busy minute needed, and a server that idles most of
// the day shares its machine. It costs one collection for each time of rest.
func (s *Server) giveBack(ctx context.Context) {
	tick := time.NewTicker(restTick)
	defer tick.Stop()
	busy := true // the start was work too
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		atRest := s.parts.runtime.Live() == 0
		if atRest && busy {
			debug.FreeOSMemory()
		}
		busy = !atRest
	}
}
