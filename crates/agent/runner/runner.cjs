'use strict';
// One process that runs scripts, one after the other, against the browser of its session.
//
// Frames go both ways over descriptor 0: four bytes of length, then JSON. What a script prints goes to the descriptors 1 and 2 and
// is written before the frame that says how it ended. A process that a script has changed is not used again: it ends itself, and the
// agent has another one.

const net = require('node:net');
const fs = require('node:fs');

const { compile, explain, mapped } = require('./compile.cjs');
const { inJson } = require('./value.cjs');
const { Traces } = require('./traces.cjs');
const { Link } = require('./link.cjs');
const { freshConsole, flushed } = require('./output.cjs');

/** Scripts that one process runs at most, and the resident bytes that it is ended at: what leaks slowly ends with it. */
const MOST_RUNS = 500;
const MOST_RESIDENT = 400 << 20;
/** How long what ends by itself may take for it, in milliseconds. */
const SETTLE = 25;

const { stringify, parse } = JSON;
const { exit, memoryUsage } = process;
const later = setImmediate;
const pause = setTimeout;
// What the kernel takes first when the session's memory is full.
try { fs.writeFileSync('/proc/self/oom_score_adj', '1000'); } catch { /* a wish, no more */ }

const socket = new net.Socket({ fd: 0, readable: true, writable: true });
const write = socket.write.bind(socket);

function send(text) {
  const body = Buffer.from(text);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  write(head);
  return new Promise((sent) => write(body, sent));
}

const link = new Link();
let failed = null;
const traces = new Traces(() => void send('{"is":"stained"}'));

process.on('unhandledRejection', (reason) => failed?.('Unhandled rejection: ' + explain(reason)));
process.on('uncaughtException', (error) => failed?.('Uncaught exception: ' + explain(error)));

/** Runs one script and answers what becomes of the call, as JSON. */
async function run({ code, endpoint }) {
  let script;
  try {
    script = compile(code);
  } catch (error) {
    return refusal(error.message);
  }
  if (script.needsProcess) traces.stain();
  const { page, context, browser } = await link.to(endpoint);
  traces.begin();
  const { run: start } = script;
  globalThis.console = freshConsole();
  try {
    const broken = new Promise((resolve) => { failed = (error) => resolve({ error }); });
    const whole = (async () => ({ value: await start(page, context, browser) }))();
    const { value, error } = await Promise.race([whole, broken]);
    if (error !== undefined) {
      traces.stain();
      return refusal(mapped(error, script.map));
    }
    const text = inJson(value);
    return text === undefined ? '{"is":"done","success":true}' : `{"is":"done","success":true,"result":${text}}`;
  } catch (error) {
    return refusal(mapped(explain(error), script.map));
  } finally {
    failed = null;
  }
}

function refusal(error) {
  return stringify({ is: 'done', success: false, error });
}

let runs = 0;

async function serve(frame) {
  if (frame.is === 'rest') return link.close();
  if (frame.is === 'connect') {
    await link.to(frame.endpoint).catch(() => {});
    traces.remember(link.roots());
    return send('{"is":"ready"}');
  }
  runs += 1;
  let answer;
  try {
    answer = await run(frame);
  } catch (error) {
    // The browser did not take the connection: nothing of the script was run.
    answer = stringify({ is: 'failed', error: explain(error) });
  }
  // Only a script that has the process for itself can have written past its console.
  if (traces.stained) await flushed();
  await send(answer);
  // Whatever it left to be done at once is done now, and shows.
  await new Promise((done) => later(done));
  if (!traces.stained && traces.left()) {
    // What Playwright itself had begun ends with the connection, a little later.
    await link.close();
    await new Promise((done) => pause(done, SETTLE));
  }
  const left = traces.left() ?? (runs >= MOST_RUNS || memoryUsage.rss() > MOST_RESIDENT ? 'age' : null);
  if (left) {
    await send(stringify({ is: 'worn', why: left }));
    exit(0);
  }
  await link.renew(frame.endpoint);
  return send('{"is":"ready"}');
}

let unread = Buffer.alloc(0);
let turn = Promise.resolve();

socket.on('data', (bytes) => {
  unread = unread.length ? Buffer.concat([unread, bytes]) : bytes;
  while (unread.length >= 4 && unread.length >= 4 + unread.readUInt32LE(0)) {
    const end = 4 + unread.readUInt32LE(0);
    const frame = parse(unread.toString('utf8', 4, end));
    unread = unread.subarray(end);
    turn = turn.then(() => serve(frame)).catch(() => exit(70));
  }
});
socket.on('end', () => exit(0));
socket.on('error', () => exit(0));
