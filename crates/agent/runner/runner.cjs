'use strict';
// A process that runs code of a caller against the browser of its session. It loads Playwright and connects before the
// code arrives. With `run` it runs one script; the agent ends it after the script's answer, so that a script cannot
// change anything for another one. With `evaluate` it is the REPL, which retains its variables.
//
// Descriptor 0 carries frames in both directions: four bytes of length (little-endian), then JSON. The script's output
// goes to the descriptors 1 and 2, and is written before the frame with the script's result.

const net = require('node:net');
const fs = require('node:fs');
const { createRequire } = require('node:module');

const { compile, explain, mapped } = require('./compile.cjs');
const { inJson } = require('./value.cjs');
const { Link } = require('./link.cjs');
const { freshConsole, flushed } = require('./output.cjs');

// Stored before a script can replace them.
const { stringify, parse } = JSON;
const { from, alloc } = Buffer;
const { writeUInt32LE } = Buffer.prototype;
const { exit } = process;

/** The answer beside a dialog that the code does not know. */
const BLOCKED = '{"is":"blocked"}';

/** Serves the agent. `chromium` is the browser type of Playwright. */
function start(chromium) {
  // The kernel kills this process first when the session's memory is full.
  try { fs.writeFileSync('/proc/self/oom_score_adj', '1000'); } catch { /* Optional. */ }
  globalThis.require = createRequire('/home/casement/script.js');

  const socket = new net.Socket({ fd: 0, readable: true, writable: true });
  const write = socket.write.bind(socket);
  const link = new Link(chromium);
  let failed = null;
  let repl = null;

  process.on('unhandledRejection', (reason) => failed?.('Unhandled rejection: ', reason));
  process.on('uncaughtException', (error) => failed?.('Uncaught exception: ', error));

  function send(text) {
    const body = from(text);
    const head = alloc(4);
    writeUInt32LE.call(head, body.length);
    write(head);
    return new Promise((sent) => write(body, sent));
  }

  /** Runs the script and returns the answer to its call, as JSON. */
  async function run({ code, endpoint, target, others, downloads }) {
    let script;
    try {
      script = compile(code);
    } catch (error) {
      return refusal(error.message);
    }
    if (link.isBlocked()) return BLOCKED;
    const { page, context, browser, tab } = await link.to(endpoint, target, others, downloads);
    await send(stringify({ is: 'bound', tab }));
    // Called without its object, which would appear in the stack frames of errors.
    const { run: begin } = script;
    globalThis.console = freshConsole();
    try {
      const broken = new Promise((resolve) => { failed = (kind, thrown) => resolve({ error: kind + explain(thrown) }); });
      const whole = (async () => ({ value: await begin(page, context, browser) }))();
      const { value, error } = await Promise.race([whole, broken]);
      if (error !== undefined) return refusal(mapped(error, script.map));
      const text = inJson(value);
      return text === undefined ? '{"is":"done","success":true}' : `{"is":"done","success":true,"result":${text}}`;
    } catch (error) {
      return refusal(mapped(explain(error), script.map));
    } finally {
      failed = null;
      link.leaveDialogs();
    }
  }

  /** Evaluates code in the REPL and returns the answer to its call, as JSON. */
  async function evaluate({ code, endpoint, others, downloads }) {
    if (link.isBlocked()) return BLOCKED;
    try {
      const { page, context, browser } = await link.to(endpoint, null, others, downloads);
      // Loaded only here, because scripts do not need it.
      repl ??= new (require('./repl.cjs').Repl)((content) => send(stringify({ is: 'output', content })));
      failed ??= (kind, thrown) => repl.report(kind, thrown);
      return stringify({ is: 'done', ...await repl.evaluate(code, { page, context, browser }) });
    } finally {
      link.release();
    }
  }

  async function serve(frame) {
    if (frame.is === 'rest') return link.close();
    if (frame.is === 'connect') {
      await link.connect(frame.endpoint).catch(() => {});
      return send('{"is":"ready"}');
    }
    let answer;
    try {
      answer = await (frame.is === 'evaluate' ? evaluate(frame) : run(frame));
    } catch (error) {
      // The browser refused the connection: no part of the code was run.
      answer = stringify({ is: 'failed', error: explain(error) });
    }
    await flushed();
    return send(answer);
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
}

function refusal(error) {
  return stringify({ is: 'done', success: false, error });
}

module.exports = { start };

if (require.main === module) start(require('playwright-core').chromium);
