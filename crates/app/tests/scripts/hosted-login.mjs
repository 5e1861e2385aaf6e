// node hosted-login.mjs DESK_URL PHONE_URL PASSWORD: a person at the pages of two logins, once with a keyboard and once on a phone, in a
// browser of the person's own. It leaves pictures of what the person saw.
import { chromium } from 'playwright-core';

const [deskUrl, phoneUrl, password] = process.argv.slice(2);
const patience = { timeout: 180000 };
const saw = {};
const faults = [];
// The person's browser belongs to this test and opens only its own pages, so it runs without a sandbox.
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });

async function person(options) {
  const context = await own.newContext(options);
  const opened = await context.newPage();
  opened.setDefaultTimeout(patience.timeout);
  // Collects violations of policies and script errors. The frequent reads of a canvas come from this test.
  opened.on('console', (message) => {
    const isOurs = message.text().includes('willReadFrequently');
    if (['error', 'warning'].includes(message.type()) && !isOurs) faults.push(`${message.text()} ${message.location().url}`);
  });
  opened.on('pageerror', (error) => faults.push(error.message));
  return opened;
}
const wide = (at) => at.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
const titled = (at, text) => at.waitForFunction((wanted) => document.querySelector('h1').textContent === wanted, text, patience);

try {
  const desk = await person({ viewport: { width: 1280, height: 860 } });
  // A preview of a link that runs its scripts does not use it up.
  const scanner = await person({});
  await scanner.goto(deskUrl, { waitUntil: 'networkidle' });
  saw.scanner = [await scanner.textContent('h1'), new URL(scanner.url()).search === new URL(deskUrl).search];
  await desk.goto(deskUrl);
  // The button gets the focus with the first picture.
  await desk.waitForFunction(() => document.activeElement !== document.body, null, patience);
  saw.door = await desk.evaluate(() => document.activeElement.textContent);
  await desk.keyboard.press('Enter');
  await desk.waitForFunction(() => document.activeElement?.matches('#fields input'), null, patience);
  saw.labels = await desk.locator('#fields label').allTextContents();
  saw.focus = await desk.evaluate(() => document.activeElement.labels?.[0]?.textContent);
  saw.address = new URL(desk.url()).search;
  await desk.screenshot({ path: 'asked.png' });

  // Another person with the same link, and a page of another site that shows it in a frame.
  const stranger = await person({});
  const answer = await stranger.goto(deskUrl);
  saw.stranger = [answer.status(), await stranger.textContent('h1')];
  const other = await (await own.newContext()).newPage();
  await other.route('http://other.test/', (route) => route.fulfill({ contentType: 'text/html', body: `<iframe src="${deskUrl}"></iframe>` }));
  await other.goto('http://other.test/');
  // A refused frame shows the browser's error page.
  saw.framed = !other.frames()[1].url().startsWith('chrome-error:');
  faults.length = 0; // The browser itself notes the 410.

  // With the keyboard alone: first empty, and each field shows its error.
  await desk.keyboard.press('Enter');
  saw.missing = await desk.locator('#fields input').evaluateAll((all) => all.map((one) => {
    const about = one.getAttribute('aria-describedby').split(' ').map((id) => document.getElementById(id));
    const said = about.filter((it) => it.role === 'alert' && !it.hidden).map((it) => it.textContent);
    return [one.getAttribute('aria-invalid'), ...said];
  }));
  saw.missed = await desk.evaluate(() => document.activeElement.labels?.[0]?.textContent);
  // Then wrong values.
  await desk.keyboard.type('ann');
  await desk.keyboard.press('Tab');
  await desk.keyboard.type('hunter3-so-wrong');
  await desk.keyboard.press('Enter');
  await desk.waitForFunction(() => document.getElementById('refusal').textContent !== '' && !document.getElementById('refusal').hidden
    && document.querySelector('#send') && !document.querySelector('#send').disabled, null, patience);
  saw.refusal = await desk.textContent('#refusal');
  saw.kept = await desk.locator('#fields input').evaluateAll((all) => all.map((one) => one.value));
  await desk.screenshot({ path: 'refused.png' });

  // The browser, only on request.
  await desk.click('#look');
  const frame = await (await desk.waitForSelector('#view iframe', patience)).contentFrame();
  await frame.waitForFunction(() => {
    const canvas = document.getElementById('screen');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value, index) => index % 4 < 3 && value > 0);
  }, null, { ...patience, polling: 200 });
  saw.picture = true;
  await desk.screenshot({ path: 'browser.png' });
  await desk.click('#look');
  saw.cookie = await desk.evaluate(() => document.cookie);

  await desk.locator('#fields input').nth(1).fill(password);
  await desk.keyboard.press('Enter');
  await titled(desk, 'You are signed in');
  saw.done = await desk.textContent('h1');
  await desk.screenshot({ path: 'done.png' });

  // On a phone.
  const phone = await person({ viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 });
  await phone.goto(phoneUrl);
  await phone.tap('#send');
  await phone.waitForSelector('#fields input', patience);
  saw.wider = [await wide(phone)];
  await phone.locator('#fields input').nth(0).fill('ann');
  await phone.locator('#fields input').nth(1).fill(password);
  await phone.tap('#send');
  await phone.waitForSelector('#choices button', patience);
  saw.choices = await phone.locator('#choices button').evaluateAll((all) => all.map((one) => one.firstChild.textContent));
  saw.wider.push(await wide(phone));
  await phone.screenshot({ path: 'phone-choice.png' });
  await phone.locator('#choices button').nth(0).tap();
  await phone.waitForSelector('#fields input[autocomplete=one-time-code]', patience);
  saw.code = await phone.locator('#fields input').evaluate((one) => [one.autocomplete, one.inputMode]);
  saw.wider.push(await wide(phone));
  await phone.screenshot({ path: 'phone-code.png' });
  await phone.locator('#fields input').fill('731946');
  await phone.tap('#send');
  await titled(phone, 'You are signed in');
  saw.phoneDone = await phone.textContent('h1');
  // The same link shows the end later.
  await phone.goto(phoneUrl);
  await titled(phone, 'You are signed in');
  saw.back = await phone.textContent('h1');
  saw.faults = faults;
  console.log(JSON.stringify(saw));
} finally {
  await own.close();
}
