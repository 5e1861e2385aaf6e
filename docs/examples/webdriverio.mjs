// Takes a browser from the pool `default`, drives it with WebdriverIO, BiDi included, gives it back.
//
//   npm install webdriverio
//   CASEMENT_KEY=… node webdriverio.mjs [URL]
//
// It prints the page's title and leaves webdriverio.png where it runs.
import { remote } from 'webdriverio';

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
  const address = new URL(session.base_url);
  const browser = await remote({
    protocol: address.protocol.replace(':', ''),
    hostname: address.hostname,
    port: Number(address.port || (address.protocol === 'https:' ? 443 : 80)),
    path: address.pathname + '/wd',
    // The session's own token, with every request: `user` and `key` go with the first one only, and the second would answer 401.
    queryParams: { jwt: new URL(session.cdp_ws_url).searchParams.get('jwt') },
    capabilities: { browserName: 'chrome' },
    logLevel: 'warn',
  });
  try {
    await browser.url(url);
    console.log(await browser.getTitle());
    await browser.saveScreenshot('webdriverio.png');
  } finally {
    await browser.deleteSession(); // detaches; the browser and its pages stay
  }
} finally {
  await call('/browser_pools/default/release', { session_id: session.session_id });
}
