// Takes a browser from the pool `default`, drives it with Puppeteer, gives it back.
//
//   npm install puppeteer-core         (no browser is downloaded)
//   CASEMENT_KEY=… node puppeteer.mjs [URL [bidi]]
//
// With `bidi` it speaks WebDriver BiDi instead of CDP. It prints the page's title and leaves puppeteer.png where it runs.
import puppeteer from 'puppeteer-core';

const api = process.env.CASEMENT_URL ?? 'http://127.0.0.1:8080';
const [url = 'https://example.com', protocol = 'cdp'] = process.argv.slice(2);

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
  const browser = await puppeteer.connect(
    protocol === 'bidi'
      ? { browserWSEndpoint: session.webdriver_ws_url, protocol: 'webDriverBiDi', defaultViewport: null }
      : { browserWSEndpoint: session.cdp_ws_url, defaultViewport: null },
  );
  const [page] = await browser.pages(); // open already; another one costs 100 ms
  await page.goto(url);
  console.log(await page.title());
  await page.screenshot({ path: 'puppeteer.png' });
  await browser.disconnect(); // not close(): over CDP that ends the browser itself
} finally {
  await call('/browser_pools/default/release', { session_id: session.session_id });
}
