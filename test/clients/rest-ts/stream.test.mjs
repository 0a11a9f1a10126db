// Streams: frames, order, deltas, errors.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Letta, calls, client, collect, events, makeAgent, makeConversation, numbered, of, open, parallel, raw, reasonOf, refused, say, sleep, textOf, types, user } from './lib.mjs'

const stream = (agent, content, more = {}) => client.agents.messages.stream(agent.id, { messages: [user(content)], ...more })
const tokens = (agent, content, more = {}) => collect(stream(agent, content, { stream_tokens: true, ...more }))

/** The kinds of a stream's items, repeats left out. */
const order = items => types(items).filter((t, i, all) => t !== all[i - 1])

test('frames are as clients expect them', async () => {
  const agent = await makeAgent()
  for (const path of [`/v1/agents/${agent.id}/messages/stream`, `/v1/agents/${agent.id}/messages`]) {
    const response = await open(path, { messages: [user('SAY a b c')], streaming: true, stream_tokens: true })
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8')
    assert.equal(response.headers.get('content-encoding'), null)
    const seen = []
    for await (const event of events(response)) {
      assert.deepEqual(Object.keys(event), ['data'])
      seen.push(event.data)
    }
    assert.equal(seen.at(-1), '[DONE]')
    assert.equal(seen.filter(d => d === '[DONE]').length, 1)
    const items = seen.slice(0, -1).map(JSON.parse)
    assert.deepEqual(order(items), ['ping', 'assistant_message', 'stop_reason', 'usage_statistics'])
  }
})

test('a stream begins with a ping that names the run, if pings are wanted', async () => {
  const agent = await makeAgent()
  const items = await collect(stream(agent, 'SAY x'))
  assert.equal(items[0].message_type, 'ping')
  assert.match(items[0].id, /^ping-/)
  assert.match(items[0].run_id, /^run-/)
  assert.equal(items[0].seq_id, null)
  const without = await collect(stream(agent, 'SAY x', { include_pings: false }))
  assert.deepEqual(of(without, 'ping'), [])
  assert.equal(without.at(-1).message_type, 'usage_statistics')
})

test('steps come whole', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const items = await collect(stream(agent, `THINK hm\nSAY looking\n${calls([['conversation_search', { query: 'x' }]], 'THINK so\nSAY two words')}`))
  assert.deepEqual(order(items), ['ping', 'reasoning_message', 'assistant_message', 'tool_call_message', 'tool_return_message',
    'reasoning_message', 'assistant_message', 'stop_reason', 'usage_statistics'])
  const first = items.slice(1, 4)
  assert.equal(new Set(first.map(m => m.id)).size, 1)
  assert.equal(new Set(first.map(m => m.step_id)).size, 1)
  assert.deepEqual(first.map(m => m.otid.at(-1)), ['0', '1', '2'])
  assert.ok(Array.isArray(first[2].tool_calls))
  assert.deepEqual(first[2].tool_calls[0], first[2].tool_call)
  assert.equal(of(items, 'assistant_message').at(-1).content, 'two words')
  assert.equal(of(items, 'usage_statistics')[0].step_count, 2)
})

test('tokens come as they are made, under one id and otid', async () => {
  const agent = await makeAgent()
  const items = await tokens(agent, 'SLOW 10\nTHINK one two three\nTOKENS 30')
  const thoughts = of(items, 'reasoning_message'), texts = of(items, 'assistant_message')
  assert.ok(thoughts.length > 1 && texts.length > 1, `${thoughts.length} and ${texts.length} pieces`)
  assert.equal(thoughts.map(m => m.reasoning).join(''), 'one two three')
  assert.equal(textOf(items), numbered(30))
  const all = [...thoughts, ...texts]
  for (const field of ['id', 'step_id', 'run_id']) assert.equal(new Set(all.map(m => m[field])).size, 1, field)
  assert.equal(new Set(thoughts.map(m => m.otid)).size, 1)
  assert.equal(new Set(texts.map(m => m.otid)).size, 1)
  assert.equal(thoughts[0].otid.slice(0, -1), texts[0].otid.slice(0, -1))
  assert.deepEqual([thoughts[0].otid.at(-1), texts[0].otid.at(-1)], ['0', '1'])
  const stored = (await client.agents.messages.list(agent.id, { limit: 1 })).items
  assert.deepEqual(stored.map(m => [m.message_type, m.id, m.otid, m.content ?? m.reasoning]), [
    ['reasoning_message', thoughts[0].id, thoughts[0].otid, 'one two three'], ['assistant_message', texts[0].id, texts[0].otid, numbered(30)]])
})

