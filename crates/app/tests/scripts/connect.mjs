// node connect.mjs CLIENT ADDRESS PAGES_URL [KEY]: a program of another service, which only got another address and key.
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';
import { remote } from 'webdriverio';
import WebSocket from 'ws';

const [client, address, pages, key] = process.argv.slice(2);

const clients = {
  async playwright() {
    const browser = await chromium.connectOverCDP(address, { timeout: 120000 });
    const page = await browser.contexts()[0].newPage();
    await page.goto(`${pages}/green`, { timeout: 120000 });
    const title = await page.title();
    await browser.close();
    return title;
  },

  async puppeteer(protocol = 'cdp') {
    const browser = await puppeteer.connect({ browserWSEndpoint: address, protocol, defaultViewport: null });
    const [page] = await browser.pages();
    await page.goto(`${pages}/green`, { timeout: 120000 });
    const title = await page.title();
    await browser.disconnect();
    return title;
  },

  async bidi() {
    return clients.puppeteer('webDriverBiDi');
  },

  async webdriverio() {
    const url = new URL(address);
    const browser = await remote({
      protocol: url.protocol.replace(':', ''),
      hostname: url.hostname,
      port: Number(url.port),
      path: url.pathname,
      user: 'anyone',
      key,
      capabilities: { browserName: 'chrome', 'goog:chromeOptions': { args: ['--headless=new', '--no-sandbox'] } },
      logLevel: 'error',
      connectionRetryTimeout: 120000,
    });
    await browser.url(`${pages}/green`);
    const title = await browser.getTitle();
    await browser.deleteSession();
    return title;
  },

  async ws() {
    const socket = new WebSocket(address);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    socket.send(JSON.stringify({ id: 1, method: 'Browser.getVersion' }));
    const answer = await new Promise((resolve) => socket.once('message', resolve));
    socket.close();
    return JSON.parse(answer).result.product.split('/')[0];
  },
};

console.log(JSON.stringify(await clients[client]()));
