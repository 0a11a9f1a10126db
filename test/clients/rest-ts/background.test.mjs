// Background runs: their numbers, and resuming them at any point.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { client, collect, ended, events, makeAgent, makeConversation, nobody, numbered, of, open, randomUUID, raw, reasonOf, refused, say, textOf, types, user } from './lib.mjs'

const script = 'SLOW 2\nTHINK some thoughts first\nTOKENS 120'
const background = { streaming: true, background: true, stream_tokens: true }

/** Starts a background run and reads it to its end. */
const whole = async (content = script, more = {}) => {
  const { agent, conversation } = await makeConversation()
  const items = await collect(client.conversations.messages.create(conversation.id, { messages: [user(content, more.message)], ...background, ...more.body }))
  return { agent, conversation, items, run: items[0].run_id }
}

const resumed = (run, after, more = {}) => collect(client.runs.messages.stream(run, { ...(after === undefined ? {} : { starting_after: after }), ...more }))
const numbers = items => items.map(i => i.seq_id)

/** Items without what may differ between readings. */
const plain = items => items.filter(i => i.message_type !== 'ping' || i.seq_id === 1)

test('every chunk has its number and its run', async () => {
  const { items, run } = await whole()
  assert.deepEqual(numbers(items), items.map((_, i) => i + 1))
  assert.ok(items.every(i => i.run_id === run || (i.message_type === 'usage_statistics' && i.run_ids?.includes(run))), 'a chunk without its run')
  assert.equal(items[0].message_type, 'ping')
  assert.equal(textOf(items), numbered(120))
  assert.deepEqual(types(items).slice(-2), ['stop_reason', 'usage_statistics'])
  assert.equal((await client.runs.retrieve(run)).background, true)
})

test('frames of logged runs carry their number as id', async () => {
  const { conversation } = await makeConversation()
  const response = await open(`/v1/conversations/${conversation.id}/messages`, { messages: [user('SAY a b')], background: true })
  let n = 0
  for await (const event of events(response)) {
    if (event.data === '[DONE]') { assert.equal(event.id, undefined); continue }
    assert.equal(event.id, String(++n))
    assert.equal(JSON.parse(event.data).seq_id, n)
  }
  assert.ok(n > 3)
})

test('a finished run is resumed at every point', async () => {
  const { items, run } = await whole('TOKENS 40')
  assert.deepEqual(await resumed(run), items)
  assert.deepEqual(await resumed(run, 0), items)
  for (let after = 1; after <= items.length; after++) assert.deepEqual(await resumed(run, after), items.slice(after), `after ${after}`)
  for (const body of ['', 'null', '{}']) {
    const again = await raw('POST', `/v1/runs/${run}/stream`, body || undefined)
    assert.equal(again.status, 200, body)
    assert.equal(again.text.match(/^id: /gm).length, items.length)
  }
})

test('a running run is cut at 50 random points and loses nothing', async t => {
  let cuts = 0
  for (let round = 0; cuts < 50; round++) {
    const { conversation } = await makeConversation()
    const path = `/v1/conversations/${conversation.id}/messages`
    const seen = []
    let response = { path, body: { messages: [user('SLOW 4\nTHINK a thought\nTOKENS 150')], ...background } }
    for (;;) {
      const patience = 1 + Math.floor(Math.random() * 12)
      const cut = new AbortController()
      let n = 0, done = false
      try {
        for await (const event of events(await open(response.path, response.body, { signal: cut.signal }))) {
          if (event.data === '[DONE]') { done = true; continue }
          const item = JSON.parse(event.data)
          if (item.message_type === 'ping' && item.seq_id !== 1) continue
          seen.push(item)
          if (++n === patience) { cut.abort(); break }
        }
      } catch (error) {
        if (error.name !== 'AbortError') throw error
      }
      if (done) break
      cuts++
      response = { path: `/v1/runs/${seen[0].run_id}/stream`, body: { starting_after: seen.at(-1).seq_id, batch_size: 1000 } }
    }
    assert.deepEqual(numbers(seen), seen.map((_, i) => i + 1), 'each once and in order')
    assert.equal(textOf(seen), numbered(150))
    assert.deepEqual(plain(await resumed(seen[0].run_id)), seen, 'the same as in the log')
    assert.ok(round < 50, 'the runs are too short to be cut')
  }
  t.diagnostic(`${cuts} cuts`)
})

test('several readers see the same', async () => {
  const { conversation } = await makeConversation()
  const first = await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 5\nTOKENS 100')], ...background })
  const items = []
  let others
  for await (const item of first) {
    items.push(item)
    others ??= [resumed(item.run_id), resumed(item.run_id, 1), collect(client.conversations.messages.stream(conversation.id, {}))]
  }
  const [a, b, c] = (await Promise.all(others)).map(plain)
  assert.deepEqual(a, items)
  assert.deepEqual(b, items.slice(1))
  assert.deepEqual(c, items)
})

