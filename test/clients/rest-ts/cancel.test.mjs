// Cancel, in all its forms.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { client, collect, ended, makeAgent, makeConversation, nobody, of, reasonOf, refused, say, textOf, types, until, user } from './lib.mjs'

const endless = 'SLOW 20\nTOKENS 3000'

/** Reads a stream; does something once after the n-th piece of text. */
const during = async (stream, n, act) => {
  const items = []
  let result
  for await (const item of await stream) {
    items.push(item)
    if (of(items, 'assistant_message').length === n) result ??= act(items).then(value => ({ value, at: Date.now() }))
  }
  return { items, ...(await result), end: Date.now() }
}

test('a stream is cancelled at once, and its text is kept, flagged', async () => {
  const agent = await makeAgent()
  const { items, value, at, end } = await during(
    client.agents.messages.stream(agent.id, { messages: [user(endless)], stream_tokens: true }), 3, () => client.agents.messages.cancel(agent.id))
  const run = items[0].run_id
  assert.deepEqual(value, { [run]: 'cancelled' })
  assert.equal(reasonOf(items), 'cancelled')
  assert.ok(end - at < 5000, `it took ${end - at} ms`)
  const stored = await client.runs.retrieve(run)
  assert.deepEqual([stored.status, stored.stop_reason], ['cancelled', 'cancelled'])
  assert.ok(stored.completed_at)
  assert.deepEqual(of((await client.agents.messages.list(agent.id)).items, 'assistant_message'), [])
  const [partial] = of((await client.agents.messages.list(agent.id, { include_err: true })).items, 'assistant_message')
  assert.equal(partial.is_err, true)
  assert.match(partial.content, /^t0 t1 /)
  assert.equal(textOf((await say(agent, 'SAY next')).messages), 'next')
})

test('a waiting send is answered with what was done so far', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const waiting = say(agent, `CALL conversation_search {"query":"x"}\nTHEN ${endless}`)
  await until('the first step', async () => of((await client.agents.messages.list(agent.id)).items, 'tool_return_message').length > 0)
  await client.agents.messages.cancel(agent.id)
  const answer = await waiting
  assert.equal(answer.stop_reason.stop_reason, 'cancelled')
  assert.deepEqual(types(answer.messages).slice(0, 2), ['tool_call_message', 'tool_return_message'])
})

test('with nothing to cancel there is a conflict, with run_ids a map', async () => {
  const agent = await makeAgent()
  const error = await refused(client.agents.messages.cancel(agent.id), 409)
  assert.deepEqual(error.error, { detail: `CONFLICT: No active runs to cancel for agent ${agent.id}` })
  assert.equal(error.headers.get('x-should-retry'), 'false')
  await refused(client.agents.messages.cancel(nobody.agent), 404)
  const done = await say(agent, 'SAY done')
  const run = done.messages[0].run_id
  assert.deepEqual(await client.agents.messages.cancel(agent.id, { run_ids: [run, nobody.run] }), { [run]: 'cancelled', [nobody.run]: 'failed' })
  const stored = await client.runs.retrieve(run)
  assert.deepEqual([stored.status, stored.stop_reason], ['completed', 'end_turn'], 'what ended stays as it ended')
})

test('a conversation is cancelled by itself', async () => {
  const { agent, conversation } = await makeConversation()
  const other = await client.conversations.create({ agent_id: agent.id })
  const error = await refused(client.conversations.cancel(conversation.id), 409)
  assert.deepEqual(error.error, { detail: `CONFLICT: No active runs to cancel for conversation ${conversation.id}` })
  const going = collect(client.conversations.messages.create(other.id, { messages: [user('SLOW 10\nTOKENS 60')] }))
  const { items, value } = await during(client.conversations.messages.create(conversation.id, { messages: [user(endless)], stream_tokens: true }), 2,
    () => client.conversations.cancel(conversation.id))
  assert.deepEqual(value, { [items[0].run_id]: 'cancelled' })
  assert.equal(reasonOf(items), 'cancelled')
  assert.equal(reasonOf(await going), 'end_turn')
  await refused(client.conversations.cancel(nobody.conversation), 404)
})

test('a background run is cancelled, and its log says so', async () => {
  const { conversation } = await makeConversation()
  const { items } = await during(client.conversations.messages.create(conversation.id, { messages: [user(endless)], stream_tokens: true, background: true }), 2,
    items => client.conversations.cancel(conversation.id, { run_ids: [items[0].run_id] }))
  assert.equal(reasonOf(items), 'cancelled')
  assert.deepEqual(await collect(client.runs.messages.stream(items[0].run_id, {})), items.filter(i => i.message_type !== 'ping' || i.seq_id === 1))
  assert.equal(textOf(await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY free')] }))), 'free')
})

test('all active runs of an agent are cancelled together, waiting ones too', async () => {
  const agent = await makeAgent()
  const conversations = await Promise.all([0, 1].map(() => client.conversations.create({ agent_id: agent.id })))
  const streams = conversations.map(c => collect(client.conversations.messages.create(c.id, { messages: [user(endless)] })))
  const first = await client.agents.messages.createAsync(agent.id, { messages: [user(endless)] })
  const second = await client.agents.messages.createAsync(agent.id, { messages: [user('SAY never')] })
  await until('three running runs', async () => (await client.runs.list({ agent_id: agent.id, statuses: ['running'] })).items.length === 3)
  const map = await client.agents.messages.cancel(agent.id)
  assert.deepEqual(Object.values(map), Array(4).fill('cancelled'))
  for (const items of await Promise.all(streams)) assert.equal(reasonOf(items), 'cancelled')
  for (const run of [first, second]) assert.equal((await ended(run.id)).status, 'cancelled')
  assert.equal(textOf((await say(agent, 'SAY free')).messages), 'free')
})

test('a model that hangs is left', async () => {
  const agent = await makeAgent()
  const { items } = await during(client.agents.messages.stream(agent.id, { messages: [user('SAY one two\nHANG')], stream_tokens: true }), 1,
    () => client.agents.messages.cancel(agent.id))
  assert.equal(reasonOf(items), 'cancelled')
  assert.equal(textOf((await say(agent, 'SAY free')).messages), 'free')
})
