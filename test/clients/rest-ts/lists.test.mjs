// Lists of messages: order, cursors, ends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { all, client, collect, makeAgent, makeConversation, nobody, of, randomUUID, raw, refused, say, types, user } from './lib.mjs'

/** An agent that was told n things; with the ids of what is stored, oldest first. */
const talked = async n => {
  const agent = await makeAgent()
  for (let i = 0; i < n; i++) await say(agent, `THINK thought ${i}\nSAY answer ${i}`)
  const items = (await client.agents.messages.list(agent.id, { limit: 1000 })).items
  return { agent, ids: [...new Set(items.map(m => m.id))] }
}

/** The distinct ids of a list's items, in its order. */
const ids = items => items.map(m => m.id).filter((id, i, all) => id !== all[i - 1])

test('messages of an agent always run from old to new', async () => {
  const { agent, ids: stored } = await talked(5)
  const list = async query => ids((await client.agents.messages.list(agent.id, query)).items)
  assert.deepEqual(await list({}), stored)
  assert.deepEqual(await list({ order: 'asc' }), stored)
  assert.deepEqual(await list({ order: 'desc', limit: 3 }), stored.slice(-3), 'desc cuts the newest')
  assert.deepEqual(await list({ order: 'asc', limit: 3 }), stored.slice(0, 3), 'asc cuts the oldest')
  for (const order of ['asc', 'desc']) {
    assert.deepEqual(await list({ order, after: stored[4] }), stored.slice(5), 'after is newer')
    assert.deepEqual(await list({ order, before: stored[4] }), stored.slice(0, 4), 'before is older')
  }
  assert.deepEqual(await list({ order: 'desc', before: stored[6], limit: 2 }), stored.slice(4, 6))
  assert.deepEqual(await list({ order: 'asc', after: stored[2], limit: 2 }), stored.slice(3, 5))
  assert.deepEqual(await list({ after: stored.at(-1) }), [])
  assert.deepEqual(await list({ before: stored[0] }), [])
})

test('the old way to find a new message works', async () => {
  const { agent } = await talked(2)
  const [last] = (await client.agents.messages.list(agent.id, { limit: 1 })).items
  await say(agent, 'SAY newest')
  const news = (await client.agents.messages.list(agent.id, { after: last.id })).items
  assert.deepEqual(types(news), ['user_message', 'assistant_message'])
  assert.equal(news[0].content, 'SAY newest')
})

test('the variants of a message are never cut apart', async () => {
  const { agent } = await talked(3)
  const items = (await client.agents.messages.list(agent.id, { limit: 1 })).items
  assert.deepEqual(types(items), ['reasoning_message', 'assistant_message'])
  const conversation = (await client.conversations.messages.list(agent.id, { limit: 1 })).items
  assert.deepEqual(types(conversation), ['reasoning_message', 'assistant_message'], 'also newest first')
})

test('messages of a conversation follow the order', async () => {
  const { agent, conversation } = await makeConversation()
  for (let i = 0; i < 5; i++) await collect(client.conversations.messages.create(conversation.id, { messages: [user(`SAY ${i}`)] }))
  const list = async query => ids((await client.conversations.messages.list(conversation.id, query)).items)
  const stored = await list({ order: 'asc' })
  assert.equal(stored.length, 11)
  assert.deepEqual(await list({}), stored.toReversed(), 'newest first')
  assert.deepEqual(await list({ limit: 3 }), stored.slice(-3).toReversed())
  assert.deepEqual(await list({ after: stored[4] }), stored.slice(0, 4).toReversed(), 'with desc, after is older')
  assert.deepEqual(await list({ before: stored[4] }), stored.slice(5).toReversed(), 'and before is newer')
  assert.deepEqual(await list({ order: 'asc', after: stored[4], limit: 2 }), stored.slice(5, 7))
  assert.deepEqual(await list({ after: nobody.message }), [], 'an unknown cursor is an empty page')
  await refused(client.conversations.messages.list(nobody.conversation), 404)
  await refused(client.conversations.messages.list(conversation.id, { limit: -1 }), 422)
  const ofAgent = async query => ids((await client.agents.messages.list(agent.id, query)).items)
  assert.deepEqual(await ofAgent({ conversation_id: conversation.id }), stored)
  assert.equal((await ofAgent({ conversation_id: 'default' })).length, 1)
})

test('the pages of the client end and hold everything once', async () => {
  const { agent, ids: stored } = await talked(6)
  for (const limit of [1, 2, 3, 5, 100]) {
    assert.deepEqual(ids(await all(client.agents.messages.list(agent.id, { limit, order: 'asc' }))), stored, `asc by ${limit}`)
    assert.deepEqual(ids(await all(client.conversations.messages.list(agent.id, { limit }))), stored.toReversed(), `conversation by ${limit}`)
    assert.deepEqual(ids(await all(client.conversations.messages.list(agent.id, { limit, order: 'asc' }))), stored, `conversation asc by ${limit}`)
    const back = await all(client.agents.messages.list(agent.id, { limit, before: stored.at(-1) }))
    assert.deepEqual([...new Set(back.map(m => m.id))].toSorted(), stored.slice(0, -1).toSorted(), `backwards by ${limit}`)
  }
})

