// The four tools for memory.
import assert from 'node:assert/strict'
import { everywhere, unique } from './lib.mjs'

everywhere('a memory is saved, found, read and deleted', async door => {
  const { id, name } = await door.agent('rememberer')
  const text = '---\nThe grey cat sleeps\n---\non the *oven* — 猫 since café.\n\tTabs stay.'
  const saved = await door.get('memory_save', { agent_id: name, text, tags: ['cat', 'house'] })
  assert.deepEqual([saved.saved, saved.agent_id, saved.agent_name, saved.created], [true, id, name, true])
  assert.match(saved.id, /^mem-[0-9a-f]{16}$/)
  assert.match(saved.path, /^saved\/[0-9a-f]{2}\/[a-z0-9-]+--[0-9a-f]{16}\.md$/)
  assert.match(saved.commit, /^[0-9a-f]{40}$/)
  assert.ok(saved.detail.includes(saved.path) && saved.detail.includes(saved.id), saved.detail)

  const again = await door.get('memory_save', { agent_id: id, text, tags: ['oven'] })
  assert.deepEqual([again.created, again.path, again.tags], [false, saved.path, ['cat', 'house', 'oven']])
  const same = await door.get('memory_save', { agent_id: id, text })
  assert.equal(same.commit, again.commit, 'a commit for nothing')

  const ask = { agent_id: id, query: 'Where does that cat like to sleep?' }
  const found = await door.get('memory_search', ask)
  assert.deepEqual(found, await door.get('memory_search', ask))
  assert.deepEqual([found.query, found.results.length, found.results[0].path, found.results[0].id], [ask.query, 1, saved.path, saved.id])
  assert.deepEqual(found.results[0].tags, ['cat', 'house', 'oven'])
  assert.ok(found.answer.includes(saved.path))
  for (const query of ['CAFE', '猫', 'slep gray ovne']) {
    assert.equal((await door.get('memory_search', { agent_id: id, query })).results.length, 1, query)
  }
  const nothing = await door.get('memory_search', { agent_id: id, query: 'xylophone', top_k: 20 })
  assert.deepEqual([nothing.answer, nothing.results, nothing.top_k], ['No matching memory.', [], 20])

  const { contents } = await door.client.readResource({ uri: found.results[0].uri })
  assert.ok(contents[0].text.endsWith(text), 'the text does not survive')
  const memory = await door.get('memory_get', { agent_id: id })
  assert.deepEqual([memory.commit, memory.files.map(file => file.path)], [same.commit, [saved.path]])

  const gone = await door.get('memory_delete', { agent_id: id, id: saved.id })
  assert.deepEqual([gone.deleted, gone.ref, gone.path], [true, saved.id, saved.path])
  assert.ok(gone.detail.length > 10)
  await door.refused('memory_item_not_found', 'memory_delete', { agent_id: id, id: saved.id })
  assert.deepEqual((await door.get('memory_search', ask)).results, [])
})

everywhere('blocks and items of lists are deleted by what they say', async door => {
  const { id } = await door.agent('forgetter', { persona: 'I forget.', human: '- likes tea\n- likes coffee\n- owns a boat' })
  await door.refused('memory_item_ambiguous', 'memory_delete', { agent_id: id, id: 'likes' })
  await door.get('memory_delete', { agent_id: id, id: 'Likes TEA' })
  await door.get('memory_delete', { agent_id: id, id: 'persona' })
  const { blocks } = await door.get('memory_get', { agent_id: id })
  assert.deepEqual(blocks.map(block => [block.label, block.value.trim()]), [['human', '- likes coffee\n- owns a boat']])
})

everywhere('saves at once are all kept', async door => {
  const { id } = await door.agent('busy')
  const texts = Array.from({ length: 12 }, (_, i) => `fact number ${i % 6}`)
  const saved = await Promise.all(texts.map((text, i) => door.get('memory_save', { agent_id: id, text, tags: [`t${i}`] })))
  assert.equal(new Set(saved.map(one => one.path)).size, 6)
  const { files } = await door.get('memory_get', { agent_id: id })
  assert.equal(files.length, 6)
  const { results } = await door.get('memory_search', { agent_id: id, query: 'fact', top_k: 20 })
  assert.deepEqual(results.flatMap(one => one.tags).sort(), texts.map((_, i) => `t${i}`).sort())
})

everywhere('bad arguments for memory are refused', async door => {
  const { id } = await door.agent()
  for (const [tool, args, word] of [
    ['memory_save', { agent_id: id }, 'text'],
    ['memory_save', { agent_id: id, text: ' \n\t' }, 'text'],
    ['memory_save', { agent_id: id, text: 'x'.repeat(65537) }, 'text'],
    ['memory_save', { agent_id: id, text: 'x', tags: [''] }, 'tags'],
    ['memory_save', { agent_id: id, text: 'x', path: 'system/x.md' }, 'path'],
    ['memory_search', { agent_id: id, query: '' }, 'query'],
    ['memory_search', { agent_id: id, query: 'x'.repeat(2001) }, 'query'],
    ['memory_search', { agent_id: id, query: 'x', top_k: 21 }, 'top_k'],
    ['memory_search', { agent_id: id, query: 'x', top_k: 'many' }, 'top_k'],
    ['memory_get', {}, 'agent_id'],
    ['memory_get', { agent_id: id, deep: true }, 'deep'],
    ['memory_delete', { agent_id: id }, 'id'],
    ['memory_delete', { agent_id: id, id: '../../etc/passwd' }, 'memory'],
    ['memory_delete', { agent_id: id, id: '/etc/passwd' }, 'memory'],
    ['memory_delete', { agent_id: id, id: '.git/config' }, 'memory'],
  ]) {
    assert.ok((await door.refused('invalid_request', tool, args)).includes(word), `${tool} does not name ${word}`)
  }
  for (const [tool, more] of [['memory_save', { text: 'x' }], ['memory_search', { query: 'x' }], ['memory_get', {}], ['memory_delete', { id: 'x' }]]) {
    await door.refused('agent_not_found', tool, { agent_id: unique('nobody'), ...more })
  }
})
