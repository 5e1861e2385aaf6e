'use strict';
// The output of a script. Each write is complete before its call returns, so that no output is missing when the script
// is ended, and none is written after its end.

const fs = require('node:fs');
const { Console } = require('node:console');
const { Writable } = require('node:stream');

const { writeSync } = fs;
const { from } = Buffer;
const { wait } = Atomics;
const clock = new Int32Array(new SharedArrayBuffer(4));
const pause = setTimeout;
const FLUSH_TIMEOUT_MS = 10_000;
/** The maximum number of bytes written to each stream, because the agent discards the rest. */
const KEPT = 1 << 20;

function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') return;
      // The script has opened the descriptor again in non-blocking mode.
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

/** Returns a new console, without counters, timers and groups of an earlier one. */
function freshConsole() {
  return new Console({ stdout: stream(1), stderr: stream(2) });
}

/** Waits until the pending writes of the process's own streams are complete, at most FLUSH_TIMEOUT_MS. */
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
