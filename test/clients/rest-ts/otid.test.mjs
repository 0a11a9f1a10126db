// Sends that come twice run once.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Letta, client, collect, connect, given, makeAgent, makeConversation, numbered, of, randomUUID, recorded, refused, sleep, textOf, user } from './lib.mjs'

const once = (content, more = {}) => ({ messages: [user(content, { otid: randomUUID() })], ...more })

const usersOf = async agent => of((await client.agents.messages.list(agent.id)).items, 'user_message')

test('a finished foreground send is answered again', async () => {
  const agent = await makeAgent()
  const body = once('SAY one')
  const first = await client.agents.messages.create(agent.id, body)
  const second = await client.agents.messages.create(agent.id, body)
  assert.deepEqual(second, first)
  const streamed = await collect(client.agents.messages.stream(agent.id, body))
  assert.equal(textOf(streamed), 'one')
  assert.equal((await usersOf(agent)).length, 1)
  assert.equal((await client.runs.list({ agent_id: agent.id })).items.length, 1)
})

test('a running send is joined', async () => {
  const agent = await makeAgent()
  const body = once('SLOW 10\nTOKENS 40')
  const answers = await Promise.all([0, 1, 2].map(async i => { await sleep(i * 60); return client.agents.messages.create(agent.id, body) }))
  for (const answer of answers) assert.equal(textOf(answer.messages), numbered(40))
  assert.equal(new Set(answers.map(a => a.messages[0].id)).size, 1)
  assert.equal((await usersOf(agent)).length, 1)
})

test('sends under one otid at the same moment run once', async () => {
  const { agent, conversation } = await makeConversation()
  for (let round = 0; round < 5; round++) {
    const body = once(`SLOW 2\nTOKENS ${10 + round}`, { background: true })
    const all = await Promise.all([0, 1, 2, 3, 4, 5].map(() => collect(client.conversations.messages.create(conversation.id, body))))
    for (const items of all) assert.equal(textOf(items), numbered(10 + round))
    assert.equal(new Set(all.map(items => items[0].run_id)).size, 1)
  }
  assert.equal((await usersOf(agent)).length, 5)
})

test('a background send is shown from its beginning, also when finished', async () => {
  const { conversation } = await makeConversation()
  const body = once('TOKENS 20', { background: true, stream_tokens: true })
  const first = await collect(client.conversations.messages.create(conversation.id, body))
  await collect(client.conversations.messages.create(conversation.id, once('SAY between')))
  const second = await collect(client.conversations.messages.create(conversation.id, body))
  assert.deepEqual(second, first)
})

test('an async send answers with its run', async () => {
  const agent = await makeAgent()
  const body = once('SLOW 5\nTOKENS 20')
  const first = await client.agents.messages.createAsync(agent.id, body)
  const second = await client.agents.messages.createAsync(agent.id, body)
  assert.equal(second.id, first.id)
  assert.equal((await client.runs.list({ agent_id: agent.id })).items.length, 1)
})

test('an otid with another body is a conflict that is not retried', async () => {
  const agent = await makeAgent()
  const otid = randomUUID()
  await client.agents.messages.create(agent.id, { messages: [user('SAY a', { otid })] })
  for (const send of [
    () => client.agents.messages.create(agent.id, { messages: [user('SAY b', { otid })] }),
    () => client.agents.messages.create(agent.id, { messages: [user('SAY a', { otid }), user('more', { otid: randomUUID() })] }),
    () => client.agents.messages.createAsync(agent.id, { messages: [user('SAY b', { otid })] }),
    () => client.agents.messages.stream(agent.id, { messages: [user('SAY b', { otid })] }).then(collect),
  ]) {
    const error = await refused(send(), 409, /CONFLICT: /)
    assert.equal(error.headers.get('x-should-retry'), 'false')
  }
  assert.equal((await usersOf(agent)).length, 1)
})

test('keys count per conversation', async () => {
  const agent = await makeAgent()
  const body = once('SAY here')
  for (let i = 0; i < 2; i++) {
    const conversation = await client.conversations.create({ agent_id: agent.id })
    assert.equal(textOf(await collect(client.conversations.messages.create(conversation.id, body))), 'here')
  }
  assert.equal((await usersOf(agent)).length, 2)
})

test('a client that runs out of patience retries, and the turn runs once', async () => {
  const agent = await makeAgent()
  let requests = 0
  const hasty = connect(given.MNEME_HTTP_URL, { timeout: 300, maxRetries: 5, fetch: (url, init) => { requests++; return recorded(url, init) } })
  const answer = await hasty.agents.messages.create(agent.id, once('WAIT 700\nSAY patience'))
  assert.equal(textOf(answer.messages), 'patience')
  assert.ok(requests > 1, 'it did not run out of patience')
  assert.equal((await usersOf(agent)).length, 1)
  assert.equal(of((await client.agents.messages.list(agent.id)).items, 'assistant_message').length, 1)
})

test('a client with its usual retries does not repeat what is refused for good', async () => {
  const { agent, conversation } = await makeConversation()
  let requests = 0
  const usual = new Letta({ baseURL: given.MNEME_HTTP_URL, apiKey: null, fetch: (url, init) => { requests++; return recorded(url, init) } })
  const counted = async call => { requests = 0; await assert.rejects(call(), Letta.APIError); return requests }
  assert.equal(await counted(() => usual.agents.messages.cancel(agent.id)), 1)
  assert.equal(await counted(() => usual.agents.messages.create(agent.id, { messages: [user('ERROR 400')] })), 1)
  const running = await client.conversations.messages.create(conversation.id, { messages: [user('SLOW 10\nTOKENS 60')], stream_tokens: true })
  let busy
  for await (const item of running) if (item.message_type === 'assistant_message') busy ??= await counted(() => usual.conversations.messages.create(conversation.id, { messages: [user('x')] }))
  assert.equal(busy, 1)
})
