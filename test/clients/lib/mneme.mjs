// What the suites of all clients share: what the runner gives them, scripts for
// the model, and a server of one's own that can be killed.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** What the runner hands to the tests. */
export const given = Object.fromEntries(
  ['MNEME_WS_URL', 'MNEME_HTTP_URL', 'MNEME_MODEL', 'MNEME_MODEL_URL', 'MNEME_BIN', 'MNEME_WORKSPACE'].map(name => {
    assert.ok(process.env[name], `${name} is not set; start the tests with: make clients`)
    return [name, process.env[name]]
  }))

/** A fresh directory that the server sees as well. */
export const workspace = () => mkdtemp(join(given.MNEME_WORKSPACE, 'ws-'))

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

const scriptOf = (name, input) => `CALL ${name} ${JSON.stringify(input)}`

/** A script for the model: one tool call after the other, then the last result or a text. */
export const calls = (list, last = 'ECHO_LAST_TOOL_RESULT') =>
  [...list.map(([name, input], i) => (i ? 'THEN ' : '') + scriptOf(name, input)), `THEN ${last}`].join('\n')

/** A script whose calls come in one answer of the model. */
export const parallel = (list, last = 'SAY done') =>
  [...list.map(([name, input]) => scriptOf(name, input)), `THEN ${last}`].join('\n')

/** A server of one's own, to be stopped, killed and started again on its state. */
export class Server {
  /** Starts one: `mneme server --rest`, or `mneme serve`; with further flags, variables, and settings of config.yaml. */
  static async create(t, { command = 'server', args = [], env = {}, settings } = {}) {
    const server = new Server()
    Object.assign(server, { command, args: command === 'server' ? ['--rest', ...args] : args, env, home: await workspace() })
    t.after(() => server.kill())
    if (settings) {
      await mkdir(join(server.home, '.mneme'))
      await writeFile(join(server.home, '.mneme', 'config.yaml'), Object.entries(settings).map(([k, v]) => `${k}: ${v}\n`).join(''))
    }
    await server.#run(['connect', 'lmstudio', '--base-url', given.MNEME_MODEL_URL])
    await server.start()
    return server
  }

  #spawn(args) {
    return spawn(given.MNEME_BIN, args, {
      cwd: this.home,
      env: { PATH: process.env.PATH, HOME: this.home, MNEME_HOME: join(this.home, '.mneme'), ...this.env },
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
    const child = this.#spawn([this.command, '--listen', `ws://127.0.0.1:${this.port ?? 0}`, ...this.args])
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
    this.http = `http://127.0.0.1:${this.port}`
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
