// Loads the entrypoint of an app, reports the registered apps, waits for one call, runs it and ends.
// Sends and receives lines of JSON over descriptor 3.

import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import util from 'node:util';
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const SDK = '@onkernel/sdk';
const CHANNEL = 3;
const ENDS = ['.ts', '.mts', '.cts', '.js', '.mjs', '.cjs', '/index.ts', '/index.mts', '/index.js', '/index.mjs'];

/** The URLs of the client's copies that the app has resolved. */
const clients = new Set();
let called = false;

// Resolves names that bundlers and compilers accept for TypeScript: without an extension, and with .js for a .ts file.
registerHooks({
  resolve(specifier, context, next) {
    let found;
    try {
      found = next(specifier, context);
    } catch (error) {
      if (!/^(\.{0,2}\/|file:)/.test(specifier) && specifier !== '.' && specifier !== '..') throw error;
      found = undefined;
      const bare = specifier.replace(/\.(m|c)?js$/, '');
      const own = specifier.slice(bare.length);
      const names = own ? [bare + own.replace('js', 'ts')] : ENDS.map((end) => specifier.replace(/\/$/, '') + end);
      for (const name of names) {
        try {
          found = next(name, context);
          break;
        } catch {
          // Tries the next candidate.
        }
      }
      if (!found) throw error;
    }
    if (specifier === SDK) clients.add(found.url);
    return found;
  },
});

function say(words) {
  const bytes = Buffer.from(JSON.stringify(words) + '\n');
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(CHANNEL, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

function conclude(words) {
  say(words);
  process.reallyExit(0);
}

function named(thrown) {
  try {
    const text = util.types.isNativeError(thrown) ? `${thrown.name}: ${thrown.message}` : util.inspect(thrown, { depth: 1 });
    return text.slice(0, 1000);
  } catch {
    return 'an error that cannot be shown';
  }
}

function raised(thrown) {
  try {
    console.error(thrown);
  } catch {
    // The value cannot be printed.
  }
  conclude({ is: 'raised', reason: named(thrown) });
}

async function load(entrypoint) {
  const file = path.resolve(entrypoint);
  process.argv = [process.argv[0], file];
  await import(pathToFileURL(file).href);
  const registries = new Set();
  for (const url of clients) {
    const client = await import(url);
    const registry = client.appRegistry ?? client.default?.appRegistry;
    if (registry) registries.add(registry);
  }
  if (registries.size === 0) throw new Error(`${entrypoint} does not import ${SDK}, so it registers no app`);
  return [...registries].flatMap((registry) => registry.getApps());
}

async function perform(apps, call) {
  const app = apps.find((each) => each.name === call.app);
  const action = app?.getActions().find((each) => each.name === call.action);
  if (!action) return { is: 'raised', reason: `the program registers no action ${call.action} of an app ${call.app}` };
  const context = { invocation_id: call.invocation };
  const value = await (call.payload === null ? action.handler(context) : action.handler(context, JSON.parse(call.payload)));
  if (value === undefined) return { is: 'returned', output: null };
  const kind = typeof value === 'object' ? (value?.constructor?.name ?? 'object') : typeof value;
  let output;
  try {
    output = JSON.stringify(value);
  } catch (error) {
    return { is: 'unfit', reason: `the action returned a value of the type ${kind} that is not JSON: ${error?.message}` };
  }
  if (output === undefined) return { is: 'unfit', reason: `the action returned a value of the type ${kind}, which is not JSON` };
  if (Buffer.byteLength(output) > call.output_bytes) {
    return { is: 'unfit', reason: `the action returned more than ${call.output_bytes} bytes of JSON` };
  }
  return { is: 'returned', output };
}

process.on('uncaughtException', raised);
process.on('unhandledRejection', raised);

const channel = new net.Socket({ fd: CHANNEL, readable: true, writable: false });
channel.setEncoding('utf8');
let heard = '';
try {
  const apps = await load(process.argv[2]);
  const registered = apps.map((app) => ({ name: String(app.name), actions: app.getActions().map((each) => String(each.name)) }));
  channel.on('data', (part) => {
    heard += part;
    if (called || !heard.includes('\n')) return;
    called = true;
    perform(apps, JSON.parse(heard)).then(conclude, raised);
  });
  channel.on('end', () => process.reallyExit(0));
  say({ is: 'loaded', apps: registered });
} catch (error) {
  raised(error);
}
