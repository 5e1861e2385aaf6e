// node ui.mjs TAG CDP_WS_URL PAGES_URL: a person at the web interface, with a keyboard and then with a phone, in a browser of the
// person's own. Two sessions bear the tag; the endpoint is the first one's. It leaves pictures of what the person saw.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [tag, endpoint, pages] = process.argv.slice(2);
const { CASEMENT_URL: base, CASEMENT_KEY: key } = process.env;
const plain = 'plain one';
const patience = { timeout: 120000 };
const saw = {};
const faults = [];
const program = await chromium.connectOverCDP(endpoint, patience);
program.contexts()[0].setDefaultTimeout(patience.timeout);
const page = program.contexts()[0].pages()[0];
// The person's browser belongs to this test and opens only its own pages, so it runs without a sandbox.
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });

async function person(options) {
  const context = await own.newContext(options);
  context.setDefaultTimeout(patience.timeout);
  const opened = await context.newPage();
  // Collects violations of policies, script errors and failed requests.
  // A failed picture of a session that ends just then is ignored.
  opened.on('console', (message) => {
    const isPicture = message.location().url.endsWith('/thumbnail');
    if (['error', 'warning'].includes(message.type()) && !isPicture) faults.push(`${message.text()} ${message.location().url}`);
  });
  opened.on('pageerror', (error) => faults.push(error.message));
  return opened;
}
const wide = (at) => at.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
const names = (at) => at.locator('.session h2').allTextContents();

/** Presses Tab until something of that kind has the focus, as a person without a mouse does. */
async function tabTo(at, selector) {
  for (let presses = 0; presses < 60; presses += 1) {
    await at.keyboard.press('Tab');
    if (await at.evaluate((wanted) => document.activeElement.matches(wanted), selector)) {
      const ring = await at.evaluate(() => getComputedStyle(document.activeElement.matches('[type=radio]') ? document.activeElement.nextElementSibling : document.activeElement).outlineStyle);
      assert.notEqual(ring, 'none', `the focus shows on ${selector}`);
      return;
    }
  }
  assert.fail(`Tab does not come to ${selector}`);
}

