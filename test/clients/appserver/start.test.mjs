import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Connection, given, workspace } from './lib.mjs'

test('the server says what it is', async t => {
  const connection = await Connection.open(t)
  const info = await connection.client.info()
  assert.equal(info.backend, 'local')
  assert.equal(info.protocol_version, 1)
  assert.equal(info.capabilities.runtime_start, true)
})

test('a new agent starts with its state shown', async t => {
  const connection = await Connection.open(t)
  const cwd = await workspace()
  const runtime = await connection.start({ cwd, create_agent: { body: { name: 'Ada', model: given.MNEME_MODEL }, pin_global: false } })
  assert.deepEqual(runtime.response.created, { agent: true, conversation: true })
  assert.equal(runtime.response.agent.name, 'Ada')
  assert.equal(runtime.response.agent.model, given.MNEME_MODEL)
  assert.equal(runtime.response.conversation.agent_id, runtime.agent)
  const device = await runtime.wait('device status', f => f.type === 'update_device_status')
  assert.equal(device.device_status.current_working_directory, cwd)
  assert.equal(device.device_status.current_permission_mode, 'standard')
  const loop = await runtime.wait('loop status', f => f.type === 'update_loop_status')
  assert.equal(loop.loop_status.status, 'WAITING_ON_INPUT')
  const queue = await runtime.wait('queue', f => f.type === 'update_queue')
  assert.deepEqual(queue.queue, [])
})

test('an existing agent and conversation start again', async t => {
  const connection = await Connection.open(t)
  const first = await connection.start()
  const again = await connection.start({ agent_id: first.agent, conversation_id: first.conversation })
  assert.deepEqual(again.id, first.id)
  assert.deepEqual(again.response.created, { agent: false, conversation: false })
  const other = await connection.start({ agent_id: first.agent, create_conversation: {} })
  assert.notEqual(other.conversation, first.conversation)
  const list = await connection.client.conversationList({ query: { agent_id: first.agent } })
  const ids = list.conversations.map(c => c.id)
  for (const id of [first.conversation, other.conversation]) assert.ok(ids.includes(id), `${id} is not in ${ids}`)
})

test('an unknown agent is refused', async t => {
  const connection = await Connection.open(t)
  const response = await connection.client.runtimeStart({ agent_id: 'agent-nobody' })
  assert.equal(response.success, false)
  assert.equal(response.runtime, null)
  assert.equal(response.error, 'Agent agent-nobody not found')
})
