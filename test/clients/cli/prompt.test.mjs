// Prompts: `letta -p` with new and old agents and conversations.
import assert from 'node:assert/strict'
import { access, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Person } from './lib.mjs'

const shell = (cmd, last = 'ECHO_LAST_TOOL_RESULT') => `CALL exec_command ${JSON.stringify({ cmd, description: 'a test' })}\nTHEN ${last}`

test('a new agent answers a prompt', async () => {
  const person = await Person.create()
  const result = await person.say('SAY hello from mneme', '--new-agent')
  assert.equal(result.result, 'hello from mneme')
  assert.match(result.agent_id, /^agent-/)
  assert.match(result.conversation_id, /^conv-/)
  assert.deepEqual([result.usage.prompt_tokens, result.usage.step_count], [100, 1])
})

test('a conversation goes on with a second prompt', async () => {
  const person = await Person.create()
  const first = await person.say('SAY one', '--new-agent')
  const second = await person.say('DUMP_REQUEST', '--conversation', first.conversation_id)
  assert.equal(second.conversation_id, first.conversation_id)
  assert.equal(second.agent_id, first.agent_id)
  const roles = JSON.parse(second.result).roles.filter(r => r !== 'system')
  assert.deepEqual(roles, ['user', 'assistant', 'user'])
  const third = await person.say('SAY three', '--agent', first.agent_id)
  assert.notEqual(third.conversation_id, first.conversation_id, 'a new conversation of the agent')
})

test('a tool runs on the side of the command, and its result goes back', async () => {
  const person = await Person.create()
  await writeFile(join(person.cwd, 'list.txt'), 'milk and eggs\n')
  const result = await person.say(shell('cat list.txt; echo done > made.txt'), '--new-agent', '--yolo')
  assert.match(result.result, /milk and eggs/)
  assert.equal(await readFile(join(person.cwd, 'made.txt'), 'utf8'), 'done\n')
  const turns = await person.json('messages', 'list', '--conversation', result.conversation_id)
  const kinds = turns.map(m => m.message_type)
  for (const kind of ['user_message', 'approval_request_message', 'approval_response_message', 'tool_return_message', 'assistant_message']) {
    assert.ok(kinds.includes(kind), `no ${kind} in ${kinds}`)
  }
})

test('several tools run one after the other', async () => {
  const person = await Person.create()
  const script = [1, 2, 3].map(n => `CALL exec_command ${JSON.stringify({ cmd: `echo ${n} >> count`, description: 'count' })}`).join('\nTHEN ')
  const result = await person.say(`${script}\nTHEN SAY counted`, '--new-agent', '--yolo')
  assert.equal(result.result, 'counted')
  assert.equal(await readFile(join(person.cwd, 'count'), 'utf8'), '1\n2\n3\n')
})

test('a tool that the command will not run is denied, and the model reads why', async () => {
  const person = await Person.create()
  const result = await person.say(shell('rm -rf made-up; touch denied.txt'), '--new-agent', '--permission-mode', 'standard')
  assert.match(result.result, /denied/i)
  await assert.rejects(access(join(person.cwd, 'denied.txt')), 'it ran')
})

test('the stream is passed on', async () => {
  const person = await Person.create()
  const { code, stdout } = await person.run('-p', 'THINK hm\nSAY a b c', '--new-agent', '--output-format', 'stream-json')
  assert.equal(code, 0)
  const lines = stdout.trim().split('\n').map(line => JSON.parse(line))
  assert.equal(lines[0].type, 'system')
  const kinds = lines.map(l => l.message_type)
  for (const kind of ['reasoning_message', 'assistant_message', 'stop_reason', 'usage_statistics']) assert.ok(kinds.includes(kind), kind)
  assert.equal(lines.at(-1).result, 'a b c')
})

test('a prompt with another model is answered by it', async () => {
  const person = await Person.create()
  const result = await person.say('DUMP_REQUEST', '--new-agent', '--model', 'lmstudio/mock-2')
  assert.equal(JSON.parse(result.result).model, 'mock-2')
})

test('trouble of the provider is told, and the conversation stays usable', async () => {
  const person = await Person.create()
  const first = await person.say('SAY one', '--new-agent')
  const failed = await person.run('-p', 'ERROR 401', '--conversation', first.conversation_id, '--output-format', 'json')
  assert.notEqual(failed.code, 0)
  assert.match(failed.stdout + failed.stderr, /llm_authentication/)
  const next = await person.say('SAY two', '--conversation', first.conversation_id)
  assert.equal(next.result, 'two')
})
