package appserver

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testFeed makes a feed of a door that has nothing but an event source.
func testFeed() *feed {
	d := &Door{rt: runtime.New(runtime.Config{}), log: slog.New(slog.DiscardHandler)}
	d.git = newGitCache(&d.work)
	f := &feed{
		door: d, scope: agent.Scope{AgentID: "agent-1", ConversationID: "conv-1"},
		rt: protocol.Runtime{AgentID: "agent-1", ConversationID: "conv-1"},
	}
	f.render = renderer{feed: f}
	return f
}

// testConn makes a connection without a socket and subscribes it.
func (f *feed) testConn(id string, full bool) *conn {
	c := &conn{id: id, door: f.door, out: newOutbox()}
	f.subs = append(f.subs, &subscription{conn: c, feed: f, full: full})
	return c
}

// drain takes all frames that wait.
func (o *outbox) drain() (bodies []string) {
	for {
		f, _, _ := o.next()
		if f == nil {
			return bodies
		}
		o.written()
		bodies = append(bodies, string(f.body))
	}
}
