// node kernel_node.mjs PAGES_URL: the public JavaScript client, unmodified: calls, refusals, pagers, uploads, downloads,
// streams and cancelled calls. Prints what it saw.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import Kernel, { APIError, APIUserAbortError, toFile } from '@onkernel/sdk';

const [pages] = process.argv.slice(2);
// With this setting the client sends these calls directly to the address of the session. A form that it sends there has
// another boundary in its head than in its body.
process.env.KERNEL_BROWSER_ROUTING_SUBRESOURCES = 'curl,fs/read_file,process,telemetry/stream';
const client = new Kernel({ baseURL: process.env.CASEMENT_URL, apiKey: process.env.CASEMENT_KEY, maxRetries: 0, timeout: 300000 });
const name = `node-${process.pid}`;

async function refused(call) {
  try {
    await call();
  } catch (error) {
    assert(error instanceof APIError, error);
    return [error.status, error.error.code];
  }
  return 'not refused';
}

async function first(stream, fits = () => true) {
  for await (const item of stream) if (fits(item)) return item;
  throw new Error('the stream ended');
}

async function calls() {
  const session = await client.browsers.create({ headless: true, name, tags: { of: name }, timeout_seconds: 600, start_url: `${pages}/form` });
  const { session_id: id } = session;
  assert.equal((await client.browsers.retrieve(name)).session_id, id);
  assert.equal((await client.browsers.update(id, { tags: { of: 'node' } })).tags.of, 'node');
  const shot = await (await client.browsers.computer.captureScreenshot(id)).arrayBuffer();
  assert.equal(Buffer.from(shot).subarray(1, 4).toString(), 'PNG');
  const ran = await client.browsers.playwright.execute(id, { code: 'return await page.title()' });
  assert.equal(ran.success, true, JSON.stringify(ran));
  const curl = await client.browsers.curl(id, { url: `${pages}/form` });
  assert.equal(curl.status, 200);
  return { id, unknown: await refused(() => client.browsers.retrieve('nobody')), gpu: await refused(() => client.browsers.create({ gpu: true })) };
}

async function pagers() {
  const names = [1, 2, 3].map((n) => `${name}-${n}`);
  for (const one of names) await client.credentials.create({ name: one, domain: 'node.example', values: { password: 'x' } });
  const listed = [];
  for await (const credential of client.credentials.list({ domain: 'node.example', limit: 2 })) listed.push(credential.name);
  for (const one of names) await client.credentials.delete(one);
  return listed.sort().map((one) => one.replace(`${name}-`, ''));
}

async function files(id) {
  const top = '/home/casement/node';
  const bytes = Buffer.alloc(300000, 'casement');
  await client.browsers.fs.createDirectory(id, { path: top });
  await client.browsers.fs.writeFile(id, bytes, { path: `${top}/one` });
  await client.browsers.fs.upload(id, { files: [
    { dest_path: `${top}/two`, file: await toFile(Buffer.from('two'), 'two') },
    { dest_path: `${top}/three`, file: await toFile(Buffer.from('three'), 'three') },
  ] });
  const read = Buffer.from(await (await client.browsers.fs.readFile(id, { path: `${top}/one` })).arrayBuffer());
  const listed = (await client.browsers.fs.listFiles(id, { path: top })).map((entry) => entry.name);
  const hash = (content) => createHash('sha256').update(content).digest('hex');
  // The client would repeat a refusal with 401 or 403 at another address.
  const forbidden = await refused(() => client.browsers.fs.readFile(id, { path: '/proc/self/environ' }));
  return { same: hash(read) === hash(bytes), listed, forbidden };
}

async function streams(id) {
  const spawned = await client.browsers.process.spawn(id, { command: 'sh', args: ['-c', 'echo said; sleep 60'] });
  const output = await client.browsers.process.stdoutStream(spawned.process_id, { id });
  const said = await first(output, (event) => event.data_b64);
  await client.browsers.process.kill(spawned.process_id, { id, signal: 'KILL' });
  await client.browsers.update(id, { telemetry: { enabled: true, browser: { console: { enabled: true } } } });
  const telemetry = await client.browsers.telemetry.stream(id);
  const seen = first(telemetry, (event) => event.event.type === 'console_log');
  await client.browsers.playwright.execute(id, { code: "await page.evaluate(() => console.log('from node'))" });
  return { said: Buffer.from(said.data_b64, 'base64').toString(), seen: (await seen).event.type };
}

async function cancelled() {
  const pool = await client.browserPools.create({ name, size: 1, headless: true });
  const leased = await client.browserPools.acquire(pool.id, { acquire_timeout_seconds: 240 });
  const cancel = new AbortController();
  const waits = client.browserPools.acquire(pool.id, { acquire_timeout_seconds: 240 }, { signal: cancel.signal });
  setTimeout(() => cancel.abort(), 500);
  const ended = await waits.then(() => 'answered', (error) => error instanceof APIUserAbortError);
  // The cancelled call does not take the browser that is released now.
  await client.browserPools.release(pool.id, { session_id: leased.session_id });
  const next = await client.browserPools.acquire(pool.id, { acquire_timeout_seconds: 240 });
  await client.browserPools.delete(pool.id, { force: true });
  return [ended, next.session_id !== leased.session_id];
}

async function exported() {
  const parts = [];
  const file = { write: (chunk) => { parts.push(Buffer.from(chunk)); } };
  const start = new Date(Date.now() - 3600000).toISOString();
  const end = new Date(Date.now() + 3600000).toISOString();
  const done = await client.auditLogs.download({ start, end, method: 'POST', limit: 4 }, file);
  const lines = gunzipSync(Buffer.concat(parts)).toString().trim().split('\n');
  return [done.rows === lines.length, done.chunks > 1];
}

const { id, ...refusals } = await calls();
const saw = { refusals, pagers: await pagers(), files: await files(id), streams: await streams(id), cancelled: await cancelled(), exported: await exported() };
await client.browsers.deleteByID(id);
saw.gone = await refused(() => client.browsers.retrieve(id));
console.log(JSON.stringify(saw));
