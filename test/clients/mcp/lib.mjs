// What the tests of the MCP clients share: the four ways to a server, a client
// for each, and calls whose envelope is checked.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from '@modelcontextprotocol/client'
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js'

export { calls, given, Server } from '../lib/mneme.mjs'

/** What the runner hands to the tests of MCP. */
export const mcp = Object.fromEntries(['MNEME_MCP_URL', 'MNEME_MCP_BRIDGE_URL', 'MNEME_MCP_TOKEN'].map(name => {
  assert.ok(process.env[name], `${name} is not set; start the tests with: make clients`)
  return [name, process.env[name]]
}))

/** Both forms of the server, each spoken to in both eras of the protocol. */
export const ways = [
  { name: 'embedded, with sessions', url: mcp.MNEME_MCP_URL, modern: false },
  { name: 'embedded, without sessions', url: mcp.MNEME_MCP_URL, modern: true },
  { name: 'bridge, with sessions', url: mcp.MNEME_MCP_BRIDGE_URL, modern: false },
  { name: 'bridge, without sessions', url: mcp.MNEME_MCP_BRIDGE_URL, modern: true },
]

/** A test that is run on every way. */
export const everywhere = (name, run) => {
  for (const way of ways) {
    test(`${name} (${way.name})`, async t => run(await Door.open(t, way), t, way))
  }
}

/** A name that no other test has. */
export const unique = name => `${name} ${randomUUID()}`

/** A connected client and what it heard. */
export class Door {
  /** elicit, if given, answers for the person in front of the client. */
  static async open(t, { url, modern }, { elicit, token = mcp.MNEME_MCP_TOKEN } = {}) {
    const door = Object.assign(new Door(), { modern, updated: [] })
    const info = { name: 'acceptance', version: '1' }
    const options = { capabilities: elicit ? { elicitation: {} } : {} }
    const http = { requestInit: { headers: { Authorization: `Bearer ${token}` } } }
    if (modern) {
      door.client = new NewClient(info, { ...options, versionNegotiation: { mode: { pin: '2026-07-28' } } })
      door.transport = new NewTransport(new URL(url), http)
      if (elicit) door.client.setRequestHandler('elicitation/create', request => elicit(request.params))
      door.client.setNotificationHandler('notifications/resources/updated', n => { door.updated.push(n.params.uri) })
    } else {
      door.client = new OldClient(info, options)
      door.transport = new OldTransport(new URL(url), http)
      if (elicit) door.client.setRequestHandler(ElicitRequestSchema, request => elicit(request.params))
      door.client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => { door.updated.push(n.params.uri) })
    }
    t.after(() => door.client.close())
    await door.client.connect(door.transport)
    await door.client.listTools() // from now on the client holds answers against their schemas
    return door
  }

  /** Calls a tool; resolves with the envelope and the side facts. */
  async call(name, args = {}, options = {}) {
    const params = { name, arguments: args }
    const result = this.modern
      ? await this.client.callTool(params, options)
      : await this.client.callTool(params, undefined, options)
    assert.equal(result.content.length, 1, `${name} answers with one text`)
    assert.equal(result.content[0].type, 'text')
    assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent, `${name}: the text is not the structure`)
    const { ok, data, error, ...more } = result.structuredContent
    assert.deepEqual(more, {}, `${name}: more keys than the envelope has`)
    assert.equal(Boolean(result.isError), !ok, `${name}: isError is wrong`)
    if (!ok) assert.deepEqual(Object.keys(error).sort(), ['code', 'message'])
    return { ok, data, error, meta: result._meta ?? {} }
  }

  /** Calls a tool that must succeed; resolves with its data. */
  async get(name, args, options) {
    const answer = await this.call(name, args, options)
    assert.ok(answer.ok, `${name}: ${JSON.stringify(answer.error)}`)
    return answer.data
  }

  /** Calls a tool that must be refused with this code; resolves with the message. */
  async refused(code, name, args) {
    const answer = await this.call(name, args)
    assert.equal(answer.error?.code, code, `${name} ${JSON.stringify(args).slice(0, 200)}: ${JSON.stringify(answer).slice(0, 300)}`)
    assert.ok(answer.error.message.length > 10)
    return answer.error.message
  }

  /** Makes an agent with a name that no other has. */
  async agent(name = 'agent', more = {}) {
    const made = await this.get('agent_create', { name: unique(name), ...more })
    return { id: made.agent_id, name: made.agent_name }
  }
}

/** Waits until something is so. */
export const until = async (what, is, ms = 10_000) => {
  const end = Date.now() + ms
  while (!await is()) {
    assert.ok(Date.now() < end, `${what} did not happen`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}
