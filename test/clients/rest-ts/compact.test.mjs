// Reset and summarize.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { client, makeAgent, makeConversation, collect, nobody, of, raw, refused, say, textOf, types, user } from './lib.mjs'

const words = 'word '.repeat(400)
const talk = async (agent, n) => { for (let i = 0; i < n; i++) await say(agent, `SAY answer ${i}\n${words}`) }
const contextOf = async agent => (await client.agents.retrieve(agent.id)).message_ids

test('reset empties the context and keeps the history', async () => {
  const agent = await makeAgent({ memory_blocks: [{ label: 'persona', value: 'old' }] })
  await talk(agent, 2)
  await client.agents.blocks.update('persona', { agent_id: agent.id, value: 'brand new' })
  const before = (await client.agents.messages.list(agent.id)).items
  const state = await client.agents.messages.reset(agent.id, { add_default_initial_messages: false })
  assert.equal(state.id, agent.id)
  assert.equal(state.message_ids.length, 1)
  assert.equal((await contextOf(agent)).length, 1)
  const [system] = await client.messages.retrieve(state.message_ids[0])
  assert.match(system.content, /brand new/)
  const after = (await client.agents.messages.list(agent.id)).items
  for (const m of before) assert.ok(after.some(a => a.id === m.id), `${m.message_type} is gone`)
  const dump = JSON.parse(textOf((await say(agent, 'DUMP_REQUEST')).messages))
  assert.deepEqual(dump.roles.filter(r => r !== 'system'), ['user'])
  assert.equal((await client.agents.messages.reset(agent.id, {})).message_ids.length, 1)
})

test('reset needs a body and leaves conversations alone', async () => {
  const { agent, conversation } = await makeConversation()
  await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY kept')] }))
  assert.equal((await raw('PATCH', `/v1/agents/${agent.id}/reset-messages`)).status, 422)
  await refused(client.agents.messages.reset(nobody.agent, {}), 404)
  await client.agents.messages.reset(agent.id, {})
  assert.ok((await client.conversations.retrieve(conversation.id)).in_context_message_ids.length >= 3)
})

test('a summary takes the place of what was said', async () => {
  const agent = await makeAgent()
  await talk(agent, 6)
  const before = (await contextOf(agent)).length
  const answer = await client.agents.messages.compact(agent.id, { compaction_settings: { mode: 'all' } })
  assert.match(answer.summary, /\S/)
  assert.equal(answer.num_messages_before, before)
  assert.equal(answer.num_messages_after, 2)
  assert.equal((await contextOf(agent)).length, 2)
  const dump = JSON.parse(textOf((await say(agent, 'DUMP_REQUEST')).messages))
  assert.equal(dump.roles.filter(r => r !== 'system').length, 2)
  const old = await client.agents.messages.list(agent.id, { limit: 1000 })
  assert.equal(of(old.items, 'assistant_message').filter(m => m.content.startsWith('answer')).length, 6, 'the history is listed')
  const packed = of(old.items, 'user_message').map(m => { try { return JSON.parse(m.content) } catch { return null } }).find(Boolean)
  assert.equal(packed.type, 'system_alert')
  assert.ok(packed.message.includes(answer.summary) || answer.summary.includes(packed.message))
  const asked = (await client.agents.messages.list(agent.id, { limit: 1000, include_return_message_types: ['summary_message'] })).items
  assert.deepEqual(types(asked), ['summary_message'])
  assert.equal(asked[0].summary, answer.summary)
})

test('a sliding window keeps the newest', async () => {
  const agent = await makeAgent()
  await talk(agent, 8)
  const answer = await client.agents.messages.compact(agent.id, { compaction_settings: { mode: 'sliding_window', sliding_window_percentage: 0.3 } })
  assert.ok(answer.num_messages_after < answer.num_messages_before && answer.num_messages_after > 2, JSON.stringify(answer))
  const ids = await contextOf(agent)
  const last = of((await client.agents.messages.list(agent.id, { limit: 1000 })).items, 'assistant_message').at(-1)
  assert.equal(ids.at(-1), last.id)
})

test('all four modes run', async () => {
  for (const mode of ['all', 'sliding_window', 'self_compact_all', 'self_compact_sliding_window']) {
    const agent = await makeAgent({ compaction_settings: { mode } })
    assert.equal(agent.compaction_settings.mode, mode)
    await talk(agent, 6)
    const answer = await client.agents.messages.compact(agent.id)
    assert.ok(answer.num_messages_after < answer.num_messages_before, `${mode}: ${JSON.stringify(answer)}`)
    assert.equal(textOf((await say(agent, 'SAY on')).messages), 'on')
  }
})

test('nothing to summarize is no error for an agent, but for a conversation', async () => {
  const { agent, conversation } = await makeConversation()
  const answer = await client.agents.messages.compact(agent.id)
  assert.equal(answer.num_messages_before, answer.num_messages_after)
  assert.equal(answer.summary, '')
  await refused(client.conversations.messages.compact(conversation.id), 400)
  await refused(client.conversations.messages.compact(nobody.conversation), 404)
  await refused(client.agents.messages.compact(nobody.agent), 404)
  await refused(client.agents.messages.compact(agent.id, { compaction_settings: { mode: 'nonsense' } }), 422)
})

test('a conversation is summarized by itself', async () => {
  const { agent, conversation } = await makeConversation()
  for (let i = 0; i < 6; i++) await collect(client.conversations.messages.create(conversation.id, { messages: [user(`SAY ${i}\n${words}`)] }))
  const answer = await client.conversations.messages.compact(conversation.id, { compaction_settings: { mode: 'all' } })
  assert.equal(answer.num_messages_after, 2)
  assert.equal((await client.conversations.retrieve(conversation.id)).in_context_message_ids.length, 2)
  await talk(agent, 3)
  const direct = await client.conversations.messages.compact('default', { agent_id: agent.id, compaction_settings: { mode: 'all' } })
  assert.equal(direct.num_messages_after, 2)
  await refused(client.conversations.messages.compact('default'), 422)
})

test('a full context is summarized by itself, and shown if asked', async () => {
  const agent = await makeAgent({ context_window_limit: 9000 })
  let seen = []
  for (let i = 0; i < 12 && of(seen, 'summary_message').length === 0; i++) {
    const answer = await say(agent, `USAGE prompt=${i > 5 ? 8900 : 1000}\nSAY ${i}\n${words}`, { include_compaction_messages: true })
    seen = answer.messages
  }
  const [event] = of(seen, 'event_message'), [summary] = of(seen, 'summary_message')
  assert.ok(event && summary, 'no compaction was shown')
  assert.equal(event.event_type, 'compaction')
  assert.ok(event.event_data.context_window > 0)
  assert.match(summary.summary, /\S/)
  assert.ok(summary.compaction_stats.messages_count_after < summary.compaction_stats.messages_count_before)
  assert.ok(seen.indexOf(event) < seen.indexOf(summary))
  const quiet = await say(agent, 'SAY quiet')
  assert.deepEqual(types(quiet.messages), ['assistant_message'])
})
