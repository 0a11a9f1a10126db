// session_ask: turns, progress, what ends them, and what they leave behind.
import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { calls, Door, everywhere, given, ways } from './lib.mjs'

everywhere('an agent is asked', async door => {
  const { id, name } = await door.agent('answerer')
  const answer = await door.call('session_ask', { agent_id: name, message: 'SAY the cat is grey' })
  assert.deepEqual(answer.data, { agent_id: id, agent_name: name, reply: 'the cat is grey' })
  assert.deepEqual([answer.meta['letta/storage'].locked, answer.meta['letta/storage'].writes_blocked], [true, 0])
})

everywhere('what the agent tries to write is not written', async door => {
  const { id } = await door.agent('writer', { human: 'Owns a boat.' })
  const before = await door.get('memory_get', { agent_id: id })
  const answer = await door.call('session_ask', {
    agent_id: id,
    message: calls([
      ['memory', { command: 'create', file_path: 'system/evil.md', description: 'x', file_text: 'x', reason: 'x' }],
      ['Write', { file_path: join(given.MNEME_WORKSPACE, 'evil.txt'), content: 'x' }],
    ], 'SAY I tried'),
  })
  assert.equal(answer.data.reply, 'I tried')
  assert.deepEqual([answer.meta['letta/storage'].locked, answer.meta['letta/storage'].writes_blocked], [true, 2])
  assert.deepEqual(await door.get('memory_get', { agent_id: id }), before)
})

everywhere('progress is told', async door => {
  const { id } = await door.agent('slow')
  const heard = []
  await door.get('session_ask', { agent_id: id, message: 'SLOW 40\nTOKENS 60' }, { onprogress: p => heard.push(p) })
  assert.ok(heard.length > 1, `${heard.length} notifications`)
  assert.ok(heard.every((p, i) => i === 0 || p.progress > heard[i - 1].progress), 'progress does not grow')
  assert.ok(heard.some(p => /writing|thinking/.test(p.message)), JSON.stringify(heard))
})

everywhere('a call is cancelled and the next one works', async door => {
  const { id } = await door.agent('cancelled')
  const control = new AbortController()
  const call = door.call('session_ask', { agent_id: id, message: 'SAY begin\nHANG' }, { signal: control.signal, onprogress: () => control.abort() })
  await assert.rejects(call)
  assert.equal((await door.get('session_ask', { agent_id: id, message: 'SAY again' })).reply, 'again')
})

everywhere('many ask one agent at once', async door => {
  const { id } = await door.agent('asked')
  const replies = await Promise.all([1, 2, 3, 4].map(i => door.get('session_ask', { agent_id: id, message: `SLOW 10\nSAY number ${i}` })))
  assert.deepEqual(replies.map(reply => reply.reply), ['number 1', 'number 2', 'number 3', 'number 4'])
})

everywhere('a provider that fails is told of', async door => {
  const { id } = await door.agent('unlucky')
  assert.match(await door.refused('model_error', 'session_ask', { agent_id: id, message: 'ERROR 400' }), /400/)
  for (const [args, word] of [[{ agent_id: id }, 'message'], [{ agent_id: id, message: ' ' }, 'message'],
    [{ agent_id: id, message: 'x'.repeat(262145) }, 'message'], [{ message: 'x' }, 'agent_id'], [{ agent_id: id, message: 'x', model: 'y' }, 'model']]) {
    assert.ok((await door.refused('invalid_request', 'session_ask', args)).includes(word))
  }
  await door.refused('agent_not_found', 'session_ask', { agent_id: 'nobody at all', message: 'x' })
})

for (const way of ways) {
  test(`the person in front of the client is asked (${way.name})`, async t => {
    const kept = join(given.MNEME_WORKSPACE, 'kept.txt')
    await mkdir(join(given.MNEME_WORKSPACE, '.letta'), { recursive: true })
    await writeFile(join(given.MNEME_WORKSPACE, '.letta', 'settings.json'), JSON.stringify({ permissions: { alwaysAsk: ['Read'] } }))
    await writeFile(kept, 'kept')
    let action = 'accept'
    const questions = []
    const door = await Door.open(t, way, { elicit: params => { questions.push(params.message); return { action } } })
    const { id } = await door.agent('careful')
    const message = calls([['Read', { file_path: kept }]])
    assert.match((await door.get('session_ask', { agent_id: id, message })).reply, /kept/)
    assert.equal(questions.length, 1)
    assert.match(questions[0], /Read/)
    for (action of ['decline', 'cancel']) await door.refused('approval_required', 'session_ask', { agent_id: id, message })
    assert.equal(questions.length, 3)
    const silent = await Door.open(t, way)
    await silent.refused('approval_required', 'session_ask', { agent_id: id, message })
  })
}
