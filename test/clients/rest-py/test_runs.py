"""Runs, steps, background streams and what a killed server keeps."""

import random

from letta_client import APIConnectionError, APIError
import httpx

from base import NOBODY, Case, Server, connect, kinds, numbered, of, text, user


class Records(Case):
    def test_run_and_steps(self):
        agent = self.agent(tools=["conversation_search"])
        answer = self.say(agent, 'CALL conversation_search {"query":"x"}\nTHEN SAY done')
        runs, steps = self.client.runs, self.client.steps
        run = runs.retrieve(answer.messages[0].run_id)
        self.assertEqual((run.status, run.stop_reason, run.agent_id), ("completed", "end_turn", agent.id))
        self.assertEqual([r.id for r in runs.list(agent_id=agent.id, limit=1)], [run.id])
        self.assertEqual(kinds(runs.messages.list(run.id)), ["user_message", "tool_call_message", "tool_return_message", "assistant_message"])
        self.assertEqual(len(list(runs.steps.list(run.id))), 2)
        self.assertEqual(runs.usage.retrieve(run.id).prompt_tokens, 200)
        self.assertEqual(runs.trace.retrieve(run.id), [])
        newest = list(steps.list(agent_id=agent.id))[0]
        self.assertEqual(steps.retrieve(newest.id), newest)
        self.assertEqual(kinds(steps.messages.list(newest.id)), ["assistant_message"])
        self.assertEqual(steps.metrics.retrieve(newest.id).run_id, run.id)
        steps.trace.retrieve(newest.id)
        self.assertEqual(steps.feedback.create(newest.id, feedback="negative").feedback, "negative")

    def test_refusals(self):
        runs, steps = self.client.runs, self.client.steps
        self.refused(400, "Invalid run ID format", runs.retrieve, "nonsense")
        self.refused(422, "limit", runs.list, limit=0)
        for call in (runs.retrieve, runs.messages.list, runs.messages.stream, runs.steps.list, runs.usage.retrieve, runs.trace.retrieve):
            self.refused(404, ".", call, NOBODY["run"])
        for call in (steps.retrieve, steps.messages.list, steps.metrics.retrieve, steps.trace.retrieve):
            self.refused(404, ".", call, NOBODY["step"])
        self.refused(404, ".", steps.list, after=NOBODY["step"])
        self.refused(404, ".", steps.feedback.create, NOBODY["step"], feedback="positive")

    def test_async(self):
        agent = self.agent()
        run = self.client.agents.messages.create_async(agent.id, messages=[user("SAY later")])
        self.assertEqual((run.status, run.background), ("created", True))
        self.assertEqual(self.ended(run.id).status, "completed")
        self.assertEqual(text(list(self.client.runs.messages.stream(run.id))), "later")


class Background(Case):
    def test_resume_at_every_point(self):
        conversation = self.conversation()
        items = list(self.client.conversations.messages.create(conversation.id, messages=[user("THINK hm\nTOKENS 20")], background=True, stream_tokens=True))
        self.assertEqual([i.seq_id for i in items], list(range(1, len(items) + 1)))
        run = items[0].run_id
        for after in range(len(items) + 1):
            self.assertEqual(list(self.client.runs.messages.stream(run, starting_after=after)), items[after:])
        self.refused(400, "POSITION_AHEAD", self.client.runs.messages.stream, run, starting_after=len(items) + 1)
        self.refused(400, "No active runs found", self.client.conversations.messages.stream, conversation.id)

    def test_resume_by_conversation(self):
        conversation, items, other = self.conversation(), [], None
        for item in self.client.conversations.messages.create(conversation.id, messages=[user("SLOW 5\nTOKENS 80")], background=True, stream_tokens=True):
            items.append(item)
            other = other or self.client.conversations.messages.stream(conversation.id, starting_after=1)
        self.assertEqual([i for i in other if i.message_type != "ping"], items[1:])

    def test_killed_server(self):
        server = Server(self)
        client = connect(server.url)
        agent = self.agent(client)
        conversation = client.conversations.create(agent_id=agent.id)
        seen = []

        def read(stream, most):
            """Reads until it breaks, ends (True), or so many items came."""
            try:
                for item in stream:
                    if item.message_type == "ping" and item.seq_id != 1:
                        continue
                    seen.append(item)
                    most -= 1
                    if most == 0:
                        return False
                return item.message_type == "usage_statistics"
            except (APIConnectionError, httpx.TransportError):
                return False

        done = read(client.conversations.messages.create(conversation.id, messages=[user("SLOW 10\nTOKENS 150")], background=True, stream_tokens=True), 10 + random.randrange(20))
        run = seen[0].run_id
        for _ in range(2):
            self.assertFalse(done, "it ended too soon")
            server.kill()
            server.start()
            done = read(client.runs.messages.stream(run, starting_after=seen[-1].seq_id), 5 + random.randrange(10))
        while not done:
            done = read(client.runs.messages.stream(run, starting_after=seen[-1].seq_id), -1)
        self.assertEqual([i.seq_id for i in seen], list(range(1, len(seen) + 1)))
        voided = {v for e in of(seen, "event_message") for v in e.event_data.get("voided", [])}
        self.assertTrue(of(seen, "event_message"), "the restart is not said")
        self.assertEqual(text([i for i in seen if getattr(i, "id", None) not in voided]), numbered(150))
        self.assertEqual([m.content for m in of(client.conversations.messages.list(conversation.id), "assistant_message")], [numbered(150)])

    def test_error_in_log(self):
        conversation = self.conversation()
        with self.assertRaises(APIError):
            list(self.client.conversations.messages.create(conversation.id, messages=[user("ERROR 400")], background=True))
        run = self.client.runs.list(conversation_id=conversation.id).items[0]
        self.assertEqual(run.status, "failed")
        with self.assertRaises(APIError):
            list(self.client.runs.messages.stream(run.id))