test('calls of tools come as deltas', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const items = await tokens(agent, `SAY wait\n${calls([['conversation_search', { query: 'some words', limit: 3 }]], 'SAY done')}`)
  const deltas = of(items, 'tool_call_message')
  assert.ok(deltas.length > 1)
  for (const d of deltas) {
    assert.deepEqual(d.tool_calls, d.tool_call, 'the same object twice')
    assert.ok(!Array.isArray(d.tool_calls))
    assert.ok(d.tool_call.tool_call_id)
  }
  assert.deepEqual(Object.keys(deltas[0].tool_call).toSorted(), ['name', 'tool_call_id'])
  assert.ok(deltas.slice(1).every(d => !('name' in d.tool_call)))
  const text = deltas.map(d => d.tool_call.arguments ?? '').join('')
  assert.deepEqual(JSON.parse(text), { query: 'some words', limit: 3 })
  const [result] = of(items, 'tool_return_message')
  assert.equal(result.tool_call_id, deltas[0].tool_call.tool_call_id)
  const stored = of((await client.agents.messages.list(agent.id)).items, 'tool_call_message')[0]
  assert.equal(stored.tool_call.arguments, text, 'byte for byte')
  assert.deepEqual([stored.id, stored.otid], [deltas[0].id, deltas[0].otid])
})

test('parallel calls are told apart, and their returns come as one', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'], model_settings: { provider_type: 'openai', parallel_tool_calls: true } })
  const items = await tokens(agent, parallel([['conversation_search', { query: 'a' }], ['conversation_search', { query: 'b' }]]))
  const byCall = Map.groupBy ? Map.groupBy(of(items, 'tool_call_message'), d => d.tool_call.tool_call_id)
    : of(items, 'tool_call_message').reduce((m, d) => m.set(d.tool_call.tool_call_id, [...(m.get(d.tool_call.tool_call_id) ?? []), d]), new Map())
  assert.equal(byCall.size, 2)
  assert.deepEqual([...byCall.values()].map(ds => JSON.parse(ds.map(d => d.tool_call.arguments ?? '').join('')).query), ['a', 'b'])
  const returns = of(items, 'tool_return_message')
  assert.equal(returns.length, 1)
  assert.deepEqual(returns[0].tool_returns.map(r => r.tool_call_id), [...byCall.keys()])
})

test('an agent without parallel calls keeps the first one', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'], model_settings: { provider_type: 'openai', parallel_tool_calls: false } })
  const answer = await say(agent, parallel([['conversation_search', { query: 'a' }], ['conversation_search', { query: 'b' }]]))
  assert.equal(of(answer.messages, 'tool_call_message').flatMap(m => m.tool_calls).length, 1)
})

test('every kind of turn ends in one way', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  for (const [script, reason] of [['SAY x', 'end_turn'], [calls([['conversation_search', { query: 'x' }]]), 'end_turn'],
    ['FINISH length\nSAY x', 'max_tokens_exceeded'], ['SAY', 'end_turn']]) {
    for (const stream_tokens of [false, true]) {
      const items = await collect(stream(agent, script, { stream_tokens }))
      assert.equal(reasonOf(items), reason, script)
      assert.deepEqual(types(items).slice(-2), ['stop_reason', 'usage_statistics'], script)
    }
  }
})

test('an error after the beginning is an event', async () => {
  const agent = await makeAgent()
  for (const [script, kind] of [['ERROR 400', 'llm_error'], ['ERROR 401', 'llm_authentication']]) {
    const response = await open(`/v1/agents/${agent.id}/messages/stream`, { messages: [user(script)] })
    const seen = []
    for await (const event of events(response)) seen.push(event)
    assert.equal(seen.at(-1).data, '[DONE]')
    const error = seen.at(-2)
    assert.equal(error.event, 'error')
    const body = JSON.parse(error.data)
    assert.equal(body.message_type, 'error_message')
    assert.ok(['llm_error', 'llm_bad_request', kind].includes(body.error_type), body.error_type)
    assert.equal(typeof body.message, 'string')
    const stop = JSON.parse(seen.at(-3).data)
    assert.deepEqual([stop.message_type, stop.stop_reason], ['stop_reason', 'llm_api_error'])
    assert.ok(!seen.some(e => e.data.includes('usage_statistics')))
    const run = await client.runs.retrieve(body.run_id)
    assert.equal(run.status, 'failed')
    assert.equal(run.metadata.error.error_type, body.error_type)
    const thrown = await collect(stream(agent, script)).then(() => null, e => e)
    assert.ok(thrown instanceof Letta.APIError)
    assert.equal(thrown.error.error_type, body.error_type)
  }
})

