// An app for Casement: takes a browser, opens a page, and returns its title and a screenshot.
//
//     casement deploy docs/examples/app_typescript
//     casement invoke page-typescript look '{"url": "https://example.com"}'
import Kernel, { type KernelContext } from '@onkernel/sdk';

interface Wish {
  url: string;
}

interface Seen {
  title: string;
  screenshot: string;
}

const kernel = new Kernel(); // where Casement is and by which key stands in the environment
const app = kernel.app('page-typescript');

app.action<Wish, Seen>('look', async (context: KernelContext, payload?: Wish): Promise<Seen> => {
  if (!payload?.url) throw new Error('say which page: {"url": "https://example.com"}');
  console.log('opening', payload.url);
  const browser = await kernel.browsers.create({ headless: true, invocation_id: context.invocation_id });
  try {
    const code = `await page.goto(${JSON.stringify(payload.url)}); return await page.title()`;
    const seen = await kernel.browsers.playwright.execute(browser.session_id, { code });
    if (!seen.success) throw new Error(seen.error);
    const picture = await kernel.browsers.computer.captureScreenshot(browser.session_id);
    return { title: String(seen.result), screenshot: Buffer.from(await picture.arrayBuffer()).toString('base64') };
  } finally {
    await kernel.browsers.deleteByID(browser.session_id);
  }
});
