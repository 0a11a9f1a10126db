// What the tests of the official App Server client share: a connection that
// remembers what it saw, and an agent to talk to.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { AppServerClient } from '@letta-ai/letta-code/app-server-client'
import WebSocket from 'ws'
import { given } from '../lib/mneme.mjs'

export { Server, calls, given, workspace } from '../lib/mneme.mjs'

const limit = 20_000 // ms for anything that is waited for

/** One connection of the official client. */
export class Connection {
  seen = [] // every frame, in order
  #waiters = new Set()

  constructor(url) {
    this.client = new AppServerClient({ url, WebSocket, requestTimeoutMs: limit })
    this.client.onMessage(frame => {
      this.seen.push(frame)
      for (const look of this.#waiters) look()
    })
    this.lost = new Promise(resolve => this.client.onDisconnect(resolve))
  }

  /** Connects; the connection is closed when the test ends. */
  static async open(t, url = given.MNEME_WS_URL) {
    const connection = new Connection(url)
    t.after(() => connection.close())
    await connection.client.connect()
    return connection
  }

  close() {
    this.client.close()
  }

  /** The first frame from the mark on that matches. */
  wait(what, matches, mark = 0) {
    return new Promise((resolve, reject) => {
      const done = (settle, value) => {
        clearTimeout(timer)
        this.#waiters.delete(look)
        settle(value)
      }
      const look = () => {
        for (; mark < this.seen.length; mark++) {
          if (matches(this.seen[mark])) return done(resolve, this.seen[mark])
        }
      }
      const timer = setTimeout(() => done(reject, new Error(
        `${what}: nothing matched within ${limit / 1000} s; the last frames were\n` +
        this.seen.slice(-8).map(f => '  ' + JSON.stringify(f).slice(0, 300)).join('\n'))), limit)
      this.#waiters.add(look)
      look()
    })
  }

  /** Starts a runtime; with no agent_id, a new agent on the scripted model. */
  async start(command = {}) {
    const create = { create_agent: { body: { name: `agent ${randomUUID()}`, model: given.MNEME_MODEL, memory_blocks: [] }, pin_global: false } }
    const response = await this.client.runtimeStart({ ...(command.agent_id ? {} : create), mode: 'standard', ...command })
    assert.equal(response.success, true, response.error)
    return new Runtime(this, response)
  }
}

/** One runtime, as one connection sees it. */
export class Runtime {
  constructor(connection, response) {
    Object.assign(this, { connection, response, id: response.runtime })
    this.agent = response.runtime.agent_id
    this.conversation = response.runtime.conversation_id
  }

  get client() { return this.connection.client }

  get mark() { return this.connection.seen.length }

  /** The first frame of this runtime from the mark on that matches. */
  wait(what, matches, mark = 0) {
    const mine = f => f.runtime?.agent_id === this.agent && f.runtime?.conversation_id === this.conversation
    return this.connection.wait(what, f => mine(f) && matches(f), mark)
  }

  delta(type, mark) {
    return this.wait(type, f => f.type === 'stream_delta' && f.delta.message_type === type, mark)
  }

  ended(mark) {
    return this.wait('turn_finished', f => f.type === 'turn_finished', mark)
  }

  asked(mark) {
    return this.wait('control_request', f => f.type === 'control_request', mark)
  }

  /** Sends one user message; resolves with the acknowledgement. */
  say(content, id = randomUUID()) {
    return this.client.submitInput({
      runtime: this.id,
      payload: { kind: 'create_message', messages: [{ role: 'user', content, client_message_id: id }] },
    })
  }

  answer(request_id, decision) {
    return this.client.submitInput({ runtime: this.id, payload: { kind: 'approval_response', request_id, decision } })
  }

  /** Sends one user message and waits for the end of its turn. */
  async turn(content) {
    const mark = this.mark
    const accepted = await this.say(content)
    assert.equal(accepted.accepted, true, accepted.error)
    const end = await this.ended(mark)
    return { accepted, end, ...this.since(mark) }
  }

  /** What the stream brought since the mark, put together. */
  since(mark) {
    const deltas = this.connection.seen.slice(mark).filter(f => f.type === 'stream_delta').map(f => f.delta)
    const of = type => deltas.filter(d => d.message_type === type)
    return {
      deltas,
      of,
      text: of('assistant_message').flatMap(d => d.content).map(part => part.text).join(''),
      results: of('tool_return_message').filter(d => !d.id.startsWith('synthetic-tool-return-stream-')),
    }
  }

  /** The stored messages, oldest first. */
  async messages() {
    const response = await this.client.request('conversation_messages_list',
      { conversation_id: this.conversation, query: { agent_id: this.agent, order: 'asc', limit: 100 } })
    assert.equal(response.success ?? true, true, response.error)
    return response.messages
  }
}

/** The text of a listed or streamed message. */
export const textOf = message => typeof message.content === 'string'
  ? message.content : (message.content ?? []).map(part => part.text ?? '').join('')
