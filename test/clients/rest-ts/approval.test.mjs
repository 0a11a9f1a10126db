// Turns that wait: approvals of server tools, and tools that the client runs.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, client, collect, ended, given, makeAgent, makeConversation, of, open, events, parallel, randomUUID, raw, reasonOf, refused, say, textOf, types, user } from './lib.mjs'

const lookup = { name: 'lookup', description: 'Looks something up', parameters: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] } }
const tools = { client_tools: [lookup] }
const careful = (more = {}) => makeAgent({ tools: ['memory_insert', 'conversation_search'], memory_blocks: [{ label: 'notes', value: '' }],
  tool_rules: [{ type: 'requires_approval', tool_name: 'memory_insert' }], model_settings: { provider_type: 'openai', parallel_tool_calls: true }, ...more })
const insert = text => ['memory_insert', { label: 'notes', new_string: text }]
const answer = (agent, approvals, more = {}) => client.agents.messages.create(agent.id, { messages: [{ type: 'approval', approvals }], ...more })
const approve = (id, yes = true, reason) => ({ type: 'approval', tool_call_id: id, approve: yes, ...(reason ? { reason } : {}) })
const result = (id, text, more = {}) => ({ type: 'tool', tool_call_id: id, tool_return: text, status: 'success', ...more })
const requested = items => of(items, 'approval_request_message')[0]
const notes = async agent => (await client.agents.blocks.retrieve('notes', { agent_id: agent.id })).value
const pendingOf = async agent => (await client.agents.retrieve(agent.id, { include: ['agent.pending_approval'] })).pending_approval

test('a tool that needs approval waits, and runs when it is approved', async () => {
  const agent = await careful()
  const asked = await say(agent, `SAY may I\n${calls([insert('yes')], 'SAY written')}`)
  assert.deepEqual(types(asked.messages), ['assistant_message', 'approval_request_message'])
  assert.equal(asked.stop_reason.stop_reason, 'requires_approval')
  const request = requested(asked.messages)
  assert.equal(request.tool_call.name, 'memory_insert')
  assert.deepEqual(request.tool_calls, [request.tool_call])
  assert.equal(request.otid, request.id, 'its otid is its id')
  const number = id => BigInt('0x' + id.replace('message-', '').replaceAll('-', ''))
  assert.equal(number(request.id), number(asked.messages[0].id) - 1n)
  const state = await client.agents.retrieve(agent.id, { include: ['agent.pending_approval'] })
  assert.equal(state.last_stop_reason, 'requires_approval')
  assert.equal(state.pending_approval.id, request.id)
  const run = await client.runs.retrieve(request.run_id)
  assert.deepEqual([run.status, run.stop_reason], ['completed', 'requires_approval'])
  assert.equal(await notes(agent), '')

  const done = await answer(agent, [approve(request.tool_call.tool_call_id)])
  assert.deepEqual(types(done.messages), ['tool_return_message', 'assistant_message'])
  assert.equal(done.messages[0].status, 'success')
  assert.equal(done.messages[0].tool_returns[0].tool_call_id, request.tool_call.tool_call_id)
  assert.equal(textOf(done.messages), 'written')
  assert.match(await notes(agent), /yes/)
  assert.equal(await pendingOf(agent), null)
  const listed = (await client.agents.messages.list(agent.id)).items
  assert.deepEqual(types(listed), ['system_message', 'user_message', 'assistant_message', 'approval_request_message',
    'approval_response_message', 'tool_return_message', 'assistant_message'])
  const response = of(listed, 'approval_response_message')[0]
  assert.equal(response.approval_request_id, request.tool_call.tool_call_id, 'the call, not the message')
  assert.equal(response.approve, true)
  assert.deepEqual(response.approvals.map(a => [a.type, a.tool_call_id, a.approve]), [['approval', request.tool_call.tool_call_id, true]])
})

test('a denied tool does not run, and the model reads why', async () => {
  const agent = await careful()
  const request = requested((await say(agent, calls([insert('no')]))).messages)
  const done = await answer(agent, [approve(request.tool_call.tool_call_id, false, 'Not today')])
  assert.equal(done.messages[0].status, 'error')
  assert.equal(textOf(done.messages), 'Error: request to call tool denied. User reason: Not today')
  assert.equal(await notes(agent), '')
})

