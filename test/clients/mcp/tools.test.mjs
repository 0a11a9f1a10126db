// What clients are told of the server: its tools, their schemas, its prompts.
import assert from 'node:assert/strict'
import { everywhere } from './lib.mjs'

// In the order in which they are listed, with the hints that are true.
const tools = {
  agent_create: [],
  agent_get: ['readOnlyHint', 'idempotentHint'],
  agent_list: ['readOnlyHint', 'idempotentHint'],
  agent_lookup: ['readOnlyHint', 'idempotentHint'],
  agent_update: ['idempotentHint'],
  agent_delete: ['destructiveHint'],
  models_list: ['readOnlyHint', 'idempotentHint'],
  bridge_health: ['readOnlyHint', 'idempotentHint'],
  memory_save: ['idempotentHint'],
  memory_search: ['readOnlyHint', 'idempotentHint'],
  memory_get: ['readOnlyHint', 'idempotentHint'],
  memory_delete: ['destructiveHint', 'idempotentHint'],
  session_ask: ['readOnlyHint', 'openWorldHint'],
}

everywhere('thirteen tools are listed', async ({ client, modern }) => {
  const { tools: list } = await client.listTools()
  assert.deepEqual(list.map(tool => tool.name), Object.keys(tools))
  for (const tool of list) {
    assert.ok(tool.title && tool.description, `${tool.name} has no title or description`)
    assert.equal(tool.inputSchema.additionalProperties, false, tool.name)
    assert.equal(tool.outputSchema.type, 'object', tool.name)
    assert.deepEqual(tool.outputSchema.required, ['ok'], tool.name)
    assert.equal(tool.outputSchema.oneOf.length, 2, tool.name)
    const hints = Object.keys(tool.annotations).filter(hint => tool.annotations[hint] === true)
    assert.deepEqual(hints.sort(), [...tools[tool.name]].sort(), `the hints of ${tool.name}`)
  }
  const capabilities = client.getServerCapabilities()
  assert.ok(capabilities.resources.subscribe && capabilities.prompts && capabilities.completions)
  assert.ok(!capabilities.tools.listChanged)
  assert.match(client.getInstructions(), /memory_search/)
  if (!modern) assert.equal((await client.ping()) !== undefined, true)
})

everywhere('an unknown tool is an error of the protocol', async ({ client }) => {
  await assert.rejects(client.callTool({ name: 'memory_burn', arguments: {} }), error => error.code === -32602)
})

everywhere('models are listed and health is told', async door => {
  const models = await door.get('models_list')
  assert.ok(models.entries.some(entry => entry.handle === 'lmstudio/mock-1'), JSON.stringify(models).slice(0, 300))
  const health = await door.get('bridge_health')
  assert.deepEqual([health.bridge_configured, health.models_reachable], [true, true])
  assert.equal(health.model_count, models.entries.length)
  assert.match(health.letta_url, /^ws:\/\/127\.0\.0\.1:\d+/)
  for (const name of ['models_list', 'bridge_health']) {
    assert.match(await door.refused('invalid_request', name, { verbose: true }), /verbose/)
  }
})

everywhere('prompts are listed and filled in', async ({ client }) => {
  const { prompts } = await client.listPrompts()
  assert.deepEqual(prompts.map(prompt => prompt.name).sort(), ['bootstrap', 'consult', 'recall', 'remember'])
  for (const prompt of prompts) {
    assert.ok(prompt.description, prompt.name)
    const args = Object.fromEntries((prompt.arguments ?? []).map(({ name, description }) => {
      assert.ok(description, `${name} of ${prompt.name}`)
      return [name, `my ${name}`]
    }))
    const { messages } = await client.getPrompt({ name: prompt.name, arguments: args })
    for (const value of Object.values(args)) assert.ok(messages[0].content.text.includes(value), prompt.name)
  }
  await assert.rejects(client.getPrompt({ name: 'recall', arguments: {} }), error => error.code === -32602)
  await assert.rejects(client.getPrompt({ name: 'forget', arguments: {} }), error => error.code === -32602)
})
