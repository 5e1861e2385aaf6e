// node kernel_methods.mjs PAGES_URL LOGIN_URL STORE_URL STORE_TOKEN FRAMEWORK: every method of the public JavaScript client,
// unmodified, except the web store's. FRAMEWORK is a file with the part of the Python client's framework that an app needs. Prints
// the methods whose answer is not the expected one.
import { Buffer } from 'node:buffer';
import { readFileSync } from 'node:fs';
import Kernel, { toFile } from '@onkernel/sdk';
import JSZip from 'jszip';

const [pages, loginUrl, storeUrl, storeToken, framework] = process.argv.slice(2);
const client = new Kernel({ baseURL: process.env.CASEMENT_URL, apiKey: process.env.CASEMENT_KEY, maxRetries: 0, timeout: 300000 });
const wrong = {};

/** Calls a method, and notes it if `fits` does not hold for its answer. Returns the answer. */
async function call(path, args = [], fits = () => true) {
  const names = path.split('.');
  const name = names.pop();
  const owner = names.reduce((resource, part) => resource[part], client);
  const answer = await owner[name](...args);
  if (!(await fits(answer))) wrong[path] = JSON.stringify(answer)?.slice(0, 300) ?? 'no answer';
  return answer;
}

async function zip(files) {
  const archive = new JSZip();
  for (const [name, text] of Object.entries(files)) archive.file(name, text);
  return archive.generateAsync({ type: 'nodebuffer' });
}

const extension = (name) => zip({ 'manifest.json': JSON.stringify({ manifest_version: 3, name, version: '1.0' }) });
const bytes = async (response) => Buffer.from(await response.arrayBuffer());
const empty = (answer) => answer === null || answer === undefined;

/** Returns the first item of a stream or of a pager that fits. */
async function first(items, fits = () => true) {
  for await (const item of items) if (fits(item)) return item;
}

async function computer(id) {
  const of = (name) => `browsers.computer.${name}`;
  await call(of('writeClipboard'), [id, { text: 'ä 漢' }], empty);
  await call(of('readClipboard'), [id], (answer) => answer.text === 'ä 漢');
  await call(of('captureScreenshot'), [id], async (answer) => (await bytes(answer)).subarray(1, 4).toString() === 'PNG');
  await call(of('moveMouse'), [id, { x: 10, y: 20 }], empty);
  await call(of('getMousePosition'), [id], ({ x, y }) => x === 10 && y === 20);
  await call(of('clickMouse'), [id, { x: 30, y: 40 }], empty);
  await call(of('dragMouse'), [id, { path: [[5, 5], [50, 50]], step_delay_ms: 0 }], empty);
  await call(of('scroll'), [id, { x: 30, y: 40, delta_y: 2 }], empty);
  await call(of('pressKey'), [id, { keys: ['Escape'] }], empty);
  await call(of('typeText'), [id, { text: 'x' }], empty);
  await call(of('setCursorVisibility'), [id, { hidden: true }], (answer) => answer.ok);
  await call(of('batch'), [id, { actions: [{ type: 'move_mouse', move_mouse: { x: 1, y: 1 } }] }], empty);
}

async function files(id) {
  const [fs, top] = ['browsers.fs.', '/home/casement/methods'];
  await call(`${fs}createDirectory`, [id, { path: top }], empty);
  const { watch_id } = await call(`${fs}watch.start`, [id, { path: top }], (answer) => answer.watch_id);
  const events = await call(`${fs}watch.events`, [watch_id, { id }]);
  const seen = first(events);
  await call(`${fs}writeFile`, [id, 'one', { path: `${top}/one` }], empty);
  if (!(await seen)?.path.startsWith(top)) wrong[`${fs}watch.events`] = await seen;
  await call(`${fs}watch.stop`, [watch_id, { id }], empty);
  await call(`${fs}readFile`, [id, { path: `${top}/one` }], async (answer) => (await bytes(answer)).toString() === 'one');
  await call(`${fs}fileInfo`, [id, { path: `${top}/one` }], (answer) => answer.size_bytes === 3);
  await call(`${fs}listFiles`, [id, { path: top }], ([entry]) => entry.name === 'one');
  await call(`${fs}setFilePermissions`, [id, { path: `${top}/one`, mode: '600' }], empty);
  await call(`${fs}move`, [id, { src_path: `${top}/one`, dest_path: `${top}/moved` }], empty);
  const file = await toFile(Buffer.from('up'), 'up');
  await call(`${fs}upload`, [id, { files: [{ dest_path: `${top}/up`, file }] }], empty);
  const zip_file = await toFile(await extension('zip'), 'zip.zip');
  await call(`${fs}uploadZip`, [id, { dest_path: `${top}/zip`, zip_file }], empty);
  const holds = async (answer) => 'up' in (await JSZip.loadAsync(await bytes(answer))).files;
  await call(`${fs}downloadDirZip`, [id, { path: top }], holds);
  await call(`${fs}deleteFile`, [id, { path: `${top}/moved` }], empty);
  await call(`${fs}deleteDirectory`, [id, { path: top }], empty);
}

