// node playwright_drive.mjs CDP_WS_URL PAGES_URL: what a program does with one browser, and what it saw.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [endpoint, pages] = process.argv.slice(2);
const browser = await chromium.connectOverCDP(endpoint, { timeout: 120000 });
const contexts = browser.contexts();
contexts[0].setDefaultTimeout(120000);
const open = contexts.map((context) => context.pages().map((page) => page.url()));
const page = contexts[0].pages()[0];

await page.goto(`${pages}/form`);
await page.fill('#name', 'Ada');
await page.click('#press');
const said = await page.textContent('#said');
const computed = await page.evaluate(async (n) => ({ product: 6 * n, title: document.title, seen: window.seen }), 7);
const picture = await page.screenshot();

// Large messages in both directions, and pages that open pages.
const extra = await contexts[0].newPage();
await extra.setContent(`<input type=file><button onclick="window.open('${pages}/green')">open</button>`);
await extra.setInputFiles('input', { name: 'up.txt', mimeType: 'text/plain', buffer: Buffer.alloc(3 << 20, 'x') });
const upload = await extra.evaluate(async () => (await document.querySelector('input').files[0].text()).length);
const [popup] = await Promise.all([extra.waitForEvent('popup'), extra.click('button')]);
await popup.waitForURL(`${pages}/green`);
const large = await extra.evaluate(() => 'y'.repeat(12 << 20));
const bulk = { upload, popup: await popup.title(), large: large.length };
await popup.close();
await extra.close();

// A new context shares nothing with the first one.
await page.context().addCookies([{ name: 'first', value: '1', url: pages }]);
const other = await browser.newContext({ viewport: { width: 640, height: 480 } });
other.setDefaultTimeout(120000);
const second = await other.newPage();
await second.goto(`${pages}/green`);
const cookies = await second.evaluate(() => document.cookie);
const small = await second.screenshot({ path: 'green.png' });
await other.close();
await browser.close();
assert.equal(browser.isConnected(), false);

const size = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];
console.log(JSON.stringify({ open, said, computed, picture: size(picture), bulk, cookies, small: size(small) }));
