// Blocks by themselves and as the memory of agents.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { all, client, makeAgent, nobody, randomUUID, raw, refused, say, textOf } from './lib.mjs'

const labels = page => page.items.map(b => b.label)

test('a block is made, shown, changed and deleted', async () => {
  const made = await client.blocks.create({ label: 'notes', value: 'one', description: 'd', metadata: { a: 1 }, tags: ['t'] })
  assert.match(made.id, /^block-/)
  assert.deepEqual([made.label, made.value, made.limit, made.description, made.read_only], ['notes', 'one', 100000, 'd', false])
  for (const field of ['is_template', 'template_name', 'hidden', 'project_id', 'created_by_id', 'last_updated_by_id', 'preserve_on_migration']) {
    assert.ok(field in made, `${field} is missing`)
  }
  assert.deepEqual(await client.blocks.retrieve(made.id), made)
  const changed = await client.blocks.update(made.id, { value: 'two' })
  assert.deepEqual([changed.value, changed.description, changed.metadata], ['two', 'd', { a: 1 }])
  assert.equal((await client.blocks.update(made.id, { description: null })).description, null)
  assert.equal(await client.blocks.delete(made.id), null)
  await refused(client.blocks.retrieve(made.id), 404)
  await refused(client.blocks.delete(made.id), 404)
  await refused(client.blocks.update(made.id, { value: 'x' }), 404)
})

test('values keep what they are, up to the limit', async () => {
  const odd = 'né 😀 \u2028 שלום \t end'
  assert.equal((await client.blocks.create({ label: 'odd', value: odd })).value, odd)
  assert.equal((await client.blocks.create({ label: 'nul', value: 'a\0b' })).value, 'ab')
  assert.equal((await client.blocks.create({ label: 'empty', value: null })).value, '')
  await refused(client.blocks.create({ label: 'long', value: 'x'.repeat(100_001) }), 400)
  const small = await client.blocks.create({ label: 'small', value: '😀😀', limit: 3 })
  await refused(client.blocks.update(small.id, { value: '😀😀😀😀' }), 400)
  assert.equal((await client.blocks.update(small.id, { value: '😀😀😀' })).value, '😀😀😀')
})

test('bad blocks are refused', async () => {
  await refused(client.blocks.create({ value: 'x' }), 422)
  await refused(client.blocks.create({ label: '', value: 'x' }), 422)
  await refused(client.blocks.create({ label: '../up', value: 'x' }), 422)
  await refused(client.blocks.retrieve('block-1'), 422)
  await refused(client.blocks.list({ limit: -1 }), 422)
})

test('blocks are listed oldest first, filtered and paged', async () => {
  const key = randomUUID().slice(0, 8)
  const made = []
  for (const i of [0, 1, 2, 3, 4]) made.push(await client.blocks.create({ label: `l${i % 2}-${key}`, value: `value ${i} ${key}`, tags: [key, `t${i}`], description: `about ${i} ${key}` }))
  const ids = made.map(b => b.id)
  const listed = async query => (await client.blocks.list(query)).items.map(b => b.id)
  assert.deepEqual(await listed({ tags: [key] }), ids)
  assert.deepEqual(await listed({ tags: [key], order: 'desc' }), ids.toReversed())
  assert.deepEqual(await listed({ label: `l1-${key}` }), [ids[1], ids[3]])
  assert.deepEqual(await listed({ value_search: `VALUE 2 ${key}` }), [ids[2]])
  assert.deepEqual(await listed({ description_search: `about 3 ${key}` }), [ids[3]])
  assert.deepEqual(await listed({ label_search: `l0-${key}` }), [ids[0], ids[2], ids[4]])
  assert.deepEqual(await listed({ tags: [key, 't2'], match_all_tags: true }), [ids[2]])
  assert.deepEqual((await all(client.blocks.list({ tags: [key], limit: 2 }))).map(b => b.id), ids)
  assert.deepEqual(await listed({ tags: [key], connected_to_agents_count_gt: 0 }), [])
  await refused(client.blocks.list({ after: nobody.block }), 404)
})

