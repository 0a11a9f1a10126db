// What the tests of the official REST client share: a client that writes down
// what it asked, an agent to talk to, and readers of streams.
import assert from 'node:assert/strict'
import { appendFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import Letta from '@letta-ai/letta-client'
import { given, sleep } from '../lib/mneme.mjs'

export { Server, calls, given, parallel, sleep, workspace } from '../lib/mneme.mjs'
export { Letta, randomUUID }

const limit = 30_000 // ms for anything that is waited for

/** fetch, with a line per call for the count of covered endpoints. */
export async function recorded(url, init) {
  const response = await fetch(url, init)
  if (process.env.MNEME_CALLS) {
    appendFileSync(process.env.MNEME_CALLS, `${init?.method ?? 'GET'} ${new URL(url).pathname} ${response.status}\n`)
  }
  return response
}

/** The official client. It does not retry unless options say so. */
export const connect = (url = given.MNEME_HTTP_URL, options = {}) =>
  new Letta({ baseURL: url, apiKey: null, maxRetries: 0, timeout: limit, fetch: recorded, ...options })

export const client = connect()

/** A plain request to the server, for what the client does not show. */
export async function raw(method, path, body, { url = given.MNEME_HTTP_URL, headers = {} } = {}) {
  const response = await recorded(url + path, {
    method, redirect: 'manual',
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await response.text()
  let json
  try { json = JSON.parse(text) } catch { /* not JSON */ }
  return { status: response.status, headers: response.headers, text, json }
}

/** An agent on the scripted model without tools or memory, unless fields say so. */
export async function makeAgent(fields = {}, at = client) {
  return at.agents.create({ name: `agent ${randomUUID()}`, model: given.MNEME_MODEL, include_base_tools: false, ...fields })
}

/** A conversation of a new agent. */
export async function makeConversation(fields = {}, at = client) {
  const agent = await makeAgent(fields, at)
  return { agent, conversation: await at.conversations.create({ agent_id: agent.id }) }
}

export const user = (content, more = {}) => ({ role: 'user', content, ...more })

/** One non-streaming turn on the agent's route. */
export const say = (agent, content, more = {}, at = client) =>
  at.agents.messages.create(agent.id, { messages: [user(content)], ...more })

/** All items of a stream. */
export async function collect(stream) {
  const items = []
  for await (const item of await stream) items.push(item)
  return items
}

export const of = (items, type) => items.filter(m => m.message_type === type)
export const types = items => items.map(m => m.message_type)
export const textOf = items => of(items, 'assistant_message').map(m => m.content).join('')
export const reasonOf = items => of(items, 'stop_reason').map(m => m.stop_reason).join()
export const numbered = n => Array.from({ length: n }, (_, i) => `t${i}`).join(' ')

/** All items of all pages, as the client pages. */
export async function all(page) {
  const items = []
  for await (const item of page) {
    items.push(item)
    assert.ok(items.length < 10_000, 'the pages have no end')
  }
  return items
}

/** Demands that the call is refused like this; resolves with the error. */
export async function refused(call, status, pattern = /./) {
  try {
    const answer = await call
    if (answer?.[Symbol.asyncIterator]) await collect(answer)
  } catch (error) {
    if (!(error instanceof Letta.APIError)) throw error
    assert.equal(error.status, status, error.message)
    assert.match(error.message, pattern)
    return error
  }
  assert.fail(`not refused, though ${status} was expected`)
}

/** Waits until a condition holds. */
export async function until(what, holds) {
  const end = Date.now() + limit
  for (;;) {
    const value = await holds()
    if (value) return value
    assert.ok(Date.now() < end, `${what} did not come within ${limit / 1000} s`)
    await sleep(25)
  }
}

/** Waits until a run has ended. */
export const ended = (id, at = client) => until(`the end of ${id}`, async () => {
  const run = await at.runs.retrieve(id)
  return ['completed', 'failed', 'cancelled'].includes(run.status) && run
})

/** The events of a response's body as they come: {id, event, data}. */
export async function* events(response) {
  let rest = ''
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    rest += piece
    for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
      const event = {}
      for (const line of rest.slice(0, end).split('\n')) {
        const colon = line.indexOf(':')
        event[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '')
      }
      yield event
    }
  }
  assert.equal(rest, '', 'the stream ends in the middle of an event')
}

/** Opens a stream with a plain request. */
export async function open(path, body, { url = given.MNEME_HTTP_URL, headers = {}, signal } = {}) {
  const response = await recorded(url + path, {
    method: 'POST', signal, headers: { 'content-type': 'application/json', accept: 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  assert.equal(response.status, 200, `${path}: ${response.status} ${response.ok ? '' : await response.text()}`)
  return response
}

export const nobody = {
  agent: 'agent-00000000-0000-4000-8000-000000000000',
  conversation: 'conv-00000000-0000-4000-8000-000000000000',
  message: 'message-00000000-0000-4000-8000-000000000000',
  block: 'block-00000000-0000-4000-8000-000000000000',
  step: 'step-00000000-0000-4000-8000-000000000000',
  run: 'run-00000000-0000-4000-8000-000000000000',
}
