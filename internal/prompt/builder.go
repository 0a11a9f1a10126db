package prompt

import (
	"context"
	"runtime"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

// A Builder makes prompts from what is stored: the one place where the text
// functions of this package meet an agent's memory and the machine.
type Builder struct {
	Memory  *memory.Memory
	Git     *Git   // nil = git is not mentioned
	Version string // of mneme
}

// Compile makes the system message of a conversation that holds count messages,
// from the memory as it is committed now.
func (b *Builder) Compile(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, count int) (agent.Prompt, error) {
	snap, err := b.snapshot(ctx, ag.ID)
	if err != nil {
		return agent.Prompt{}, err
	}
	now := time.Now()
	rev := ""
	if snap != nil {
		rev = snap.Commit
	}
	return agent.Prompt{
		ConversationID: conv.ID,
		Text: Compile(CompileInput{
			Agent: ag, WireConv: conv.WireID(), Memory: snap, MessageCount: count, Now: now,
		}),
		Revision: rev, NoticedAt: rev, CreatedAt: now,
	}, nil
}

// Revision is the newest commit of an agent's memory, "" = nothing was written
// yet. It starts no process.
func (b *Builder) Revision(agentID string) (string, error) { return b.Memory.Head(agentID) }

// Notice tells the model of the memory as it is now, where it knew it as of
// commit since ("" = empty).
func (b *Builder) Notice(ctx context.Context, ag *agent.Agent, since string) (text, revision string, err error) {
	now, err := b.snapshot(ctx, ag.ID)
	if err != nil || now == nil {
		return "", "", err
	}
	var before *memory.Snapshot
	if since != "" {
		// A commit that is gone (a rewritten history) is no reason to stay silent.
		before, _ = b.Memory.Snapshot(ctx, ag.ID, since)
	}
	return MemoryNotice(before, now), now.Commit, nil
}

// Remind completes in with what the machine knows and returns the reminders.
func (b *Builder) Remind(ctx context.Context, in ReminderInput) string {
	in.Now, in.Version, in.Device = time.Now(), b.Version, runtime.GOOS+"/"+runtime.GOARCH
	if in.Agent != nil && in.MemoryDir == "" {
		in.MemoryDir = b.Memory.Dir(in.Agent.ID)
	}
	if b.Git != nil {
		in.Git = func(cwd string) *GitInfo { return b.Git.Look(ctx, cwd) }
	}
	return Reminders(in)
}

// snapshot is the memory at its newest commit, nil if nothing was written yet.
func (b *Builder) snapshot(ctx context.Context, agentID string) (*memory.Snapshot, error) {
	s, err := b.Memory.Snapshot(ctx, agentID, "")
	if err != nil || s.Commit == "" {
		return nil, err
	}
	return s, nil
}
