// The door itself: health, models, paths, errors, credentials.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Server, client, connect, given, makeAgent, nobody, raw, refused } from './lib.mjs'

test('health says its version, and readiness alike', async () => {
  const health = await client.health()
  assert.equal(health.status, 'ok')
  assert.equal(typeof health.version, 'string')
  assert.deepEqual((await raw('GET', '/v1/ready/')).json, health)
})

test('models are listed with what clients choose by', async () => {
  const models = await client.models.list()
  const mock = models.find(m => m.handle === given.MNEME_MODEL)
  assert.ok(mock, `no ${given.MNEME_MODEL} in ${models.map(m => m.handle)}`)
  assert.ok(models.some(m => m.handle === 'mneme/offline'), 'the offline model is always there')
  for (const m of models) {
    for (const field of ['handle', 'name', 'display_name', 'model', 'model_endpoint_type', 'provider_type', 'provider_name']) {
      assert.equal(typeof m[field], 'string', `${field} of ${m.handle}`)
    }
    assert.equal(m.model_type, 'llm')
    assert.ok(['base', 'byok'].includes(m.provider_category), m.provider_category)
    assert.ok(m.context_window > 0 && m.max_context_window >= m.context_window, m.handle)
  }
  const some = await client.models.list({ provider_name: mock.provider_name })
  assert.ok(some.length > 0 && some.every(m => m.provider_name === mock.provider_name))
  const byCategory = await client.models.list({ provider_category: [mock.provider_category] })
  assert.ok(byCategory.length > 0 && byCategory.every(m => m.provider_category === mock.provider_category))
  await refused(client.models.list({ provider_category: ['nonsense'] }), 422)
})

test('embedding models are a list', async () => {
  assert.ok(Array.isArray(await client.models.embeddings.list()))
})

test('every path is taken with and without a trailing slash, and never redirects', async () => {
  const agent = await makeAgent()
  const body = { messages: [{ role: 'user', content: 'SAY both' }] }
  for (const path of ['/v1/health', '/v1/models/embedding', '/v1/agents', `/v1/agents/${agent.id}`, '/v1/blocks', '/v1/runs', '/v1/steps',
    '/v1/messages', '/v1/conversations', `/v1/agents/${agent.id}/messages`, `/v1/agents/${agent.id}/core-memory/blocks`]) {
    for (const slash of ['', '/']) {
      const answer = await raw('GET', path + slash)
      assert.equal(answer.status, 200, `GET ${path}${slash}: ${answer.text}`)
    }
  }
  for (const slash of ['', '/']) {
    const answer = await raw('POST', `/v1/agents/${agent.id}/messages${slash}`, body)
    assert.equal(answer.status, 200, answer.text)
    assert.equal(answer.json.messages.at(-1).content, 'both')
  }
})

test('unknown paths, wrong methods and what is not built are told apart', async () => {
  const agent = await makeAgent()
  const unknown = await raw('GET', '/v1/nonsense')
  assert.deepEqual([unknown.status, unknown.json], [404, { detail: 'Not Found' }])
  const method = await raw('PUT', `/v1/agents/${agent.id}`, {})
  assert.deepEqual([method.status, method.json], [405, { detail: 'Method Not Allowed' }])
  const edit = await raw('PATCH', `/v1/agents/${agent.id}/messages/${nobody.message}`, { content: 'x' })
  assert.equal(edit.status, 405)
  assert.equal(typeof edit.json.detail, 'string')
  for (const [verb, path] of [['GET', '/v1/archives/'], ['GET', '/v1/folders/'], ['GET', '/v1/templates'], ['POST', '/v1/client-side-access-tokens']]) {
    const absent = await raw(verb, path, verb === 'POST' ? {} : undefined)
    assert.equal(absent.status, 501, path)
    assert.equal(absent.headers.get('x-should-retry'), 'false', path)
    assert.equal(typeof absent.json.detail, 'string')
  }
  for (const [verb, path] of [['POST', '/v1/tools/add-base-tools'], ['GET', `/v1/agents/${agent.id}/secrets`],
    ['GET', `/v1/agents/${agent.id}/mcp-servers`], ['GET', `/v1/agents/${agent.id}/repositories`]]) {
    assert.equal((await raw(verb, path)).status, 404, path)
  }
  const environments = await raw('GET', '/v1/environments')
  assert.deepEqual(environments.json, { connections: [], hasNextPage: false })
})

