// Takes a browser from the pool `default`, drives it with Playwright, gives it back.
//
//   npm install playwright-core        (no browser is downloaded)
//   CASEMENT_KEY=… node playwright.mjs [URL]
//
// It prints the page's title and leaves playwright.png where it runs.
import { chromium } from 'playwright-core';

const api = process.env.CASEMENT_URL ?? 'http://127.0.0.1:8080';
const url = process.argv[2] ?? 'https://example.com';

async function call(path, body = {}) {
  const answer = await fetch(api + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${process.env.CASEMENT_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.status === 204 ? null : answer.json();
}

let session = null;
while (!session) session = await call('/browser_pools/default/acquire'); // 204: none became free in time, ask again
try {
  const browser = await chromium.connectOverCDP(session.cdp_ws_url);
  const page = browser.contexts()[0].pages()[0]; // open already; another one costs 100 ms
  await page.goto(url);
  console.log(await page.title());
  await page.screenshot({ path: 'playwright.png' });
  await browser.close(); // ends this connection, not the browser
} finally {
  await call('/browser_pools/default/release', { session_id: session.session_id });
}
