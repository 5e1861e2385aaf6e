// node puppeteer_files.mjs ENDPOINT cdp|webDriverBiDi PATH: gives an input a file of this machine, then PATH of the session.
import fs from 'node:fs';
import path from 'node:path';
import puppeteer from 'puppeteer-core';

const [endpoint, protocol, inside] = process.argv.slice(2);
const browser = await puppeteer.connect({ browserWSEndpoint: endpoint, protocol, defaultViewport: null });
const [page] = await browser.pages();
page.setDefaultTimeout(120000);
await page.setContent('<input type=file>');
const input = await page.$('input');
fs.writeFileSync('outside.txt', 'of the client');
const refused = await input.uploadFile(path.resolve('outside.txt')).then(() => 'accepted', (error) => error.message);
const count = await page.$eval('input', (element) => element.files.length);
await input.uploadFile(inside);
const text = await page.$eval('input', (element) => element.files[0].text());
await browser.disconnect();
console.log(JSON.stringify({ refused, count, text }));
