package rest

import (
	"context"

	"mneme/internal/agent"
	"mneme/internal/roster"
)

type blockCreate struct{}

func (b *blockCreate) checkAt(string) error                              { return nil }
func (b *blockCreate) spec() (s roster.BlockSpec)                        { return }
func (d *Door) blocksOf(context.Context, string) ([]*agent.Block, error) { return nil, nil }
func (d *Door) setBlocks(context.Context, *agent.Agent, []string) error  { return nil }
func (d *Door) knowsTool(string) bool                                    { return true }
func (d *Door) namesOfTools([]string) ([]string, error)                  { return nil, nil }
func (d *Door) toolStates([]string) []toolState                          { return []toolState{} }

var baseTools = []string{"conversation_search", "memory_insert", "memory_replace"}
