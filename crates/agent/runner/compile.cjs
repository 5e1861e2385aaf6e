'use strict';
// A caller's TypeScript or JavaScript as a function, and errors in the lines and columns that the caller wrote.

const vm = require('node:vm');
const util = require('node:util');
const { SourceMap } = require('node:module');
const { parseSync, transformSync } = require('@swc/core');

const NAME = 'script.ts';
const HEAD = '(async (page, context, browser) => {\n';
const TAIL = '\n})';

const OPTIONS = {
  filename: NAME,
  swcrc: false,
  configFile: false,
  isModule: true,
  sourceMaps: true,
  jsc: { parser: { syntax: 'typescript', decorators: true }, target: 'es2024', transform: {} },
};

/** A script that is longer is not looked through. */
const MOST_LOOKED = 64 << 10;

// What a script may name of the process and leave nothing in that `traces.cjs` does not see. Whatever else it names there may keep state
// that cannot be looked at afterwards, make code, or run it later. A script that is found wrongly is only given a process of its own.
const KNOWN = new Set([
  'Object Array Number Boolean String Symbol BigInt Date Promise RegExp Map Set WeakMap WeakSet Iterator JSON Math Intl',
  'Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError DOMException',
  'ArrayBuffer DataView Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array',
  'Uint8ClampedArray Float16Array Float32Array Float64Array DisposableStack AsyncDisposableStack',
  'Infinity NaN undefined parseFloat parseInt isFinite isNaN decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape',
  'console Buffer setTimeout setInterval setImmediate clearTimeout clearInterval clearImmediate queueMicrotask',
  'URL URLSearchParams URLPattern AbortController Event EventTarget CustomEvent TextEncoder TextDecoder Blob File',
  'structuredClone atob btoa',
].flatMap((line) => line.split(' ')));
const FAR = new Set([
  ...Object.getOwnPropertyNames(globalThis).filter((name) => !KNOWN.has(name)),
  'require', 'module', 'exports', 'constructor', 'caller', 'callee', 'getOwnPropertyDescriptor', 'getOwnPropertyDescriptors', 'prepareStackTrace',
]);

const WORD = /[\p{ID_Start}$_][\p{ID_Continue}$]*/gu;

/** Whether a name leads out of what can be looked at. What begins with an underscore is Playwright's own. */
function isFar(name) {
  return FAR.has(name) || /^_./.test(name);
}

/** Whether a key is an index, or the value of a variable: of those that scripts use all the time. None that is put together of texts. */
function isPlain(key) {
  switch (key.type) {
    case 'NumericLiteral': case 'Identifier': case 'MemberExpression': case 'UpdateExpression': return true;
    case 'ParenthesisExpression': return isPlain(key.expression);
    case 'BinaryExpression': return (key.operator !== '+' || key.right.type === 'NumericLiteral') && isPlain(key.left) && isPlain(key.right);
    default: return false;
  }
}

