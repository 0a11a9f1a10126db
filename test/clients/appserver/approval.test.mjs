import assert from 'node:assert/strict'
import { access, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Connection, calls, workspace } from './lib.mjs'

const start = async t => {
  const connection = await Connection.open(t)
  const cwd = await workspace()
  return { cwd, runtime: await connection.start({ cwd }) }
}

const write = (cwd, name, content) => ['Write', { file_path: join(cwd, name), content }]

test('an allowed write happens after the answer', async t => {
  const { cwd, runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say(calls([write(cwd, 'new.txt', 'a\nb\n')], 'SAY written'))
  const { request, request_id } = await runtime.asked(mark)
  assert.equal(request.subtype, 'can_use_tool')
  assert.equal(request.tool_name, 'Write')
  assert.equal(request.input.content, 'a\nb\n')
  assert.equal(request.diffs[0].fileName, 'new.txt')
  await assert.rejects(access(join(cwd, 'new.txt')), 'written before the answer')
  const answered = await runtime.answer(request_id, { behavior: 'allow' })
  assert.equal(answered.accepted, true)
  assert.equal((await runtime.ended(mark)).stop_reason, 'end_turn')
  assert.equal(await readFile(join(cwd, 'new.txt'), 'utf8'), 'a\nb\n')
  assert.equal(runtime.since(mark).text, 'written')
})

test('a denied command does not run and the model hears why', async t => {
  const { cwd, runtime } = await start(t)
  await writeFile(join(cwd, 'keep'), 'x')
  const mark = runtime.mark
  await runtime.say(calls([['Bash', { command: 'rm -f keep', description: 'remove' }]]))
  const { request_id } = await runtime.asked(mark)
  await runtime.answer(request_id, { behavior: 'deny', message: 'Leave my files alone' })
  await runtime.ended(mark)
  const turn = runtime.since(mark)
  assert.equal(turn.results[0].status, 'error')
  assert.equal(turn.text, 'Leave my files alone')
  assert.equal(turn.of('client_tool_start').length, 0)
  await access(join(cwd, 'keep'))
})

test('an answer may change the input', async t => {
  const { cwd, runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say(calls([write(cwd, 'x.txt', 'theirs')], 'SAY ok'))
  const { request, request_id } = await runtime.asked(mark)
  await runtime.answer(request_id, { behavior: 'allow', updated_input: { ...request.input, content: 'mine' } })
  await runtime.ended(mark)
  assert.equal(await readFile(join(cwd, 'x.txt'), 'utf8'), 'mine')
})

test('a chosen suggestion is not asked for again', async t => {
  const { cwd, runtime } = await start(t)
  const command = ['Bash', { command: 'touch marker', description: 'mark' }]
  const first = runtime.mark
  await runtime.say(calls([command], 'SAY ok'))
  const { request, request_id } = await runtime.asked(first)
  assert.equal(request.permission_suggestions[0].id, 'save-default')
  await runtime.answer(request_id, { behavior: 'allow', selected_permission_suggestion_ids: ['save-default'] })
  await runtime.ended(first)
  await rm(join(cwd, 'marker'))
  const second = runtime.mark
  const turn = await runtime.turn(calls([command], 'SAY ok'))
  assert.equal(runtime.connection.seen.slice(second).filter(f => f.type === 'control_request').length, 0)
  assert.equal(turn.results[0].status, 'success')
  await access(join(cwd, 'marker'))
})

test('a question is answered', async t => {
  const { runtime } = await start(t)
  const mark = runtime.mark
  const question = { question: 'Which colour?', header: 'Colour', multiSelect: false,
    options: [{ label: 'Red', description: 'warm' }, { label: 'Blue', description: 'cold' }] }
  await runtime.say(calls([['AskUserQuestion', { questions: [question] }]]))
  const { request, request_id } = await runtime.asked(mark)
  assert.equal(request.tool_name, 'AskUserQuestion')
  await runtime.answer(request_id, { behavior: 'allow', updated_input: { ...request.input, answers: { 'Which colour?': 'Blue' } } })
  await runtime.ended(mark)
  assert.match(runtime.since(mark).text, /Blue/)
})

test('an answer counts once', async t => {
  const { cwd, runtime } = await start(t)
  const mark = runtime.mark
  await runtime.say(calls([write(cwd, 'once.txt', '1')], 'SAY ok'))
  const { request_id } = await runtime.asked(mark)
  assert.equal((await runtime.answer(request_id, { behavior: 'allow' })).accepted, true)
  const again = await runtime.answer(request_id, { behavior: 'deny', message: 'too late' })
  assert.equal(again.accepted, false)
  assert.equal(again.error, 'Approval request is no longer pending')
  await runtime.ended(mark)
  assert.equal(await readFile(join(cwd, 'once.txt'), 'utf8'), '1')
})