test('Last-Event-ID means the same as starting_after, which wins', async () => {
  const { items, run } = await whole('TOKENS 20')
  const ids = async (body, last) => {
    const seen = []
    for await (const event of events(await open(`/v1/runs/${run}/stream`, body, { headers: { 'last-event-id': last } }))) if (event.id) seen.push(+event.id)
    return seen
  }
  assert.deepEqual(await ids({}, '3'), numbers(items).slice(3))
  assert.deepEqual(await ids({ starting_after: 4 }, '2'), numbers(items).slice(4))
  const text = await raw('POST', `/v1/runs/${run}/stream`, {}, { headers: { 'last-event-id': 'nonsense' } })
  assert.equal(text.status, 400)
  assert.match(text.json.detail, /^INVALID_ARGUMENT: /)
})

test('positions that are wrong are told apart', async () => {
  const { items, run } = await whole('SAY a')
  for (const body of [{ starting_after: 'nonsense' }, { starting_after: 1.5 }, { starting_after: -1 }]) {
    const answer = await raw('POST', `/v1/runs/${run}/stream`, body)
    assert.equal(answer.status, 400, `${JSON.stringify(body)}: ${answer.text}`)
    assert.match(answer.json.detail, /^INVALID_ARGUMENT: /)
  }
  const ahead = await refused(resumed(run, items.length + 1), 400, /POSITION_AHEAD: /)
  assert.equal(ahead.error.latest, items.length)
  assert.deepEqual(await resumed(run, items.length), [])
})

test('a position ahead of a running run is refused', async () => {
  const { conversation } = await makeConversation()
  const items = []
  for await (const item of await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 10\nTOKENS 50')], ...background })) {
    if (items.push(item) === 5) {
      const error = await refused(resumed(item.run_id, 100_000), 400, /POSITION_AHEAD: /)
      assert.ok(error.error.latest >= 5)
    }
  }
})

test('what is no background run cannot be resumed', async () => {
  const agent = await makeAgent()
  const foreground = await collect(client.agents.messages.stream(agent.id, { messages: [user('SAY x')] }))
  await refused(resumed(foreground[0].run_id), 400, /not created in background mode/)
  await refused(resumed(nobody.run), 404)
  await refused(resumed('run-nonsense'), 400, /INVALID_ARGUMENT: Invalid run ID format/)
})

test('a run is resumed by its conversation, its id, its otid, or by the agent', async () => {
  const agent = await makeAgent()
  const otid = randomUUID()
  const items = []
  let others
  const stream = await client.agents.messages.create(agent.id, { messages: [user('SLOW 5\nTOKENS 100', { otid })], ...background })
  for await (const item of stream) {
    items.push(item)
    others ??= [
      client.conversations.messages.stream(agent.id, {}), client.conversations.messages.stream('default', { agent_id: agent.id }),
      client.conversations.messages.stream(agent.id, { otid, starting_after: 0, batch_size: 1000 }), client.conversations.messages.stream(agent.id, { run_id: item.run_id }),
    ].map(collect)
  }
  for (const other of await Promise.all(others)) assert.deepEqual(plain(other), items)
  assert.deepEqual(await collect(client.conversations.messages.stream(agent.id, { otid })), items, 'by otid also when finished')
  await refused(client.conversations.messages.stream(agent.id, {}).then(collect), 400, /No active runs found for this conversation/)
  await refused(client.conversations.messages.stream(agent.id, { otid: 'unknown' }).then(collect), 404, /No run found for otid=unknown/)
  await refused(client.conversations.messages.stream(nobody.conversation, {}).then(collect), 404)
})

test('a conversation whose active run is in the foreground cannot be resumed', async () => {
  const { conversation } = await makeConversation()
  const items = []
  for await (const item of await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 10\nTOKENS 50')], stream_tokens: true })) {
    if (items.push(item) === 2) await refused(client.conversations.messages.stream(conversation.id, {}).then(collect), 400, /not created in background mode/)
  }
  assert.equal(reasonOf(items), 'end_turn')
})

test('a background run without pings begins with its first message', async () => {
  const { items, run } = await whole('SAY a', { body: { include_pings: false } })
  assert.equal(items[0].message_type, 'assistant_message')
  assert.equal(items[0].seq_id, 1)
  assert.deepEqual(await resumed(run, 0, { include_pings: true }), items, 'numbers do not change')
})

test('errors of a background run are in its log', async () => {
  const { conversation } = await makeConversation()
  const response = await open(`/v1/conversations/${conversation.id}/messages`, { messages: [user('ERROR 400')], background: true })
  const seen = []
  for await (const event of events(response)) seen.push(event)
  const error = seen.find(e => e.event === 'error')
  const { run_id, seq_id } = JSON.parse(error.data)
  assert.equal(seq_id, Number(error.id))
  const again = []
  for await (const event of events(await open(`/v1/runs/${run_id}/stream`, {}))) again.push(event)
  assert.deepEqual(again, seen)
  assert.equal((await ended(run_id)).status, 'failed')
})

test('an async run can be read as it goes', async () => {
  const agent = await makeAgent()
  const run = await client.agents.messages.createAsync(agent.id, { messages: [user('SLOW 5\nTOKENS 50')] })
  assert.equal(run.background, true)
  const items = await resumed(run.id)
  assert.equal(textOf(items), numbered(50))
  assert.deepEqual(numbers(plain(items)), plain(items).map((_, i) => i + 1))
  assert.equal(reasonOf(items), 'end_turn')
  assert.equal(textOf((await say(agent, 'SAY next')).messages), 'next')
  assert.ok(of(items, 'usage_statistics').length === 1)
})
