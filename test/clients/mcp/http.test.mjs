// What clients meet on the way: tokens, ends of sessions, restarts.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { Door, everywhere, given, mcp, Server, unique, until, ways } from './lib.mjs'

const freePort = () => new Promise((resolve, reject) => {
  const server = createServer().once('error', reject).listen(0, '127.0.0.1', () => {
    const { port } = server.address()
    server.close(() => resolve(port))
  })
})

for (const way of ways) {
  test(`a wrong token is refused (${way.name})`, async t => {
    await assert.rejects(Door.open(t, way, { token: 'wrong' }), error => error.code === 401 || /401|unauthorized/i.test(error.message))
    for (const headers of [{}, { Authorization: 'Basic eDp5' }]) {
      const response = await fetch(way.url, { method: 'POST', headers, body: '{}' })
      assert.equal(response.status, 401)
      assert.match(response.headers.get('www-authenticate'), /^Bearer realm="letta-mcp"/)
      assert.deepEqual(await response.json(), { error: 'unauthorized' })
    }
    const foreign = await fetch(way.url, { method: 'POST', headers: { Origin: 'https://evil.example', Authorization: `Bearer ${mcp.MNEME_MCP_TOKEN}` }, body: '{}' })
    assert.equal(foreign.status, 403)
    assert.equal((await fetch(new URL('/healthz', way.url))).status, 200)
  })
}

everywhere('a session ends when its client wants it', async door => {
  if (door.modern) return // has none
  assert.ok(door.transport.sessionId)
  await door.transport.terminateSession()
  assert.equal(door.transport.sessionId, undefined)
})

test('after a restart an old session is unknown and a new one works', async t => {
  const port = await freePort()
  const server = await Server.create(t, { command: 'serve', env: { MCP_AUTH_TOKEN: mcp.MNEME_MCP_TOKEN, MCP_PORT: String(port) } })
  const way = { url: `http://127.0.0.1:${port}/mcp`, modern: false }
  const door = await Door.open(t, way)
  const modern = await Door.open(t, { ...way, modern: true })
  const { id, name } = await door.agent('survivor')
  await door.get('memory_save', { agent_id: id, text: 'the cat is grey' })
  await server.kill()
  await server.start()
  await assert.rejects(door.call('agent_get', { agent_id: id }), error => error.code === 404 || /404|session/i.test(error.message))
  assert.equal((await modern.get('agent_get', { agent_id: name })).agent_id, id) // needs no session
  const again = await Door.open(t, way)
  assert.equal((await again.get('memory_search', { agent_id: name, query: 'cat' })).results.length, 1)
})

test('a bridge survives the end of its App Server', async t => {
  const server = await Server.create(t)
  const bridge = spawn(given.MNEME_BIN, ['mcp'], {
    env: { PATH: process.env.PATH, HOME: server.home, MCP_AUTH_TOKEN: mcp.MNEME_MCP_TOKEN, MCP_PORT: '0', LETTA_APP_SERVER_URL: server.url },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const gone = new Promise(resolve => bridge.once('close', resolve))
  t.after(async () => { bridge.kill(); await gone })
  const url = await new Promise(resolve => createInterface({ input: bridge.stdout }).on('line', line => resolve(line.replace('MCP: ', ''))))
  for (const modern of [false, true]) {
    const door = await Door.open(t, { url, modern })
    const { id, name } = await door.agent('survivor')
    await server.kill()
    await door.refused('bridge_unreachable', 'agent_get', { agent_id: id })
    const health = await door.get('bridge_health')
    assert.deepEqual([health.bridge_configured, health.models_reachable], [true, false])
    assert.ok(health.models_error)
    await server.start()
    await until('the bridge is back', async () => (await door.call('agent_get', { agent_id: id })).ok)
    assert.equal((await door.get('agent_get', { agent_id: name })).agent_id, id)
    assert.equal((await door.get('session_ask', { agent_id: id, message: 'SAY still here' })).reply, 'still here')
  }
})

test('a bridge to nowhere says so', async t => {
  for (const [url, code] of [['', 'not_configured'], [`ws://127.0.0.1:${await freePort()}`, 'bridge_unreachable']]) {
    const transport = new StdioClientTransport({
      command: given.MNEME_BIN, args: ['mcp'], stderr: 'ignore',
      env: { PATH: process.env.PATH, HOME: given.MNEME_WORKSPACE, MCP_AUTH_TOKEN: '' },
    })
    await assert.rejects(new Client({ name: 'x', version: '1' }).connect(transport), 'it starts without a token')
    const bridge = spawn(given.MNEME_BIN, ['mcp'], {
      env: { PATH: process.env.PATH, HOME: given.MNEME_WORKSPACE, MCP_AUTH_TOKEN: mcp.MNEME_MCP_TOKEN, MCP_PORT: '0', LETTA_APP_SERVER_URL: url },
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    t.after(() => bridge.kill())
    const door = await Door.open(t, {
      url: await new Promise(resolve => createInterface({ input: bridge.stdout }).on('line', line => resolve(line.replace('MCP: ', '')))),
      modern: true,
    })
    await door.refused(code, 'agent_lookup', {})
    const health = await door.get('bridge_health')
    assert.deepEqual([health.bridge_configured, health.models_reachable, health.letta_url], [url !== '', false, url || null])
  }
})

test('a local client starts a server of its own', async t => {
  const server = await Server.create(t)
  await server.stop() // it only made the state
  const transport = new StdioClientTransport({
    command: given.MNEME_BIN, args: ['mcp', '--stdio'], stderr: 'ignore',
    env: { PATH: process.env.PATH, HOME: server.home, MNEME_HOME: `${server.home}/.mneme` },
  })
  const client = new Client({ name: 'local', version: '1' })
  t.after(() => client.close())
  await client.connect(transport)
  assert.equal((await client.listTools()).tools.length, 13)
  const name = unique('local')
  const made = await client.callTool({ name: 'agent_create', arguments: { name } })
  assert.equal(made.structuredContent.data.agent_name, name)
  const asked = await client.callTool({ name: 'session_ask', arguments: { agent_id: name, message: 'SAY hello' } })
  assert.equal(asked.structuredContent.data?.reply, 'hello', JSON.stringify(asked.structuredContent))
})
