import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Connection, calls, workspace } from './lib.mjs'

test('a new connection finds the conversation as it was', async t => {
  const before = await Connection.open(t)
  const first = await before.start()
  await first.turn('SAY first')
  before.close()
  const after = await Connection.open(t)
  const second = await after.start({ agent_id: first.agent, conversation_id: first.conversation })
  const turn = await second.turn('DUMP_REQUEST')
  assert.deepEqual(JSON.parse(turn.text).roles.filter(r => r !== 'system'), ['user', 'assistant', 'user'])
})

test('a second client sees the turn that the first one leaves', async t => {
  const a = await Connection.open(t)
  const b = await Connection.open(t)
  const first = await a.start()
  const second = await b.start({ agent_id: first.agent, conversation_id: first.conversation })
  const mark = second.mark
  await first.say('SLOW 50\nTOKENS 20')
  await second.delta('assistant_message', mark)
  a.close()
  assert.equal((await second.ended(mark)).stop_reason, 'end_turn')
  assert.match(second.since(mark).text, /t19$/)
})

test('a second client answers what the first one was asked', async t => {
  const cwd = await workspace()
  const a = await Connection.open(t)
  const first = await a.start({ cwd })
  const mark = first.mark
  await first.say(calls([['Write', { file_path: join(cwd, 'shared.txt'), content: 'yes' }]], 'SAY ok'))
  const asked = await first.asked(mark)
  const b = await Connection.open(t)
  const second = await b.start({ agent_id: first.agent, conversation_id: first.conversation })
  const again = await second.asked()
  assert.equal(again.request_id, asked.request_id)
  a.close()
  assert.equal((await second.answer(again.request_id, { behavior: 'allow' })).accepted, true)
  assert.equal((await second.ended()).stop_reason, 'end_turn')
  assert.equal(await readFile(join(cwd, 'shared.txt'), 'utf8'), 'yes')
})

test('sync shows the state again', async t => {
  const connection = await Connection.open(t)
  const runtime = await connection.start()
  await runtime.turn('SAY hello')
  const mark = runtime.mark
  const response = await connection.client.sync({ runtime: runtime.id, force_device_status: true })
  assert.equal(response.success, true)
  const types = connection.seen.slice(mark).map(f => f.type)
  for (const type of ['update_device_status', 'update_loop_status', 'update_queue', 'sync_response']) {
    assert.ok(types.includes(type), `no ${type} in ${types}`)
  }
})
