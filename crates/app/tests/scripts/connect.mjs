// node connect.mjs CLIENT ADDRESS PAGES_URL [KEY]: a program of another service, which only got another address and key.
// Prints the title of a page and the kind of its screenshot.
const [client, address, pages, key] = process.argv.slice(2);
const GREEN = `${pages}/green`;

/** Returns what a program saw; `picture` holds the bytes of an image, or their base 64. */
function saw(title, picture) {
  const bytes = typeof picture === 'string' ? Buffer.from(picture, 'base64') : Buffer.from(picture);
  return { title, screenshot: bytes.subarray(1, 4).toString() };
}

const clients = {
  async playwright() {
    const { chromium } = await import('playwright-core');
    const browser = await chromium.connectOverCDP(address, { timeout: 120000 });
    const page = await browser.contexts()[0].newPage();
    await page.goto(GREEN, { timeout: 120000 });
    const result = saw(await page.title(), await page.screenshot());
    await browser.close();
    return result;
  },

  async puppeteer(protocol = 'cdp') {
    const { default: puppeteer } = await import('puppeteer-core');
    const browser = await puppeteer.connect({ browserWSEndpoint: address, protocol, defaultViewport: null });
    const [page] = await browser.pages();
    await page.goto(GREEN, { timeout: 120000 });
    const result = saw(await page.title(), await page.screenshot());
    await browser.disconnect();
    return result;
  },

  async bidi() {
    return clients.puppeteer('webDriverBiDi');
  },

  async webdriverio() {
    const { remote } = await import('webdriverio');
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
    await browser.url(GREEN);
    const result = saw(await browser.getTitle(), await browser.takeScreenshot());
    const session = browser.capabilities['casement:sessionId'];
    await browser.deleteSession();
    return { ...result, session };
  },

  async selenium() {
    const { Builder } = await import('selenium-webdriver');
    const { Options } = await import('selenium-webdriver/chrome.js');
    const options = new Options().addArguments('--headless=new', '--no-sandbox');
    const driver = await new Builder().usingServer(address).forBrowser('chrome').setChromeOptions(options).build();
    await driver.get(GREEN);
    const result = saw(await driver.getTitle(), await driver.takeScreenshot());
    const session = (await driver.getCapabilities()).get('casement:sessionId');
    await driver.quit();
    return { ...result, session };
  },

  async stagehand() {
    const { Stagehand } = await import('@browserbasehq/stagehand');
    const stagehand = new Stagehand({
      env: 'LOCAL',
      localBrowserLaunchOptions: { cdpUrl: address },
      disablePino: true,
      verbose: 0,
    });
    await stagehand.init();
    const [page] = stagehand.context.pages();
    await page.goto(`${pages}/form`);
    // An action that needs no model.
    await page.locator('#name').fill('Stagehand');
    await page.locator('#press').click();
    const result = { said: await page.locator('#said').textContent(), ...saw(await page.title(), await page.screenshot()) };
    await stagehand.close();
    return result;
  },

  async ws() {
    const { default: WebSocket } = await import('ws');
    const socket = new WebSocket(address);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    let last = 0;
    const call = (method, params = {}, sessionId) => {
      const id = ++last;
      const answered = new Promise((resolve, reject) => {
        socket.on('message', function listen(text) {
          const message = JSON.parse(text);
          if (message.id !== id) return;
          socket.off('message', listen);
          message.error ? reject(new Error(message.error.message)) : resolve(message.result);
        });
      });
      socket.send(JSON.stringify({ id, method, params, sessionId }));
      return answered;
    };
    const { targetId } = await call('Target.createTarget', { url: GREEN });
    const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true });
    let title;
    do {
      title = (await call('Runtime.evaluate', { expression: 'document.title' }, sessionId)).result.value;
    } while (title === '');
    const { data } = await call('Page.captureScreenshot', {}, sessionId);
    socket.close();
    return saw(title, data);
  },
};

console.log(JSON.stringify(await clients[client]()));
