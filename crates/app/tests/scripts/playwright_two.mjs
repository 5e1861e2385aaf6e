// node playwright_two.mjs CDP_WS_URL PAGES_URL: two clients on one browser at once.
import { chromium } from 'playwright-core';

const [endpoint, pages] = process.argv.slice(2);
const patience = { timeout: 120000 };
const [first, second] = await Promise.all([chromium.connectOverCDP(endpoint, patience), chromium.connectOverCDP(endpoint, patience)]);
for (const client of [first, second]) client.contexts()[0].setDefaultTimeout(patience.timeout);
const open = first.contexts()[0].waitForEvent('page');
const made = await second.contexts()[0].newPage();
await made.goto(`${pages}/form`);
const same = await open; // the first client sees what the second one opens
await same.waitForURL(`${pages}/form`);

const own = first.contexts()[0].pages()[0];
const loaded = await Promise.all([
  own.goto(`${pages}/green`).then(() => own.title()),
  made.goto(`${pages}/`).then(() => made.title()),
]);
await second.close();
await same.waitForURL(`${pages}/`); // the first hears by itself, and maybe later, where the second one went
const after = await same.evaluate(() => document.title); // the first goes on, and the page with it
await first.close();
console.log(JSON.stringify({ loaded, after }));
