// Conversations: create, show, change, list, fork, recompile, delete.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { client, collect, makeAgent, makeConversation, nobody, of, randomUUID, raw, refused, say, textOf, types, user } from './lib.mjs'

const talk = (conversation, content) => collect(client.conversations.messages.create(conversation.id, { messages: [user(content)] }))
const systemOf = async conversation => (await client.conversations.messages.list(conversation.id, { order: 'asc', limit: 1 })).items[0]

test('a conversation is made and shown', async () => {
  const agent = await makeAgent()
  const made = await client.conversations.create({ agent_id: agent.id, summary: 'A title' })
  assert.match(made.id, /^conv-/)
  assert.deepEqual([made.agent_id, made.summary, made.archived, made.last_message_at], [agent.id, 'A title', false, null])
  for (const field of ['description', 'archived_at', 'model', 'model_settings', 'context_window_limit', 'created_at', 'updated_at',
    'created_by_id', 'last_updated_by_id', 'isolated_block_ids']) assert.ok(field in made, `${field} is missing`)
  const shown = await client.conversations.retrieve(made.id)
  assert.equal(shown.in_context_message_ids.length, 1, 'its system message')
  await talk(made, 'SAY hello')
  const after = await client.conversations.retrieve(made.id)
  assert.equal(after.in_context_message_ids.length, 3)
  assert.match(after.last_message_at, /^\d{4}-/)
  await refused(client.conversations.retrieve(nobody.conversation), 404)
  await refused(client.conversations.retrieve('conv-1'), 422)
})

test('bad new conversations are refused', async () => {
  const agent = await makeAgent()
  await refused(client.conversations.create({ agent_id: nobody.agent }), 404)
  await refused(client.conversations.create({ agent_id: agent.id, model: 'noslash' }), 400)
  assert.equal((await raw('POST', '/v1/conversations/', {})).status, 422)
})

test('changes, archive and lists', async () => {
  const agent = await makeAgent()
  const key = randomUUID().slice(0, 8)
  const made = []
  for (const i of [0, 1, 2]) made.push(await client.conversations.create({ agent_id: agent.id, summary: `${key} ${i}` }))
  const ids = made.map(c => c.id)
  const list = async query => (await client.conversations.list({ agent_id: agent.id, ...query })).map(c => c.id)
  assert.deepEqual(await list({}), ids.toReversed())
  assert.deepEqual(await list({ order: 'asc', limit: 2 }), ids.slice(0, 2))
  assert.deepEqual(await list({ order: 'asc', after: ids[0] }), ids.slice(1))
  assert.deepEqual(await list({ after: ids[0] }), [])
  assert.deepEqual(await list({ summary_search: `${key} 1` }), [ids[1]])
  await talk(made[0], 'SAY x')
  assert.equal((await list({ order_by: 'last_message_at' }))[0], ids[0], 'those without come last')
  const changed = await client.conversations.update(ids[1], { summary: 'other', archived: true })
  assert.deepEqual([changed.summary, changed.archived], ['other', true])
  assert.ok(changed.archived_at)
  assert.deepEqual(await list({}), [ids[2], ids[0]])
  assert.deepEqual(await list({ archive_status: 'archived' }), [ids[1]])
  assert.deepEqual(await list({ archive_status: 'all' }), ids.toReversed())
  assert.equal((await client.conversations.update(ids[1], { archived: false })).archived_at, null)
  assert.equal((await client.conversations.update(ids[1], { summary: null })).summary, null)
  await refused(client.conversations.update(nobody.conversation, { summary: 'x' }), 404)
  await refused(client.conversations.list({ agent_id: agent.id, archive_status: 'nonsense' }), 422)
  await refused(client.conversations.list({ agent_id: agent.id, limit: -1 }), 422)
})

test('a conversation has a model of its own', async () => {
  const agent = await makeAgent()
  const conversation = await client.conversations.create({ agent_id: agent.id, model: 'lmstudio/mock-2' })
  assert.equal(conversation.model, 'lmstudio/mock-2')
  assert.equal(JSON.parse(textOf(await talk(conversation, 'DUMP_REQUEST'))).model, 'mock-2')
  const request = await collect(client.conversations.messages.create(conversation.id, { messages: [user('DUMP_REQUEST')], override_model: 'lmstudio/mock-1' }))
  assert.equal(JSON.parse(textOf(request)).model, 'mock-1')
})

