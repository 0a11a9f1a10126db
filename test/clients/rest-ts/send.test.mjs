// Non-streaming sends: what comes back, what is stored, what is refused.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, client, collect, given, makeAgent, makeConversation, nobody, numbered, of, randomUUID, raw, reasonOf, refused, say, textOf, types, user } from './lib.mjs'

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

test('an answer has its messages, the reason of its end and its usage', async () => {
  const agent = await makeAgent()
  const answer = await say(agent, 'THINK let me see\nSAY hello there')
  assert.deepEqual(types(answer.messages), ['reasoning_message', 'assistant_message'])
  const [reasoning, text] = answer.messages
  assert.equal(reasoning.reasoning, 'let me see')
  assert.equal(reasoning.source, 'reasoner_model')
  assert.equal(text.content, 'hello there')
  assert.equal(reasoning.id, text.id, 'one stored message, one id')
  assert.match(text.id, /^message-/)
  assert.notEqual(reasoning.otid, text.otid)
  for (const [i, m] of answer.messages.entries()) {
    assert.match(m.otid, uuid)
    assert.equal(m.otid.at(-1), String(i), 'the otid counts the variants')
    assert.match(m.date, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$/)
    assert.match(m.step_id, /^step-/)
    assert.match(m.run_id, /^run-/)
    assert.equal(m.is_err, null)
    assert.equal(m.seq_id, null)
    for (const field of ['name', 'sender_id']) assert.ok(field in m, field)
  }
  assert.deepEqual(answer.stop_reason, { message_type: 'stop_reason', stop_reason: 'end_turn' })
  const { usage } = answer
  assert.equal(usage.message_type, 'usage_statistics')
  assert.equal(usage.prompt_tokens, 100)
  assert.ok(usage.completion_tokens > 0)
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
  assert.equal(usage.step_count, 1)
  assert.deepEqual([answer.logprobs, answer.turns], [null, null])
  const listed = (await client.agents.messages.list(agent.id)).items
  assert.deepEqual(types(listed), ['system_message', 'user_message', 'reasoning_message', 'assistant_message'])
  assert.deepEqual(listed.slice(2).map(m => [m.id, m.otid, m.step_id, m.run_id]), answer.messages.map(m => [m.id, m.otid, m.step_id, m.run_id]))
})

test('input is a shorthand, and parts are kept', async () => {
  const agent = await makeAgent()
  const short = await client.agents.messages.create(agent.id, { input: 'SAY short' })
  assert.equal(textOf(short.messages), 'short')
  const parts = [{ type: 'text', text: 'SAY from' }, { type: 'text', text: 'THEN SAY never' }]
  assert.equal(textOf((await client.agents.messages.create(agent.id, { input: parts })).messages), 'from')
  const users = of((await client.agents.messages.list(agent.id)).items, 'user_message')
  assert.equal(users[0].content, 'SAY short')
  assert.deepEqual(users[1].content.map(p => p.text), parts.map(p => p.text))
  const one = await client.agents.messages.create(agent.id, { messages: [user([{ type: 'text', text: 'SAY single' }])] })
  assert.equal(textOf(one.messages), 'single')
  assert.equal(of((await client.agents.messages.list(agent.id)).items, 'user_message').at(-1).content, 'SAY single')
})

test('tools run, and their calls and returns are in the answer', async () => {
  const agent = await makeAgent({ tools: ['memory_insert'], memory_blocks: [{ label: 'notes', value: 'a' }] })
  const answer = await say(agent, 'CALL memory_insert {"label":"notes","new_string":"b"}\nTHEN SAY noted')
  assert.deepEqual(types(answer.messages), ['tool_call_message', 'tool_return_message', 'assistant_message'])
  const [call, result] = answer.messages
  assert.equal(call.tool_call.name, 'memory_insert')
  assert.deepEqual(JSON.parse(call.tool_call.arguments), { label: 'notes', new_string: 'b' })
  assert.deepEqual(call.tool_calls, [call.tool_call])
  assert.equal(result.status, 'success')
  assert.equal(result.tool_call_id, call.tool_call.tool_call_id)
  assert.equal(result.name, 'memory_insert')
  assert.equal(result.tool_returns.length, 1)
  assert.equal(result.tool_returns[0].tool_return, result.tool_return)
  assert.notEqual(result.id, call.id)
  assert.equal(answer.usage.step_count, 2)
  assert.equal(answer.usage.prompt_tokens, 200)
})

