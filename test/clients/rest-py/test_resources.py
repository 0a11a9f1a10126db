"""Agents, blocks, conversations, models: every call, good and bad."""

import uuid

from base import MODEL, NOBODY, Case, kinds, of, text, user


class Basics(Case):
    def test_health(self):
        self.assertEqual(self.client.health().status, "ok")

    def test_models(self):
        models = self.client.models.list()
        handles = [m.handle for m in models]
        self.assertIn(MODEL, handles)
        self.assertIn("mneme/offline", handles)
        self.assertIsInstance(self.client.models.embeddings.list(), list)
        self.refused(422, "provider_category", self.client.models.list, provider_category=["nonsense"])


class Agents(Case):
    def test_lifecycle(self):
        agents = self.client.agents
        made = agents.create(name="Ada Ünlü", model=MODEL, tags=["b", "a"], memory_blocks=[{"label": "persona", "value": "p"}], description="d")
        self.assertEqual(made.name, "Ada Ünlü")
        self.assertEqual(made.llm_config.handle, MODEL)
        self.assertEqual([b.label for b in made.blocks], ["persona"])
        self.assertEqual(sorted(t.name for t in made.tools), ["conversation_search", "memory_insert", "memory_replace"])
        self.assertTrue(made.created_at.tzinfo)
        self.assertEqual(agents.retrieve(made.id).tags, [])
        self.assertEqual(sorted(agents.retrieve(made.id, include=["agent.tags"]).tags), ["a", "b"])
        changed = agents.update(made.id, name="Grace", description=None)
        self.assertEqual((changed.name, changed.description, sorted(changed.tags)), ("Grace", None, ["a", "b"]))
        self.assertIsInstance(agents.recompile(made.id), str)
        self.assertEqual(agents.delete(made.id), {"message": f"Agent id={made.id} successfully deleted"})
        self.refused(404, "Agent not found", agents.retrieve, made.id)

    def test_refusals(self):
        agents = self.client.agents
        self.refused(422, ".", agents.create, name="no/slash")
        self.refused(400, ".", agents.create, model="noslash")
        self.refused(404, "NOT_FOUND: Handle", agents.create, model="lmstudio/nothing")
        self.refused(400, "Tools not found by name", agents.create, tools=["no_such_tool"])
        self.refused(422, "examples", agents.retrieve, "agent-1")
        for call in (agents.retrieve, agents.update, agents.delete, agents.recompile):
            self.refused(404, "Agent not found", call, NOBODY["agent"])

    def test_list(self):
        tag = uuid.uuid4().hex
        made = [self.agent(tags=[tag]).id for _ in range(5)]
        self.assertEqual([a.id for a in self.client.agents.list(tags=[tag], limit=2)], made[::-1], "all pages, newest first")
        self.assertEqual([a.id for a in self.client.agents.list(tags=[tag], limit=2, order="asc")], made)
        self.assertEqual(self.client.agents.list(tags=[tag], limit=2, order="asc").has_next_page(), True)
        self.refused(422, "limit", self.client.agents.list, limit=-1)


