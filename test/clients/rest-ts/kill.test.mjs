// What a killed server keeps: background streams go on, sends are not lost and
// not done twice.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Server, collect, connect, ended, makeAgent, numbered, of, randomUUID, reasonOf, textOf, until, user } from './lib.mjs'

const start = async t => {
  const server = await Server.create(t)
  const client = connect(server.http)
  const agent = await makeAgent({}, client)
  return { server, client, agent, conversation: await client.conversations.create({ agent_id: agent.id }) }
}

/** Reads a stream until n items were seen or it breaks; says whether it ended. */
const read = async (stream, seen, n) => {
  try {
    for await (const item of await stream) {
      if (item.message_type === 'ping' && item.seq_id !== 1) continue
      seen.push(item)
      if (--n === 0) return false
    }
    return true
  } catch (error) {
    if (error.status) throw error // an answer, not a broken connection
    return false
  }
}

const some = (least, most) => least + Math.floor(Math.random() * (most - least))

/** What is left of the items when those of voided messages are gone. */
const valid = items => {
  const voided = new Set(of(items, 'event_message').filter(e => e.event_type === 'restart').flatMap(e => e.event_data.voided))
  return items.filter(i => !voided.has(i.id))
}

test('a background stream goes on over killed servers', async t => {
  const { server, client, conversation } = await start(t)
  const seen = []
  let done = await read(client.conversations.messages.create(conversation.id, {
    messages: [user('SLOW 10\nTHINK first a thought\nTOKENS 200')], streaming: true, background: true, stream_tokens: true }), seen, some(1, 40))
  assert.equal(done, false, 'it ended too soon')
  const run = seen[0].run_id
  for (let kills = 0; kills < 3; kills++) {
    await server.kill()
    await server.start()
    done = await read(client.runs.messages.stream(run, { starting_after: seen.at(-1).seq_id, batch_size: 1000 }), seen, kills < 2 ? some(1, 20) : 0)
  }
  while (!done) done = await read(client.runs.messages.stream(run, { starting_after: seen.at(-1).seq_id }), seen)
  assert.deepEqual(seen.map(i => i.seq_id), seen.map((_, i) => i + 1), 'each once and in order')
  assert.equal(of(seen, 'event_message').filter(e => e.event_type === 'restart').length >= 1, true, 'the restart is not said')
  assert.equal(reasonOf(seen), 'end_turn')
  assert.equal(textOf(valid(seen)), numbered(200))
  assert.equal((await client.runs.retrieve(run)).status, 'completed')
  const stored = of((await client.conversations.messages.list(conversation.id)).items, 'assistant_message')
  assert.deepEqual(stored.map(m => m.content), [numbered(200)])
  assert.deepEqual(await collect(client.runs.messages.stream(run, {})), seen, 'the log is the same afterwards')
})

test('a reader that was away finds the end of what a restart finished', async t => {
  const { server, client, conversation } = await start(t)
  const seen = []
  await read(client.conversations.messages.create(conversation.id, { messages: [user('SLOW 10\nTOKENS 100')], streaming: true, background: true, stream_tokens: true }), seen, some(1, 60))
  await server.kill()
  await server.start()
  await ended(seen[0].run_id, client)
  await read(client.runs.messages.stream(seen[0].run_id, { starting_after: seen.at(-1).seq_id }), seen)
  assert.deepEqual(seen.map(i => i.seq_id), seen.map((_, i) => i + 1))
  assert.equal(textOf(valid(seen)), numbered(100))
})

test('a send whose answer was lost is repeated under its otid and runs once', async t => {
  const { server, client, agent } = await start(t)
  const message = user('SLOW 10\nTOKENS 50', { otid: randomUUID() })
  const lost = client.agents.messages.create(agent.id, { messages: [message] }).then(() => null, e => e)
  await until('the run', async () => (await client.runs.list({ agent_id: agent.id })).items.length > 0)
  await server.kill()
  assert.ok(await lost, 'answered by a killed server')
  await server.start()
  const answer = await client.agents.messages.create(agent.id, { messages: [message] })
  assert.equal(textOf(answer.messages), numbered(50))
  const again = await client.agents.messages.create(agent.id, { messages: [message] })
  assert.deepEqual(again.messages, answer.messages)
  const listed = (await client.agents.messages.list(agent.id)).items
  assert.equal(of(listed, 'user_message').length, 1)
  assert.equal(of(listed, 'assistant_message').length, 1)
  assert.equal((await client.runs.list({ agent_id: agent.id })).items.length, 1)
})

test('an async run outlives the server', async t => {
  const { server, client, agent } = await start(t)
  const first = await client.agents.messages.createAsync(agent.id, { messages: [user('SLOW 10\nTOKENS 60')] })
  const second = await client.agents.messages.createAsync(agent.id, { messages: [user('SAY the second')] })
  await until('the run', async () => (await client.runs.retrieve(first.id)).status === 'running')
  await server.kill()
  await server.start()
  assert.equal((await ended(first.id, client)).status, 'completed')
  assert.equal((await ended(second.id, client)).status, 'completed')
  const texts = of((await client.agents.messages.list(agent.id)).items, 'assistant_message').map(m => m.content)
  assert.deepEqual(texts, [numbered(60), 'the second'])
})

test('a pending request outlives the server and is answered once', async t => {
  const { server, client, agent } = await start(t)
  const tools = { client_tools: [{ name: 'lookup', parameters: { type: 'object', properties: { q: { type: 'string' } } } }] }
  const asked = await client.agents.messages.create(agent.id, { messages: [user('CALL lookup {"q":"x"}\nTHEN ECHO_LAST_TOOL_RESULT')], ...tools })
  assert.equal(asked.stop_reason.stop_reason, 'requires_approval')
  const [request] = of(asked.messages, 'approval_request_message')
  await server.kill()
  await server.start()
  const pending = (await client.agents.retrieve(agent.id, { include: ['agent.pending_approval'] })).pending_approval
  assert.equal(pending.id, request.id)
  const approvals = [{ type: 'tool', tool_call_id: request.tool_call.tool_call_id, tool_return: 'forty-two', status: 'success' }]
  const answer = await client.agents.messages.create(agent.id, { messages: [{ type: 'approval', approvals }], ...tools })
  assert.equal(textOf(answer.messages), 'forty-two')
})