test('a call of a tool that is not there is an error for the model', async () => {
  const agent = await makeAgent({ tools: ['memory_insert'] })
  const answer = await say(agent, calls([['no_such_tool', {}]], 'SAY a pity'))
  assert.equal(of(answer.messages, 'tool_return_message')[0].status, 'error')
  assert.equal(textOf(answer.messages), 'a pity')
  const shell = await say(agent, calls([['Bash', { command: 'true' }]], 'SAY no shell'))
  assert.equal(of(shell.messages, 'tool_return_message')[0].status, 'error')
})

test('tools that are only named answer with an error', async () => {
  const agent = await makeAgent({ tools: ['run_code', 'web_search', 'memory_insert'] })
  for (const name of ['run_code', 'web_search']) {
    const answer = await say(agent, calls([[name, { code: '1', query: 'x' }]], 'SAY next'))
    const [result] = of(answer.messages, 'tool_return_message')
    assert.equal(result.status, 'error', name)
    assert.match(result.tool_return, /\S/)
  }
})

test('several messages make one turn', async () => {
  const agent = await makeAgent()
  const answer = await client.agents.messages.create(agent.id, { messages: [
    user('first', { otid: 'o-1', name: 'Ada', sender_id: 'identity-x' }), { role: 'system', content: 'a system word' }, user('SAY once', { otid: 'o-2' })] })
  assert.equal(textOf(answer.messages), 'once')
  const listed = (await client.agents.messages.list(agent.id)).items
  const users = of(listed, 'user_message')
  assert.deepEqual(users.map(m => [m.content, m.otid]), [['first', 'o-1'], ['SAY once', 'o-2']])
  assert.equal(users[0].name, 'Ada')
  assert.equal(users[0].sender_id, 'identity-x')
  assert.ok(of(listed, 'system_message').some(m => m.content === 'a system word'))
})

test('two equal texts with their own otids are two messages', async () => {
  const agent = await makeAgent()
  for (const otid of ['same-1', 'same-2']) await client.agents.messages.create(agent.id, { messages: [user('SAY again', { otid })] })
  const users = of((await client.agents.messages.list(agent.id)).items, 'user_message')
  assert.deepEqual(users.map(m => m.otid), ['same-1', 'same-2'])
  await say(agent, 'SAY more')
  await say(agent, 'SAY more')
  const made = of((await client.agents.messages.list(agent.id)).items, 'user_message').slice(2)
  assert.equal(made.length, 2)
  for (const m of made) assert.match(m.otid, uuid)
})

test('the turn ends at max_steps', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const script = calls([['conversation_search', { query: 'a' }], ['conversation_search', { query: 'b' }]], 'SAY end')
  const cut = await say(agent, script, { max_steps: 2 })
  assert.equal(cut.stop_reason.stop_reason, 'max_steps')
  assert.equal(cut.usage.step_count, 2)
  assert.equal(of(cut.messages, 'tool_return_message').length, 2)
  assert.equal((await say(agent, script, { max_steps: 3 })).stop_reason.stop_reason, 'end_turn')
})

test('an answer cut by the provider says so', async () => {
  const agent = await makeAgent()
  const answer = await say(agent, 'FINISH length\nSAY cut')
  assert.equal(answer.stop_reason.stop_reason, 'max_tokens_exceeded')
  assert.equal(textOf(answer.messages), 'cut')
})

