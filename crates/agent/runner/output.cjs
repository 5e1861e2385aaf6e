'use strict';
// What a script prints. It is written before the call returns, so that nothing is missing when the script is ended, and nothing comes
// after its end.

const fs = require('node:fs');
const { Console } = require('node:console');
const { Writable } = require('node:stream');

const { writeSync } = fs;
const { from } = Buffer;
const { wait } = Atomics;
const clock = new Int32Array(new SharedArrayBuffer(4));
const pause = setTimeout;
const FLUSH_TIMEOUT_MS = 10_000;
/** What is kept of each stream. The rest would be read and forgotten. */
const KEPT = 1 << 20;

function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') return;
      // Somebody has opened the descriptor anew, and it does not block any more.
      wait(clock, 0, 0, 1);
    }
  }
}

function stream(fd) {
  let left = KEPT;
  return new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      if (left > 0) {
        const bytes = (typeof chunk === 'string' ? from(chunk, encoding) : chunk).subarray(0, left);
        left -= bytes.length;
        writeAll(fd, bytes);
      }
      done();
    },
  });
}

/** A console that has counted, timed and grouped nothing yet. */
function freshConsole() {
  return new Console({ stdout: stream(1), stderr: stream(2) });
}

/** What the process itself has been given to write is written, if its streams still do so. */
function flushed() {
  return new Promise((done) => {
    const streams = [process.stdout, process.stderr].filter((out) => out?.writableLength > 0);
    let unfinished = streams.length;
    if (unfinished === 0) return done();
    pause(done, FLUSH_TIMEOUT_MS);
    for (const out of streams) out.write('', () => { unfinished -= 1; if (unfinished === 0) done(); });
  }).catch(() => {});
}

module.exports = { freshConsole, flushed };
