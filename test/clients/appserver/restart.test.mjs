// What the server keeps when it ends, politely or not.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Connection, Server, calls, textOf, workspace } from './lib.mjs'

const back = async (t, server, runtime) => {
  await server.start()
  const connection = await Connection.open(t, server.url)
  return connection.start({ agent_id: runtime.agent, conversation_id: runtime.conversation })
}

test('a polite end keeps the conversation', async t => {
  const server = await Server.create(t)
  const connection = await Connection.open(t, server.url)
  const runtime = await connection.start()
  await runtime.turn('SAY before')
  assert.equal(await server.stop(), 0)
  await connection.lost
  const again = await back(t, server, runtime)
  const turn = await again.turn('SAY after')
  assert.equal(turn.end.stop_reason, 'end_turn')
  const answers = (await again.messages()).filter(m => m.message_type === 'assistant_message').map(textOf)
  assert.deepEqual(answers, ['before', 'after'])
})

test('a pending approval outlives a killed server', async t => {
  const server = await Server.create(t)
  const cwd = await workspace()
  const connection = await Connection.open(t, server.url)
  const runtime = await connection.start({ cwd })
  await runtime.say(calls([['Bash', { command: 'echo x >> count', description: 'count' }]], 'SAY counted'))
  const { request } = await runtime.asked()
  await server.kill()
  await connection.lost
  const again = await back(t, server, runtime)
  const asked = await again.asked()
  assert.equal(asked.request.tool_call_id, request.tool_call_id)
  assert.equal((await again.answer(asked.request_id, { behavior: 'allow' })).accepted, true)
  assert.equal((await again.ended()).stop_reason, 'end_turn')
  assert.equal(again.since(0).text, 'counted')
  assert.equal(await readFile(join(cwd, 'count'), 'utf8'), 'x\n')
})

test('accepted input outlives a killed server and is answered once', async t => {
  const server = await Server.create(t)
  const connection = await Connection.open(t, server.url)
  const runtime = await connection.start()
  await runtime.say('SLOW 100\nTOKENS 30')
  await runtime.delta('assistant_message')
  assert.equal((await runtime.say('SAY the second')).disposition, 'queued')
  await server.kill()
  await connection.lost
  const again = await back(t, server, runtime)
  const finished = async () => (await again.messages()).filter(m => m.message_type === 'assistant_message' && !m.interrupted).map(textOf)
  const deadline = Date.now() + 20_000
  let answers = await finished()
  while (answers.length < 2 && Date.now() < deadline) {
    await new Promise(resolve => setTimeout(resolve, 200))
    answers = await finished()
  }
  assert.equal(answers.length, 2, `answers ${JSON.stringify(answers)}`)
  assert.match(answers[0], /^t0 t1 .* t29$/)
  assert.equal(answers[1], 'the second')
  const said = (await again.messages()).filter(m => m.message_type === 'user_message').map(textOf)
  assert.deepEqual(said, ['SLOW 100\nTOKENS 30', 'SAY the second'])
})
