import Kernel, { type KernelContext } from '@onkernel/sdk';
import { shout } from './shout';
import { readFileSync } from 'fs';

interface Words {
  text: string;
}

const kernel = new Kernel();
const app = kernel.app('trials');

app.action<Words, unknown>('echo', async (context: KernelContext, payload?: Words) => {
  console.log('echoing');
  console.error('to the other');
  return { invocation: context.invocation_id, text: shout(payload?.text ?? 'nothing'), greeting: process.env['GREETING'] };
});

app.action('alone', async (context: KernelContext) => {
  return Object.keys(process.env).filter((name) => name.startsWith('KERNEL_')).sort();
});

app.action('nothing', async (context: KernelContext) => undefined);

app.action('raise', async (context: KernelContext) => {
  throw new TypeError('not today');
});

app.action('raise-later', async (context: KernelContext) => {
  setTimeout(() => {
    throw new RangeError('much later');
  }, 1);
  await new Promise(() => setInterval(() => {}, 1000));
});

app.action('leave', async (context: KernelContext) => process.exit(7));

app.action('not-json', async (context: KernelContext) => ({ big: 1n }));

app.action('a-function', async (context: KernelContext) => () => 1);

app.action('much', async (context: KernelContext) => 'x'.repeat(100 << 20));

app.action('fetch', async (context: KernelContext, payload?: { url: string }) => {
  const answer = await fetch(payload!.url);
  return [answer.status, await answer.text()];
});

app.action('look', async (context: KernelContext, payload?: { path: string }) => readFileSync(payload!.path, 'utf8').length);
