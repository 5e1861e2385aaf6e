'use strict';
// Whether a script has left anything behind in its process: timers, handles, changed globals or prototypes, or it used what
// keeps its state where nobody sees it. What it left is never cleaned up: the process ends.

const { createHook } = require('node:async_hooks');
const { createRequire } = require('node:module');

const { getActiveResourcesInfo } = process;
const { getOwnPropertyDescriptor, getPrototypeOf, defineProperty, is } = Object;
const { ownKeys } = Reflect;

/** Timers noted at most; who makes more has a process of its own. */
const MOST_TIMERS = 10_000;
const TIMERS = new Set(['Timeout', 'Immediate']);

class Traces {
  #stained = false;
  #notice;
  #shapes = new Map();
  #resources = new Map();
  #timers = new Set();
  #marks = 0;

  /** `notice` is called when a script needs the process for itself. */
  constructor(notice) {
    this.#notice = notice;
    // However a timer is made, it shows here.
    createHook({ init: (id, kind, cause, made) => this.#note(kind, made), trackPromises: false }).enable();
    this.#guard(Atomics, 'waitAsync');
    defineProperty(globalThis, 'require', { configurable: true, writable: true, value: createRequire('/home/casement/script.js') });
  }

  /** Timers made during a script are noted, Playwright's among them. */
  #note(kind, made) {
    if (TIMERS.has(kind) && this.#timers.size < MOST_TIMERS) this.#timers.add(made);
  }

  /** Whoever calls this needs the process for itself: what it begins shows nowhere. */
  #guard(object, name) {
    const real = object[name];
    object[name] = { [name]: (...words) => {
      this.stain();
      return real(...words);
    } }[name];
  }

  /** A script begins. */
  begin() {
    this.#timers.clear();
    // What was matched last stays readable.
    /^/.test('');
  }

  get stained() {
    return this.#stained;
  }

  /** The script needs the process for itself. */
  stain() {
    if (this.#stained) return;
    this.#stained = true;
    this.#notice();
  }

  /** Notes how things are without any script. */
  remember(roots) {
    this.#resources = counted();
    this.#marks = performance.getEntries().length;
    if (this.#shapes.size === 0) this.#shapes = shapes(roots);
  }

  /** What a script has left behind, or null. */
  left() {
    if (this.#stained) return 'the script had the process for itself';
    if (this.#timers.size >= MOST_TIMERS) return 'too many timers';
    for (const timer of this.#timers) if (!timer._destroyed) return 'a timer is alive';
    for (const [kind, count] of counted()) {
      if (count > (this.#resources.get(kind) ?? 0)) return `${kind} is alive`;
    }
    if (performance.getEntries().length > this.#marks) return 'entries of performance are left';
    return changed(this.#shapes);
  }
}

function counted() {
  const count = new Map();
  for (const kind of getActiveResourcesInfo()) if (!TIMERS.has(kind)) count.set(kind, (count.get(kind) ?? 0) + 1);
  return count;
}

/** Everything that can be reached from the globals and the given objects' classes, with its properties. */
function shapes(roots) {
  const seen = new Map();
  const open = [globalThis];
  for (const root of roots) for (let up = getPrototypeOf(root); up; up = getPrototypeOf(up)) open.push(up);
  for (const sample of [function* () {}, async function () {}, async function* () {}, [][Symbol.iterator](), new Map().entries(), new Set().entries(), ''[Symbol.iterator](), ''.matchAll(/x/g)]) {
    for (let up = getPrototypeOf(sample); up; up = getPrototypeOf(up)) open.push(up);
  }
  while (open.length) {
    const object = open.pop();
    if (seen.has(object)) continue;
    const shape = [];
    seen.set(object, { shape, prototype: getPrototypeOf(object) });
    const next = (value) => {
      if (isCommon(value) && !seen.has(value)) open.push(value);
    };
    next(getPrototypeOf(object));
    for (const key of ownKeys(object)) {
      const property = getOwnPropertyDescriptor(object, key);
      if (object === globalThis && key === 'console') continue;
      shape.push([key, property.value, property.get, property.set]);
      next(property.value);
      next(property.get);
      next(property.set);
    }
  }
  return seen;
}

/** Functions, prototypes and plain objects: what scripts share. What was made by a class belongs to one connection or to nobody. */
function isCommon(value) {
  if (typeof value === 'function') return true;
  if (value === null || typeof value !== 'object') return false;
  const up = getPrototypeOf(value);
  return up === null || up === Object.prototype || getOwnPropertyDescriptor(value, 'constructor') !== undefined;
}

/** The first difference, or null. */
function changed(before) {
  for (const [object, { shape, prototype }] of before) {
    if (getPrototypeOf(object) !== prototype) return 'a prototype is another one';
    const keys = ownKeys(object);
    const added = object === globalThis ? shape.length + 1 : shape.length;
    if (keys.length !== added) return `properties of ${named(object)} were added or deleted`;
    for (const [key, value, get, set] of shape) {
      const now = getOwnPropertyDescriptor(object, key);
      if (!now || now.get !== get || now.set !== set || !is(now.value, value)) return `${String(key)} was changed`;
    }
  }
  return null;
}

function named(object) {
  const name = getOwnPropertyDescriptor(object, 'name')?.value ?? getOwnPropertyDescriptor(object, 'constructor')?.value?.name;
  return typeof name === 'string' && name ? name : 'an object';
}

module.exports = { Traces };
