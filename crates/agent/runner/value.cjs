'use strict';
// Converts the return value of a script to JSON.

const { stringify } = JSON;
const MOST_BYTES = 10 << 20;

/**
 * Returns the value as JSON; undefined stays undefined. Throws a TypeError that names the part that JSON cannot hold, or
 * a RangeError if the JSON is too long.
 */
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
  // The object's own `toJSON` may return undefined.
  if (text === undefined) return undefined;
  const bytes = Buffer.byteLength(text);
  if (bytes > MOST_BYTES) throw new RangeError(`the returned value has ${bytes} bytes as JSON; at most ${MOST_BYTES} are allowed`);
  return text;
}

class Unfit extends Error {}
class TooLong extends Error {}

/** Returns a replacer that refuses values that JSON cannot hold, and too long strings before they are copied. */
function checker() {
  let characters = 0;
  return function check(key, value) {
    // The value before its own `toJSON` was called.
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
