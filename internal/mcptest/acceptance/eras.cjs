// Has clients of the TypeScript SDK, of both eras, over HTTP and stdio, at the
// endpoint of all servers and at that of one, use the server of both.cjs: one
// client after the other, then those of the newer era at once with one of the
// older. Of the older era two would share a connection over which nobody can tell
// whom the server asks: that costs a question, and from then on they share none.
// Nor can it be told soon after another client has given up a call, so that comes
// last.
//
//	node eras.cjs MODULES URL PATCHBAY
const assert = require('node:assert/strict');
const { connect } = require('./client.cjs');

const [modules, url, patchbay] = process.argv.slice(2);

const kinds = ['v1', 'v2-legacy', 'v2-modern'].flatMap((generation) =>
  ['http', 'filtered'].flatMap((way) => ['', 'both'].map((endpoint) => ({ generation, way, endpoint }))),
);

const served = []; // the eras in which clients of the newer one were

async function using(kind, does) {
  const { client, call } = await connect({ modules, url, patchbay, ...kind });
  await does(kind, client, (name, args = {}, options) => call(kind.endpoint ? name : `both__${name}`, args, options));
  await client.close();
}

async function isAsked(kind, client, call) {
  const modern = kind.generation === 'v2-modern';

  const { tools } = await client.listTools();
  assert.equal(tools.filter(({ name }) => kind.endpoint || name.startsWith('both__')).length, 10);
  // A client of the older era that can be asked speaks with the server as if
  // directly. One of the newer does too, unless the server took so long to start
  // that it was taken for one of the older era; what it asks arrives all the same.
  const era = await call('era');
  if (modern) served.push(era.includes('modern') ? 'modern' : 'legacy');
  else assert.match(era, /legacy/);

  const asks = async (prefix) => {
    assert.match(await call(`${prefix}elicit`), /Ada Lovelace/);
    assert.match(await call(`${prefix}sample`), /the model says hello/);
    assert.match(await call(`${prefix}roots`), /file:\/\/\/acceptance/);
  };
  await asks('');
  if (!modern) await asks('push-');
  await Promise.all([call('elicit'), call('sample'), call('roots')]);

  const steps = [];
  assert.match(await call('progress', {}, { onprogress: ({ progress, total }) => total === 3 && steps.push(progress) }), /done/);
  assert(steps.length >= 2 && steps.every((step, i) => step === i + 1), `steps of progress: ${steps}`);
}

let calls = 0;

async function cancels(kind, client, call) {
  const name = `call ${++calls}`;
  const enough = new AbortController();
  await assert.rejects(call('wait', { name }, { signal: enough.signal, onprogress: () => enough.abort('enough') }), /enough/);
  assert.match(await call('cancelled', { name }), /was cancelled/);
}

async function main() {
  const tell = (kind) => (error) => {
    throw new Error(`${Object.values(kind)}: ${error.message}`, { cause: error });
  };
  const modern = kinds.filter(({ generation }) => generation === 'v2-modern');
  const legacy = kinds.filter((kind) => !modern.includes(kind));
  for (const does of [isAsked, cancels]) {
    const chain = async (kinds) => {
      for (const kind of kinds) await using(kind, does).catch(tell(kind));
    };
    let start = Date.now();
    await chain(kinds);
    console.log(`${does.name}, ${kinds.length} clients one after the other: ${Date.now() - start} ms`);
    start = Date.now();
    await Promise.all([legacy, ...modern.map((kind) => [kind, kind])].map(chain));
    console.log(`${does.name}, at once: ${Date.now() - start} ms`);
  }
  console.log(`clients of the newer era were served in ${[...new Set(served)]}`);
  console.log('everything works');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