async function processes(id) {
  const of = (name) => `browsers.process.${name}`;
  const said = (answer) => Buffer.from(answer.stdout_b64, 'base64').toString() === 'hi\n';
  await call(of('exec'), [id, { command: 'echo', args: ['hi'] }], said);
  const { process_id } = await call(of('spawn'), [id, { command: 'cat', allocate_tty: true }], (answer) => answer.process_id);
  await call(of('status'), [process_id, { id }], (answer) => answer.state === 'running');
  await call(of('resize'), [process_id, { id, cols: 100, rows: 30 }], (answer) => answer.ok);
  const data_b64 = Buffer.from('line\n').toString('base64');
  await call(of('stdin'), [process_id, { id, data_b64 }], (answer) => answer.written_bytes === 5);
  await call(of('stdoutStream'), [process_id, { id }], async (answer) => (await first(answer)).stream === 'stdout');
  await call(of('kill'), [process_id, { id, signal: 'KILL' }], (answer) => answer.ok);
}

async function sessions() {
  const { session_id: id } = await call('browsers.create', [{ headless: true, timeout_seconds: 600 }]);
  await call('browsers.retrieve', [id], (answer) => answer.session_id === id);
  await call('browsers.list', [{ status: 'active' }], async (answer) => (await first(answer, (one) => one.session_id === id)));
  const telemetry = { enabled: true, browser: { console: { enabled: true } } };
  await call('browsers.update', [id, { name: 'methods', telemetry }], (answer) => answer.name === 'methods');
  const code = `await page.goto('${pages}/form'); return await page.title()`;
  await call('browsers.playwright.execute', [id, { code }], (answer) => answer.result === 'A form');
  await computer(id);
  await files(id);
  await processes(id);
  const log = { source: 'path', path: '/etc/passwd', follow: false };
  await call('browsers.logs.stream', [id, log], async (answer) => (await first(answer)).message);
  const stream = await call('browsers.telemetry.stream', [id]);
  const seen = first(stream, ({ event }) => event.type === 'console_log');
  await client.browsers.playwright.execute(id, { code: "await page.evaluate(() => console.log('told'))" });
  if (!(await seen)) wrong['browsers.telemetry.stream'] = 'ended';
  const told = async (answer) => first(answer, ({ event }) => event.type === 'console_log');
  await call('browsers.telemetry.events', [id, { since: '2020-01-01T00:00:00Z' }], told);
  await call('browsers.curl', [id, { url: `${pages}/form` }], (answer) => answer.status === 200);
  await call('browsers.fetch', [id, `${pages}/form`], async (answer) => (await answer.text()).includes('A form'));
  const { replay_id } = await call('browsers.replays.start', [id], (answer) => answer.replay_id);
  await call('browsers.replays.list', [id], ([one]) => one.replay_id === replay_id);
  await client.browsers.playwright.execute(id, { code: 'await page.waitForTimeout(1000)' });
  await call('browsers.replays.stop', [replay_id, { id }], empty);
  const film = async (answer) => (await bytes(answer)).subarray(4, 8).toString() === 'ftyp';
  await call('browsers.replays.download', [replay_id, { id }], film);
  const zip_file = await toFile(await extension('loaded'), 'loaded.zip');
  await call('browsers.loadExtensions', [id, { extensions: [{ name: 'loaded', zip_file }] }], empty);
  await call('browsers.deleteByID', [id], empty);
}

async function pools() {
  const pool = await call('browserPools.create', [{ name: 'methods', size: 1, headless: true }], (answer) => answer.id);
  await call('browserPools.retrieve', ['methods'], (answer) => answer.id === pool.id);
  await call('browserPools.list', [], async (answer) => (await first(answer)).id === pool.id);
  await call('browserPools.update', [pool.id, { timeout_seconds: 300 }], (answer) => answer.browser_pool_config.timeout_seconds === 300);
  const leased = await call('browserPools.acquire', [pool.id, { acquire_timeout_seconds: 240 }], (answer) => answer.session_id);
  await call('browserPools.release', [pool.id, { session_id: leased.session_id }], empty);
  await call('browserPools.flush', [pool.id], empty);
  await call('browserPools.delete', [pool.id, { force: true }], empty);
}

