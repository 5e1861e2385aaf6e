// node contexts.mjs '{"site": URL, "sessions": {NAME: {"id", "cdp", "bidi", "window", "incognito"}}}': what pages find in the contexts of
// clients, and whether their downloads arrive. Prints for each session one row for each kind of context.
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';

const { site, sessions } = JSON.parse(process.argv[2]);
const headers = { authorization: `Bearer ${process.env.CASEMENT_KEY}`, 'content-type': 'application/json' };
const call = (id, operation, body) => fetch(`${process.env.CASEMENT_URL}/browsers/${id}/${operation}`, body ? { method: 'POST', headers, body: JSON.stringify(body) } : { headers });
const until = async (look) => {
  for (const end = Date.now() + 30000; Date.now() < end; await pause(100)) if (await look()) return true;
  return false;
};

// Runs in the page.
const ask = () => ({
  'time zone': Intl.DateTimeFormat().resolvedOptions().timeZone,
  locale: [navigator.language, Intl.DateTimeFormat().resolvedOptions().locale],
  'user agent': navigator.userAgent,
  screen: [screen.width, screen.height].join('x'),
  'navigator.webdriver': navigator.webdriver,
  extension: document.documentElement.dataset.extension ?? null,
  network: navigator.onLine,
});

async function row(page, name, { id, window }) {
  await page.goto(`${site}/contexts?${name}`);
  const seen = await page.evaluate(ask);
  const size = () => page.evaluate(() => [innerWidth, innerHeight].join('x'));
  await until(async () => (await size()) === window);
  seen.window = await size();
  // Puppeteer returns null over BiDi if it learns of the response after the end of the navigation.
  let answer;
  await until(async () => { answer = await page.goto('http://10.1.2.3/'); return answer; });
  seen['outside of the wall'] = answer?.status();
  // The page starts its downloads by itself, two at a time.
  await page.goto(`${site}/contexts/downloads?${name}`);
  const wanted = [`${name}.csv`, `${name}.exe`];
  let found;
  await until(async () => {
    const listed = await (await call(id, 'fs/list_files?path=/home/casement/downloads')).json();
    found = listed.map((file) => file.name).filter((file) => file.startsWith(`${name}.`)).sort();
    return `${found}` === `${wanted}`;
  });
  seen.downloads = found.map((file) => file.slice(name.length));
  seen['blocked by policy'] = await page.goto('http://blocked.test/').then(() => null, ({ message }) => /ERR_[A-Z_]+/.exec(message)?.[0]);
  // The error page may still be on its way.
  await until(() => page.goto('about:blank').then(() => true, () => false));
  return seen;
}

const rows = {};
const tried = Object.entries(sessions).map(async ([name, session]) => {
  const seen = rows[name] = {};
  const playwright = await chromium.connectOverCDP(session.cdp);
  const [standard] = playwright.contexts();
  const first = standard.pages()[0];
  seen.default = await row(first, 'default', session);
  const [popup] = await Promise.all([first.waitForEvent('popup'), first.evaluate(() => { window.open('about:blank'); })]);
  seen['a popup'] = await row(popup, 'popup', session);
  await popup.close();
  const context = await playwright.newContext({ viewport: null });
  seen.playwright = await row(await context.newPage(), 'playwright', session);
  const [opened] = await Promise.all([context.waitForEvent('page'), context.pages()[0].evaluate(() => { window.open('about:blank'); })]);
  seen['a popup of playwright'] = await row(opened, 'popup-of-playwright', session);
  await playwright.close();
  // Chromium forgets what a client has set when the client goes.
  const other = await puppeteer.connect({ browserWSEndpoint: session.cdp, defaultViewport: null });
  const [page] = await other.pages();
  seen['after a client'] = await row(page, 'after', session);
  seen.puppeteer = await row(await (await other.createBrowserContext()).newPage(), 'puppeteer', session);
  const foreign = (downloadPath) => ({ downloadBehavior: { policy: 'allow', downloadPath } });
  const named = await other.createBrowserContext(foreign('/Users/ada/Downloads'));
  seen['a foreign directory'] = await row(await named.newPage(), 'foreign', session);
  if (session.incognito) {
    const opens = other.waitForTarget((target) => target.url() === 'chrome://newtab/');
    await page.bringToFront();
    await call(session.id, 'computer/press_key', { keys: ['Ctrl+Shift+n'] });
    seen.incognito = await row(await (await opens).page(), 'incognito', session);
  }
  await other.disconnect();
  const bidi = await puppeteer.connect({ browserWSEndpoint: session.bidi, protocol: 'webDriverBiDi', defaultViewport: null });
  seen['a user context of BiDi'] = await row(await (await bidi.createBrowserContext()).newPage(), 'bidi', session);
  const elsewhere = await bidi.createBrowserContext(foreign('C:\\Users\\ada\\Downloads'));
  seen['a foreign directory over BiDi'] = await row(await elsewhere.newPage(), 'foreign-bidi', session);
  await bidi.disconnect();
});
await Promise.all(tried);
console.log(JSON.stringify(rows));
process.exit();
