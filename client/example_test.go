package client_test

import (
	"context"
	"encoding/json"
	"fmt"

	"mneme/client"
	"mneme/protocol"
)

// The examples talk to a small server in the same process; with mneme the
// address is the one that it prints, such as ws://127.0.0.1:4500.

func ExampleCall() {
	server := startFakeServer()
	defer server.shutdown()
	ctx := context.Background()

	c, err := client.Dial(ctx, server.URL, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	memory, err := client.Call(ctx, c, &protocol.ListMemory{AgentID: "agent-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, file := range memory.Entries {
		fmt.Println("memory file:", file.RelativePath)
	}
	_, err = client.Call(ctx, c, &protocol.AgentRetrieve{AgentID: "agent-2"})
	fmt.Println("error:", err)
	// Output:
	// memory file: 0
	// memory file: 1
	// memory file: 2
	// error: agent_retrieve: Agent agent-2 not found
}

// Send a message, print the answer as it comes, look at how it ended.
func ExampleRuntime_Send() {
	server := startFakeServer()
	defer server.shutdown()
	ctx := context.Background()
	c, err := client.Dial(ctx, server.URL, client.Options{Reconnect: &client.Backoff{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	agent := "agent-1"
	rt, err := c.StartRuntime(ctx, protocol.RuntimeStart{AgentID: &agent})
	if err != nil {
		fmt.Println(err)
		return
	}
	turn, err := rt.Send(ctx, "say one piece per word")
	if err != nil {
		fmt.Println(err)
		return
	}
	for ev, err := range turn.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if delta, ok := ev.Body.(*protocol.StreamDelta); ok && delta.Text() != "" {
			fmt.Printf("%q\n", delta.Text())
		}
	}
	result, err := turn.Wait(ctx)
	fmt.Println(result.StopReason, err)
	// Output:
	// "one "
	// "piece "
	// "per "
	// "word "
	// end_turn <nil>
}

// Tools that the agent may call and that run in this process.
func ExampleTool() {
	server := startFakeServer()
	defer server.shutdown()
	ctx := context.Background()
	c, err := client.Dial(ctx, server.URL, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	lookup := client.Tool{
		ExternalTool: protocol.ExternalTool{
			Name:        "lookup",
			Description: "Look up a word.",
			Parameters:  protocol.Object(`{"type":"object","properties":{"word":{"type":"string"}}}`),
		},
		Run: func(_ context.Context, input json.RawMessage) (*protocol.ToolResult, error) {
			var in struct{ Word string }
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
			return protocol.TextResult(in.Word + ": a small animal"), nil
		},
	}
	agent := "agent-1"
	rt, err := c.StartRuntime(ctx, protocol.RuntimeStart{AgentID: &agent}, lookup)
	if err != nil {
		fmt.Println(err)
		return
	}
	turn, err := rt.Send(ctx, `tool lookup {"word":"vole"}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := turn.Wait(ctx)
	fmt.Println(result.Text(), err)
	// Output:
	// {"result":{"content":[{"type":"text","text":"vole: a small animal"}]}} <nil>
}

// Answer what the agent asks during a turn.
func ExampleRuntime_Approve() {
	server := startFakeServer()
	defer server.shutdown()
	ctx := context.Background()
	c, err := client.Dial(ctx, server.URL, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	agent := "agent-1"
	rt, err := c.StartRuntime(ctx, protocol.RuntimeStart{AgentID: &agent, Mode: protocol.ModeStandard})
	if err != nil {
		fmt.Println(err)
		return
	}
	turn, err := rt.Send(ctx, "ask")
	if err != nil {
		fmt.Println(err)
		return
	}
	for ev, err := range turn.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if ask, ok := ev.Body.(*protocol.ControlRequest); ok {
			fmt.Println("may it run", ask.Request.ToolName+"?")
			if err := rt.Approve(ctx, ask.RequestID); err != nil {
				fmt.Println(err)
			}
		}
	}
	result, err := turn.Wait(ctx)
	fmt.Println(result.Text(), err)
	// Output:
	// may it run Bash?
	// allowed <nil>
}
