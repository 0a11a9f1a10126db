// Runs and steps as records, async runs and their callbacks.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { all, client, collect, ended, given, makeAgent, makeConversation, nobody, of, raw, reasonOf, refused, say, textOf, types, until, user } from './lib.mjs'

const stamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/

test('every send leaves a run', async () => {
  const { agent, conversation } = await makeConversation()
  const answer = await say(agent, 'SAY a')
  const run = await client.runs.retrieve(answer.messages[0].run_id)
  assert.equal(run.agent_id, agent.id)
  assert.equal(run.conversation_id, null)
  assert.deepEqual([run.status, run.stop_reason, run.background], ['completed', 'end_turn', false])
  assert.equal(run.metadata.run_type, 'send_message')
  assert.match(run.created_at, stamp)
  assert.match(run.completed_at, stamp)
  assert.ok(run.total_duration_ns > 0)
  for (const field of ['ttft_ns', 'callback_url', 'callback_sent_at', 'callback_status_code', 'callback_error', 'base_template_id', 'request_config']) {
    assert.ok(field in run, `${field} is missing`)
  }
  const streamed = await collect(client.agents.messages.stream(agent.id, { messages: [user('SAY b')] }))
  assert.equal((await client.runs.retrieve(streamed[0].run_id)).metadata.run_type, 'send_message_streaming')
  const talked = await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY c')] }))
  const inside = await client.runs.retrieve(talked[0].run_id)
  assert.equal(inside.metadata.run_type, 'send_conversation_message')
  assert.equal(inside.conversation_id, conversation.id)
  await refused(client.runs.retrieve(nobody.run), 404)
  await refused(client.runs.retrieve('nonsense'), 400, /INVALID_ARGUMENT: Invalid run ID format/)
})

test('runs are listed, filtered and paged', async () => {
  const { agent, conversation } = await makeConversation()
  const runs = []
  for (const i of [0, 1, 2]) runs.push((await say(agent, `SAY ${i}`)).messages[0].run_id)
  await refused(say(agent, 'ERROR 400'), 400)
  const [failed] = (await client.runs.list({ agent_id: agent.id })).items
  const inside = (await collect(client.conversations.messages.create(conversation.id, { messages: [user('SAY x')], background: true })))[0].run_id
  const list = async query => (await client.runs.list({ agent_id: agent.id, ...query })).items.map(r => r.id)
  assert.deepEqual(await list({}), [inside, failed.id, ...runs.toReversed()])
  assert.deepEqual(await list({ order: 'asc', limit: 2 }), runs.slice(0, 2))
  assert.deepEqual(await list({ conversation_id: conversation.id }), [inside])
  assert.deepEqual(await list({ statuses: ['failed'] }), [failed.id])
  assert.deepEqual(await list({ stop_reason: 'llm_api_error' }), [failed.id])
  assert.deepEqual(await list({ background: true }), [inside])
  assert.deepEqual(await list({ active: true }), [])
  assert.deepEqual((await all(client.runs.list({ agent_id: agent.id, limit: 2 }))).map(r => r.id), await list({}))
  assert.deepEqual(await list({ before: failed.id }), [inside])
  assert.deepEqual((await client.runs.list({ agent_ids: [agent.id], order: 'asc', limit: 1 })).items.map(r => r.id), [runs[0]])
  await refused(client.runs.list({ limit: 0 }), 422)
  await refused(client.runs.list({ limit: 1001 }), 422)
  await refused(client.runs.list({ after: nobody.run }), 404)
  await refused(client.runs.list({ statuses: ['nonsense'] }), 422)
})