async function stored() {
  const profile = await call('profiles.create', [{ name: 'methods' }], (answer) => answer.name === 'methods');
  const { session_id } = await client.browsers.create({ headless: true, profile: { id: profile.id, save_changes: true } });
  await client.browsers.deleteByID(session_id);
  await call('profiles.retrieve', ['methods'], (answer) => answer.id === profile.id);
  await call('profiles.list', [], async (answer) => (await first(answer)).id === profile.id);
  await call('profiles.update', [profile.id, { name: 'renamed' }], (answer) => answer.name === 'renamed');
  await call('profiles.download', [profile.id], async (answer) => (await bytes(answer)).subarray(0, 4).toString('hex') === '28b52ffd');
  await call('profiles.delete', [profile.id], empty);

  const kept = await extension('kept');
  const file = await toFile(kept, 'kept.zip');
  await call('extensions.upload', [{ file, name: 'kept' }], (answer) => answer.name === 'kept');
  await call('extensions.list', [], async (answer) => (await first(answer)).name === 'kept');
  await call('extensions.get', ['kept'], (answer) => answer.checksum);
  await call('extensions.download', ['kept'], async (answer) => (await bytes(answer)).equals(kept));
  await call('extensions.delete', ['kept'], empty);

  const config = { host: '127.0.0.1', port: 9 };
  const proxy = await call('proxies.create', [{ type: 'custom', name: 'nowhere', protocol: 'http', config }], (answer) => answer.id);
  await call('proxies.retrieve', [proxy.id], (answer) => answer.name === 'nowhere');
  await call('proxies.list', [], async (answer) => (await first(answer)).id === proxy.id);
  await call('proxies.update', [proxy.id, { name: 'elsewhere' }], (answer) => answer.name === 'elsewhere');
  await call('proxies.check', [proxy.id], (answer) => answer.status === 'unavailable');
  await call('proxies.delete', [proxy.id], empty);
}

async function secrets() {
  const values = { username: 'me', password: 'hunter2-of-node' };
  const shop = { name: 'shop', domain: 'shop.example', values, totp_secret: 'GEZDGNBVGY3TQOJQ' };
  await call('credentials.create', [shop], (answer) => answer.has_totp_secret);
  await call('credentials.retrieve', ['shop'], (answer) => answer.domain === 'shop.example');
  await call('credentials.list', [], async (answer) => (await first(answer)).name === 'shop');
  await call('credentials.totpCode', ['shop'], (answer) => answer.code.length === 6);
  await call('credentials.update', ['shop', { name: 'store' }], (answer) => answer.name === 'store');
  await call('credentials.delete', ['store'], empty);

  const team = { name: 'Team', provider_type: 'onepassword', token: storeToken, server_url: storeUrl };
  const { id } = await call('credentialProviders.create', [team], (answer) => answer.name === 'Team');
  await call('credentialProviders.retrieve', [id], (answer) => answer.id === id);
  await call('credentialProviders.list', [], async (answer) => (await first(answer)).id === id);
  await call('credentialProviders.test', [id], (answer) => answer.success);
  await call('credentialProviders.listItems', [id], (answer) => answer.items[0].path === 'Team/Shop');
  await call('credentialProviders.update', [id, { name: 'Crew' }], (answer) => answer.name === 'Crew');
  await call('credentialProviders.delete', [id], empty);
}

async function logins() {
  const of = (name) => `auth.connections.${name}`;
  const wish = { domain: 'localhost', profile_name: 'shop-node', login_url: loginUrl };
  const { id } = await call(of('create'), [wish], (answer) => answer.status === 'NEEDS_AUTH');
  await call(of('update'), [id, { auto_reauth: false }], (answer) => answer.auto_reauth === false);
  await call(of('list'), [], async (answer) => (await first(answer)).id === id);
  await call(of('login'), [id], (answer) => answer.flow_type === 'LOGIN');
  const values = { identifier: 'ann', password: 'hunter2-so-secret' };
  let [submitted, ends] = [false, null];
  for await (const event of await call(of('follow'), [id])) {
    if (event.event !== 'managed_auth_state') continue;
    ends = event.flow_status;
    if (ends !== 'IN_PROGRESS') break;
    if (event.flow_step !== 'AWAITING_INPUT' || submitted) continue;
    submitted = true;
    const field_values = Object.fromEntries(event.fields.map((field) => [field.id, values[field.type]]));
    await call(of('submit'), [id, { field_values, interaction_id: event.interaction_id }], (answer) => answer.accepted);
  }
  if (ends !== 'SUCCESS') wrong[of('follow')] = ends;
  await call(of('retrieve'), [id], (answer) => answer.status === 'AUTHENTICATED');
  await call(of('timeline'), [id], async (answer) => (await first(answer)).type === 'login');
  await call(of('delete'), [id], empty);
}

