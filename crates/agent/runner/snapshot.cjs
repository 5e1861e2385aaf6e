'use strict';
// node snapshot.cjs FILE: stores a Node process that has loaded Playwright. A process that starts from this snapshot is
// ready in a third of the time.
//
// Only built-in modules can be loaded while a snapshot is created, so Playwright's files become functions of one file.
// Built-in modules that a snapshot cannot contain (HTTP and TLS) are loaded at their first use.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { execFileSync } = require('node:child_process');
const { minifySync } = require('@swc/core');

/** The path of this folder in sandboxes. Playwright stores the paths of its own files. */
const INSIDE = '/run/casement/runner';
const PLAYWRIGHT = 'node_modules/playwright-core';
const FILES = ['package.json', 'browsers.json', 'index.js', 'lib/bootstrap.js', 'lib/coreBundle.js', 'lib/utilsBundle.js', 'lib/package.js', 'lib/serverRegistry.js'];
const LATE = ['http', 'https', 'http2', 'tls'];
/** The globals whose first use loads one of the late modules. */
const WEB = ['Headers', 'Request', 'Response', 'CloseEvent', 'WebSocket', 'EventSource', 'FormData', 'MessageEvent', 'crypto'];

/** The beginning of the file. It is inserted as text. */
function prelude(late, web) {
  const files = Object.create(null);
  const loaded = Object.create(null);
  const builtin = require;
  const join = builtin('node:path').resolve;
  // Node removes it while it stores the snapshot.
  const { Console } = console;
  const state = { running: false };

  const real = (name) => {
    if (!state.running) throw new Error(`${name} was used while the snapshot was made`);
    return process.getBuiltinModule(name);
  };
  // Playwright derives a class from this one while it loads.
  function Agent(...words) { return Reflect.construct(real('http').Agent, words, new.target); }
  const standIns = Object.fromEntries(Object.entries(late).map(([name, keys]) => {
    const get = (key) => (!state.running && name === 'http' && key === 'Agent' ? Agent : real(name)[key]);
    const properties = keys.map((key) => [key, { enumerable: true, configurable: true, get: () => get(key) }]);
    return [name, Object.defineProperties({}, Object.fromEntries(properties))];
  }));
  const stubs = Object.fromEntries(web.map((name) => [name, { [name]: class { static getRandomValues() {} } }[name]]));
  const globals = new Proxy(stubs, { get: (known, name) => (name in known && !state.running ? known[name] : Reflect.get(globalThis, name)) });

  function requireFrom(folder) {
    const find = (name) => {
      if (!/^[./]/.test(name)) {
        const plain = name.replace(/^node:/, '');
        return standIns[plain] ?? (state.running ? process.getBuiltinModule(plain) : builtin(`node:${plain}`));
      }
      const base = join(folder, name);
      const found = [base, `${base}.js`, `${base}.json`].find((file) => files[file]);
      if (!found) throw new Error(`${base} is not in the snapshot`);
      return load(found);
    };
    find.resolve = (name) => join(folder, name);
    return find;
  }
  function load(file) {
    if (!loaded[file]) {
      const module = loaded[file] = { exports: {}, filename: file, id: file };
      const folder = builtin('node:path').dirname(file);
      files[file].call(module.exports, module.exports, requireFrom(folder), module, file, folder);
    }
    return loaded[file].exports;
  }
  /** Called in a process that starts from the snapshot: from now on, the real modules and globals are used. */
  function run() {
    state.running = true;
    console.Console = Console;
    Object.setPrototypeOf(Agent.prototype, real('http').Agent.prototype);
  }
  return { files, globals, load, run };
}

function entry() {
  const late = Object.fromEntries(LATE.map((name) => [name, Object.keys(require(name))]));
  const parts = [`'use strict'; const { files, globals, load, run } = (${prelude})(${JSON.stringify(late)}, ${JSON.stringify(WEB)});`];
  for (const name of FILES) {
    const text = fs.readFileSync(path.join(__dirname, PLAYWRIGHT, name), 'utf8');
    const body = name.endsWith('.json') ? `module.exports = ${text}` : text;
    const head = name.endsWith('utilsBundle.js') ? `const globalThis = globals, global = globals; var { ${WEB.filter((one) => one !== 'crypto').join(', ')} } = globals;` : '';
    parts.push(`files[${JSON.stringify(`${INSIDE}/${PLAYWRIGHT}/${name}`)}] = function (exports, require, module, __filename, __dirname) {${head}${body}\n};`);
  }
  parts.push(`const { chromium } = load(${JSON.stringify(`${INSIDE}/${PLAYWRIGHT}/index.js`)});`);
  parts.push(`require('node:v8').startupSnapshot.setDeserializeMainFunction(() => {
    run();
    process.getBuiltinModule('module').createRequire('${INSIDE}/runner.cjs')('./runner.cjs').start(chromium);
  });`);
  const kept = { compress: false, mangle: false, module: false, keep_classnames: true, keep_fnames: true };
  const { code } = minifySync(parts.join('\n'), { ...kept, format: { asciiOnly: true, comments: false } });
  // A source text with one wide character needs twice the memory, in every process.
  const narrow = code.replace(/[^\x00-\x7f]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  // Playwright recognizes its own stack frames by their file.
  return `${narrow}\n//# sourceURL=${INSIDE}/${PLAYWRIGHT}/lib/coreBundle.js\n`;
}

function make(file) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'casement-snapshot-'));
  try {
    const source = path.join(folder, 'playwright.js');
    fs.writeFileSync(source, entry());
    // Playwright reads its environment while it loads, so this is the environment of a script.
    const env = { HOME: '/home/casement', USER: 'casement', PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' };
    const unfinished = path.join(folder, 'blob');
    execFileSync(process.execPath, ['--no-warnings', '--snapshot-blob', unfinished, '--build-snapshot', source], { env, stdio: 'inherit' });
    fs.copyFileSync(unfinished, `${file}.new`);
    fs.renameSync(`${file}.new`, file);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

make(process.argv[2]);