test('a body that is no JSON is 422 with a string', async () => {
  const broken = await raw('POST', '/v1/agents/', '{"name":')
  assert.equal(broken.status, 422)
  assert.equal(typeof broken.json.detail, 'string')
})

test('unknown fields and parameters are ignored', async () => {
  const agent = await makeAgent({ nonsense: { deep: [1] } })
  assert.equal((await raw('GET', `/v1/agents/${agent.id}?nonsense=1`)).status, 200)
})

test('lists in queries come repeated, with brackets and with commas', async () => {
  const tag = `q${Date.now()}`
  const one = await makeAgent({ tags: [`${tag}a`] })
  const two = await makeAgent({ tags: [`${tag}b`] })
  for (const query of [`tags=${tag}a&tags=${tag}b`, `tags[]=${tag}a&tags[]=${tag}b`, `tags=${tag}a,${tag}b`]) {
    const { json } = await raw('GET', `/v1/agents/?${query}`)
    assert.deepEqual(json.map(a => a.id).sort(), [one.id, two.id].sort(), query)
  }
})

test('/openapi.json describes what is served', async () => {
  const { json } = await raw('GET', '/openapi.json')
  assert.match(json.openapi, /^3\./)
  assert.ok(json.paths['/v1/agents/{agent_id}/messages'].post)
})

test('a token is asked for where one is set', async t => {
  const server = await Server.create(t, { command: 'serve', env: { MNEME_TOKEN: 'open-sesame-0123456789' } })
  const without = connect(server.http)
  const error = await refused(without.agents.list(), 401)
  assert.deepEqual(error.error, { detail: 'Unauthorized' })
  await refused(connect(server.http, { apiKey: 'wrong' }).agents.list(), 401)
  assert.equal((await without.health()).status, 'ok')
  assert.deepEqual((await connect(server.http, { apiKey: 'open-sesame-0123456789' }).agents.list()).items, [])
  const bare = await raw('GET', '/v1/agents/', undefined, { url: server.http, headers: { 'x-bare-password': 'password open-sesame-0123456789' } })
  assert.equal(bare.status, 200)
})

test('without a token any header is fine, and a foreign origin is not', async () => {
  assert.equal((await raw('GET', '/v1/agents/?limit=1', undefined, { headers: { authorization: 'Bearer anything' } })).status, 200)
  assert.equal((await raw('GET', '/v1/agents/?limit=1', undefined, { headers: { origin: 'https://example.com' } })).status, 403)
  assert.equal((await raw('GET', '/v1/agents/?limit=1', undefined, { headers: { user_id: 'nonsense' } })).status, 400)
  const own = await raw('GET', '/v1/agents/?limit=1', undefined, { headers: { origin: given.MNEME_HTTP_URL } })
  assert.equal(own.status, 200)
})

test('every answer has an id, and a given one is kept', async () => {
  assert.match((await raw('GET', '/v1/health/')).headers.get('x-request-id'), /\S/)
  assert.match((await raw('GET', '/v1/nonsense')).headers.get('x-request-id'), /\S/)
  const kept = await raw('GET', '/v1/health/', undefined, { headers: { 'x-request-id': 'mine-1' } })
  assert.equal(kept.headers.get('x-request-id'), 'mine-1')
})

test('a large body is taken, a larger one is 413', async () => {
  const agent = await makeAgent()
  const padded = n => JSON.stringify({ messages: [{ role: 'user', content: 'SAY large' }], ignored: 'x'.repeat(n) })
  const large = await raw('POST', `/v1/agents/${agent.id}/messages`, padded(31 << 20))
  assert.equal(large.status, 200, large.text)
  const larger = await raw('POST', `/v1/agents/${agent.id}/messages`, padded(80 << 20))
  assert.equal(larger.status, 413)
})
