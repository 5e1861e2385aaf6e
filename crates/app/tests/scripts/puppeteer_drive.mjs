// node puppeteer_drive.mjs ENDPOINT cdp|webDriverBiDi PAGES_URL [CAPABILITIES]: what a program does with one browser.
import puppeteer from 'puppeteer-core';

const [endpoint, protocol, pages, capabilities] = process.argv.slice(2);
const browser = await puppeteer.connect({
  browserWSEndpoint: endpoint,
  protocol,
  defaultViewport: null,
  ...(capabilities ? { capabilities: { alwaysMatch: JSON.parse(capabilities) } } : {}),
});
const [page] = await browser.pages();
page.setDefaultTimeout(120000);

await page.goto(`${pages}/form`);
await page.type('#name', 'Ada');
await page.click('#press');
const said = await page.$eval('#said', (element) => element.textContent);
const computed = await page.evaluate((n) => ({ product: 6 * n, title: document.title, seen: window.seen }), 7);
const picture = Buffer.from(await page.screenshot());

const context = await browser.createBrowserContext();
const other = await context.newPage();
other.setDefaultTimeout(120000);
await other.goto(`${pages}/green`);
const title = await other.title();
await context.close();
await browser.disconnect();

const size = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];
console.log(JSON.stringify({ said, computed, picture: size(picture), title }));
