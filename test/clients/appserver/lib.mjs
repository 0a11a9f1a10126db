// What the tests of the official App Server client share: a connection that
// remembers what it saw, an agent to talk to, and a server of one's own.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { AppServerClient } from '@letta-ai/letta-code/app-server-client'
import WebSocket from 'ws'

/** What the runner hands to the tests. */
export const given = Object.fromEntries(
  ['MNEME_WS_URL', 'MNEME_MODEL', 'MNEME_MODEL_URL', 'MNEME_BIN', 'MNEME_WORKSPACE'].map(name => {
    assert.ok(process.env[name], `${name} is not set; start the tests with: make clients`)
    return [name, process.env[name]]
  }))

const limit = 20_000 // ms for anything that is waited for

/** A fresh directory that the server sees as well. */
export const workspace = () => mkdtemp(join(given.MNEME_WORKSPACE, 'ws-'))

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

const scriptOf = (name, input) => `CALL ${name} ${JSON.stringify(input)}`

/** A script for the model: one tool call after the other, then the last result or a text. */
export const calls = (list, last = 'ECHO_LAST_TOOL_RESULT') =>
  [...list.map(([name, input], i) => (i ? 'THEN ' : '') + scriptOf(name, input)), `THEN ${last}`].join('\n')

/** A server of one's own, to be stopped, killed and started again on its state. */
export class Server {
  static async create(t) {
    const server = new Server()
    server.home = await workspace()
    t.after(() => server.kill())
    await server.#run(['connect', 'lmstudio', '--base-url', given.MNEME_MODEL_URL])
    await server.start()
    return server
  }

  #spawn(args) {
    return spawn(given.MNEME_BIN, args, {
      cwd: this.home,
      env: { PATH: process.env.PATH, HOME: this.home, MNEME_HOME: join(this.home, '.mneme') },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
  }

  async #run(args) {
    const child = this.#spawn(args)
    child.stdout.resume()
    const code = await new Promise(resolve => child.once('close', resolve))
    assert.equal(code, 0, `mneme ${args[0]} ended with ${code}`)
  }

  /** Starts it, on the port it had before if there was one. */
  async start() {
    const child = this.#spawn(['server', '--listen', `ws://127.0.0.1:${this.port ?? 0}`])
    this.child = child
    this.gone = new Promise(resolve => child.once('close', resolve))
    const url = await new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).on('line', line => {
        const socket = line.match(/^WebSocket: (\S+)$/)
        if (socket) resolve(new URL(socket[1]))
      })
      child.once('close', code => reject(new Error(`the server ended with ${code} before it was ready`)))
    })
    this.port = url.port
    this.url = `ws://127.0.0.1:${this.port}`
  }

  /** Asks it to end and resolves with the exit code. */
  async stop() {
    this.child.kill('SIGTERM')
    return this.gone
  }

  async kill() {
    this.child?.kill('SIGKILL')
    await this.gone
  }
}
