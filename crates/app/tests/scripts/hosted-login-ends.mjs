// node hosted-login-ends.mjs EXPIRING LOCKED DELETED STEPS PASSWORD: a person at the pages of the logins of four connections, with a keyboard
// alone, and what a screen reader is told meanwhile: how each of the first three ends while it is open, and the whole way through the last
// on a narrow screen.
import { chromium } from 'playwright-core';

const [expiring, locked, deleted, steps, password] = process.argv.slice(2);
const patience = { timeout: 180000 };
const saw = {};
const faults = [];
// The person's browser belongs to this test and opens only its own pages, so it runs without a sandbox.
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });

async function api(method, path, body) {
  const headers = { authorization: `Bearer ${process.env.CASEMENT_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(`${process.env.CASEMENT_URL}/auth/connections/${path}`, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
  return answer.status === 204 ? null : answer.json();
}

// Opens the page of a new login of a connection, once it requests a value.
async function opened(connection, options) {
  const page = await (await own.newContext(options)).newPage();
  page.setDefaultTimeout(patience.timeout);
  page.on('pageerror', (error) => faults.push(error.message));
  const { hosted_url: url } = await api('POST', `${connection}/login`, {});
  await page.goto(url);
  await page.waitForFunction(() => document.activeElement?.id === 'send', null, patience);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement?.matches('#fields input'), null, patience);
  return { page, url };
}

// Returns what a screen reader finds inside of the page's only landmark, in order.
async function tree(page) {
  const [main, ...inside] = (await page.locator('main').ariaSnapshot()).split('\n');
  if (main !== '- main:') faults.push(main);
  return inside.map((line) => line.slice(2)).join('\n').replace(/in \d+ minutes/, 'in some minutes');
}
// Returns the focused element and its name.
const focused = (page) => page.evaluate(() => {
  const at = document.activeElement;
  return at.labels?.[0]?.textContent ?? at.getAttribute('aria-label') ?? (at.firstChild?.textContent || at.tagName);
});
async function tabs(page, count) {
  const way = [await focused(page)];
  for (let press = 0; press < count; press += 1) {
    await page.keyboard.press('Tab');
    way.push(await focused(page));
  }
  return way;
}
async function types(page, ...values) {
  for (const [at, value] of values.entries()) {
    if (at > 0) {
      // Skips the button that shows the password, if there is one.
      do await page.keyboard.press('Tab'); while (!(await page.evaluate(() => document.activeElement.matches('input'))));
    }
    await page.keyboard.type(value);
  }
  await page.keyboard.press('Enter');
}
// Returns the announcement of the page at the end, and the focused element.
async function ends(page, title) {
  await page.waitForFunction((wanted) => document.querySelector('h1').textContent === wanted, title, patience);
  return [await focused(page), await tree(page)];
}

try {
  const first = await opened(expiring, { viewport: { width: 1280, height: 860 } });
  saw.asked = await tree(first.page);
  saw.way = await tabs(first.page, 4);
  // Tells the test that the login may expire now.
  await api('PATCH', expiring, { health_check_interval: 301 });
  saw.expired = await ends(first.page, 'This login has expired');
  await first.page.screenshot({ path: 'expired.png' });
  const late = await (await own.newContext()).newPage();
  const answer = await late.goto(first.url);
  saw.late = [answer.status(), await late.textContent('h1')];

  const second = await opened(locked, { viewport: { width: 1280, height: 860 } });
  await types(second.page, 'ann', password);
  saw.failed = await ends(second.page, 'The login did not succeed');
  await second.page.screenshot({ path: 'failed.png' });

  const third = await opened(deleted, { viewport: { width: 1280, height: 860 } });
  await api('DELETE', deleted);
  saw.deleted = await ends(third.page, 'This login is over');

  const { page } = await opened(steps, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  saw.narrow = await tree(page);
  await types(page, 'ann', 'hunter3-so-wrong');
  await page.waitForFunction(() => !document.getElementById('refusal').hidden && document.activeElement.matches('input'), null, patience);
  saw.refused = [await focused(page), await tree(page)];
  await types(page, password);
  await page.waitForFunction(() => document.activeElement?.matches('#choices button'), null, patience);
  saw.choices = [await tabs(page, 1), await tree(page)];
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement?.matches('#fields input[autocomplete=one-time-code]'), null, patience);
  saw.code = [await focused(page), await tree(page)];
  await page.screenshot({ path: 'narrow-code.png' });
  await types(page, '731946');
  saw.done = await ends(page, 'You are signed in');
  saw.faults = faults;
  console.log(JSON.stringify(saw));
} finally {
  await own.close();
}
