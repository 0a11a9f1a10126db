// Lists and search: `letta agents` and `letta messages`.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { Person } from './lib.mjs'

test('agents are made and listed', async () => {
  const person = await Person.create()
  const name = `Lister ${randomUUID()}`
  const made = await person.json('agents', 'create', '--name', name, '--tags', 'red,green')
  assert.equal(made.name, name)
  for (const args of [['--query', name], ['--tags', 'red', '--query', name], ['--query', name, '--include-blocks']]) {
    const listed = await person.json('agents', 'list', ...args)
    assert.deepEqual(listed.body.map(a => a.id), [made.id], args.join(' '))
  }
  const all = await person.json('agents', 'list')
  assert.ok(all.body.some(a => a.id === made.id))
})

test('messages of a conversation are listed in pages and as a transcript', async () => {
  const person = await Person.create()
  const { agent_id, conversation_id } = await person.say('SAY answer 0', '--new-agent')
  for (const i of [1, 2]) await person.say(`SAY answer ${i}`, '--conversation', conversation_id)
  const listed = await person.json('messages', 'list', '--conversation', conversation_id)
  const texts = listed.filter(m => m.message_type === 'assistant_message').map(m => m.content)
  assert.deepEqual(texts.toSorted(), ['answer 0', 'answer 1', 'answer 2'])
  const newest = await person.json('messages', 'list', '--conversation', conversation_id, '--limit', '2')
  assert.equal(newest.length, 2)
  assert.ok(newest.some(m => m.content === 'answer 2'), 'the newest come first')
  const before = await person.json('messages', 'list', '--conversation', conversation_id, '--limit', '2', '--before', newest.map(m => m.id).find(id => id !== newest.find(m => m.content === 'answer 2').id))
  assert.ok(before.some(m => m.content === 'answer 1'), JSON.stringify(before.map(m => m.content)))
  const { transcript, message_count } = await person.json('messages', 'transcript', '--conversation', conversation_id)
  assert.ok(message_count >= 6, `${message_count} messages`)
  for (const text of ['answer 0', 'answer 1', 'answer 2']) assert.ok(transcript.includes(text), text)
  const direct = await person.json('messages', 'list', '--agent', agent_id)
  assert.deepEqual(direct.filter(m => m.message_type === 'assistant_message'), [], 'that was the default conversation')
})

test('messages are found by their words', async () => {
  const person = await Person.create()
  const word = `zebra${randomUUID().slice(0, 8)}`
  const { agent_id } = await person.say(`SAY a ${word} sleeps`, '--new-agent')
  const found = await person.json('messages', 'search', '--query', word, '--agent', agent_id)
  assert.ok(found.some(f => f.message_type === 'assistant_message' && f.content === `a ${word} sleeps`), JSON.stringify(found).slice(0, 500))
  assert.ok(found.every(f => f.message_id && f.agent_id === agent_id))
  assert.deepEqual(await person.json('messages', 'search', '--query', `no${word}`, '--agent', agent_id), [])
})