test('a request may change model and system text for itself', async () => {
  const agent = await makeAgent({ system: 'Mine.' })
  const dump = async more => JSON.parse(textOf((await say(agent, 'DUMP_REQUEST', more)).messages))
  assert.equal((await dump({ override_model: 'lmstudio/mock-2' })).model, 'mock-2')
  assert.equal((await dump({})).model, 'mock-1')
  assert.equal((await client.agents.retrieve(agent.id)).model, given.MNEME_MODEL)
  await refused(say(agent, 'x', { override_model: 'lmstudio/nothing' }), 404)
  assert.equal((await dump({ override_system: 'Other.' })).system, true)
  const [system] = (await client.agents.messages.list(agent.id)).items
  assert.match(system.content, /Mine\./)
  assert.doesNotMatch(system.content, /Other\./)
})

test('a request may ask for some kinds of messages', async () => {
  const agent = await makeAgent()
  const answer = await say(agent, 'THINK a\nSAY b', { include_return_message_types: ['assistant_message'] })
  assert.deepEqual(types(answer.messages), ['assistant_message'])
  assert.equal(answer.stop_reason.stop_reason, 'end_turn')
  await refused(say(agent, 'x', { include_return_message_types: ['nonsense'] }), 422)
  const run = (await client.runs.list({ agent_id: agent.id })).items[0]
  assert.deepEqual(run.request_config.include_return_message_types, ['assistant_message'])
  assert.deepEqual(types((await client.runs.messages.list(run.id)).items), ['assistant_message'])
})

test('old fields are taken', async () => {
  const agent = await makeAgent()
  for (const more of [{ enable_thinking: 'True' }, { enable_thinking: true }, { enable_thinking: 'false' }, { use_assistant_message: false },
    { assistant_message_tool_name: 'send_message', assistant_message_tool_kwarg: 'message' }, { return_logprobs: true, top_logprobs: 3 },
    { return_token_ids: true }, { include_compaction_messages: true }, { client_skills: [{ name: 'n', description: 'd', location: 'l' }] }]) {
    assert.equal(textOf((await say(agent, 'SAY ok', more)).messages), 'ok', JSON.stringify(more))
  }
})

test('bad sends are refused and leave nothing', async () => {
  const agent = await makeAgent()
  const send = body => client.agents.messages.create(agent.id, body)
  const text = [user('x')]
  for (const body of [{}, { messages: [] }, { messages: text, input: 'x' }, { messages: [user(5)] }, { messages: [{ content: 'x' }] },
    { messages: [{ role: 'tool', content: 'x' }] }, { messages: text, max_steps: 0 }, { messages: text, top_logprobs: 21 },
    { messages: text, stream_tokens: true }, { messages: text, include_pings: false }, { messages: text, background: true },
    { messages: text, client_tools: [{ description: 'no name' }] }, { messages: text, client_skills: [{ name: 'n' }] },
    { messages: [user('first'), { type: 'approval', approvals: [] }] }]) {
    const error = await refused(send(body), 422)
    assert.equal(typeof error.error.detail, 'string', JSON.stringify(body))
  }
  await refused(client.agents.messages.stream(agent.id, { messages: [] }).then(collect), 422)
  await refused(client.agents.messages.createAsync(agent.id, { messages: [] }), 422)
  await refused(client.agents.messages.createAsync(nobody.agent, { messages: text }), 404)
  assert.deepEqual(types((await client.agents.messages.list(agent.id)).items), ['system_message'])
  assert.deepEqual((await client.runs.list({ agent_id: agent.id })).items, [])
})

test('errors of the provider have their kind and their status', async () => {
  const agent = await makeAgent()
  for (const [script, status, type, retry] of [['ERROR 400', 400, 'llm_bad_request', 'false'], ['ERROR 401', 401, 'llm_authentication', 'false']]) {
    const error = await refused(say(agent, script), status)
    assert.equal(error.error.error.type, type)
    assert.equal(error.headers.get('x-should-retry'), retry)
  }
  const run = (await client.runs.list({ agent_id: agent.id })).items[0]
  assert.equal(run.status, 'failed')
  assert.equal(run.stop_reason, 'llm_api_error')
  assert.equal(run.metadata.error.error_type, 'llm_authentication')
  assert.equal(textOf((await say(agent, 'SAY fine again')).messages), 'fine again')
  assert.equal((await client.agents.retrieve(agent.id)).last_stop_reason, 'end_turn')
})