test('pages neither skip nor repeat while messages come in', async () => {
  const { agent, ids: stored } = await talked(10)
  let writing = true
  const writer = (async () => { for (let i = 0; writing; i++) await say(agent, `SAY during ${i}`) })()
  const seen = []
  for await (const m of client.agents.messages.list(agent.id, { limit: 2, order: 'asc' })) {
    seen.push(m.id)
    if (seen.length > 60) writing = false
  }
  writing = false
  await writer
  const distinct = ids(seen.map(id => ({ id })))
  assert.equal(new Set(distinct).size, distinct.length, 'a message came twice')
  assert.deepEqual(distinct.slice(0, stored.length), stored)
  const after = ids((await client.agents.messages.list(agent.id, { limit: 1000, order: 'asc' })).items)
  assert.deepEqual(distinct, after.slice(0, distinct.length))
})

test('limits and cursors that are wrong are refused', async () => {
  const { agent } = await talked(1)
  assert.deepEqual((await client.agents.messages.list(agent.id, { limit: 0 })).items, [])
  for (const limit of [-1, 1001, 'x']) await refused(client.agents.messages.list(agent.id, { limit }), 422)
  await refused(client.agents.messages.list(agent.id, { after: nobody.message }), 404)
  await refused(client.agents.messages.list(agent.id, { before: nobody.message }), 404)
  await refused(client.agents.messages.list(agent.id, { order: 'sideways' }), 422)
  await refused(client.agents.messages.list(nobody.agent), 404)
})

test('kinds are chosen before the limit counts', async () => {
  const { agent } = await talked(5)
  const only = (await client.agents.messages.list(agent.id, { include_return_message_types: ['user_message'], limit: 4 })).items
  assert.deepEqual(types(only), Array(4).fill('user_message'))
  assert.match(only.at(-1).content, /answer 4/)
  const two = (await client.conversations.messages.list(agent.id, { include_return_message_types: ['user_message', 'assistant_message'], limit: 2 })).items
  assert.deepEqual(types(two), ['assistant_message', 'user_message'])
  await refused(client.agents.messages.list(agent.id, { include_return_message_types: ['nonsense'] }), 422)
})

test('all messages of all agents are listed, filtered and paged', async () => {
  const { agent, conversation } = await makeConversation()
  await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY a')] }))
  const mine = await client.messages.list({ conversation_id: conversation.id })
  assert.deepEqual(types(mine), ['system_message', 'user_message', 'assistant_message'])
  assert.ok((await client.messages.list()).length > 0)
  const after = await client.messages.list({ conversation_id: conversation.id, after: mine[0].id })
  assert.deepEqual(after, mine.slice(1), 'after is newer')
  await refused(client.messages.list({ after: nobody.message }), 404)
  await refused(client.messages.list({ limit: -1 }), 422)
  assert.equal(agent.id.startsWith('agent-'), true)
})

test('a message is shown by its id as its variants', async () => {
  const { agent } = await talked(1)
  const items = (await client.agents.messages.list(agent.id)).items
  const variants = await client.messages.retrieve(items.at(-1).id)
  assert.deepEqual(variants, items.slice(-2))
  await refused(client.messages.retrieve(nobody.message), 404)
  await refused(client.messages.retrieve('message-1'), 422)
})

test('messages are found by their words', async () => {
  const key = randomUUID().slice(0, 8)
  const { agent, conversation } = await makeConversation()
  const other = await makeAgent()
  await say(agent, `SAY the zebra${key} sleeps`)
  await say(other, `SAY another zebra${key} runs`)
  await collect(client.conversations.messages.create(conversation.id, { messages: [user(`THINK of a zebra${key}\nSAY nothing`)] }))
  const found = await client.messages.search({ query: `zebra${key}` })
  assert.ok(found.length >= 4)
  for (const f of found) {
    assert.ok(['user_message', 'assistant_message', 'reasoning_message', 'system_message'].includes(f.message_type))
    assert.match(f.message_id, /^message-/)
    assert.ok(!('id' in f))
    assert.match(f.content ?? f.reasoning, new RegExp(`zebra${key}`))
    assert.match(f.created_at, /^\d{4}-/)
    assert.ok([agent.id, other.id].includes(f.agent_id))
  }
  const mine = await client.messages.search({ query: `ZEBRA${key}`, agent_id: other.id, search_mode: 'fts' })
  assert.deepEqual([...new Set(mine.map(f => f.agent_id))], [other.id])
  const inside = await client.messages.search({ query: `zebra${key}`, conversation_id: conversation.id, search_mode: 'vector' })
  assert.deepEqual([...new Set(inside.map(f => f.conversation_id))], [conversation.id])
  assert.equal((await client.messages.search({ query: `zebra${key}`, limit: 1 })).length, 1)
  assert.deepEqual(await client.messages.search({ query: `zebra${key}`, end_date: '2001-01-01' }), [])
  assert.ok((await client.messages.search({ query: `zebra${key}`, start_date: '2001-01-01T00:00:00' })).length >= 4)
  assert.deepEqual(await client.messages.search({ query: `nowhere${key}` }), [])
  await refused(client.messages.search({}), 422)
  await refused(client.messages.search({ query: 'x', limit: 101 }), 422)
  await refused(client.messages.search({ query: 'x', search_mode: 'nonsense' }), 422)
  const odd = await raw('POST', '/v1/messages/search', { query: '"( AND * OR -' })
  assert.equal(odd.status, 200, odd.text)
})
