// node ui_apps.mjs APP DEPLOYMENT: a person looks at what is deployed and what was called of it, and stops it.
import { chromium } from 'playwright-core';

const [app, deployment] = process.argv.slice(2);
const { CASEMENT_URL: base, CASEMENT_KEY: key } = process.env;
const patience = { timeout: 120000 };
const saw = {};
const faults = [];
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });
const wide = (at) => at.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);

async function person(options) {
  const opened = await (await own.newContext(options)).newPage();
  opened.setDefaultTimeout(patience.timeout);
  opened.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(`${message.text()} ${message.location().url}`);
  });
  opened.on('pageerror', (error) => faults.push(error.message));
  return opened;
}

try {
  const desk = await person({ viewport: { width: 1280, height: 860 } });
  await desk.goto(`${base}/ui/apps`);
  // The field gets the focus a moment after it appears.
  await desk.waitForFunction(() => document.activeElement?.id === 'key', null, patience);
  await desk.keyboard.type(key);
  faults.length = 0;
  await desk.keyboard.press('Enter');
  const card = desk.locator('.app', { hasText: app });
  await card.waitFor(patience);
  saw.card = [await card.locator('.badge').textContent(), await card.locator('.chip').allTextContents()];
  const calls = desk.locator('tbody tr', { hasText: app });
  await calls.nth(1).waitFor(patience);
  saw.calls = (await calls.locator('.badge').allTextContents()).sort();
  await desk.screenshot({ path: 'apps.png' });

  await calls.filter({ hasText: 'succeeded' }).locator('a').click();
  const log = desk.getByRole('list', { name: 'What it said' });
  await log.locator('li').first().waitFor(patience);
  await desk.locator('.live', { hasText: 'Over' }).waitFor(patience);
  saw.said = (await log.locator('li').first().textContent()).slice('00:00:00.000'.length);
  saw.canCancel = await desk.getByRole('button', { name: 'Cancel' }).isVisible();

  await desk.goto(`${base}/ui/deployments/${deployment}`);
  await desk.locator('.live', { hasText: 'Live' }).waitFor(patience);
  await desk.screenshot({ path: 'deployment.png', fullPage: true });
  await desk.getByRole('button', { name: 'Stop' }).click();
  await desk.locator('dialog[open] button.danger').click();
  await desk.locator('.badge', { hasText: 'stopped' }).waitFor(patience);
  await desk.locator('.live', { hasText: 'Over' }).waitFor(patience);
  saw.reason = await desk.locator('.state:not(.badge)').first().textContent();

  const phone = await person({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, colorScheme: 'dark', storageState: await desk.context().storageState() });
  saw.wider = [];
  for (const path of ['/ui/apps', `/ui/deployments/${deployment}`]) {
    await phone.goto(base + path);
    await phone.waitForSelector('.app, .log', patience);
    saw.wider.push(await wide(phone));
  }
  await phone.screenshot({ path: 'phone-deployment.png' });
  saw.faults = faults;
  console.log(JSON.stringify(saw));
} finally {
  await own.close();
}
