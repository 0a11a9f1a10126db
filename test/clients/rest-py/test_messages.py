"""Sends, streams, approvals, cancel, reset, summarize, search."""

import threading
import uuid

import httpx
from letta_client import APIError

from base import HTTP_URL, NOBODY, Case, calls, connect, kinds, numbered, of, text, until, user

LOOKUP = [{"name": "lookup", "description": "Looks something up", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]


class Sends(Case):
    def test_answer(self):
        agent = self.agent()
        answer = self.say(agent, "THINK let me see\nSAY hello")
        self.assertEqual(kinds(answer.messages), ["reasoning_message", "assistant_message"])
        self.assertEqual(len({m.id for m in answer.messages}), 1)
        self.assertEqual(len({m.otid for m in answer.messages}), 2)
        self.assertEqual(answer.stop_reason.stop_reason, "end_turn")
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.step_count), (100, 1))
        self.assertIsNone(answer.messages[0].is_err)
        listed = list(self.client.agents.messages.list(agent.id, order="asc", limit=1))
        self.assertEqual(kinds(listed), ["system_message", "user_message", "reasoning_message", "assistant_message"], "all pages")

    def test_odd_text(self):
        agent, odd = self.agent(), "SAY ok\n" + "wörd " * 200_000 + "😀 שלום \u2028 \\ \" end"
        self.assertEqual(text(self.say(agent, odd).messages), "ok")
        self.assertEqual(of(self.client.agents.messages.list(agent.id), "user_message")[0].content, odd)

    def test_refusals(self):
        agent, messages = self.agent(), self.client.agents.messages
        self.refused(422, ".", messages.create, agent.id, messages=[])
        self.refused(422, ".", messages.create, agent.id, messages=[user("x")], input="x")
        self.refused(422, ".", messages.create, agent.id, messages=[user("x")], max_steps=0)
        self.refused(422, ".", messages.stream, agent.id, messages=[])
        self.refused(422, ".", messages.create_async, agent.id, messages=[])
        self.refused(422, ".", messages.list, agent.id, limit=-1)
        for call in (messages.create, messages.stream, messages.create_async):
            self.refused(404, "Agent not found", call, NOBODY["agent"], messages=[user("x")])
        for call in (messages.list, messages.cancel, messages.reset, messages.compact):
            self.refused(404, "Agent not found", call, NOBODY["agent"])

    def test_provider_error(self):
        agent = self.agent()
        error = self.refused(400, "llm_bad_request", self.say, agent, "ERROR 400")
        self.assertEqual(error.response.headers["x-should-retry"], "false")
        self.assertEqual(text(self.say(agent, "SAY fine").messages), "fine")

    def test_otid(self):
        agent, message = self.agent(), user("SAY once", otid=str(uuid.uuid4()))
        first = self.client.agents.messages.create(agent.id, messages=[message])
        second = self.client.agents.messages.create(agent.id, messages=[message])
        self.assertEqual(first, second)
        self.assertEqual(len(of(self.client.agents.messages.list(agent.id), "user_message")), 1)
        other = message | {"content": "SAY other"}
        self.refused(409, "CONFLICT", self.client.agents.messages.create, agent.id, messages=[other])

    def test_impatient_client(self):
        agent = self.agent()
        hasty = connect(max_retries=5, timeout=0.3)
        answer = hasty.agents.messages.create(agent.id, messages=[user("WAIT 700\nSAY patience", otid=str(uuid.uuid4()))])
        self.assertEqual(text(answer.messages), "patience")
        self.assertEqual(len(of(self.client.agents.messages.list(agent.id), "assistant_message")), 1)


class Streams(Case):
    def test_tokens(self):
        agent = self.agent()
        items = list(self.client.agents.messages.stream(agent.id, messages=[user("SLOW 10\nTHINK a thought\nTOKENS 30")], stream_tokens=True))
        self.assertEqual(items[0].message_type, "ping")
        self.assertEqual(kinds(items)[-2:], ["stop_reason", "usage_statistics"])
        pieces = of(items, "assistant_message")
        self.assertGreater(len(pieces), 1)
        self.assertEqual(len({(p.id, p.otid) for p in pieces}), 1)
        self.assertEqual(text(items), numbered(30))
        self.assertEqual("".join(m.reasoning for m in of(items, "reasoning_message")), "a thought")

    def test_error_event(self):
        agent = self.agent()
        with self.assertRaises(APIError) as caught:
            list(self.client.agents.messages.stream(agent.id, messages=[user("ERROR 401")]))
        self.assertEqual(caught.exception.body["error_type"], "llm_authentication")

    def test_busy(self):
        conversation = self.conversation()
        stream = self.client.conversations.messages.create(conversation.id, messages=[user("SLOW 20\nTOKENS 60")], stream_tokens=True)
        first = next(iter(stream))
        error = self.refused(409, "is currently being processed", self.client.conversations.messages.create, conversation.id, messages=[user("x")])
        self.assertIn(f"run_id={first.run_id}", error.message)
        self.assertEqual(error.response.headers["x-should-retry"], "false")
        stream.close()
        until("a free conversation", lambda: self.client.runs.retrieve(first.run_id).status == "completed")

    def test_other_decoders(self):
        """A stream as a plain reader of lines sees it."""
        agent = self.agent()
        with httpx.stream("POST", f"{HTTP_URL}/v1/agents/{agent.id}/messages/stream", json={"messages": [user("SAY \u2028 x")], "background": True}, timeout=30) as response:
            self.assertEqual(response.headers["content-type"], "text/event-stream; charset=utf-8")
            events = response.read().decode().split("\n\n")
        self.assertEqual(events.pop(), "")
        self.assertEqual(events.pop(), "data: [DONE]")
        for i, event in enumerate(events, 1):
            self.assertRegex(event, rf"^id: {i}\ndata: \{{[^\n]*\}}$")