test('the old fields of an answer are taken', async () => {
  const agent = await careful()
  for (const by of ['call', 'message']) {
    const request = requested((await say(agent, calls([insert('old')], 'SAY ok'))).messages)
    const id = by === 'call' ? request.tool_call.tool_call_id : request.id
    const done = await client.agents.messages.create(agent.id, { messages: [{ type: 'approval', approve: true, approval_request_id: id }] })
    assert.equal(textOf(done.messages), 'ok', by)
  }
})

test('while it waits, messages are refused in two shapes', async () => {
  const agent = await careful()
  const request = requested((await say(agent, calls([insert('x')]))).messages)
  const plain = await raw('POST', `/v1/agents/${agent.id}/messages`, { messages: [user('x')] })
  assert.equal(plain.status, 409)
  assert.equal(plain.headers.get('x-should-retry'), 'false')
  assert.deepEqual(plain.json.detail, { code: 'PENDING_APPROVAL', pending_request_id: request.id,
    message: 'CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or deny the pending request before continuing.' })
  for (const [path, body] of [[`/v1/agents/${agent.id}/messages/stream`, {}], [`/v1/agents/${agent.id}/messages`, { streaming: true }],
    [`/v1/conversations/${agent.id}/messages`, {}], [`/v1/conversations/${agent.id}/messages`, { streaming: false }]]) {
    const streamed = await raw('POST', path, { messages: [user('x')], ...body })
    assert.equal(streamed.status, 409, path)
    assert.equal(streamed.headers.get('x-should-retry'), 'false')
    assert.equal(typeof streamed.json.detail, 'string')
    assert.match(streamed.json.detail, /waiting for approval.*Please approve or deny the pending request before continuing/)
  }
  assert.deepEqual(types((await client.agents.messages.list(agent.id)).items), ['system_message', 'user_message', 'approval_request_message'])
  assert.equal((await pendingOf(agent)).id, request.id)
})

test('answers must match what waits, and replays are no error', async () => {
  const agent = await careful()
  await refused(answer(agent, [approve('call_x')]), 400, /No tool call is currently awaiting approval/)
  const request = requested((await say(agent, calls([insert('x')], 'SAY ok'))).messages)
  const id = request.tool_call.tool_call_id
  await refused(answer(agent, [approve('call_x')]), 400, /Invalid tool call IDs\. Expected '\[.*\]', but received '\[.*call_x.*\]'/)
  await refused(answer(agent, [approve(id), approve('call_x')]), 400, /Invalid tool call IDs/)
  await refused(answer(agent, []), 400)
  await refused(client.agents.messages.stream(agent.id, { messages: [{ type: 'approval', approvals: [approve('call_x')] }] }).then(collect), 400, /Invalid tool call IDs/)
  assert.equal((await pendingOf(agent)).id, request.id)
  assert.equal(textOf((await answer(agent, [approve(id)])).messages), 'ok')
  const again = await answer(agent, [approve(id)])
  assert.ok(['end_turn'].includes(again.stop_reason.stop_reason))
  const listed = (await client.agents.messages.list(agent.id)).items
  assert.equal(of(listed, 'tool_return_message').length, 1)
  assert.equal((await notes(agent)).match(/x/g).length, 1, 'it ran once')
  const followed = await client.agents.messages.create(agent.id, { messages: [{ type: 'approval', approvals: [approve(id)] }, user('SAY and this')] })
  assert.equal(textOf(followed.messages), 'and this')
})

test('a message behind the answer is read after the results', async () => {
  const agent = await careful()
  const request = requested((await say(agent, calls([insert('x')], 'SAY first'))).messages)
  const done = await client.agents.messages.create(agent.id, { messages: [{ type: 'approval', approvals: [approve(request.tool_call.tool_call_id)] }, user('SAY second', { otid: 'behind' })] })
  assert.equal(done.messages[0].message_type, 'tool_return_message')
  assert.match(textOf(done.messages), /second/)
  const listed = (await client.agents.messages.list(agent.id)).items
  assert.ok(listed.some(m => m.otid === 'behind'))
})

test('calls of one answer that need no approval wait too, and run with the others', async () => {
  const agent = await careful()
  const asked = await say(agent, parallel([['conversation_search', { query: 'a' }], insert('b')]))
  assert.deepEqual(types(asked.messages), ['tool_call_message', 'approval_request_message'])
  assert.deepEqual(asked.messages[0].tool_calls.map(c => c.name), ['conversation_search'])
  assert.deepEqual(asked.messages[1].tool_calls.map(c => c.name), ['memory_insert'])
  const done = await answer(agent, [approve(asked.messages[1].tool_call.tool_call_id)])
  const returns = of(done.messages, 'tool_return_message')
  assert.equal(returns.length, 1)
  assert.deepEqual(returns[0].tool_returns.map(r => r.tool_call_id), asked.messages.map(m => m.tool_call.tool_call_id))
  assert.match(await notes(agent), /b/)
})