test('a run has its messages, steps, usage and trace', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const answer = await say(agent, 'CALL conversation_search {"query":"x"}\nTHEN SAY done')
  const id = answer.messages[0].run_id
  const messages = (await client.runs.messages.list(id)).items
  assert.deepEqual(types(messages), ['user_message', 'tool_call_message', 'tool_return_message', 'assistant_message'])
  assert.deepEqual(messages.slice(1), answer.messages)
  assert.deepEqual(types((await client.runs.messages.list(id, { order: 'desc', limit: 1 })).items), ['assistant_message'])
  assert.deepEqual(types(await all(client.runs.messages.list(id, { limit: 1 }))), types(messages))
  const steps = (await client.runs.steps.list(id)).items
  assert.equal(steps.length, 2)
  assert.deepEqual(steps.map(s => s.run_id), [id, id])
  assert.deepEqual(new Set(steps.map(s => s.id)), new Set(answer.messages.map(m => m.step_id)))
  const usage = await client.runs.usage.retrieve(id)
  for (const field of ['prompt_tokens', 'completion_tokens', 'total_tokens']) assert.equal(usage[field], answer.usage[field], field)
  assert.ok('prompt_tokens_details' in usage && 'completion_tokens_details' in usage)
  assert.deepEqual(await client.runs.trace.retrieve(id), [])
  for (const call of [client.runs.messages.list, client.runs.steps.list, client.runs.usage.retrieve, client.runs.trace.retrieve]) {
    const on = { [client.runs.messages.list]: client.runs.messages, [client.runs.steps.list]: client.runs.steps,
      [client.runs.usage.retrieve]: client.runs.usage, [client.runs.trace.retrieve]: client.runs.trace }[call]
    await refused(call.call(on, nobody.run), 404)
  }
})

test('a step is a record of one call of the model', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const answer = await say(agent, 'CALL conversation_search {"query":"x"}\nTHEN SAY done')
  const steps = (await client.steps.list({ agent_id: agent.id, order: 'asc' })).items
  assert.equal(steps.length, 2)
  const last = await client.steps.retrieve(steps[1].id)
  assert.deepEqual(last, steps[1])
  assert.equal(last.agent_id, agent.id)
  assert.deepEqual([last.status, last.stop_reason], ['success', 'end_turn'])
  assert.deepEqual([last.prompt_tokens, last.model, last.model_handle], [100, 'mock-1', given.MNEME_MODEL])
  assert.equal(last.total_tokens, last.prompt_tokens + last.completion_tokens)
  assert.deepEqual([last.messages, last.tags, last.feedback], [[], [], null])
  for (const field of ['provider_name', 'provider_category', 'context_window_limit', 'cached_input_tokens', 'trace_id', 'origin', 'error_type']) {
    assert.ok(field in last, `${field} is missing`)
  }
  const messages = (await client.steps.messages.list(steps[0].id)).items
  assert.deepEqual(types(messages), ['tool_call_message', 'tool_return_message'])
  assert.deepEqual(messages, answer.messages.slice(0, 2))
  const metrics = await client.steps.metrics.retrieve(last.id)
  assert.deepEqual([metrics.id, metrics.run_id, metrics.agent_id], [last.id, last.run_id, agent.id])
  assert.ok(metrics.step_ns > 0 && metrics.llm_request_ns > 0)
  const trace = await client.steps.trace.retrieve(last.id)
  assert.ok(trace === null || typeof trace === 'object')
  const rated = await client.steps.feedback.create(last.id, { feedback: 'positive', tags: ['good'] })
  assert.deepEqual([rated.feedback, rated.tags], ['positive', ['good']])
  assert.deepEqual((await client.steps.list({ agent_id: agent.id, feedback: 'positive' })).items.map(s => s.id), [last.id])
  assert.deepEqual((await client.steps.list({ agent_id: agent.id, has_feedback: false })).items.map(s => s.id), [steps[0].id])
  assert.deepEqual((await client.steps.list({ agent_id: agent.id, tags: ['good'] })).items.map(s => s.id), [last.id])
  assert.equal((await client.steps.feedback.create(last.id, { feedback: null })).feedback, null)
  assert.deepEqual((await all(client.steps.list({ agent_id: agent.id, limit: 1 }))).map(s => s.id), [steps[1].id, steps[0].id])
})

