'use strict';
// A JavaScript session: code of several calls shares its top-level variables. V8 evaluates it as the console of its
// developer tools does, which allows `await` and repeated declarations.

const util = require('node:util');
const vm = require('node:vm');
const { Console } = require('node:console');
const { Session } = require('node:inspector');
const { SourceMap } = require('node:module');
const { Writable } = require('node:stream');
const { parseSync, transformSync } = require('@swc/core');

const { OPTIONS, syntaxError } = require('./compile.cjs');

const { byteLength, from } = Buffer;
const { parse } = JSON;
/** The maximum number of bytes of all texts of a call, and of all pictures in base64. */
const MOST_TEXT = 1 << 20;
const MOST_IMAGES = 8 << 20;
/** The maximum number of outputs of a call. */
const MOST_ITEMS = 10_000;
/** The calls whose errors can be mapped to their own lines. */
const MOST_MAPS = 1000;
/** The property that code reaches instead of `import(…)`, which V8 does not offer to such code. */
const IMPORT = '__import';
const THROWN = Symbol('thrown');
const SIGNS = [['image/png', '89504e470d0a1a0a'], ['image/jpeg', 'ffd8ff'], ['image/gif', '47494638'], ['image/webp', '52494646']];
const HELP = {
  write: 'repl.write(...values): adds a text to the output of the call. Strings are written as they are, other values as util.inspect shows them.',
  emitImage: 'repl.emitImage(image, mimeType?): adds a picture to the output of the call. The image is a Buffer, a Uint8Array, text in base64, a data: URL, or a promise of one of them: repl.emitImage(await page.screenshot()).',
  help: 'repl.help(name?): writes what the REPL offers, or the description of one name.',
  page: 'page: the page that was focused last when the call began (Playwright).',
  context: 'context: the browser context of page (Playwright). A session of the debugging protocol: await context.newCDPSession(page).',
  browser: 'browser: the browser (Playwright).',
  require: 'require(name): loads a module. Static imports are not supported; use await import(name).',
};

class Repl {
  #emit;
  #session = new Session();
  #maps = new Map();
  #calls = 0;
  #left = { text: 0, images: 0, items: 0 };
  #truncated = false;

