import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Connection, calls } from './lib.mjs'

const lookup = { name: 'lookup', description: 'Look something up',
  parameters: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] } }

const start = async (t, handler) => {
  const connection = await Connection.open(t)
  connection.client.onExternalToolCall(handler)
  return connection.start({ mode: 'unrestricted', external_tools: [{ tools: [lookup] }] })
}

test('the client runs a tool for the agent', async t => {
  const asked = []
  const runtime = await start(t, request => {
    asked.push([request.tool_name, request.input])
    return { content: [{ type: 'text', text: 'forty' }, { type: 'text', text: 'two' }] }
  })
  const turn = await runtime.turn(calls([['lookup', { q: 'life' }]]))
  assert.deepEqual(asked, [['lookup', { q: 'life' }]])
  assert.equal(turn.results[0].status, 'success')
  assert.equal(turn.results[0].tool_return, 'forty\ntwo')
  assert.equal(turn.end.stop_reason, 'end_turn')
})

test('a failing handler is an error for the model', async t => {
  const runtime = await start(t, async () => { throw new Error('no such book') })
  const turn = await runtime.turn(calls([['lookup', { q: 'x' }]], 'SAY a pity'))
  assert.equal(turn.results[0].status, 'error')
  assert.equal(turn.results[0].tool_return, 'External tool execution error: no such book')
  assert.equal(turn.text, 'a pity')
})

test('an external tool can be taken away', async t => {
  const runtime = await start(t, () => ({ content: [{ type: 'text', text: 'x' }] }))
  const names = async () => JSON.parse((await runtime.turn('DUMP_REQUEST')).text).tools
  assert.ok((await names()).includes('lookup'))
  const updated = await runtime.client.runtimeExternalToolsUpdate({ updates: [{ runtimes: [runtime.id], external_tools: [] }] })
  assert.equal(updated.success, true)
  assert.ok(!(await names()).includes('lookup'))
})
