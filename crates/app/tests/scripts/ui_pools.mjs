// node ui_pools.mjs POOL: what a person reads on the page of the pools about one that cannot fill.
import { chromium } from 'playwright-core';

const [pool] = process.argv.slice(2);
const { CASEMENT_URL: base, CASEMENT_KEY: key } = process.env;
const patience = { timeout: 120000 };
// The person's browser belongs to this test and opens only its own pages, so it runs without a sandbox.
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });
try {
  const page = await own.newPage();
  page.setDefaultTimeout(patience.timeout);
  await page.goto(`${base}/ui/pools`);
  await page.fill('#key', key, patience);
  await page.keyboard.press('Enter');
  const card = page.locator('.pool', { has: page.getByRole('heading', { name: pool, exact: true }) });
  await card.locator('.state.bad').waitFor(patience);
  console.log(JSON.stringify(await card.locator('.state').textContent()));
} finally {
  await own.close();
}
