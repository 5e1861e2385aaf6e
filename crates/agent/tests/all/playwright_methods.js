// The methods of Playwright, each with a value that does not depend on where it runs. `outcomes` returns the values by name.
const BODY = `<title>methods</title><style>body { margin: 0 } #drop { width: 200px; height: 40px }</style>
  <button id=button onclick="note('click')" ondblclick="note('dblclick')" onmouseenter="note('hover')">b</button>
  <a id=file download=may.csv href="data:text/csv,a,b">file</a> <a id=popup href="about:blank" target=_blank>popup</a>
  <input id=text> <input id=check type=checkbox> <input id=files type=file multiple>
  <select id=choice><option>one<option>two</select>
  <div id=drag draggable=true>drag</div> <div id=drop ondragover="event.preventDefault()" ondrop="note('drop')">drop</div>
  <div id=touch ontouchstart="note('touch')" onwheel="note('wheel')">touch</div>
  <script>window.notes = []; function note(what) { notes.push(what) }</script>`;
// The mouse may be over the button at the beginning.
const notes = (page) => page.evaluate(() => notes.splice(0).filter((note) => note !== 'hover').join());
const text = (page) => page.inputValue('#text');

const METHODS = {
  goto: async ({ page }) => [(await page.goto('http://localhost/cookies')).status(), page.url()],
  click: async ({ page }) => { await page.click('#button'); return notes(page); },
  dblclick: async ({ page }) => { await page.dblclick('#button'); return notes(page); },
  hover: async ({ page }) => { await page.mouse.move(500, 400); await notes(page); await page.hover('#button'); return page.evaluate(() => notes.join()); },
  dragTo: async ({ page }) => { await page.locator('#drag').dragTo(page.locator('#drop')); return notes(page); },
  fill: async ({ page }) => { await page.fill('#text', 'filled'); return text(page); },
  type: async ({ page }) => { await page.locator('#text').pressSequentially('typed'); return text(page); },
  press: async ({ page }) => { await page.fill('#text', 'abc'); await page.press('#text', 'Backspace'); return text(page); },
  check: async ({ page }) => { await page.check('#check'); return page.isChecked('#check'); },
  selectOption: async ({ page }) => page.selectOption('#choice', 'two'),
  setInputFiles: async ({ page }) => {
    await page.setInputFiles('#files', [{ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('abc') }]);
    return page.evaluate(async () => [files.files[0].name, await files.files[0].text()]);
  },
  filechooser: async ({ page }) => {
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('#files')]);
    await chooser.setFiles({ name: 'b.txt', mimeType: 'text/plain', buffer: Buffer.from('b') });
    return [chooser.isMultiple(), await page.evaluate(() => files.files[0].name)];
  },
  download: async ({ page }) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#file')]);
    const name = `/tmp/methods-${process.pid}-${Math.random()}.csv`;
    await download.saveAs(name);
    const { readFileSync } = await import('node:fs');
    const copies = [readFileSync(name, 'utf8'), readFileSync(await download.path(), 'utf8')];
    return [download.suggestedFilename(), ...copies, await download.failure()];
  },
  dialog: async ({ page }) => {
    page.once('dialog', (dialog) => dialog.accept('Zoë'));
    return page.evaluate(() => prompt('Your name?'));
  },
  dialogWithoutListener: async ({ page }) => page.evaluate(() => confirm('Sure?')),
  popup: async ({ page }) => {
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#popup')]);
    await popup.setContent('<button onclick="document.title = 1">b</button>');
    await popup.click('button');
    const title = await popup.title();
    await popup.close();
    return title;
  },
  route: async ({ page }) => {
    await page.route('**/routed', (route) => route.fulfill({ body: 'fulfilled' }));
    const body = await page.evaluate(async () => (await fetch('/routed')).text());
    await page.unroute('**/routed');
    return body;
  },
  contextRoute: async ({ page, context }) => {
    await context.route('**/blocked', (route) => route.abort());
    const failure = await page.evaluate(() => fetch('/blocked').catch((error) => error.name));
    await context.unroute('**/blocked');
    return failure;
  },
  requestEvents: async ({ page }) => {
    const [response] = await Promise.all([page.waitForResponse('**/cookies'), page.evaluate(() => fetch('/cookies').then(() => {}))]);
    return [response.status(), response.request().method()];
  },
  screenshot: async ({ page }) => (await page.screenshot()).toString('latin1', 1, 4),
  elementScreenshot: async ({ page }) => (await page.locator('#button').screenshot()).toString('latin1', 1, 4),
  tracing: async ({ page, context }) => {
    const path = `/tmp/methods-${process.pid}.zip`;
    await context.tracing.start({ screenshots: true, snapshots: true });
    await page.click('#button');
    await context.tracing.stop({ path });
    await notes(page);
    return (await import('node:fs')).statSync(path).size > 1000;
  },
  geolocation: async ({ page, context }) => {
    await context.grantPermissions(['geolocation']);
    await context.setGeolocation({ latitude: 48, longitude: 9 });
    const found = await page.evaluate(() => new Promise((done) => navigator.geolocation.getCurrentPosition((at) => done([at.coords.latitude, at.coords.longitude]), (error) => done(error.message))));
    await context.setGeolocation(null);
    await context.clearPermissions();
    return found;
  },
  emulateMedia: async ({ page }) => {
    await page.emulateMedia({ colorScheme: 'dark', media: 'print', reducedMotion: 'reduce' });
    const found = await page.evaluate(() => ['(prefers-color-scheme: dark)', 'print', '(prefers-reduced-motion: reduce)'].map((query) => matchMedia(query).matches));
    await page.emulateMedia({ colorScheme: null, media: null, reducedMotion: null });
    return found;
  },
  setViewportSize: async ({ page }) => { await page.setViewportSize({ width: 500, height: 400 }); return page.evaluate(() => [innerWidth, innerHeight]); },
  addInitScript: async ({ page }) => {
    await page.addInitScript(() => { window.initial = 7; });
    await page.goto('http://localhost/empty');
    return page.evaluate(() => window.initial);
  },
  exposeFunction: async ({ page }) => { await page.exposeFunction('double', (n) => 2 * n); return page.evaluate(() => double(21)); },
  storageState: async ({ page, context }) => {
    await page.evaluate(() => { localStorage.setItem('k', 'v'); });
    const { origins } = await context.storageState();
    return origins.find(({ origin }) => origin === 'http://localhost').localStorage;
  },
  cookies: async ({ context }) => {
    await context.addCookies([{ name: 'c', value: '1', url: 'http://localhost' }]);
    const found = (await context.cookies('http://localhost')).find(({ name }) => name === 'c').value;
    await context.clearCookies({ name: 'c' });
    return found;
  },
  newContext: async ({ browser }) => {
    const other = await browser.newContext({ locale: 'de-DE', timezoneId: 'Asia/Tokyo', viewport: { width: 300, height: 200 }, userAgent: 'mine' });
    const page = await other.newPage();
    await page.setContent(BODY);
    await page.click('#button');
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#file')]);
    const { readFileSync } = await import('node:fs');
    const file = readFileSync(await download.path(), 'utf8');
    const found = await page.evaluate(() => [navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone, innerWidth, navigator.userAgent, notes.at(-1)]);
    await other.close();
    return [...found, file];
  },
  newPage: async ({ context }) => {
    const page = await context.newPage();
    await page.setContent(BODY);
    await page.click('#button');
    const found = [await page.title(), await page.evaluate(() => notes.at(-1))];
    await page.close();
    return found;
  },
  focus: async ({ page }) => {
    await page.focus('#text');
    return page.evaluate(() => [document.hasFocus(), document.visibilityState, document.activeElement.id]);
  },
  animationFrame: async ({ page }) => page.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(() => done('drawn'))); })),
  keyboard: async ({ page }) => {
    await page.focus('#text');
    await page.keyboard.type('ab');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.insertText('ü');
    return text(page);
  },
  mouse: async ({ page }) => {
    const box = await page.locator('#button').boundingBox();
    await page.mouse.move(box.x + 3, box.y + 3);
    await page.mouse.down();
    await page.mouse.up();
    return notes(page);
  },
  wheel: async ({ page }) => {
    await page.hover('#touch');
    await page.mouse.wheel(0, 10);
    await page.waitForFunction(() => notes.includes('wheel'));
    return 'scrolled';
  },
  touch: async ({ page, context }) => {
    const client = await context.newCDPSession(page);
    await client.send('Emulation.setTouchEmulationEnabled', { enabled: true });
    const { x, y } = await page.locator('#touch').boundingBox();
    await client.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: [{ x: x + 2, y: y + 2 }] });
    await client.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
    await client.send('Emulation.setTouchEmulationEnabled', { enabled: false });
    await client.detach();
    return notes(page);
  },
  clipboard: async ({ page, context }) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const found = await page.evaluate(async () => { await navigator.clipboard.writeText('copied'); return navigator.clipboard.readText(); });
    await context.clearPermissions();
    return found;
  },
  waits: async ({ page }) => {
    await page.waitForTimeout(20);
    await page.evaluate(() => { setTimeout(() => { document.title = 'late'; }, 50); });
    await page.waitForFunction(() => document.title === 'late');
    return page.title();
  },
  timeout: async ({ page }) => page.click('#missing', { timeout: 200 }).catch((error) => error.name),
  setDefaultTimeout: async ({ page }) => {
    page.setDefaultTimeout(150);
    const name = await page.waitForSelector('#missing').catch((error) => error.name);
    page.setDefaultTimeout(30000);
    return name;
  },
  console: async ({ page }) => {
    const [message] = await Promise.all([page.waitForEvent('console', (message) => message.text() === 'said'), page.evaluate(() => console.log('said'))]);
    return message.text();
  },
  reload: async ({ page }) => { await page.reload(); await page.goto('http://localhost/cookies'); await page.goBack({ waitUntil: 'commit' }); return page.url(); },
  bringToFront: async ({ page }) => { await page.bringToFront(); return page.evaluate(() => document.visibilityState); },
};

async function outcomes({ browser, context, page, left = [] }) {
  const found = {};
  page.setDefaultTimeout(30000);
  for (const [name, method] of Object.entries(METHODS)) {
    if (left.includes(name)) continue;
    try {
      await page.goto('http://localhost/empty');
      await page.setContent(BODY);
      found[name] = await method({ browser, context, page });
    } catch (error) {
      found[name] = `failed: ${String(error.message).split('\n').slice(0, 3).join(' ')}`;
    }
  }
  return found;
}
