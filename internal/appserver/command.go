package appserver

import (
	"context"
	"errors"
	"fmt"

	"mneme/internal/agent"
	"mneme/protocol"
)

// errInternal is what clients see of a failure that is not theirs.
var errInternal = agent.Errorf(agent.CodeInternal, "Internal error; the server's log says more")

// A call is one command on its way to its answer.
type call struct {
	*conn
	frame protocol.Frame
	// sub is the subscription to the command's runtime; nil for commands without
	// one. Where the runtime cannot be resolved it is nil and unknown says why.
	sub     *subscription
	unknown error

	answered bool
	beside   bool // it runs beside the read loop
}

// A handler runs one command type.
type handler struct {
	// detached, which may be nil, says whether the command runs beside the read
	// loop, where it may overtake others.
	detached func(cmd protocol.Command) bool
	// lane is set for a detached command that keeps its place among those of the
	// read loop, but for the ones that overtake.
	lane bool
	// overtakes, which may be nil, says whether a command of the read loop does
	// not wait for one in the lane: what ends or serves the turn at work.
	overtakes func(cmd protocol.Command) bool
	run       func(ctx context.Context, k *call, cmd protocol.Command)
}

// commands is the whole command table.
func commands() map[string]handler {
	table := map[string]handler{}
	for _, group := range []map[string]handler{
		coreCommands, agentCommands, conversationCommands, modelCommands, memoryCommands, settingCommands, extensionCommands,
	} {
		for name, h := range group {
			table[name] = h
		}
	}
	return table
}

// answer makes the handler of a command that has a response. f returns the
// response, or an error with what the failed response shall still hold (nil = an
// empty response). A handler whose frames have an order of their own answers
// through k.ok or k.fail and returns nil, nil.
func answer[C protocol.Request[R], R any](f func(context.Context, *call, C) (*R, error)) handler {
	return handler{run: func(ctx context.Context, k *call, cmd protocol.Command) {
		c := cmd.(C)
		k.subscribe(ctx)
		resp, err := f(ctx, k, c)
		switch {
		case k.answered && err == nil:
		case err != nil:
			if resp == nil {
				resp = c.NewResponse()
			}
			k.fail(err, resp)
		default:
			k.ok(resp)
		}
	}}
}

// silent makes the handler of a command without response: only its failure is
// told, by an error frame.
func silent[C protocol.Command](f func(context.Context, *call, C) error) handler {
	return handler{run: func(ctx context.Context, k *call, cmd protocol.Command) {
		k.subscribe(ctx)
		if err := f(ctx, k, cmd.(C)); err != nil {
			k.fail(err, nil)
		}
	}}
}

// beside makes a handler detached: for commands that may take their time and
// whose order nobody relies on.
func beside(h handler) handler {
	h.detached = always
	return h
}

// inLane makes a handler run beside the read loop without losing its place: for
// commands that may take their time and that later ones build on.
func inLane(h handler) handler {
	h = beside(h)
	h.lane = true
	return h
}

// overtaking lets a handler of the read loop not wait for the lane.
func overtaking(h handler, when func(protocol.Command) bool) handler {
	h.overtakes = when
	return h
}

func always(protocol.Command) bool { return true }

// subscribe subscribes the connection to the runtime that the command carries.
func (k *call) subscribe(ctx context.Context) {
	info, _ := protocol.Lookup(k.frame.Type)
	if info.Runtime != protocol.RuntimeNone && k.frame.Runtime != nil {
		k.sub, k.unknown = k.conn.subscribe(ctx, *k.frame.Runtime)
	}
}

// ok answers with success.
func (k *call) ok(resp any) {
	k.answered = true
	if !k.wantsAnswer() {
		return
	}
	body, err := protocol.AppendResponse(nil, k.responseType(), k.frame.RequestID, resp)
	k.reply(body, err)
}

