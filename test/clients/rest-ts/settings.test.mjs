// What depends on settings: callbacks to this machine, how long background runs
// can be resumed, origins of browsers.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { Server, collect, connect, ended, makeAgent, of, randomUUID, raw, refused, sleep, textOf, types, until, user } from './lib.mjs'

/** A server that takes callbacks; answers says with which statuses, the last one for ever. */
const receiver = async (t, ...answers) => {
  const got = []
  const http = createServer((request, response) => {
    let body = ''
    request.on('data', data => { body += data })
    request.on('end', () => {
      got.push({ method: request.method, type: request.headers['content-type'], body: JSON.parse(body) })
      response.writeHead(answers.length > 1 ? answers.shift() : answers[0]).end()
    })
  })
  await new Promise(resolve => http.listen(0, '127.0.0.1', resolve))
  t.after(() => http.close())
  return { got, url: `http://127.0.0.1:${http.address().port}/done` }
}

const callbacks = async t => {
  const server = await Server.create(t, { settings: { 'private-callbacks': 'allow' } })
  const client = connect(server.http)
  const send = async (content, callback_url) => client.agents.messages.createAsync((await makeAgent({}, client)).id, { messages: [user(content)], callback_url })
  const called = run => until('the callback', async () => { const r = await client.runs.retrieve(run.id); return r.callback_sent_at && r })
  return { server, client, send, called }
}

test('a callback is made once the run has ended', async t => {
  const { client, send, called } = await callbacks(t)
  const { got, url } = await receiver(t, 200)
  const run = await send('SAY called back', url)
  assert.equal(run.callback_url, url)
  const done = await called(run)
  assert.deepEqual([done.callback_status_code, done.callback_error], [200, null])
  assert.equal(got.length, 1)
  const [{ method, type, body }] = got
  assert.deepEqual([method, type], ['POST', 'application/json'])
  assert.deepEqual(Object.keys(body).toSorted(), ['completed_at', 'metadata', 'run_id', 'status'])
  assert.deepEqual([body.run_id, body.status], [run.id, 'completed'])
  assert.equal(body.metadata.run_type, 'send_message_async')
  assert.equal(textOf(body.metadata.result.messages), 'called back')
  const failing = await send('ERROR 400', url)
  await called(failing)
  assert.deepEqual([got[1].body.run_id, got[1].body.status], [failing.id, 'failed'])
  assert.equal((await client.runs.retrieve(failing.id)).status, 'failed')
})

test('a callback is tried again, and not where that is no use', async t => {
  const { client, send, called } = await callbacks(t)
  const flaky = await receiver(t, 503, 200)
  const done = await called(await send('SAY x', flaky.url))
  await until('the second try', () => flaky.got.length === 2)
  assert.equal((await until('its success', async () => { const r = await client.runs.retrieve(done.id); return r.callback_status_code === 200 && r })).callback_error, null)
  const deaf = await receiver(t, 404)
  const refused = await called(await send('SAY x', deaf.url))
  assert.equal(refused.callback_status_code, 404)
  assert.equal(refused.status, 'completed')
  await sleep(1500)
  assert.equal(deaf.got.length, 1)
})

test('a callback outlives the server', async t => {
  const { server, send, called } = await callbacks(t)
  const { got, url } = await receiver(t, 503, 200)
  const run = await send('SAY x', url)
  await until('the first try', () => got.length === 1)
  await server.kill()
  await server.start()
  await until('the second try', () => got.length === 2)
  assert.equal(got[1].body.run_id, run.id)
  await called(run)
})

test('what is no longer kept is said to be gone', async t => {
  const server = await Server.create(t, { settings: { 'keep-run-events': '1s' } })
  const client = connect(server.http)
  const agent = await makeAgent({}, client)
  const body = { messages: [user('THINK hm\nSAY short lived', { otid: randomUUID() })], streaming: true, background: true, stream_tokens: true }
  const items = await collect(client.agents.messages.create(agent.id, body))
  const run = items[0].run_id
  await ended(run, client)
  const gone = await until('the end of its time', async () => {
    const answer = await raw('POST', `/v1/runs/${run}/stream`, {}, { url: server.http })
    return answer.status !== 200 && answer
  })
  assert.equal(gone.status, 410)
  assert.match(gone.json.detail, /^EXPIRED: /)
  assert.equal(gone.json.oldest, null)
  await refused(client.runs.messages.stream(run, { starting_after: 2 }).then(collect), 410, /EXPIRED: /)
  const again = await collect(client.agents.messages.create(agent.id, body))
  const said = again.filter(i => !['ping', 'stop_reason', 'usage_statistics'].includes(i.message_type))
  assert.deepEqual(types(said), ['reasoning_message', 'assistant_message'], 'as steps')
  assert.equal(textOf(again), 'short lived')
  const stored = (await client.agents.messages.list(agent.id)).items
  assert.equal(of(stored, 'user_message').length, 1)
  assert.equal(of(stored, 'assistant_message')[0].id, said[1].id)
})

test('browsers of allowed origins are served, others are not', async t => {
  const server = await Server.create(t, { args: ['--allow-origin', 'https://app.example'] })
  const from = (origin, method = 'GET', more = {}) => raw(method, '/v1/agents/', undefined, { url: server.http, headers: { origin, ...more } })
  const allowed = await from('https://app.example')
  assert.equal(allowed.status, 200)
  assert.equal(allowed.headers.get('access-control-allow-origin'), 'https://app.example')
  const preflight = await from('https://app.example', 'OPTIONS', { 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,content-type' })
  assert.ok([200, 204].includes(preflight.status), `${preflight.status}`)
  assert.equal(preflight.headers.get('access-control-allow-origin'), 'https://app.example')
  assert.match(preflight.headers.get('access-control-allow-headers'), /authorization|\*/i)
  const other = await from('https://other.example')
  assert.deepEqual([other.status, other.text], [403, ''])
  const plain = await raw('GET', '/v1/agents/', undefined, { url: server.http })
  assert.equal(plain.headers.get('access-control-allow-origin'), null)
})
