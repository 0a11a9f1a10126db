// What the tests of the official command line share: a home and a directory of
// its own for each test, and the command.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { given, workspace } from '../lib/mneme.mjs'

export { given, sleep } from '../lib/mneme.mjs'

const letta = createRequire(import.meta.url).resolve('@letta-ai/letta-code')
const limit = 60_000 // ms for one command

/** One user of the command: a home, and a directory to work in. */
export class Person {
  static async create(url = given.MNEME_HTTP_URL) {
    const home = await workspace()
    const person = Object.assign(new Person(), { home, url, cwd: join(home, 'work') })
    await mkdir(person.cwd)
    return person
  }

  /** Runs the command to its end. */
  async run(...args) {
    const child = spawn(process.execPath, [letta, ...args], {
      cwd: this.cwd, stdio: ['ignore', 'pipe', 'pipe'], timeout: limit, killSignal: 'SIGKILL',
      env: { PATH: process.env.PATH, HOME: this.home, LETTA_BASE_URL: this.url, LETTA_API_KEY: 'x', LETTA_CODE_TELEM: '0', DISABLE_AUTOUPDATER: '1' },
    })
    let stdout = '', stderr = ''
    child.stdout.on('data', data => { stdout += data })
    child.stderr.on('data', data => { stderr += data })
    const code = await new Promise(resolve => child.once('close', resolve))
    return { code, stdout, stderr }
  }

  /** Runs the command, which must succeed and print JSON. */
  async json(...args) {
    const { code, stdout, stderr } = await this.run(...args)
    assert.equal(code, 0, `letta ${args.join(' ')} ended with ${code}: ${stderr || stdout}`)
    return JSON.parse(stdout)
  }

  /** Says something with -p; resolves with the result, which must be a success. */
  async say(text, ...args) {
    const result = await this.json('-p', text, '--output-format', 'json', ...args)
    assert.deepEqual([result.type, result.subtype, result.is_error], ['result', 'success', false])
    return result
  }
}
