import assert from 'node:assert/strict'
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Connection, calls, workspace } from './lib.mjs'

const start = async t => {
  const connection = await Connection.open(t)
  const cwd = await workspace()
  return { cwd, runtime: await connection.start({ cwd }) }
}

test('a streaming turn is aborted and the next one works', async t => {
  const { runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say('SLOW 100\nTOKENS 200')
  await runtime.delta('assistant_message', mark)
  const response = await runtime.client.abort({ runtime: runtime.id })
  assert.equal(response.success, true)
  assert.equal(response.aborted, true)
  assert.equal((await runtime.ended(mark)).stop_reason, 'cancelled')
  assert.ok(runtime.since(mark).of('assistant_message').length < 200, 'the stream went on')
  const next = await runtime.turn('SAY still here')
  assert.equal(next.text, 'still here')
})

test('a waiting approval is aborted and cannot be answered any more', async t => {
  const { cwd, runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say(calls([['Write', { file_path: join(cwd, 'never.txt'), content: 'x' }]], 'SAY no'))
  const { request_id } = await runtime.asked(mark)
  assert.equal((await runtime.client.abort({ runtime: runtime.id })).aborted, true)
  assert.equal((await runtime.ended(mark)).stop_reason, 'cancelled')
  const late = await runtime.answer(request_id, { behavior: 'allow' })
  assert.equal(late.accepted, false)
  await assert.rejects(access(join(cwd, 'never.txt')), 'the tool ran after all')
  assert.equal((await runtime.turn('SAY go on')).text, 'go on')
})

test('a running command is killed', async t => {
  const { cwd, runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say(calls([['Bash', { command: 'sleep 3; touch late', description: 'wait' }]], 'SAY no'))
  const { request_id } = await runtime.asked(mark)
  await runtime.answer(request_id, { behavior: 'allow' })
  await runtime.delta('client_tool_start', mark)
  assert.equal((await runtime.client.abort({ runtime: runtime.id })).aborted, true)
  assert.equal((await runtime.ended(mark)).stop_reason, 'cancelled')
  await new Promise(resolve => setTimeout(resolve, 3500))
  await assert.rejects(access(join(cwd, 'late')), 'the command went on')
})

test('nothing to abort is said so', async t => {
  const { runtime } = await start(t)
  const response = await runtime.client.abort({ runtime: runtime.id })
  assert.equal(response.success, true)
  assert.equal(response.aborted, false)
})
