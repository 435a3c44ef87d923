// A server of both eras, of the newest TypeScript SDK:
//
//	node both.cjs MODULES
//
// What it asks, it asks in the way of either era; the tools with "push" only in
// that of the older one, as most servers that are written for it do.
const { createRequire } = require('node:module');
const path = require('node:path');

const load = createRequire(path.join(process.argv[2], 'anything.js'));
const { McpServer, fromJsonSchema, inputRequired } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');

const form = { message: 'who?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
const prompt = { messages: [{ role: 'user', content: { type: 'text', text: 'hello' } }], maxTokens: 10 };
const text = (text) => ({ content: [{ type: 'text', text: typeof text === 'string' ? text : JSON.stringify(text) }] });

const waiting = new Map(); // calls of wait, by name: resolved when they have been cancelled

serveStdio(({ era }) => {
  const server = new McpServer({ name: 'both', version: '1' }, { capabilities: { tools: {} } });
  const named = fromJsonSchema({ type: 'object', properties: { name: { type: 'string' } } });
  const tool = (name, handler) => server.registerTool(name, { description: name, inputSchema: named }, handler);

  tool('era', () => text(era));

  const ask = (name, question) =>
    tool(name, (_, { mcpReq }) => {
      const answer = mcpReq.inputResponses?.it;
      return answer ? text(answer) : inputRequired({ inputRequests: { it: question } });
    });
  ask('elicit', inputRequired.elicit(form));
  ask('sample', inputRequired.createMessage(prompt));
  ask('roots', inputRequired.listRoots());
  tool('push-elicit', async (_, { mcpReq }) => text(await mcpReq.elicitInput(form)));
  tool('push-sample', async (_, { mcpReq }) => text(await mcpReq.requestSampling(prompt)));
  tool('push-roots', async () => text(await server.server.listRoots()));

  const progress = (mcpReq, progress) =>
    mcpReq.notify({ method: 'notifications/progress', params: { progressToken: mcpReq._meta.progressToken, progress, total: 3 } });
  tool('progress', async (_, { mcpReq }) => {
    for (const step of [1, 2, 3]) {
      await progress(mcpReq, step);
      // The first generation of clients forgets a step if the result comes in the
      // same breath.
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return text('done');
  });

  // wait says that it has begun and never answers; cancelled waits until the call
  // of that name has been cancelled.
  tool('wait', async ({ name }, { mcpReq }) => {
    let cancelled;
    waiting.set(name, new Promise((resolve) => (cancelled = resolve)));
    await progress(mcpReq, 1);
    await new Promise((resolve) => mcpReq.signal.addEventListener('abort', resolve));
    cancelled();
    return text('too late');
  });
  tool('cancelled', async ({ name }) => {
    await waiting.get(name);
    return text(waiting.has(name) ? `${name} was cancelled` : `nobody called wait with ${name}`);
  });
  return server;
});