class Blocks(Case):
    def test_lifecycle(self):
        blocks = self.client.blocks
        made = blocks.create(label="notes", value="one")
        self.assertEqual(blocks.retrieve(made.id).value, "one")
        self.assertEqual(blocks.update(made.id, value="two").value, "two")
        self.assertIn(made.id, [b.id for b in blocks.list(label="notes")])
        agent = self.agent()
        attached = self.client.agents.blocks.attach(made.id, agent_id=agent.id)
        self.assertEqual([b.id for b in attached.blocks], [made.id])
        self.assertEqual([a.id for a in blocks.agents.list(made.id)], [agent.id])
        self.assertEqual([b.label for b in self.client.agents.blocks.list(agent.id)], ["notes"])
        self.assertEqual(self.client.agents.blocks.update("notes", agent_id=agent.id, value="three").value, "three")
        self.assertEqual(self.client.agents.blocks.retrieve("notes", agent_id=agent.id).value, "three")
        self.assertEqual(self.client.agents.blocks.detach(made.id, agent_id=agent.id).blocks, [])
        self.assertIsNone(blocks.delete(made.id))
        self.refused(404, ".", blocks.retrieve, made.id)

    def test_refusals(self):
        agent, block = self.agent(), NOBODY["block"]
        blocks, mine = self.client.blocks, self.client.agents.blocks
        self.refused(422, ".", blocks.create, label="../up", value="x")
        self.refused(400, ".", blocks.create, label="x", value="x" * 100_001)
        self.refused(422, ".", blocks.list, limit=-1)
        self.refused(404, ".", blocks.update, block, value="x")
        self.refused(404, ".", blocks.delete, block)
        self.refused(404, ".", blocks.agents.list, block)
        self.refused(404, ".", mine.retrieve, "nobody", agent_id=agent.id)
        self.refused(404, ".", mine.update, "nobody", agent_id=agent.id, value="x")
        self.refused(404, ".", mine.attach, block, agent_id=agent.id)
        self.refused(404, ".", mine.detach, block, agent_id=agent.id)
        self.refused(404, ".", mine.list, NOBODY["agent"])

    def test_label_with_slash(self):
        agent = self.agent(memory_blocks=[{"label": "people/ada", "value": "a"}])
        self.assertEqual(self.client.agents.blocks.retrieve("people/ada", agent_id=agent.id).value, "a")


class Conversations(Case):
    def test_lifecycle(self):
        conversations, agent = self.client.conversations, self.agent()
        made = conversations.create(agent_id=agent.id, summary="title")
        self.assertEqual((made.agent_id, made.summary, made.archived), (agent.id, "title", False))
        self.assertEqual(text(list(conversations.messages.create(made.id, messages=[user("SAY hello")]))), "hello")
        shown = conversations.retrieve(made.id)
        self.assertEqual(len(shown.in_context_message_ids), 3)
        self.assertEqual(kinds(conversations.messages.list(made.id, order="asc")), ["system_message", "user_message", "assistant_message"])
        self.assertEqual(conversations.update(made.id, summary=None).summary, None)
        self.assertEqual([c.id for c in conversations.list(agent_id=agent.id)], [made.id])
        fork = conversations.fork(made.id)
        self.assertEqual(conversations.retrieve(fork.id).in_context_message_ids[1:], shown.in_context_message_ids[1:])
        self.assertIsInstance(conversations.recompile(made.id, dry_run=True), str)
        for i in range(5):
            list(conversations.messages.create(made.id, messages=[user(f"SAY {i} {'word ' * 400}")]))
        compacted = conversations.messages.compact(made.id, compaction_settings={"mode": "all"})
        self.assertEqual(compacted.num_messages_after, 2)
        self.assertIsNone(conversations.delete(made.id))
        self.refused(404, ".", conversations.retrieve, made.id)

    def test_refusals(self):
        conversations, nobody = self.client.conversations, NOBODY["conv"]
        self.refused(404, ".", conversations.create, agent_id=NOBODY["agent"])
        self.refused(422, ".", conversations.list, archive_status="nonsense")
        self.refused(422, ".", conversations.retrieve, "conv-1")
        for call in (conversations.update, conversations.delete, conversations.cancel, conversations.fork, conversations.recompile,
                     conversations.messages.list, conversations.messages.compact, conversations.messages.stream):
            self.refused(404, ".", call, nobody)
        self.refused(404, ".", conversations.messages.create, nobody, messages=[user("x")])
        self.refused(422, ".", conversations.messages.create, "default", messages=[user("x")])
        self.refused(409, "No active runs", conversations.cancel, self.conversation().id)

    def test_default(self):
        agent = self.agent()
        list(self.client.conversations.messages.create("default", agent_id=agent.id, messages=[user("SAY direct")]))
        found = self.client.conversations.messages.list("default", agent_id=agent.id)
        self.assertEqual([m.content for m in of(found, "assistant_message")], ["direct"])