  /** `emit` sends an output. */
  constructor(emit) {
    this.#emit = emit;
    this.#session.connect();
    const load = new vm.Script('(name, options) => import(name, options)', {
      importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInThisContext();
    Object.defineProperty(globalThis, IMPORT, { value: load });
    globalThis.repl = Object.freeze({
      write: (...values) => this.#text('write', values.map(shown).join(' ')),
      emitImage: (image, mimeType) => this.#image(image, mimeType),
      help: (name) => this.#text('write', name === undefined ? Object.values(HELP).join('\n') : HELP[name] ?? `repl.help: there is no ${name}`),
    });
    const stream = (channel) => new Writable({ decodeStrings: false, write: (chunk, _, done) => { this.#text(channel, String(chunk)); done(); } });
    const [stdout, stderr] = ['stdout', 'stderr'].map(stream);
    globalThis.console = new Console({ stdout, stderr });
    process.stdout.write = stdout.write.bind(stdout);
    process.stderr.write = stderr.write.bind(stderr);
  }

  /** Evaluates code with these globals. Returns the error and its stack, if it fails. */
  async evaluate(code, globals) {
    this.#left = { text: MOST_TEXT, images: MOST_IMAGES, items: MOST_ITEMS };
    this.#truncated = false;
    for (const [name, value] of Object.entries(globals)) {
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: true });
    }
    this.#calls += 1;
    const outcome = await this.#run(code, `repl-${this.#calls}.ts`);
    return { ...outcome, truncated: this.#truncated };
  }

  /** Writes an error that no code has caught. */
  report(kind, thrown) {
    const { error, stack } = this.#explain(thrown);
    this.#text('stderr', `${kind}${stack ?? error}\n`);
  }

  async #run(code, name) {
    let expression;
    try {
      expression = this.#compile(code, name);
    } catch (error) {
      return { error: error.message.split('\n')[0], stack: error.message };
    }
    const objectGroup = name;
    const { exceptionDetails } = await this.#post('Runtime.evaluate', { expression, objectGroup, replMode: true, awaitPromise: true });
    if (!exceptionDetails) return {};
    const { exception } = exceptionDetails;
    const thrown = exception?.objectId ? await this.#object(exception.objectId) : exception?.value ?? exception?.description;
    await this.#post('Runtime.releaseObjectGroup', { objectGroup });
    return this.#explain(thrown);
  }

  /** Returns the code as V8 evaluates it: JavaScript without a value, with `import(…)` as a call. */
  #compile(code, name) {
    const options = { ...OPTIONS, filename: name };
    let made;
    try {
      // One more line, as the places of syntax errors expect.
      const program = parseSync(`\n${code}`, { ...OPTIONS.jsc.parser, target: OPTIONS.jsc.target, isModule: true });
      if (program.body.some(({ type }) => /^(Import|Export)/.test(type))) {
        throw new Error('Static imports and exports are not supported; use await import(name)');
      }
      replaceImports(program);
      made = transformSync(program, options);
    } catch (error) {
      throw new SyntaxError(syntaxError(String(error?.message ?? error), code, name));
    }
    this.#maps.set(name, new SourceMap(parse(made.map)));
    if (this.#maps.size > MOST_MAPS) this.#maps.delete(this.#maps.keys().next().value);
    return `${made.code}\n;undefined;\n//# sourceURL=${name}`;
  }

  #post(method, parameters) {
    return new Promise((resolve, reject) => {
      this.#session.post(method, parameters, (error, reply) => (error ? reject(new Error(error.message)) : resolve(reply)));
    });
  }

  /** Returns the object that V8 names by this id. */
  async #object(objectId) {
    let object;
    globalThis[THROWN] = (value) => { object = value; };
    const symbols = 'Object.getOwnPropertySymbols(globalThis).find((symbol) => symbol.description === "thrown")';
    await this.#post('Runtime.callFunctionOn', { objectId, functionDeclaration: `function () { globalThis[${symbols}](this); }` });
    delete globalThis[THROWN];
    return object;
  }

  /** Returns the message of a thrown value, and its stack with the lines and columns of the callers' code. */
  #explain(thrown) {
    try {
      if (!util.types.isNativeError(thrown)) return { error: 'thrown: ' + util.inspect(thrown, { depth: 2 }).slice(0, 10_000) };
      const error = `${thrown.name}: ${thrown.message}`.replace(/\u001b\[[0-9;]*m/g, '').slice(0, 100_000);
      const frames = String(thrown.stack ?? '').split('\n').filter((line) => /^ {4}at .*repl-\d+\.ts:\d+:\d+/.test(line));
      return { error, stack: [error, ...frames.map((line) => this.#mapped(line))].join('\n').slice(0, 100_000) };
    } catch {
      return { error: 'an error that cannot be shown' };
    }
  }

  #mapped(line) {
    return line.replace(/\((repl-)/, '$1').replace(/\)$/, '').replace(/(repl-\d+\.ts):(\d+):(\d+)/g, (whole, name, row, column) => {
      const entry = this.#maps.get(name)?.findEntry(Number(row) - 1, Number(column) - 1);
      if (entry?.originalLine === undefined) return whole;
      return `${name}:${Math.max(entry.originalLine, 1)}:${entry.originalColumn + 1}`;
    });
  }

  #text(channel, text) {
    const bytes = from(text);
    if (!this.#fits('items', 1)) return;
    const fitting = bytes.length <= this.#left.text ? text : cut(bytes, this.#left.text);
    this.#truncated ||= fitting !== text;
    this.#left.text -= byteLength(fitting);
    if (fitting !== '') this.#emit({ type: 'text', channel, text: fitting });
  }

  #image(image, mimeType) {
    if (typeof image?.then === 'function') return image.then((made) => this.#image(made, mimeType));
    const { bytes, type } = picture(image, mimeType);
    const encoded = bytes.toString('base64');
    if (this.#fits('images', encoded.length) && this.#fits('items', 1)) {
      this.#emit({ type: 'image', mime_type: type, data_b64: encoded });
    }
    return undefined;
  }

  /** Takes an amount from what is left, or notes that output is missing. */
  #fits(what, amount) {
    if (this.#left[what] < amount) {
      this.#truncated = true;
      return false;
    }
    this.#left[what] -= amount;
    return true;
  }
}

function shown(value) {
  return typeof value === 'string' ? value : util.inspect(value);
}

/** Returns the beginning of a text that has at most this many bytes. */
function cut(bytes, most) {
  return bytes.subarray(0, most).toString('utf8').replace(/\ufffd$/, '');
}

/** Returns the bytes and the media type of a picture. */
function picture(image, mimeType) {
  let bytes = image;
  let type = mimeType;
  if (typeof image === 'string') {
    const url = /^data:(image\/[\w.+-]+);base64,/.exec(image);
    type ??= url?.[1];
    bytes = from(url ? image.slice(url[0].length) : image, 'base64');
  }
  if (!(bytes instanceof Uint8Array) || bytes.length === 0) throw new TypeError('repl.emitImage: the image must be bytes, or text in base64');
  bytes = from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const head = bytes.toString('hex', 0, 8);
  type ??= SIGNS.find(([, sign]) => head.startsWith(sign))?.[0];
  if (!/^image\/[\w.+-]{1,100}$/.test(type ?? '')) throw new TypeError('repl.emitImage: name the media type of the image, as "image/png"');
  return { bytes, type };
}

/** Replaces every `import(…)` in a syntax tree by a call of the function that imports. */
function replaceImports(tree) {
  const pending = [tree];
  while (pending.length > 0) {
    const node = pending.pop();
    if (node.type === 'CallExpression' && node.callee.type === 'Import') {
      node.callee = { type: 'Identifier', span: node.callee.span, ctxt: 0, value: IMPORT, optional: false };
    }
    for (const child of Object.values(node)) if (typeof child === 'object' && child !== null) pending.push(child);
  }
}

module.exports = { Repl };
