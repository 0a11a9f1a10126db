// Resources, subscriptions and completion.
import assert from 'node:assert/strict'
import { everywhere, until } from './lib.mjs'

everywhere('agents and their files are resources', async door => {
  const { id, name } = await door.agent('keeper', { human: 'Owns a boat.' })
  const { path } = await door.get('memory_save', { agent_id: id, text: 'the cat is grey' })
  const read = async uri => (await door.client.readResource({ uri })).contents[0]
  assert.ok(JSON.parse((await read('letta://agents')).text).some(agent => agent.agent_id === id))
  const agent = JSON.parse((await read(`letta://agents/${encodeURIComponent(name)}`)).text)
  assert.deepEqual([agent.agent_id, agent.agent_name, agent.system], [id, name, undefined])
  const tree = JSON.parse((await read(`letta://agents/${id}/memory`)).text)
  assert.deepEqual(tree.files.map(file => file.path).sort(), [path, 'system/human.md'].sort())
  const file = await read(`letta://agents/${id}/memory/system/human.md`)
  assert.equal(file.mimeType, 'text/markdown')
  assert.match(file.text, /Owns a boat/)
  assert.equal(JSON.parse((await read(`letta://agents/${id}/history`)).text).commits.length, 2)
  for (const uri of ['letta://agents/nobody', `letta://agents/${id}/memory/nope.md`, `letta://agents/${id}/memory/../x`]) {
    await assert.rejects(read(uri), error => error.code === (door.modern ? -32602 : -32002), uri)
  }
})

everywhere('resources are listed page by page', async door => {
  const { id } = await door.agent('listed', { human: 'Owns a boat.' })
  const uris = []
  for (let cursor, page; page === undefined || cursor; cursor = page.nextCursor) {
    page = await door.client.listResources(cursor ? { cursor } : { cursor: undefined })
    uris.push(...page.resources.map(resource => resource.uri))
  }
  for (const uri of ['letta://agents', `letta://agents/${id}`, `letta://agents/${id}/memory`, `letta://agents/${id}/memory/system/human.md`]) {
    assert.equal(uris.filter(one => one === uri).length, 1, uri)
  }
  const { resourceTemplates } = await door.client.listResourceTemplates()
  assert.ok(resourceTemplates.some(template => template.uriTemplate === 'letta://agents/{agent}/memory/{+path}'))
  await assert.rejects(door.client.listResources({ cursor: 'none of yours' }), error => error.code === -32602)
})

everywhere('subscribers hear of changes', async door => {
  const { id } = await door.agent('watched', { human: 'Owns a boat.' })
  const uri = `letta://agents/${id}/memory`
  let end
  if (door.modern) {
    const subscription = await door.client.listen({ resourceSubscriptions: [uri] })
    end = () => subscription.close()
  } else {
    await door.client.subscribeResource({ uri })
    end = () => door.client.unsubscribeResource({ uri })
  }
  const mark = Date.now()
  await door.get('memory_save', { agent_id: id, text: 'the cat is grey' })
  await until('a notification', () => door.updated.includes(uri))
  assert.ok(Date.now() - mark < 5000)
  assert.deepEqual(new Set(door.updated), new Set([uri]))
  await end()
})

everywhere('names and paths are completed', async door => {
  const { id, name } = await door.agent('Completed')
  const { path } = await door.get('memory_save', { agent_id: id, text: 'the cat is grey' })
  const complete = async (ref, argument, context) => (await door.client.complete({ ref, argument, context })).completion.values
  assert.deepEqual(await complete({ type: 'ref/prompt', name: 'recall' }, { name: 'agent_id', value: name.slice(0, 20).toLowerCase() }), [name])
  const file = { type: 'ref/resource', uri: 'letta://agents/{agent}/memory/{+path}' }
  assert.deepEqual(await complete(file, { name: 'path', value: 'saved' }, { arguments: { agent: name } }), [path])
  assert.deepEqual(await complete(file, { name: 'path', value: 'nope' }, { arguments: { agent: name } }), [])
})