/** Whether a script may reach what cannot be looked at afterwards: by a name, by a key that it puts together, or by `this`. */
function reachesFar(code) {
  if (code.length > MOST_LOOKED) return true;
  // Most scripts need no closer look: every name stands as a word in the text, and every key that is made in brackets.
  if (!/[\\[]/.test(code) && !code.match(WORD)?.some((word) => word === 'this' || word === 'import' || isFar(word))) return false;
  const open = [parseSync(HEAD + code + TAIL, { ...OPTIONS.jsc.parser, target: OPTIONS.jsc.target })];
  while (open.length) {
    const node = open.pop();
    if (node.type === 'ThisExpression' || node.type === 'Import' || node.type === 'MetaProperty') return true;
    if (node.type === 'Identifier' && isFar(node.value)) return true;
    const key = node.type === 'Computed' ? node.expression : node.key;
    if (key?.type === 'StringLiteral' ? isFar(key.value) : node.type === 'Computed' && !isPlain(key)) return true;
    for (const name in node) if (node[name] !== null && typeof node[name] === 'object') open.push(node[name]);
  }
  return false;
}

/** The script as a function. Throws a SyntaxError whose message says where. */
function compile(code) {
  let made;
  try {
    made = transformSync(HEAD + code + TAIL, OPTIONS);
  } catch (error) {
    throw new SyntaxError(syntaxError(String(error?.message ?? error), code));
  }
  const map = new SourceMap(JSON.parse(made.map));
  let run;
  try {
    const text = made.code.trim().replace(/;$/, '');
    run = new vm.Script(text, { filename: NAME, importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER }).runInThisContext();
  } catch (error) {
    throw new SyntaxError(mapped(`${error.name}: ${error.message}\n${place(error.stack)}`, map));
  }
  if (typeof run !== 'function') throw new SyntaxError("SyntaxError: Unexpected token '}'");
  return { run, map, needsProcess: reachesFar(code) };
}

/** V8 puts the place of a syntax error on the first line of the stack. */
function place(stack) {
  const found = /^script\.ts:(\d+)/.exec(stack ?? '');
  const column = /^( *)\^/m.exec(stack ?? '');
  return found ? `    at ${NAME}:${found[1]}:${(column?.[1].length ?? 0) + 1}` : '';
}

/** The first complaint of the transformer with its place, and without the frame around the code. */
function syntaxError(text, code) {
  const lines = text.replace(/\u001b\[[0-9;]*m/g, '').split('\n');
  const message = lines.find((line) => /^\s*[x×]\s/.test(line))?.replace(/^\s*[x×]\s+/, '') ?? lines[0].trim();
  const marked = lines.findIndex((line) => /^\s*[:·]\s*.*[\^┬─|]/.test(line));
  const last = code.split('\n').length;
  for (let index = marked - 1; marked > 0 && index >= 0; index -= 1) {
    const found = /^\s*(\d+)\s[|│]\s?(.*)$/.exec(lines[index]);
    if (!found) continue;
    const bar = lines[index].indexOf(lines[index].includes('│') ? '│' : '|');
    const column = Math.max(lines[marked].slice(bar + 2).search(/[\^┬─|]/), 0) + 1;
    const line = Number(found[1]) - 1;
    if (line > last) return `SyntaxError: ${message}\n    at ${NAME}:${last}:${code.split('\n').at(-1).length + 1}`;
    return `SyntaxError: ${message}\n    at ${NAME}:${line}:${column}`;
  }
  return `SyntaxError: ${message}`;
}

/** The text with every place in the made code as the place in the caller's. */
function mapped(text, map) {
  const placed = text.replace(/(?:file:\/\/)?script\.ts:(\d+):(\d+)/g, (whole, line, column) => {
    const entry = map.findEntry(Number(line) - 1, Number(column) - 1);
    if (entry?.originalLine === undefined) return whole;
    return `${NAME}:${Math.max(entry.originalLine, 1)}:${entry.originalColumn + 1}`;
  });
  return placed;
}

/** What was thrown, for people: message and stack, without the frames that are ours or Node's. */
function explain(thrown) {
  try {
    if (!util.types.isNativeError(thrown)) return 'thrown: ' + util.inspect(thrown, { depth: 2 }).slice(0, 10_000);
    const stack = String(thrown.stack ?? '');
    const head = `${thrown.name}: ${thrown.message}`.replace(/\u001b\[[0-9;]*m/g, '');
    const frames = stack.split('\n').filter((line) => /^ {4}at .*script\.ts:\d+:\d+/.test(line));
    const named = frames.map((line) => line.replace(/\bat (?:async )?\(?(?=script\.ts)/, 'at '));
    const cause = thrown.cause === undefined ? [] : ['  caused by: ' + util.inspect(thrown.cause, { depth: 1 }).slice(0, 2000)];
    return [head, ...named, ...cause].join('\n').slice(0, 100_000);
  } catch {
    return 'an error that cannot be shown';
  }
}

module.exports = { compile, explain, mapped };