async function organization() {
  const made = await call('projects.create', [{ name: 'Alpha' }], (answer) => answer.name === 'Alpha');
  await call('projects.retrieve', [made.id], (answer) => answer.id === made.id);
  await call('projects.list', [{ query: 'alph' }], async (answer) => (await first(answer)).id === made.id);
  await call('projects.update', [made.id, { name: 'Beta' }], (answer) => answer.name === 'Beta');
  await call('projects.limits.update', [made.id, { max_concurrent_sessions: 1 }], (answer) => answer.max_concurrent_sessions === 1);
  await call('projects.limits.retrieve', [made.id], (answer) => answer.max_concurrent_sessions === 1);
  await call('projects.delete', [made.id], empty);

  const share = 'default_project_max_concurrent_sessions';
  await call('organization.limits.update', [{ [share]: 40 }], (answer) => answer[share] === 40);
  await call('organization.limits.update', [{ [share]: null }]);
  await call('organization.limits.retrieve', [], (answer) => answer.max_concurrent_sessions > 0);

  const key = await call('apiKeys.create', [{ name: 'robot', days_to_expire: 10 }], (answer) => answer.key.startsWith('csk_'));
  await call('apiKeys.retrieve', [key.id], (answer) => answer.name === 'robot');
  await call('apiKeys.list', [], async (answer) => await first(answer, (one) => one.id === key.id));
  await call('apiKeys.update', [key.id, { name: 'renamed' }], (answer) => answer.name === 'renamed');
  const rotated = await call('apiKeys.rotate', [key.id, { expire_in_days: 0 }], (answer) => answer.key !== key.key);
  await call('apiKeys.delete', [rotated.id], empty);

  const hour = 3600000;
  const span = { start: new Date(Date.now() - hour).toISOString(), end: new Date(Date.now() + hour).toISOString() };
  await call('auditLogs.list', [span], async (answer) => (await first(answer)).route);
  await call('auditLogs.exportChunk', [span], async (answer) => (await bytes(answer)).length > 0);
  const parts = [];
  await call('auditLogs.download', [span, { write: (chunk) => void parts.push(chunk) }], (answer) => answer.rows > 0 && parts.length > 0);
}

const PROGRAM = `import time

import kernel

app = kernel.App("shop")


@app.action("echo")
def echo(context, payload):
    return payload


@app.action("wait")
def wait(context):
    time.sleep(900)
`;

async function apps() {
  const file = await toFile(await zip({ 'main.py': PROGRAM, 'kernel.py': readFileSync(framework, 'utf8') }), 'app.zip');
  const app = { file, entrypoint_rel_path: 'main.py', version: '1.0' };
  const { id } = await call('deployments.create', [app], (answer) => answer.status === 'queued');
  const over = ({ event, deployment }) => event === 'deployment_state' && ['running', 'failed', 'stopped'].includes(deployment.status);
  await call('deployments.follow', [id], async (answer) => (await first(answer, over)).deployment.status === 'running');
  await call('deployments.retrieve', [id], (answer) => answer.status === 'running');
  await call('deployments.list', [], async (answer) => (await first(answer)).id === id);
  await call('apps.list', [], async (answer) => (await first(answer)).app_name === 'shop');

  const action = { app_name: 'shop', version: '1.0' };
  const done = await call('invocations.create', [{ ...action, action_name: 'echo', payload: '{"n": 1}' }], (answer) => answer.status === 'succeeded');
  await call('invocations.retrieve', [done.id], (answer) => JSON.parse(answer.output).n === 1);
  await call('invocations.list', [], async (answer) => (await first(answer)).id === done.id);
  await call('invocations.follow', [done.id], async (answer) => (await first(answer)).event === 'invocation_state');
  const waits = await client.invocations.create({ ...action, action_name: 'wait', async: true });
  await call('invocations.listBrowsers', [waits.id], (answer) => answer.browsers.length === 0);
  await call('invocations.deleteBrowsers', [waits.id], empty);
  await call('invocations.update', [waits.id, { status: 'failed', output: '"enough"' }], (answer) => answer.status === 'failed');
  await call('deployments.delete', [id], empty);
}

await sessions();
await pools();
await stored();
await secrets();
await logins();
await organization();
await apps();
console.log(JSON.stringify(wrong));