test('the client runs a tool and the turn goes on with its result', async () => {
  const agent = await makeAgent()
  const asked = await say(agent, calls([['lookup', { q: 'life' }]]), tools)
  assert.equal(asked.stop_reason.stop_reason, 'requires_approval')
  const { tool_call } = requested(asked.messages)
  assert.deepEqual([tool_call.name, JSON.parse(tool_call.arguments)], ['lookup', { q: 'life' }])
  const done = await answer(agent, [result(tool_call.tool_call_id, 'forty-two', { stdout: ['out'], stderr: ['err'] })], tools)
  const [back] = of(done.messages, 'tool_return_message')
  assert.equal(back.tool_return, 'forty-two')
  assert.equal(back.status, 'success')
  assert.deepEqual([back.stdout, back.stderr], [['out'], ['err']])
  assert.equal(textOf(done.messages), 'forty-two')
  assert.equal(done.stop_reason.stop_reason, 'end_turn')
})

test('a result may be an error, parts, or a tool_return item', async () => {
  const agent = await makeAgent()
  const ask = async () => requested((await say(agent, calls([['lookup', { q: 'x' }]]), tools)).messages).tool_call.tool_call_id
  const failed = await answer(agent, [result(await ask(), 'no such book', { status: 'error' })], tools)
  assert.equal(of(failed.messages, 'tool_return_message')[0].status, 'error')
  assert.equal(textOf(failed.messages), 'no such book')
  const parts = await answer(agent, [result(await ask(), [{ type: 'text', text: 'one' }, { type: 'text', text: 'two' }])], tools)
  assert.match(textOf(parts.messages), /one\s+two/)
  assert.equal(of(parts.messages, 'tool_return_message')[0].tool_return, 'one\ntwo')
  const item = await client.agents.messages.create(agent.id, { messages: [{ type: 'tool_return', tool_returns: [result(await ask(), 'by item')] }], ...tools })
  assert.equal(textOf(item.messages), 'by item')
})

test('a client tool may be denied, and needs no parameters', async () => {
  const agent = await makeAgent()
  const bare = { client_tools: [{ name: 'bare' }] }
  const asked = requested((await say(agent, calls([['bare', {}]]), bare)).messages)
  const done = await answer(agent, [approve(asked.tool_call.tool_call_id, false, 'no')], bare)
  assert.match(textOf(done.messages), /denied\. User reason: no/)
})

test('parallel client tools are asked for and answered together', async () => {
  const agent = await makeAgent({ model_settings: { provider_type: 'openai', parallel_tool_calls: true } })
  const asked = requested((await say(agent, parallel([['lookup', { q: 'a' }], ['lookup', { q: 'b' }]]), tools)).messages)
  const ids = asked.tool_calls.map(c => c.tool_call_id)
  assert.equal(ids.length, 2)
  await refused(answer(agent, [result(ids[0], 'only one')], tools), 400, /Invalid tool call IDs/)
  const done = await answer(agent, [result(ids[1], 'B'), result(ids[0], 'A')], tools)
  const [back] = of(done.messages, 'tool_return_message')
  assert.deepEqual(back.tool_returns.map(r => [r.tool_call_id, r.tool_return]), [[ids[0], 'A'], [ids[1], 'B']])
})

test('a client tool goes before a tool of the server of the same name', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const asked = await say(agent, calls([['conversation_search', { query: 'x' }]]), { client_tools: [{ name: 'conversation_search' }] })
  assert.equal(asked.stop_reason.stop_reason, 'requires_approval')
  const done = await answer(agent, [result(requested(asked.messages).tool_call.tool_call_id, 'mine')], { client_tools: [{ name: 'conversation_search' }] })
  assert.equal(textOf(done.messages), 'mine')
  const own = await say(agent, calls([['conversation_search', { query: 'x' }]], 'SAY fine'))
  assert.equal(own.stop_reason.stop_reason, 'end_turn', 'the tools of a request are its own')
})