// fail answers with a failure: by the command's own response if it has one and
// said a request_id, else by an error frame. data, which may be nil, are the
// other fields of the failed response.
func (k *call) fail(err error, data any) {
	if k.answered {
		k.door.log.Warn("command failed after its answer", "type", k.frame.Type, "err", err)
		return
	}
	k.answered = true
	e := k.public(err)
	typ := k.responseType()
	if typ == "" || k.frame.RequestID == nil {
		k.sendError(string(e.Code), e.Message)
		return
	}
	if data == nil {
		data = k.emptyResponse()
	}
	body, err := protocol.AppendFailure(nil, typ, k.frame.RequestID, e.Message, data)
	k.reply(body, err)
}

// emptyResponse is the failed response of a command that was not run.
func (k *call) emptyResponse() any {
	var rt protocol.Runtime
	if k.frame.Runtime != nil {
		rt = *k.frame.Runtime
	}
	info, _ := protocol.Lookup(k.frame.Type)
	if info.NewResponse == nil {
		return nil
	}
	resp := info.NewResponse()
	switch r := resp.(type) {
	case *protocol.SyncResponse:
		r.Runtime = rt
	case *protocol.AbortMessageResponse:
		r.Runtime = rt
	case *protocol.ResumeQueueResponse:
		r.Runtime = rt
	}
	return resp
}

// public turns an error into what clients may see.
func (k *call) public(err error) *agent.Error {
	var e *agent.Error
	if errors.As(err, &e) && e.Code != agent.CodeInternal {
		return e
	}
	if k.ctx.Err() != nil {
		return agent.Errorf(agent.CodeShutdown, "The server is stopping")
	}
	k.door.log.Error("command failed", "type", k.frame.Type, "err", err)
	return errInternal
}

func (k *call) reply(body []byte, err error) {
	if err != nil {
		k.door.log.Error("encode response", "type", k.frame.Type, "err", err)
		k.sendError(string(errInternal.Code), errInternal.Message)
		return
	}
	if !k.beside {
		k.answer(body)
		return
	}
	// Many may be at work at once, each with large answers: here each waits.
	if k.out.pushAnswer(k.ctx, &frame{body: body, answer: true}) {
		k.tooSlow()
	}
}

// wantsAnswer says whether a success is told: not for commands without response
// or, where request_id may be missing, without one.
func (k *call) wantsAnswer() bool {
	info, _ := protocol.Lookup(k.frame.Type)
	return info.Response != "" && (k.frame.RequestID != nil || info.Name != "input")
}

func (k *call) responseType() string {
	info, _ := protocol.Lookup(k.frame.Type)
	return info.Response
}

// sendError answers with the error frame, which names the command's request_id
// if it said one.
func (k *call) sendError(code, text string) { k.conn.sendError(k.frame.RequestID, code, text) }

// sendError sends the error frame, the answer to what has no other.
func (c *conn) sendError(requestID *string, code, text string) {
	body, err := protocol.AppendFrame(nil, "error", requestID, &protocol.ErrorEvent{Code: code, Error: text})
	if err != nil {
		c.door.log.Error("encode error frame", "err", err)
		return
	}
	c.answer(body)
}

// refuse answers a frame that could not be decoded (spec/app-server-core.md
// section 1.6).
func (c *conn) refuse(k *call, err error) {
	var payload *protocol.PayloadError
	if errors.As(err, &payload) {
		c.refuseInput(k, payload)
		return
	}
	var d *protocol.DecodeError
	if !errors.As(err, &d) {
		k.fail(fmt.Errorf("decode: %w", err), nil)
		return
	}
	info, known := protocol.Lookup(k.frame.Type)
	if !known || info.Response == "" || k.frame.RequestID == nil {
		k.sendError(string(d.Code), d.Message)
		return
	}
	if info.Name == "input" {
		k.refused(d.Message)
		return
	}
	k.fail(&agent.Error{Code: agent.CodeInvalid, Field: d.Field, Message: d.Message}, nil)
}
