import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Connection, calls, textOf, workspace } from './lib.mjs'

test('a turn streams its answer', async t => {
  const runtime = await (await Connection.open(t)).start()
  const turn = await runtime.turn('TOKENS 20')
  const pieces = turn.of('assistant_message')
  assert.ok(pieces.length > 1, `${pieces.length} pieces`)
  assert.equal(new Set(pieces.map(p => p.id)).size, 1, 'one message')
  assert.equal(turn.text, Array.from({ length: 20 }, (_, i) => `t${i}`).join(' '))
  assert.equal(turn.of('usage_statistics')[0].completion_tokens, 20)
  assert.equal(turn.of('stop_reason')[0].stop_reason, 'end_turn')
  assert.equal(turn.accepted.disposition, 'started')
  assert.equal(turn.end.stop_reason, 'end_turn')
  const numbers = runtime.connection.seen.map(f => f.event_seq).filter(n => n !== undefined)
  assert.deepEqual(numbers, numbers.map((_, i) => i + 1), 'event_seq counts without gaps')
})

test('reasoning comes apart from the text', async t => {
  const runtime = await (await Connection.open(t)).start()
  const turn = await runtime.turn('THINK let me see\nSAY done it')
  assert.equal(turn.of('reasoning_message').map(d => d.reasoning).join(''), 'let me see')
  assert.equal(turn.text, 'done it')
})

test('the conversation goes on and is kept', async t => {
  const runtime = await (await Connection.open(t)).start()
  await runtime.turn('SAY first')
  const second = await runtime.turn('DUMP_REQUEST')
  assert.deepEqual(JSON.parse(second.text).roles.filter(r => r !== 'system'), ['user', 'assistant', 'user'])
  const listed = (await runtime.messages()).filter(m => m.message_type === 'assistant_message').map(textOf)
  assert.deepEqual(listed, ['first', second.text])
})

test('a tool that needs no approval runs by itself', async t => {
  const cwd = await workspace()
  await writeFile(join(cwd, 'note.txt'), 'remember the milk\n')
  const runtime = await (await Connection.open(t)).start({ cwd })
  const turn = await runtime.turn(calls([['Read', { file_path: join(cwd, 'note.txt') }]]))
  assert.equal(turn.results.length, 1)
  assert.equal(turn.results[0].status, 'success')
  assert.match(turn.text, /remember the milk/)
  assert.equal(turn.end.stop_reason, 'end_turn')
})

test('input during a turn is queued and answered', async t => {
  const runtime = await (await Connection.open(t)).start()
  const mark = runtime.mark
  await runtime.say('SLOW 50\nTOKENS 20')
  await runtime.delta('assistant_message', mark)
  const second = await runtime.say('SAY second')
  assert.equal(second.disposition, 'queued')
  await runtime.wait('the second answer', f => f.type === 'turn_finished' && runtime.since(mark).text.endsWith('second'), mark)
})

test('a refusal of the provider ends the turn and not the runtime', async t => {
  const runtime = await (await Connection.open(t)).start()
  const failed = await runtime.turn('ERROR 400')
  // The terminal one follows turn_finished and may be here already.
  assert.equal(failed.of('loop_error').filter(e => !e.is_terminal).length, 1)
  assert.equal(failed.end.stop_reason, 'error')
  const next = await runtime.turn('SAY fine again')
  assert.equal(next.text, 'fine again')
})