test('large and odd texts come back as they went', async () => {
  const agent = await makeAgent()
  const odd = `SAY ok\n${'wörd '.repeat(200_000)}😀👩‍👩‍👧 שלום مرحبا \u2028\u2029 "\\ \t end`
  assert.ok(odd.length > 1_000_000)
  const answer = await say(agent, odd)
  assert.equal(textOf(answer.messages), 'ok')
  const [stored] = of((await client.agents.messages.list(agent.id)).items, 'user_message')
  assert.equal(stored.content, odd)
  const spoken = '😀 👩‍👩‍👧 e\u0301 שלום \u2028 "q"'
  const echoed = await say(agent, `SAY ${spoken}`)
  assert.equal(textOf(echoed.messages), spoken)
  const streamed = await collect(client.agents.messages.stream(agent.id, { messages: [user(`SAY ${spoken}`)], stream_tokens: true }))
  assert.equal(textOf(streamed), spoken)
  await say(agent, 'SAY nul\n\0 \0')
  const last = of((await client.agents.messages.list(agent.id)).items, 'user_message').at(-1)
  assert.ok([ 'SAY nul\n ', 'SAY nul\n\0 \0' ].includes(last.content), JSON.stringify(last.content))
})

test('a conversation answers as a stream by default and as JSON if asked', async () => {
  const { conversation } = await makeConversation()
  const items = await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY streamed')] }))
  assert.equal(textOf(items), 'streamed')
  assert.equal(reasonOf(items), 'end_turn')
  const whole = await raw('POST', `/v1/conversations/${conversation.id}/messages`, { messages: [user('SAY whole')], streaming: false })
  assert.match(whole.headers.get('content-type'), /^application\/json/)
  assert.equal(whole.json.messages[0].content, 'whole')
  assert.equal(whole.json.stop_reason.stop_reason, 'end_turn')
  await refused(client.conversations.messages.create(nobody.conversation, { messages: [user('x')] }).then(collect), 404)
  await refused(client.conversations.messages.create(conversation.id, { messages: [] }).then(collect), 422)
  await refused(client.conversations.messages.create(nobody.conversation, { messages: [] }).then(collect), 422)
})

test('the default conversation of an agent is reached by three names', async () => {
  const agent = await makeAgent()
  await say(agent, 'SAY one')
  await collect(client.conversations.messages.create('default', { agent_id: agent.id, messages: [user('SAY two')] }))
  await collect(client.conversations.messages.create(agent.id, { messages: [user('SAY three')] }))
  const texts = page => of(page.items, 'assistant_message').map(m => m.content)
  assert.deepEqual(texts(await client.agents.messages.list(agent.id, { conversation_id: 'default' })), ['one', 'two', 'three'])
  assert.deepEqual(texts(await client.conversations.messages.list('default', { agent_id: agent.id })), ['three', 'two', 'one'])
  assert.deepEqual(texts(await client.conversations.messages.list(agent.id)), ['three', 'two', 'one'])
  await refused(client.conversations.messages.create('default', { messages: [user('x')] }).then(collect), 422)
  await refused(client.conversations.messages.list('default'), 422)
})

test('parallel sends to one agent wait for each other', async () => {
  const agent = await makeAgent()
  const answers = await Promise.all([0, 1, 2, 3].map(i => say(agent, `SLOW 10\nTOKENS 5\nTHEN SAY never`, { messages: [user(`SLOW 10\nTOKENS ${i + 3}`)] })))
  assert.deepEqual(answers.map(a => textOf(a.messages)), [0, 1, 2, 3].map(i => numbered(i + 3)))
  const listed = types((await client.agents.messages.list(agent.id)).items)
  assert.deepEqual(listed, ['system_message', ...Array(4).fill(['user_message', 'assistant_message']).flat()])
})

test('a request keeps its id on the steps', async () => {
  const agent = await makeAgent()
  const id = randomUUID()
  await raw('POST', `/v1/agents/${agent.id}/messages`, { messages: [user('SAY x')] }, { headers: { 'x-api-request-log-id': id } })
  const [step] = (await client.steps.list({ agent_id: agent.id })).items
  assert.equal(step.request_id, id)
})
