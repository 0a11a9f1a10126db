// Two doors, one agent: what is made or asked through one is seen through the
// other.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Connection } from '../appserver/lib.mjs'
import { calls, client, collect, makeAgent, makeConversation, numbered, of, reasonOf, say, textOf, types, until, user } from './lib.mjs'

test('an agent of one door is used through the other', async t => {
  const connection = await Connection.open(t)
  const { agent, conversation } = await makeConversation()
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: conversation.id })
  await runtime.turn('SAY over the socket')
  await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY over HTTP')] }))
  const listed = (await client.conversations.messages.list(conversation.id, { order: 'asc' })).items
  assert.deepEqual(of(listed, 'assistant_message').map(m => m.content), ['over the socket', 'over HTTP'])
  const seen = (await runtime.messages()).filter(m => m.message_type === 'assistant_message')
  assert.equal(seen.length, 2)
  const other = await connection.start()
  const shown = await client.agents.retrieve(other.agent)
  assert.equal(shown.id, other.agent)
  assert.equal(textOf((await say(shown, 'SAY to theirs')).messages), 'to theirs')
})

test('a turn begun over HTTP is watched and aborted over the socket', async t => {
  const connection = await Connection.open(t)
  const { agent, conversation } = await makeConversation()
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: conversation.id })
  const mark = runtime.mark
  const stream = collect(client.conversations.messages.create(conversation.id, { messages: [user('SLOW 20\nTOKENS 3000')], stream_tokens: true }))
  await runtime.delta('assistant_message', mark)
  assert.equal((await runtime.client.abort({ runtime: runtime.id })).aborted, true)
  assert.equal(reasonOf(await stream), 'cancelled')
  assert.equal((await runtime.ended(mark)).stop_reason, 'cancelled')
})

test('a turn begun over the socket is cancelled over HTTP', async t => {
  const connection = await Connection.open(t)
  const { agent, conversation } = await makeConversation()
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: conversation.id })
  const mark = runtime.mark
  await runtime.say('SLOW 20\nTOKENS 3000')
  await runtime.delta('assistant_message', mark)
  assert.deepEqual(Object.values(await client.conversations.cancel(conversation.id)), ['cancelled'])
  assert.equal((await runtime.ended(mark)).stop_reason, 'cancelled')
})

test('what a turn over HTTP asks is answered over the socket', async t => {
  const connection = await Connection.open(t)
  const agent = await makeAgent({ tools: ['memory_insert'], memory_blocks: [{ label: 'notes', value: '' }], tool_rules: [{ type: 'requires_approval', tool_name: 'memory_insert' }] })
  const conversation = await client.conversations.create({ agent_id: agent.id })
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: conversation.id })
  const mark = runtime.mark
  const asked = await collect(client.conversations.messages.create(conversation.id, { messages: [user(calls([['memory_insert', { label: 'notes', new_string: 'both' }]], 'SAY both doors'))] }))
  assert.equal(reasonOf(asked), 'requires_approval')
  const { request_id, request } = await runtime.asked(mark)
  assert.equal(request.tool_call_id, of(asked, 'approval_request_message')[0].tool_call.tool_call_id)
  assert.equal((await runtime.answer(request_id, { behavior: 'allow' })).accepted, true)
  assert.equal((await runtime.ended(mark)).stop_reason, 'end_turn')
  const listed = (await client.conversations.messages.list(conversation.id, { order: 'asc' })).items
  assert.equal(of(listed, 'assistant_message').at(-1).content, 'both doors')
  assert.match((await client.agents.blocks.retrieve('notes', { agent_id: agent.id })).value, /both/)
})

test('what a turn over the socket asks is answered over HTTP', async t => {
  const connection = await Connection.open(t)
  const runtime = await connection.start({ create_conversation: { body: {} } })
  const mark = runtime.mark
  await runtime.say(calls([['Bash', { command: 'echo from the shell | tee note', description: 'say' }]]))
  const { request } = await runtime.asked(mark)
  const answer = await collect(client.conversations.messages.create(runtime.conversation, {
    messages: [{ type: 'approval', approvals: [{ type: 'approval', tool_call_id: request.tool_call_id, approve: true }] }] }))
  assert.match(textOf(answer), /from the shell/)
  assert.equal((await runtime.ended(mark)).stop_reason, 'end_turn')
  const listed = (await client.conversations.messages.list(runtime.conversation, { order: 'asc' })).items
  assert.deepEqual(types(listed), ['system_message', 'user_message', 'approval_request_message', 'approval_response_message', 'tool_return_message', 'assistant_message'])
})

test('an agent made over HTTP has no shell on either door', async t => {
  const connection = await Connection.open(t)
  const { agent, conversation } = await makeConversation()
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: conversation.id })
  const overSocket = JSON.parse((await runtime.turn('DUMP_REQUEST')).text).tools
  const overHTTP = JSON.parse(textOf(await collect(client.conversations.messages.create(conversation.id, { messages: [user('DUMP_REQUEST')] })))).tools
  for (const tools of [overSocket, overHTTP]) assert.ok(!tools.includes('Bash') && !tools.includes('Write'), tools.join())
})

test('input behind a turn of the socket is queued when it is async', async t => {
  const connection = await Connection.open(t)
  const agent = await makeAgent()
  const runtime = await connection.start({ agent_id: agent.id, conversation_id: 'default' })
  const mark = runtime.mark
  await runtime.say('SLOW 10\nTOKENS 80')
  await runtime.delta('assistant_message', mark)
  const run = await client.agents.messages.createAsync(agent.id, { messages: [user('SAY behind')] })
  assert.equal(run.status, 'created')
  await runtime.ended(mark)
  const texts = async () => of((await client.agents.messages.list(agent.id)).items, 'assistant_message').map(m => m.content)
  await until('the second answer', async () => (await texts()).length > 1)
  assert.deepEqual(await texts(), [numbered(80), 'behind'])
  assert.deepEqual(types((await client.agents.messages.list(agent.id)).items).filter(x => x === 'user_message').length, 2)
})