class Approvals(Case):
    def test_client_tool(self):
        agent = self.agent()
        asked = self.say(agent, calls(("lookup", {"q": "life"})), client_tools=LOOKUP)
        self.assertEqual(asked.stop_reason.stop_reason, "requires_approval")
        call = of(asked.messages, "approval_request_message")[0].tool_call
        self.refused(409, "waiting for approval", self.say, agent, "x")
        approvals = [{"type": "tool", "tool_call_id": call.tool_call_id, "tool_return": "forty-two", "status": "success"}]
        done = self.client.agents.messages.create(agent.id, messages=[{"type": "approval", "approvals": approvals}], client_tools=LOOKUP)
        self.assertEqual(kinds(done.messages), ["tool_return_message", "assistant_message"])
        self.assertEqual(text(done.messages), "forty-two")

    def test_streamed_client_tool(self):
        conversation = self.conversation()
        send = self.client.conversations.messages.create
        asked = list(send(conversation.id, messages=[user(calls(("lookup", {"q": "a"})))], client_tools=LOOKUP, stream_tokens=True, background=True))
        pieces = of(asked, "approval_request_message")
        self.assertEqual("".join(p.tool_call.arguments or "" for p in pieces), '{"q": "a"}')
        approvals = [{"type": "tool", "tool_call_id": pieces[0].tool_call.tool_call_id, "tool_return": "r", "status": "success"}]
        done = list(send(conversation.id, messages=[{"type": "approval", "approvals": approvals}], client_tools=LOOKUP, background=True))
        self.assertEqual(text(done), "r")

    def test_denial(self):
        agent = self.agent(tools=["memory_insert"], memory_blocks=[{"label": "notes", "value": ""}], tool_rules=[{"type": "requires_approval", "tool_name": "memory_insert"}])
        asked = self.say(agent, calls(("memory_insert", {"label": "notes", "new_string": "x"})))
        call = of(asked.messages, "approval_request_message")[0].tool_call
        denial = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call.tool_call_id, "approve": False, "reason": "no"}]}
        done = self.client.agents.messages.create(agent.id, messages=[denial])
        self.assertEqual(text(done.messages), "Error: request to call tool denied. User reason: no")
        wrong = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "call_x", "approve": True}]}
        self.refused(400, "No tool call is currently awaiting approval", self.client.agents.messages.create, agent.id, messages=[wrong])


class Controls(Case):
    def test_cancel(self):
        agent = self.agent()
        self.refused(409, f"No active runs to cancel for agent {agent.id}", self.client.agents.messages.cancel, agent.id)
        items = []
        for item in self.client.agents.messages.stream(agent.id, messages=[user("SLOW 20\nTOKENS 3000")], stream_tokens=True):
            items.append(item)
            if item.message_type == "assistant_message" and len(of(items, "assistant_message")) == 2:
                self.assertEqual(self.client.agents.messages.cancel(agent.id), {items[0].run_id: "cancelled"})
        self.assertEqual(of(items, "stop_reason")[0].stop_reason, "cancelled")

    def test_cancel_waiting_send(self):
        conversation, answers = self.conversation(), []
        sender = threading.Thread(target=lambda: answers.extend(self.client.conversations.messages.create(conversation.id, messages=[user("SLOW 20\nTOKENS 3000")])))
        sender.start()
        until("a run", lambda: self.client.runs.list(conversation_id=conversation.id, active=True).items)
        self.assertEqual(list(self.client.conversations.cancel(conversation.id).values()), ["cancelled"])
        sender.join(20)
        self.assertEqual(of(answers, "stop_reason")[0].stop_reason, "cancelled")

    def test_reset_and_summarize(self):
        agent = self.agent()
        for i in range(6):
            self.say(agent, f"SAY {i} {'word ' * 400}")
        self.assertEqual(self.client.agents.messages.compact(agent.id, compaction_settings={"mode": "all"}).num_messages_after, 2)
        self.assertEqual(len(self.client.agents.messages.reset(agent.id).message_ids), 1)
        self.assertEqual(len(of(self.client.agents.messages.list(agent.id, limit=1000), "assistant_message")), 6)

    def test_messages(self):
        word, conversation = f"zebra{uuid.uuid4().hex[:8]}", self.conversation()
        list(self.client.conversations.messages.create(conversation.id, messages=[user(f"SAY a {word}")]))
        found = self.client.messages.search(query=word)
        self.assertEqual({f.message_type for f in found}, {"user_message", "assistant_message"})
        variants = self.client.messages.retrieve(found[0].message_id)
        self.assertEqual(variants[0].id, found[0].message_id)
        self.assertEqual(kinds(self.client.messages.list(conversation_id=conversation.id)), ["system_message", "user_message", "assistant_message"])
        self.refused(404, ".", self.client.messages.retrieve, NOBODY["message"])
        self.refused(404, ".", self.client.messages.list, after=NOBODY["message"])
        self.refused(422, ".", self.client.messages.search, query="x", limit=101)