test('a shared block shows its change in every agent', async () => {
  const block = await client.blocks.create({ label: 'shared', value: 'old' })
  const one = await makeAgent({ block_ids: [block.id] })
  const two = await makeAgent()
  const attached = await client.agents.blocks.attach(block.id, { agent_id: two.id })
  assert.deepEqual(attached.blocks.map(b => b.id), [block.id])
  await client.agents.blocks.update('shared', { agent_id: one.id, value: 'new' })
  assert.equal((await client.agents.blocks.retrieve('shared', { agent_id: two.id })).value, 'new')
  assert.equal((await client.blocks.retrieve(block.id)).value, 'new')
  await client.blocks.update(block.id, { value: 'newest' })
  assert.equal((await client.agents.blocks.retrieve('shared', { agent_id: one.id })).value, 'newest')
  const agents = (await all(client.blocks.agents.list(block.id))).map(a => a.id)
  assert.deepEqual(agents.toSorted(), [one.id, two.id].toSorted())
  const detached = await client.agents.blocks.detach(block.id, { agent_id: one.id })
  assert.deepEqual(detached.blocks, [])
  await refused(client.agents.blocks.retrieve('shared', { agent_id: one.id }), 404)
  assert.equal(await client.blocks.delete(block.id), null)
  assert.deepEqual((await client.agents.blocks.list(two.id)).items, [])
})

test('the blocks of an agent are its memory', async () => {
  const agent = await makeAgent({ memory_blocks: [{ label: 'persona', value: 'p' }, { label: 'people/ada', value: 'a' }] })
  assert.deepEqual(labels(await client.agents.blocks.list(agent.id)).toSorted(), ['people/ada', 'persona'])
  assert.equal((await client.agents.blocks.retrieve('people/ada', { agent_id: agent.id })).value, 'a')
  assert.equal((await client.agents.blocks.update('people/ada', { agent_id: agent.id, value: 'b' })).value, 'b')
  await refused(client.agents.blocks.retrieve('nobody', { agent_id: agent.id }), 404)
  await refused(client.agents.blocks.update('nobody', { agent_id: agent.id, value: 'x' }), 404)
  await refused(client.agents.blocks.update('persona', { agent_id: agent.id, value: 'x'.repeat(100_001) }), 400)
  await refused(client.agents.blocks.list(nobody.agent), 404)
  await refused(client.agents.blocks.attach(nobody.block, { agent_id: agent.id }), 404)
  await refused(client.agents.blocks.detach(nobody.block, { agent_id: agent.id }), 404)
  await refused(client.blocks.agents.list(nobody.block), 404)
})

test('a second block of one label is a conflict', async () => {
  const block = await client.blocks.create({ label: 'persona', value: 'other' })
  const agent = await makeAgent({ memory_blocks: [{ label: 'persona', value: 'mine' }] })
  const error = await refused(client.agents.blocks.attach(block.id, { agent_id: agent.id }), 409)
  assert.equal(typeof error.error.detail, 'string')
})

test('what the memory tools write is seen in the blocks', async () => {
  const agent = await makeAgent({ tools: ['memory_insert', 'memory_replace'], memory_blocks: [{ label: 'human', value: 'likes tea' }] })
  const turn = await say(agent, 'CALL memory_replace {"label":"human","old_string":"tea","new_string":"coffee"}\nTHEN SAY noted')
  assert.equal(textOf(turn.messages), 'noted')
  assert.equal((await client.agents.blocks.retrieve('human', { agent_id: agent.id })).value, 'likes coffee')
})

test('a label with a slash is taken escaped', async () => {
  const agent = await makeAgent({ memory_blocks: [{ label: 'a/b', value: '1' }] })
  const answer = await raw('GET', `/v1/agents/${agent.id}/core-memory/blocks/a%2Fb`)
  assert.equal(answer.json.value, '1')
})
