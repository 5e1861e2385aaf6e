'use strict';
// What a script returns, as JSON, or why it cannot be.

const { stringify } = JSON;
const MOST_BYTES = 10 << 20;

/** The value as JSON; undefined stays undefined. Throws a TypeError that says what JSON cannot hold, and where. */
function inJson(value) {
  if (value === undefined) return undefined;
  let text;
  try {
    text = stringify(value, checker());
  } catch (error) {
    if (error instanceof TooLong) throw new RangeError(error.message);
    if (error instanceof Unfit) throw new TypeError(error.message);
    const first = String(error?.message ?? error).split('\n')[0];
    throw new TypeError(`the returned value is not JSON: ${first}`);
  }
  // An object may say itself that it is nothing.
  if (text === undefined) return undefined;
  const bytes = Buffer.byteLength(text);
  if (bytes > MOST_BYTES) throw new RangeError(`the returned value has ${bytes} bytes as JSON; at most ${MOST_BYTES} are allowed`);
  return text;
}

class Unfit extends Error {}
class TooLong extends Error {}

/** Refuses what JSON cannot hold, and strings that together are too long before they are copied. */
function checker() {
  let characters = 0;
  return function check(key, value) {
    // As it was before it was asked for its own form.
    const raw = this[key];
    const handle = typeof raw === 'object' && raw !== null && typeof raw._guid === 'string' && typeof raw._type === 'string';
    const kind = handle ? raw._type : typeof value;
    if (kind === 'bigint' || kind === 'function' || kind === 'symbol' || handle) {
      const where = key === '' ? 'the returned value' : `"${String(key).slice(0, 100)}" in the returned value`;
      throw new Unfit(`${where} is a ${kind}, which JSON cannot hold`);
    }
    if (kind === 'string' && (characters += value.length) > MOST_BYTES) {
      throw new TooLong(`the returned value has more than ${characters} bytes as JSON; at most ${MOST_BYTES} are allowed`);
    }
    return value;
  };
}

module.exports = { inJson };