test('unknown steps are refused', async () => {
  for (const call of [
    () => client.steps.retrieve(nobody.step), () => client.steps.messages.list(nobody.step), () => client.steps.metrics.retrieve(nobody.step),
    () => client.steps.trace.retrieve(nobody.step), () => client.steps.feedback.create(nobody.step, { feedback: 'positive' }),
    () => client.steps.list({ after: nobody.step }),
  ]) await refused(call(), 404)
  await refused(client.steps.retrieve('step-1'), 422)
  await refused(client.steps.feedback.create(nobody.step, { feedback: 'nonsense' }), 422)
})

test('a failed step says why', async () => {
  const agent = await makeAgent()
  await refused(say(agent, 'ERROR 400'), 400)
  const [step] = (await client.steps.list({ agent_id: agent.id })).items
  assert.equal(step.status, 'failed')
  assert.ok(step.error_type)
})

test('an async send is answered at once with its run', async () => {
  const agent = await makeAgent()
  const run = await client.agents.messages.createAsync(agent.id, { messages: [user('WAIT 300\nSAY later')] })
  assert.equal(run.status, 'created')
  assert.deepEqual([run.background, run.metadata.run_type, run.agent_id], [true, 'send_message_async', agent.id])
  const done = await ended(run.id)
  assert.equal(done.status, 'completed')
  assert.equal(textOf(done.metadata.result.messages), 'later')
  assert.equal(done.metadata.result.stop_reason.stop_reason, 'end_turn')
  const failing = await client.agents.messages.createAsync(agent.id, { messages: [user('ERROR 400')] })
  const failed = await ended(failing.id)
  assert.deepEqual([failed.status, failed.stop_reason], ['failed', 'llm_api_error'])
  assert.ok(failed.metadata.error.error_type)
})

test('async sends of a busy agent wait their turn', async () => {
  const agent = await makeAgent()
  const runs = await Promise.all([0, 1, 2, 3, 4].map(i => client.agents.messages.createAsync(agent.id, { messages: [user(`SLOW 5\nSAY number ${i}`)] })))
  for (const run of runs) assert.equal((await ended(run.id)).status, 'completed')
  const listed = types((await client.agents.messages.list(agent.id)).items)
  assert.deepEqual(listed.slice(1), Array(5).fill(['user_message', 'assistant_message']).flat())
})

test('a callback to a private address is refused where that is not allowed', async () => {
  const agent = await makeAgent()
  const answer = await raw('POST', `/v1/agents/${agent.id}/messages/async`, { messages: [user('SAY x')], callback_url: `${given.MNEME_HTTP_URL}/v1/health` })
  if (answer.status === 200) {
    const run = await ended(answer.json.id)
    assert.equal(run.status, 'completed', 'a failing callback changes nothing')
    const last = await until('the refusal', async () => { const r = await client.runs.retrieve(run.id); return r.callback_error && r })
    assert.equal(last.callback_status_code, null)
  } else {
    assert.ok([400, 422].includes(answer.status), answer.text)
  }
  await refused(client.agents.messages.createAsync(agent.id, { messages: [user('x')], callback_url: 'not a url' }), 422)
})

test('usage is summed over the steps of a stream too', async () => {
  const agent = await makeAgent({ tools: ['conversation_search'] })
  const items = await collect(client.agents.messages.stream(agent.id, { messages: [user('CALL conversation_search {"query":"x"}\nTHEN USAGE prompt=500\nSAY done')] }))
  const [usage] = of(items, 'usage_statistics')
  assert.equal(usage.prompt_tokens, 600)
  assert.equal(usage.step_count, 2)
  assert.equal(reasonOf(items), 'end_turn')
  assert.equal((await client.runs.usage.retrieve(items[0].run_id)).prompt_tokens, 600)
})
