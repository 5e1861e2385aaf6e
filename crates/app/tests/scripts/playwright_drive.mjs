// node playwright_drive.mjs CDP_WS_URL PAGES_URL: what a program does with one browser, and what it saw.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [endpoint, pages] = process.argv.slice(2);
const browser = await chromium.connectOverCDP(endpoint);
const contexts = browser.contexts();
const open = contexts.map((context) => context.pages().map((page) => page.url()));
const page = contexts[0].pages()[0];

await page.goto(`${pages}/form`);
await page.fill('#name', 'Ada');
await page.click('#press');
const said = await page.textContent('#said');
const computed = await page.evaluate(async (n) => ({ product: 6 * n, title: document.title, seen: window.seen }), 7);
const picture = await page.screenshot();

// A context of its own shares nothing with the first one.
await page.context().addCookies([{ name: 'first', value: '1', url: pages }]);
const other = await browser.newContext({ viewport: { width: 640, height: 480 } });
const second = await other.newPage();
await second.goto(`${pages}/green`);
const cookies = await second.evaluate(() => document.cookie);
const small = await second.screenshot({ path: 'green.png' });
await other.close();
await browser.close();
assert.equal(browser.isConnected(), false);

const size = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];
console.log(JSON.stringify({ open, said, computed, picture: size(picture), cookies, small: size(small) }));