try {
  await page.goto(`${pages}/green`);
  const desk = await person({ viewport: { width: 1280, height: 860 } });

  // Without a sign-in every page asks for a key, and then continues to the requested page.
  await desk.goto(`${base}/`);
  // The field gets the focus a moment after it appears.
  const asksForKey = () => desk.waitForFunction(() => document.activeElement?.id === 'key', null, patience);
  await asksForKey();
  await desk.screenshot({ path: 'sign-in.png' });
  await desk.keyboard.type('csk_wrong');
  await desk.keyboard.press('Enter');
  await desk.waitForFunction(() => document.getElementById('wrong').textContent.length > 0, null, patience);
  saw.refused = await desk.textContent('#wrong');
  faults.length = 0; // The browser itself notes a 401.
  await desk.goto(`${base}/ui/pools`);
  await asksForKey();
  await desk.keyboard.type(key);
  await desk.keyboard.press('Enter');
  await desk.waitForSelector('.pool', patience);
  // Sessions of other tests are listed, too; the latest is first.
  saw.pool = (await desk.locator('.pool h2').allTextContents()).find((name) => name === 'default');
  await desk.screenshot({ path: 'pools.png' });
  saw.storage = await desk.evaluate(() => `${document.cookie}|${Object.keys(localStorage)}|${Object.keys(sessionStorage)}`);

  // With the keyboard alone: to the sessions with the tag, one of which is ended.
  await tabTo(desk, 'nav a[href="/ui"]');
  await desk.keyboard.press('Enter');
  await desk.waitForSelector('.session', patience);
  await tabTo(desk, '#tag');
  await desk.keyboard.type(tag);
  await desk.keyboard.press('Enter');
  await desk.waitForFunction(() => document.querySelectorAll('.session').length === 2, null, patience);
  saw.names = (await names(desk)).sort();
  await desk.waitForFunction(() => document.querySelectorAll('.session .picture img').length === 2, null, patience);
  // The pictures are updated every few seconds.
  await desk.waitForFunction(() => [...document.querySelectorAll('.session .picture img')].map((image) => {
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    return [...context.getImageData(image.naturalWidth / 2, image.naturalHeight / 2, 1, 1).data];
  }).some((found) => [0, 160, 80].every((value, index) => Math.abs(value - found[index]) <= 8)), null, patience);
  saw.green = true;
  await desk.screenshot({ path: 'sessions.png' });
  saw.owned = await desk.evaluate(() => [window.owned ?? null, document.querySelectorAll('img[onerror]').length]);

  // The plain session has no telemetry until the person enables it.
  await desk.locator('.session', { hasText: plain }).locator('h2 a').click();
  await desk.getByRole('button', { name: 'Capture everything from now on' }).click();
  await desk.locator('.event.control').first().waitFor(patience);
  await desk.locator('.facts', { hasText: 'Clicks and keys' }).waitFor(patience);
  saw.captured = true;
  await desk.goBack();
  await desk.waitForFunction(() => document.querySelectorAll('.session').length === 2, null, patience);

  await desk.locator('.session', { hasText: plain }).locator('button.danger').focus();
  await desk.keyboard.press('Enter');
  await desk.waitForSelector('dialog[open]', patience);
  saw.careful = await desk.evaluate(() => document.activeElement.textContent);
  await desk.keyboard.press('Escape');
  await desk.waitForSelector('dialog[open]', { state: 'detached', ...patience });
  assert.equal((await names(desk)).length, 2, 'a question that is not answered ends nothing');
  await desk.keyboard.press('Enter');
  await desk.waitForSelector('dialog[open]', patience);
  await desk.keyboard.press('Tab');
  await desk.keyboard.press('Enter');
  await desk.waitForFunction(() => document.querySelectorAll('.session').length === 1, null, patience);
  await desk.getByRole('radio', { name: 'All' }).check();
  await desk.waitForSelector('.session.over', patience);
  saw.ended = await desk.textContent('.session.over h2');

  // One session, and the link to its live view.
  await desk.locator('.session:not(.over) h2 a').click();
  await desk.waitForSelector('.picture.large img', patience);
  saw.title = await desk.title();
  saw.ignored = await desk.locator('dt:text-is("Ignored fields") + dd').textContent();

  // Its events appear live, and are text.
  await desk.waitForSelector('.live.on', patience);
  await page.goto(`${pages}/form`);
  await page.evaluate(() => console.error('\u001b[31m<img src=x onerror=window.owned=1>\u202e'));
  await page.mouse.click(200, 180);
  const event = (kind, text) => desk.locator(`.event.${kind}`, { hasText: text }).first();
  await event('page', '/form').waitFor(patience);
  await event('network', '/form').waitFor(patience);
  await event('console', 'onerror').waitFor(patience);
  await event('interaction', 'Click').waitFor(patience);
  saw.console = await event('console', 'onerror').locator('.text').textContent();
  await event('console', 'onerror').locator('summary').click();
  await event('console', 'onerror').locator('pre').waitFor(patience);
  saw.untouched = await desk.evaluate(() => [window.owned ?? null, document.querySelectorAll('img[onerror]').length]);
  await desk.getByRole('checkbox', { name: 'Console' }).uncheck();
  await event('console', 'onerror').waitFor({ state: 'hidden', ...patience });
  await desk.getByRole('checkbox', { name: 'Console' }).check();
  // The screenshot of the browser is shown, and opened with the keyboard.
  const picture = desk.locator('.event.screenshot').first();
  await picture.locator('img').waitFor(patience);
  await desk.waitForFunction(() => document.querySelector('.event.screenshot img')?.naturalWidth > 100, null, patience);
  saw.picture = true;
  await picture.locator('summary').focus();
  await desk.keyboard.press('Enter');
  await desk.locator('.event.screenshot details[open] pre').first().waitFor(patience);
  await desk.keyboard.press('Enter');
  // It pauses for a person who reads, and continues then.
  await desk.getByRole('button', { name: 'Pause' }).click();
  await page.evaluate(() => console.log('said meanwhile'));
  await desk.getByRole('button', { name: /^Go on \([0-9]+ new\)$/ }).waitFor(patience);
  saw.paused = await event('console', 'said meanwhile').count();
  await desk.getByRole('button', { name: /^Go on/ }).click();
  await event('console', 'said meanwhile').waitFor(patience);
  // More than one page of events: the earlier ones load on request.
  await page.evaluate(() => { for (let n = 0; n < 150; n++) console.log(`line ${n}.`); });
  await event('console', 'line 149.').waitFor(patience);
  await desk.reload();
  await event('console', 'line 149.').waitFor(patience);
  saw.earlier = [await event('console', 'onerror').count()];
  // The number in between is unknown: the calls of the page are events, too.
  while (await event('console', 'onerror').count() === 0) {
    const more = desk.getByRole('button', { name: 'Show earlier' });
    await more.click(patience);
    // It is disabled until the page is loaded. The number of events is no criterion: others arrive meanwhile.
    await more.and(desk.locator(':disabled')).waitFor({ state: 'detached', ...patience });
  }
  saw.earlier.push(await desk.locator('.event.console', { hasText: 'line 7.' }).count());
  await desk.waitForSelector('.live.on', patience);

  const watching = desk.context().waitForEvent('page', patience);
  await desk.locator('a', { hasText: 'Live view' }).click();
  const live = await watching;
  await live.waitForFunction(() => document.getElementById('status').textContent === 'Live', null, patience);
  await live.close();
  await desk.screenshot({ path: 'session.png', fullPage: true });
  const address = desk.url();

  // The API documentation.
  await desk.locator('nav a', { hasText: 'API' }).click();
  await desk.waitForSelector('.operation', patience);
  await desk.fill('#find', 'acquire post');
  await desk.locator('.operation:visible summary').first().click();
  await desk.waitForSelector('.operation[open] table', patience);
  saw.operation = await desk.locator('.operation:visible .path').first().textContent();
  await desk.screenshot({ path: 'reference.png' });

  // The same on a phone: nothing is wider than the screen.
  const phone = await person({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: 'dark', storageState: await desk.context().storageState() });
  saw.wider = {};
  for (const [name, path] of [['sessions', '/ui'], ['session', new URL(address).pathname], ['pools', '/ui/pools'], ['reference', '/ui/reference']]) {
    await phone.goto(base + path);
    await phone.waitForSelector('.session, .picture.large img, .pool, .operation', patience);
    saw.wider[name] = await wide(phone);
    await phone.screenshot({ path: `phone-${name}.png` });
  }

  await desk.getByRole('button', { name: 'Sign out' }).click();
  await desk.waitForSelector('#key', patience);
  await phone.goto(`${base}/ui`);
  await phone.waitForSelector('#key', patience);
  saw.signedOut = true;
  saw.faults = faults;
  console.log(JSON.stringify(saw));
} finally {
  await own.close();
  await program.close();
}
