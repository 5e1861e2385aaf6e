// node --import ./kernel_record.mjs SCRIPT ARGUMENT…: writes down what became of each method of the public client that the
// script called, as one JSON file in the folder CASEMENT_TEST_METHODS. The client itself does what it always does.
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Kernel from '@onkernel/sdk';
import { VERSION } from '@onkernel/sdk/version';

const outcomes = {};

/** Puts down `ok` or the code of the refusal, and leaves the body of the answer to the script. */
function watch(kind, name, method) {
  const original = kind[name];
  kind[name] = function watched(...args) {
    const answer = original.apply(this, args);
    const head = typeof answer?.asResponse === 'function' ? answer.asResponse() : answer;
    Promise.resolve(head).then(
      () => outcomes[method].add('ok'),
      (error) => error.status && outcomes[method].add(error.error?.code ?? String(error.status)),
    );
    return answer;
  };
}

function watchAll(owner, client, path) {
  for (const [name, resource] of Object.entries(owner)) {
    if (resource?._client !== client) continue;
    const kind = Object.getPrototypeOf(resource);
    for (const method of Object.getOwnPropertyNames(kind)) {
      if (method === 'constructor' || method.startsWith('_') || typeof kind[method] !== 'function') continue;
      const whole = [...path, name, method].join('.').replace(/([a-z])([A-Z]+)/g, '$1_$2').toLowerCase();
      outcomes[whole] = new Set();
      watch(kind, method, whole);
    }
    watchAll(resource, client, [...path, name]);
  }
}

const client = new Kernel({ apiKey: 'x', baseURL: 'http://localhost' });
watchAll(client, client, []);
process.on('exit', () => {
  const methods = Object.fromEntries(Object.entries(outcomes).map(([method, codes]) => [method, [...codes].sort()]));
  const file = join(process.env.CASEMENT_TEST_METHODS, `${randomUUID()}.json`);
  writeFileSync(file, JSON.stringify({ client: `npm ${VERSION}`, methods }));
});
