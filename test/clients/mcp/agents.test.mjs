// The six tools for agents.
import assert from 'node:assert/strict'
import { everywhere, unique } from './lib.mjs'

everywhere('an agent is made, read, changed and deleted', async door => {
  const name = unique('Vole')
  const made = await door.get('agent_create', {
    name, description: 'digs', persona: 'I dig.', human: 'Owns a garden.', model: 'lmstudio/mock-1', tags: ['small', 'grey'],
  })
  assert.equal(made.agent_name, name)
  assert.match(made.agent_id, /^agent-/)
  const got = await door.get('agent_get', { agent_id: name.toUpperCase() })
  assert.deepEqual([got.agent_id, got.agent_name, got.description, got.model], [made.agent_id, name, 'digs', 'lmstudio/mock-1'])
  const { blocks } = await door.get('memory_get', { agent_id: made.agent_id })
  assert.deepEqual(blocks.map(block => [block.label, block.value]), [['human', 'Owns a garden.'], ['persona', 'I dig.']])

  const other = unique('Mole')
  const changed = await door.get('agent_update', { agent_id: name, name: other, description: null, tags: ['black'], contextWindowLimit: 20000 })
  assert.deepEqual([changed.agent_id, changed.agent_name], [made.agent_id, other])
  assert.ok(changed.tags.includes('black') && !changed.tags.includes('grey'), `tags ${changed.tags}`)
  assert.ok(!changed.description)
  assert.match(await door.refused('agent_not_found', 'agent_get', { agent_id: name }), /no agent/)

  for (const confirm of ['true', 1, null, undefined, false]) {
    await door.refused('confirmation_required', 'agent_delete', { agent_id: other, confirm })
  }
  await door.get('agent_get', { agent_id: other }) // nothing was touched
  assert.deepEqual(await door.get('agent_delete', { agent_id: other, confirm: true }), { deleted: true, agent_id: made.agent_id, agent_name: other })
  for (const tool of ['agent_get', 'memory_get']) await door.refused('agent_not_found', tool, { agent_id: made.agent_id })
  await door.refused('agent_not_found', 'agent_delete', { agent_id: made.agent_id, confirm: true })
})

everywhere('agents are listed and looked up', async door => {
  const tag = unique('tag').slice(0, 40)
  const made = []
  for (const name of ['a', 'b', 'c']) {
    made.push(await door.agent(name, { tags: [tag, name === 'b' ? 'odd' : 'even'], description: `${tag} ${name}` }))
    await new Promise(resolve => setTimeout(resolve, 5)) // times on the wire have milliseconds
  }
  const names = async args => (await door.get('agent_list', { tags: [tag], ...args })).map(agent => agent.agent_name)
  const order = made.map(agent => agent.name)
  assert.deepEqual(await names({ order: 'asc' }), order)
  assert.deepEqual(await names({}), order.toReversed())
  assert.deepEqual(await names({ tags: [tag, 'even'], limit: 1 }), [order[2]])
  assert.deepEqual(await names({ name: order[1].toUpperCase() }), [order[1]])
  assert.deepEqual(await names({ query: `${tag} C`.toUpperCase() }), [order[2]])
  assert.deepEqual(await names({ query: made[0].id }), [order[0]])
  assert.deepEqual(await names({ query: '', name: null, order: '', limit: '2' }), order.toReversed().slice(0, 2))
  const cut = await door.call('agent_list', { tags: [tag], limit: 2 })
  assert.deepEqual([cut.meta['letta/total'], cut.meta['letta/truncated']], [3, true])
  assert.deepEqual(await door.get('agent_list', { name: 'nobody has this name' }), [])

  const found = await door.get('agent_lookup', { name: order[0].slice(2) })
  assert.deepEqual(found.map(agent => agent.agent_id), [made[0].id])
  assert.deepEqual(Object.keys(found[0]).sort(), ['agent_id', 'model', 'name', 'tags'])
  assert.ok((await door.get('agent_lookup')).length >= 3)
  assert.deepEqual(await door.get('agent_lookup', { name: 'nobody has this name' }), [])
})

everywhere('an agent is found by what people call it', async door => {
  const stem = unique('Dhruba')
  const one = await door.get('agent_create', { name: stem })
  const two = await door.get('agent_create', { name: `${stem}-2` })
  const id = async ref => (await door.get('agent_get', { agent_id: ref })).agent_id
  assert.equal(await id(stem), one.agent_id)
  assert.equal(await id(` ${stem.toLowerCase()} `), one.agent_id)
  assert.equal(await id(`${stem.slice(10)}-2`), two.agent_id)
  const answer = await door.call('agent_get', { agent_id: stem.slice(3) })
  assert.equal(answer.error.code, 'agent_ambiguous')
  assert.ok(answer.error.message.includes(`${stem}-2 (${two.agent_id})`), answer.error.message)
  assert.equal(answer.meta['letta/candidates'].length, 2)
  assert.match(await door.refused('agent_not_found', 'agent_get', { agent_id: `${stem}-3` }), /Dhruba/)
})

everywhere('an unknown model is a warning', async door => {
  const made = await door.call('agent_create', { name: unique('x'), model: 'nobody/has-it' })
  assert.ok(made.ok)
  assert.match(JSON.stringify(made.meta['letta/warnings']), /nobody\/has-it/)
})

everywhere('bad arguments for agents are refused', async door => {
  const { id } = await door.agent()
  for (const [tool, args, word] of [
    ['agent_create', { name: 'x'.repeat(201) }, 'name'],
    ['agent_create', { name: 'a\u0007b' }, 'name'],
    ['agent_create', { tags: 'small' }, 'tags'],
    ['agent_create', { tags: Array(33).fill('x').map((x, i) => x + i) }, 'tags'],
    ['agent_create', { persona: 'x'.repeat(65537) }, 'persona'],
    ['agent_create', { colour: 'grey' }, 'colour'],
    ['agent_get', {}, 'agent_id'],
    ['agent_get', { agent_id: ' ' }, 'agent_id'],
    ['agent_get', { agent_id: 7 }, 'agent_id'],
    ['agent_list', { limit: 0 }, 'limit'],
    ['agent_list', { limit: 1001 }, 'limit'],
    ['agent_list', { order: 'sideways' }, 'order'],
    ['agent_lookup', { name: 7 }, 'name'],
    ['agent_lookup', { agent_id: id }, 'agent_id'],
    ['agent_update', { agent_id: id }, 'change'],
    ['agent_update', { agent_id: id, persona: 'x' }, 'creat'],
    ['agent_update', { agent_id: id, human: 'x' }, 'creat'],
    ['agent_update', { agent_id: id, hidden: 'yes' }, 'hidden'],
    ['agent_update', { agent_id: id, contextWindowLimit: 999 }, 'contextWindowLimit'],
    ['agent_update', { agent_id: id, modelSettings: [] , name: 'x', system: 7 }, 'system'],
    ['agent_delete', { agent_id: '', confirm: true }, 'agent_id'],
  ]) {
    assert.ok((await door.refused('invalid_request', tool, args)).includes(word), `${tool} does not name ${word}`)
  }
})
