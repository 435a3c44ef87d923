// A client of the TypeScript SDK, of the first generation (v1) or the second in
// either era (v2-legacy, v2-modern), that can be asked all that servers ask.
const { createRequire } = require('node:module');
const path = require('node:path');

const info = { name: 'acceptance', version: '1' };
const capabilities = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {}, url: {} } };

// The client's side of what servers ask.
const answers = {
  'roots/list': () => ({ roots: [{ uri: 'file:///acceptance', name: 'acceptance' }] }),
  'sampling/createMessage': () => ({ role: 'assistant', model: 'none', content: { type: 'text', text: 'the model says hello' } }),
  'elicitation/create': () => ({ action: 'accept', content: { name: 'Ada Lovelace', check: true, integer: 42 } }),
};

function clientV1(load, listChanged) {
  const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
  const types = load('@modelcontextprotocol/sdk/types.js');
  const client = new Client(info, { capabilities, listChanged });
  client.setRequestHandler(types.ListRootsRequestSchema, answers['roots/list']);
  client.setRequestHandler(types.CreateMessageRequestSchema, answers['sampling/createMessage']);
  client.setRequestHandler(types.ElicitRequestSchema, answers['elicitation/create']);
  return client;
}

function clientV2(load, listChanged, generation) {
  const { Client } = load('@modelcontextprotocol/client');
  const mode = generation === 'v2-modern' ? { pin: '2026-07-28' } : 'legacy';
  const client = new Client(info, { capabilities, listChanged, versionNegotiation: { mode } });
  for (const method of Object.keys(answers)) client.setRequestHandler(method, answers[method]);
  return client;
}

function transport(load, first, { way, url, patchbay, endpoint }) {
  if (way === 'http') {
    const { StreamableHTTPClientTransport } = load(first ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client');
    const headers = { Authorization: `Bearer ${process.env.PATCHBAY_TOKEN}` };
    return new StreamableHTTPClientTransport(new URL(endpoint ? `${url}/${endpoint}` : url), { requestInit: { headers } });
  }
  const { StdioClientTransport } = load(first ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
  const args = ['serve', '--stdio', ...(endpoint ? ['--endpoint', endpoint] : [])];
  // By itself it passes on but a few variables.
  return new StdioClientTransport({ command: patchbay, args, env: way === 'filtered' ? undefined : process.env });
}

// connect returns a client of a gateway, over http or stdio, the latter also with
// an environment that is filtered as the SDK does it if it is not told otherwise.
async function connect({ modules, generation, listChanged, ...to }) {
  const load = createRequire(path.join(modules, 'anything.js'));
  const first = generation === 'v1';
  const client = first ? clientV1(load, listChanged) : clientV2(load, listChanged, generation);
  await client.connect(transport(load, first, to));
  const call = async (name, args, options) => {
    const request = { name, arguments: args };
    const result = await (first ? client.callTool(request, undefined, options) : client.callTool(request, options));
    return JSON.stringify(result.content);
  };
  return { client, call };
}

module.exports = { connect };