test('a cut answer keeps its partial text, flagged', async () => {
  const agent = await makeAgent()
  const error = await collect(stream(agent, 'SAY half a\nDROP_MID_STREAM', { stream_tokens: true })).then(() => null, e => e)
  assert.ok(error instanceof Letta.APIError, 'no error was thrown')
  const shown = of((await client.agents.messages.list(agent.id)).items, 'assistant_message')
  assert.deepEqual(shown, [])
  const all = of((await client.agents.messages.list(agent.id, { include_err: true })).items, 'assistant_message')
  assert.ok(all.length >= 1)
  assert.ok(all.every(m => m.is_err === true))
  assert.match(all.at(-1).content, /^half/)
  assert.equal(textOf((await say(agent, 'SAY whole')).messages), 'whole')
})

test('what can be refused in time is refused before the stream', async () => {
  const { conversation } = await makeConversation()
  const path = `/v1/conversations/${conversation.id}/messages`
  const bad = await raw('POST', path, { messages: [user('x')], include_return_message_types: ['nonsense'] })
  assert.equal(bad.status, 422)
  const unknown = await raw('POST', path, { messages: [user('x')], override_model: 'lmstudio/nothing' })
  assert.equal(unknown.status, 404)
})

test('the conversation is free at [DONE]', async () => {
  const { conversation } = await makeConversation()
  for (let i = 0; i < 20; i++) {
    const response = await open(`/v1/conversations/${conversation.id}/messages`, { messages: [user(`SAY ${i}`)], background: i % 2 === 0 })
    for await (const event of events(response)) if (event.data === '[DONE]') break
  }
})

test('a busy conversation refuses, names the run, and asks for no retry', async () => {
  const { conversation } = await makeConversation()
  const running = await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 20\nTOKENS 100')], stream_tokens: true })
  const items = []
  let busy
  for await (const item of running) {
    items.push(item)
    busy ??= await raw('POST', `/v1/conversations/${conversation.id}/messages`, { messages: [user('SAY no')] })
  }
  assert.equal(busy.status, 409)
  assert.equal(busy.headers.get('x-should-retry'), 'false')
  const { run_id } = items[0]
  assert.deepEqual(busy.json, { run_id, detail: `CONFLICT: Cannot send a new message: Another request (run_id=${run_id}) ` +
    'is currently being processed for this conversation. Please wait for it to complete.' })
  assert.equal(textOf(items), numbered(100))
  const stored = of((await client.conversations.messages.list(conversation.id)).items, 'user_message')
  assert.equal(stored.length, 1)
})

test('reset, compact and recompile of a busy conversation are refused', async () => {
  const agent = await makeAgent()
  const items = []
  for await (const item of await stream(agent, 'SLOW 20\nTOKENS 100', { stream_tokens: true })) {
    if (items.push(item) > 1) continue
    await refused(client.agents.messages.reset(agent.id, {}), 409, /is currently being processed/)
    await refused(client.agents.messages.compact(agent.id), 409, /is currently being processed/)
    await refused(client.agents.recompile(agent.id), 409, /is currently being processed/)
  }
  assert.equal(textOf(items), numbered(100))
})

test('a client that leaves does not stop the turn', async () => {
  const agent = await makeAgent()
  const leaving = await stream(agent, 'SLOW 10\nTOKENS 50', { stream_tokens: true })
  for await (const item of leaving) if (item.message_type === 'assistant_message') break
  const end = Date.now() + 20_000
  let texts = []
  while (texts.length === 0 && Date.now() < end) {
    await sleep(50)
    texts = of((await client.agents.messages.list(agent.id)).items, 'assistant_message')
  }
  assert.equal(texts[0]?.content, numbered(50))
})

test('kinds of messages are left out of a stream, its end is not', async () => {
  const agent = await makeAgent()
  const items = await tokens(agent, 'THINK a\nSAY b', { include_return_message_types: ['reasoning_message'] })
  assert.deepEqual(order(items), ['ping', 'reasoning_message', 'stop_reason', 'usage_statistics'])
})