test('requests stream as deltas, and the answer as a stream', async () => {
  const { agent, conversation } = await makeConversation()
  for (const stream_tokens of [true, false]) {
    const more = { ...tools, streaming: true, stream_tokens, background: true }
    const asked = await collect(client.conversations.messages.create(conversation.id, { messages: [user(`SAY well\n${calls([['lookup', { q: 'long words' }]])}`)], ...more }))
    assert.equal(reasonOf(asked), 'requires_approval')
    assert.deepEqual(types(asked).slice(-2), ['stop_reason', 'usage_statistics'])
    const pieces = of(asked, 'approval_request_message')
    assert.ok(stream_tokens ? pieces.length > 1 : pieces.length === 1)
    assert.equal(new Set(pieces.map(p => p.id)).size, 1)
    const id = pieces[0].tool_call.tool_call_id
    assert.deepEqual(JSON.parse(pieces.map(p => p.tool_call.arguments ?? '').join('')), { q: 'long words' })
    const done = await collect(client.conversations.messages.create(conversation.id, { messages: [{ type: 'approval', approvals: [result(id, 'streamed back')], otid: randomUUID() }], ...more }))
    assert.equal(textOf(done), 'streamed back')
    assert.equal(reasonOf(done), 'end_turn')
    const of_ = done.filter(i => !['ping', 'stop_reason', 'usage_statistics'].includes(i.message_type))
    assert.equal(of_[0].message_type, 'tool_return_message')
    assert.deepEqual(of(done, 'approval_response_message'), [])
  }
  assert.equal((await client.runs.list({ agent_id: agent.id })).items.length, 4, 'an answer makes the next run')
})

test('the answer can be sent at once after [DONE]', async () => {
  const { conversation } = await makeConversation()
  const path = `/v1/conversations/${conversation.id}/messages`
  for (let i = 0; i < 10; i++) {
    let id
    for await (const event of events(await open(path, { messages: [user(calls([['lookup', { q: `${i}` }]]))], ...tools }))) {
      if (event.data === '[DONE]') break
      const item = JSON.parse(event.data)
      if (item.message_type === 'approval_request_message') id = item.tool_call.tool_call_id
    }
    const back = await raw('POST', path, { messages: [{ type: 'approval', approvals: [result(id, `r${i}`)] }], ...tools, streaming: false })
    assert.equal(back.status, 200, back.text)
    assert.equal(textOf(back.json.messages), `r${i}`)
  }
})

test('reads work while a turn waits, and reset ends the wait', async () => {
  const agent = await careful()
  await say(agent, calls([insert('x')]))
  assert.ok((await client.agents.messages.list(agent.id)).items.length > 0)
  assert.ok(Array.isArray((await client.runs.list({ agent_id: agent.id })).items))
  await client.agents.messages.reset(agent.id, {})
  assert.equal(await pendingOf(agent), null)
  assert.equal(textOf((await say(agent, 'SAY free')).messages), 'free')
  assert.equal(await notes(agent), '')
})

test('a cancelled request is denied and the agent takes messages again', async () => {
  const agent = await careful()
  const request = requested((await say(agent, calls([insert('x')]))).messages)
  const map = await client.agents.messages.cancel(agent.id, { run_ids: [request.run_id] })
  assert.deepEqual(map, { [request.run_id]: 'cancelled' })
  assert.equal(await pendingOf(agent), null)
  const listed = (await client.agents.messages.list(agent.id)).items
  const [back] = of(listed, 'tool_return_message')
  assert.equal(back.status, 'error')
  assert.match(JSON.stringify(listed), /The user cancelled the request, so the tool call was denied\./)
  assert.equal((await ended(request.run_id)).status, 'cancelled')
  assert.equal(textOf((await say(agent, 'SAY free')).messages), 'free')
  assert.equal(await notes(agent), '')
})

test('an async run parks, and others wait behind the answer', async () => {
  const agent = await careful()
  const parked = await client.agents.messages.createAsync(agent.id, { messages: [user(calls([insert('x')], 'SAY one'))] })
  assert.equal((await ended(parked.id)).stop_reason, 'requires_approval')
  const behind = await client.agents.messages.createAsync(agent.id, { messages: [user('SAY two')] })
  assert.equal((await client.runs.retrieve(behind.id)).status, 'created')
  const done = await answer(agent, [approve((await pendingOf(agent)).tool_call.tool_call_id)])
  assert.equal(textOf(done.messages), 'one')
  assert.equal((await ended(behind.id)).status, 'completed')
  assert.equal(of((await client.agents.messages.list(agent.id)).items, 'assistant_message').at(-1).content, 'two')
  assert.equal(given.MNEME_MODEL, agent.model)
})
