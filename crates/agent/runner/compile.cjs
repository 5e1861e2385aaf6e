'use strict';
// Compiles a caller's TypeScript or JavaScript to a function, and maps errors to lines and columns of the caller's
// code.

const vm = require('node:vm');
const util = require('node:util');
const { SourceMap } = require('node:module');
const { transformSync } = require('@swc/core');

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

/** Returns the script as a function, with its source map. Throws a SyntaxError whose message contains the place. */
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
  return { run, map };
}

/** Returns the place of a syntax error as a stack frame. V8 writes it on the first line of the stack. */
function place(stack) {
  const found = /^script\.ts:(\d+)/.exec(stack ?? '');
  const column = /^( *)\^/m.exec(stack ?? '');
  return found ? `    at ${NAME}:${found[1]}:${(column?.[1].length ?? 0) + 1}` : '';
}

/**
 * Returns the first error of the transformer with its place, and without the excerpt of the code. The transformer has
 * seen one more line before the code.
 */
function syntaxError(text, code, name = NAME) {
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
    if (line > last) return `SyntaxError: ${message}\n    at ${name}:${last}:${code.split('\n').at(-1).length + 1}`;
    return `SyntaxError: ${message}\n    at ${name}:${line}:${column}`;
  }
  return `SyntaxError: ${message}`;
}

/** Replaces every place in the compiled code by the place in the caller's code. */
function mapped(text, map) {
  const placed = text.replace(/(?:file:\/\/)?script\.ts:(\d+):(\d+)/g, (whole, line, column) => {
    const entry = map.findEntry(Number(line) - 1, Number(column) - 1);
    if (entry?.originalLine === undefined) return whole;
    return `${NAME}:${Math.max(entry.originalLine, 1)}:${entry.originalColumn + 1}`;
  });
  return placed;
}

/** Returns a thrown value as text for people: message and stack, without frames of the runner and of Node. */
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

module.exports = { OPTIONS, compile, explain, mapped, syntaxError };
