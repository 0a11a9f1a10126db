// Agents: create, show, change, list, delete, recompile.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { all, client, collect, given, makeAgent, nobody, of, randomUUID, raw, reasonOf, refused, say, textOf, user } from './lib.mjs'

const id = prefix => new RegExp(`^${prefix}-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
const stamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/

test('a new agent has all that was asked for', async () => {
  const agent = await client.agents.create({
    name: "Ada O'Neil-Ünlü", model: given.MNEME_MODEL, description: 'counts', system: 'You count.', tags: ['b', 'a'], metadata: { deep: { n: 1 } },
    memory_blocks: [{ label: 'persona', value: 'a counter', description: 'who', limit: 200 }, { label: 'human', value: '' }],
    timezone: 'Europe/Berlin', context_window_limit: 20_000, model_settings: { provider_type: 'openai', parallel_tool_calls: true },
    compaction_settings: { mode: 'all' }, tool_rules: [{ type: 'requires_approval', tool_name: 'memory_insert' }], secrets: { KEY: 'hidden' },
  })
  assert.match(agent.id, id('agent'))
  assert.equal(agent.name, "Ada O'Neil-Ünlü")
  assert.equal(agent.agent_type, 'letta_v1_agent')
  assert.equal(agent.model, given.MNEME_MODEL)
  assert.equal(agent.llm_config.handle, given.MNEME_MODEL)
  assert.equal(agent.llm_config.context_window, 20_000)
  assert.equal(agent.llm_config.model, 'mock-1')
  assert.equal(agent.description, 'counts')
  assert.equal(agent.system, 'You count.')
  assert.deepEqual(agent.tags.toSorted(), ['a', 'b'])
  assert.deepEqual(agent.metadata, { deep: { n: 1 } })
  assert.equal(agent.timezone, 'Europe/Berlin')
  assert.equal(agent.compaction_settings.mode, 'all')
  assert.deepEqual(agent.blocks.map(b => [b.label, b.value, b.limit]).toSorted(), [['human', '', 100000], ['persona', 'a counter', 200]])
  assert.deepEqual(agent.memory.blocks.map(b => b.id).toSorted(), agent.blocks.map(b => b.id).toSorted())
  assert.deepEqual(agent.tools.map(t => t.name).toSorted(), ['conversation_search', 'memory_insert', 'memory_replace'])
  assert.ok(agent.tool_rules.some(r => r.type === 'requires_approval' && r.tool_name === 'memory_insert'))
  assert.equal(agent.message_ids.length, 1)
  assert.match(agent.message_ids[0], id('message'))
  assert.match(agent.created_at, stamp)
  assert.match(agent.updated_at, stamp)
  for (const field of ['embedding', 'response_format', 'project_id', 'template_id', 'pending_approval', 'last_run_completion',
    'last_stop_reason', 'multi_agent_group', 'managed_group', 'identities', 'identity_ids', 'sources', 'hidden']) {
    assert.ok(field in agent, `${field} is missing`)
  }
})

test('an agent that asks for nothing gets defaults', async () => {
  const agent = await client.agents.create({})
  assert.match(agent.name, /\S/)
  assert.equal(agent.agent_type, 'letta_v1_agent')
  assert.equal(agent.timezone, 'UTC')
  assert.match(agent.system, /\S/)
  assert.deepEqual(agent.tools.map(t => t.name).toSorted(), ['conversation_search', 'memory_insert', 'memory_replace'])
})

test('names of models that mean the default are taken', async () => {
  for (const model of ['auto', 'local/default', 'letta/auto']) {
    assert.match((await client.agents.create({ model })).model, /\//)
  }
})

test('built-in tools exist by name', async () => {
  const tools = ['web_search', 'fetch_webpage', 'memory', 'run_code', 'send_message', 'archival_memory_search']
  const agent = await makeAgent({ tools })
  assert.deepEqual(agent.tools.map(t => t.name).toSorted(), tools.toSorted())
  for (const tool of agent.tools) assert.match(tool.id, id('tool'))
})

test('bad new agents are refused', async () => {
  await refused(makeAgent({ name: 'no/slash' }), 422)
  await refused(makeAgent({ name: 'no<angle>' }), 422)
  await refused(makeAgent({ model: 'nothing' }), 400)
  await refused(makeAgent({ model: 'lmstudio/nothing' }), 404, /NOT_FOUND: Handle lmstudio\/nothing not found, must be one of/)
  await refused(makeAgent({ tools: ['no_such_tool'] }), 400, /Tools not found by name/)
  await refused(makeAgent({ memory_blocks: [{ label: 'a', value: '1' }, { label: 'a', value: '2' }] }), 409)
  await refused(makeAgent({ memory_blocks: [{ label: '../up', value: '1' }] }), 422)
  await refused(makeAgent({ memory_blocks: [{ label: 'a', value: 'xxxxx', limit: 4 }] }), 400)
  await refused(makeAgent({ block_ids: [nobody.block] }), 404)
  await refused(makeAgent({ tags: 'not a list' }), 422)
  const error = await refused(makeAgent({ memory_blocks: [{ label: 5 }] }), 422, /memory_blocks/)
  assert.equal(typeof error.error.detail, 'string')
})

test('an agent is shown with what is asked for', async () => {
  const made = await makeAgent({ tags: ['t'], memory_blocks: [{ label: 'persona', value: 'x' }], include_base_tools: true })
  const bare = await client.agents.retrieve(made.id)
  assert.equal(bare.id, made.id)
  assert.deepEqual([bare.tags, bare.blocks, bare.tools, bare.memory.blocks], [[], [], [], []])
  const full = await client.agents.retrieve(made.id, { include: ['agent.tags', 'agent.blocks', 'agent.tools'] })
  assert.deepEqual(full.tags, ['t'])
  assert.deepEqual(full.blocks.map(b => b.label), ['persona'])
  assert.equal(full.tools.length, 3)
  const old = await client.agents.retrieve(made.id, { include_relationships: ['tags', 'memory', 'tools'] })
  assert.deepEqual(old.tags, ['t'])
  assert.deepEqual(old.memory.blocks.map(b => b.label), ['persona'])
})

test('unknown and malformed ids are told apart', async () => {
  const unknown = await refused(client.agents.retrieve(nobody.agent), 404)
  assert.deepEqual(unknown.error, { detail: 'Agent not found' })
  const malformed = await refused(client.agents.retrieve('agent-1'), 422)
  assert.equal(typeof malformed.error.detail, 'string')
  assert.equal(malformed.error.trace_id, '')
  assert.match(malformed.error.examples[0], id('agent'))
  await refused(client.agents.update(nobody.agent, { name: 'x' }), 404)
  await refused(client.agents.delete(nobody.agent), 404)
  await refused(client.agents.recompile(nobody.agent), 404)
})

test('a change touches what it names, and null clears', async () => {
  const agent = await makeAgent({ description: 'old', tags: ['old'], metadata: { a: 1 } })
  const renamed = await client.agents.update(agent.id, { name: 'new name', tags: ['new', 'er'] })
  assert.equal(renamed.name, 'new name')
  assert.deepEqual(renamed.tags.toSorted(), ['er', 'new'])
  assert.equal(renamed.description, 'old')
  assert.deepEqual(renamed.metadata, { a: 1 })
  const cleared = await client.agents.update(agent.id, { description: null })
  assert.equal(cleared.description, null)
  assert.equal(cleared.name, 'new name')
  assert.deepEqual(cleared.tags.toSorted(), ['er', 'new'])
  await refused(client.agents.update(agent.id, { name: 'no/slash' }), 422)
  await refused(client.agents.update(agent.id, { model: 'lmstudio/nothing' }), 404)
})

test('the model and the system text of an agent can be changed', async () => {
  const agent = await makeAgent({ system: 'Old text.' })
  await say(agent, 'SAY a')
  const changed = await client.agents.update(agent.id, { model: 'lmstudio/mock-2', system: 'New text.' })
  assert.equal(changed.model, 'lmstudio/mock-2')
  assert.equal(changed.llm_config.handle, 'lmstudio/mock-2')
  const dump = JSON.parse(textOf((await say(agent, 'DUMP_REQUEST')).messages))
  assert.equal(dump.model, 'mock-2')
  const after = await client.agents.retrieve(agent.id)
  const [system] = await client.messages.retrieve(after.message_ids[0])
  assert.match(system.content, /New text\./)
})

test('lists find agents by name, text and tags, and page', async () => {
  const key = randomUUID().slice(0, 8)
  const made = []
  for (const i of [0, 1, 2, 3, 4]) made.push(await makeAgent({ name: `Lister ${key} ${i}`, tags: [key, `n${i % 2}-${key}`] }))
  await makeAgent({ name: `Lister ${key} hidden`, tags: [key], hidden: true })
  const ids = made.map(a => a.id)
  const listed = async query => (await client.agents.list(query)).items.map(a => a.id)
  assert.deepEqual(await listed({ tags: [key] }), ids.toReversed(), 'newest first')
  assert.deepEqual(await listed({ tags: [key], order: 'asc' }), ids)
  assert.deepEqual(await listed({ name: `Lister ${key} 3` }), [ids[3]])
  assert.deepEqual(await listed({ name: `Lister ${key}` }), [])
  assert.deepEqual(await listed({ query_text: `lister ${key}`, order: 'asc' }), ids)
  assert.deepEqual(await listed({ tags: [`n1-${key}`, `n0-${key}`], match_all_tags: true }), [])
  assert.deepEqual(await listed({ tags: [`n1-${key}`, key], match_all_tags: true, order: 'asc' }), [ids[1], ids[3]])
  assert.deepEqual((await all(client.agents.list({ tags: [key], limit: 2 }))).map(a => a.id), ids.toReversed())
  assert.deepEqual((await all(client.agents.list({ tags: [key], limit: 2, order: 'asc' }))).map(a => a.id), ids)
  assert.deepEqual(await listed({ tags: [key], order: 'asc', before: ids[3], limit: 2 }), [ids[1], ids[2]])
  assert.deepEqual(await listed({ tags: [key], limit: 0 }), [])
  await refused(client.agents.list({ limit: -1 }), 422)
  await refused(client.agents.list({ limit: 1001 }), 422)
  await refused(client.agents.list({ after: nobody.agent }), 404)
})

test('a deleted agent takes its turns with it', async () => {
  const agent = await makeAgent()
  const conversation = await client.conversations.create({ agent_id: agent.id })
  const stream = await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 50\nTOKENS 2000')], stream_tokens: true, background: true })
  const items = []
  let deleted
  for await (const item of stream) {
    items.push(item)
    if (of(items, 'assistant_message').length === 3 && !deleted) deleted = client.agents.delete(agent.id)
  }
  assert.deepEqual(await deleted, { message: `Agent id=${agent.id} successfully deleted` })
  assert.ok(of(items, 'assistant_message').length < 1000, 'the turn went on')
  assert.equal(of(items, 'stop_reason').length <= 1, true)
  if (reasonOf(items)) assert.equal(reasonOf(items), 'cancelled')
  for (const call of [
    () => client.agents.retrieve(agent.id), () => client.agents.delete(agent.id), () => client.agents.messages.list(agent.id),
    () => say(agent, 'x'), () => client.agents.blocks.list(agent.id), () => client.agents.messages.reset(agent.id, {}),
    () => client.agents.messages.compact(agent.id), () => client.agents.messages.cancel(agent.id),
    () => client.conversations.retrieve(conversation.id),
  ]) await refused(call(), 404)
  const again = (await client.agents.list({ limit: 100 })).items.map(a => a.id)
  assert.ok(!again.includes(agent.id))
})

test('recompile answers with the system text', async () => {
  const agent = await makeAgent({ system: 'Base text.', memory_blocks: [{ label: 'persona', value: 'first' }] })
  const before = await client.agents.recompile(agent.id, { dry_run: true })
  assert.equal(typeof before, 'string')
  assert.match(before, /Base text\./)
  assert.match(before, new RegExp(agent.id))
  await client.agents.blocks.update('persona', { agent_id: agent.id, value: 'second' })
  assert.match(await client.agents.recompile(agent.id), /second/)
  const [system] = (await client.agents.messages.list(agent.id, { conversation_id: 'default', order: 'desc', limit: 1 })).items
  assert.equal(system.message_type, 'system_message')
  assert.match(system.content, /second/)
})

test('an answer to nobody is 404 before its body is looked at', async () => {
  await refused(say({ id: nobody.agent }, 'x'), 404)
  assert.deepEqual((await raw('POST', `/v1/agents/${nobody.agent}/messages`, { messages: [user('x')] })).json, { detail: 'Agent not found' })
  await refused(client.agents.messages.stream(nobody.agent, { messages: [user('x')] }).then(collect), 404)
})
