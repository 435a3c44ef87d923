// Uses a gateway through the TypeScript SDK, see client.cjs:
//
//	node sdk.cjs MODULES v1|v2-legacy|v2-modern http|stdio|filtered URL PATCHBAY
const assert = require('node:assert/strict');
const { connect } = require('./client.cjs');

const [modules, generation, way, url, patchbay] = process.argv.slice(2);

// The tools, and who waits for some.
let tools = [];
let changed = () => {};
let closing = false; // then a list that is being fetched ends with an error
const listChanged = {
  tools: {
    debounceMs: 0,
    onChanged: (error, list) => {
      if (closing) return;
      if (error) throw error;
      tools = list;
      changed();
    },
  },
};

async function offered(...names) {
  const missing = () => names.filter((name) => !tools.some((tool) => tool.name === name));
  const late = setTimeout(() => {
    console.error(`not offered: ${missing()}, but ${tools.map((tool) => tool.name)}`);
    process.exit(1);
  }, 20_000);
  while (missing().length > 0) await new Promise((resolve) => (changed = resolve));
  clearTimeout(late);
}

async function main() {
  const { client, call } = await connect({ modules, generation, way, url, patchbay, listChanged });

  ({ tools } = await client.listTools());
  for (const name of ['everything__echo', 'files__read_text_file', 'memory__read_graph', 'modern__echo']) {
    assert(tools.some((tool) => tool.name === name), `${name} is not among ${tools.map((tool) => tool.name)}`);
  }
  assert.match(await call('everything__echo', { message: 'hello' }), /Echo: hello/);
  assert.match(await call('modern__echo', { text: 'hello' }), /hello/);

  const { prompts } = await client.listPrompts();
  assert(prompts.some((prompt) => prompt.name === 'everything__args-prompt'));
  const prompt = await client.getPrompt({ name: 'everything__args-prompt', arguments: { city: 'Ulm' } });
  assert.match(JSON.stringify(prompt.messages), /Ulm/);
  const completion = await client.complete({
    ref: { type: 'ref/prompt', name: 'everything__completable-prompt' },
    argument: { name: 'name', value: 'A' },
    context: { arguments: { department: 'Engineering' } },
  });
  assert(completion.completion.values.includes('Alice'), JSON.stringify(completion));
  const { resources } = await client.listResources();
  assert((await client.readResource({ uri: resources[0].uri })).contents.length > 0);
  assert((await client.listResourceTemplates()).resourceTemplates.length > 0);

  // The SDK adds steps of its own, without a total; its first generation forgets
  // the last one if the result comes in the same breath; and a call that has just
  // asked something is heard of again when it has the answer.
  const steps = [];
  await call('everything__trigger-long-running-operation', { duration: 0.4, steps: 4 }, { onprogress: (p) => p.total && steps.push(p.progress) });
  assert(steps.length >= 2 && steps.every((step, i) => i === 0 || step > steps[i - 1]), `steps of progress: ${steps}`);

  // The server offers more to a client that can be asked. A client that lists
  // its tools too early to see that hears of the change.
  await offered('everything__trigger-elicitation-request', 'everything__trigger-sampling-request', 'everything__get-roots-list');

  // A server of the older era asks, and one of the newer.
  assert.match(await call('everything__trigger-elicitation-request', {}), /Ada Lovelace/);
  assert.match(await call('everything__trigger-sampling-request', { prompt: 'hello', maxTokens: 10 }), /the model says hello/);
  assert.match(await call('everything__get-roots-list', {}), /file:\/\/\/acceptance/);
  assert.match(await call('modern__ask', { count: 2 }), /accept accept/);

  closing = true;
  await client.close();
  console.log('everything works');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