test('a system message does not follow later edits of the memory', async () => {
  const agent = await makeAgent({ memory_blocks: [{ label: 'persona', value: 'the first value' }] })
  const conversation = await client.conversations.create({ agent_id: agent.id })
  const before = await systemOf(conversation)
  assert.match(before.content, /the first value/)
  assert.match(before.content, new RegExp(agent.id))
  assert.match(before.content, new RegExp(conversation.id))
  await client.agents.blocks.update('persona', { agent_id: agent.id, value: 'the second value' })
  await talk(conversation, 'SAY x')
  assert.equal((await systemOf(conversation)).content, before.content)
  const fresh = await client.conversations.create({ agent_id: agent.id })
  assert.match((await systemOf(fresh)).content, /the second value/)
  const dry = await client.conversations.recompile(conversation.id, { dry_run: true })
  assert.match(dry, /the second value/)
  assert.equal((await systemOf(conversation)).content, before.content)
  assert.match(await client.conversations.recompile(conversation.id), /the second value/)
  const ids = (await client.conversations.retrieve(conversation.id)).in_context_message_ids
  assert.match((await client.messages.retrieve(ids[0]))[0].content, /the second value/)
  await refused(client.conversations.recompile(nobody.conversation), 404)
})

test('a fork shares what was said', async () => {
  const { agent, conversation } = await makeConversation()
  await client.conversations.update(conversation.id, { summary: 'source' })
  await talk(conversation, 'SAY one')
  await talk(conversation, 'SAY two')
  const source = (await client.conversations.retrieve(conversation.id)).in_context_message_ids
  const fork = await client.conversations.fork(conversation.id)
  assert.notEqual(fork.id, conversation.id)
  assert.deepEqual([fork.agent_id, fork.summary], [agent.id, null])
  const forked = (await client.conversations.retrieve(fork.id)).in_context_message_ids
  assert.notEqual(forked[0], source[0], 'its own system message')
  assert.deepEqual(forked.slice(1), source.slice(1))
  await talk(fork, 'SAY only here')
  assert.deepEqual((await client.conversations.retrieve(conversation.id)).in_context_message_ids, source)
  const part = await client.conversations.fork(conversation.id, { message_id: source[2] })
  assert.deepEqual((await client.conversations.retrieve(part.id)).in_context_message_ids.slice(1), source.slice(1, 3))
  await refused(client.conversations.fork(conversation.id, { message_id: nobody.message }), 400)
  await refused(client.conversations.fork(nobody.conversation), 404)
  await say(agent, 'SAY direct')
  const direct = await client.conversations.fork('default', { agent_id: agent.id })
  assert.equal((await client.conversations.retrieve(direct.id)).in_context_message_ids.length, 3)
  await refused(client.conversations.fork('default'), 422)
})

test('a deleted conversation is gone', async () => {
  const { agent, conversation } = await makeConversation()
  await talk(conversation, 'SAY x')
  assert.equal(await client.conversations.delete(conversation.id), null)
  for (const call of [
    () => client.conversations.retrieve(conversation.id), () => client.conversations.delete(conversation.id),
    () => client.conversations.update(conversation.id, { summary: 'x' }), () => client.conversations.messages.list(conversation.id),
    () => talk(conversation, 'SAY x'), () => client.conversations.cancel(conversation.id), () => client.conversations.fork(conversation.id),
    () => client.conversations.recompile(conversation.id), () => client.conversations.messages.compact(conversation.id),
  ]) await refused(call(), 404)
  assert.deepEqual(await client.conversations.list({ agent_id: agent.id }), [])
})

test('conversations of one agent run beside each other', async () => {
  const agent = await makeAgent()
  const conversations = await Promise.all([0, 1, 2, 3].map(() => client.conversations.create({ agent_id: agent.id })))
  const began = Date.now()
  const answers = await Promise.all(conversations.map((c, i) => talk(c, `WAIT 800\nSAY ${i}`)))
  assert.deepEqual(answers.map(textOf), ['0', '1', '2', '3'])
  assert.ok(Date.now() - began < 3000, 'they waited for each other')
  for (const [i, c] of conversations.entries()) {
    const items = (await client.conversations.messages.list(c.id, { order: 'asc' })).items
    assert.deepEqual(types(items), ['system_message', 'user_message', 'assistant_message'])
    assert.equal(of(items, 'assistant_message')[0].content, String(i))
  }
})
