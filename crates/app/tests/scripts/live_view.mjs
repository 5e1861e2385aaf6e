// node live_view.mjs LIVE_URL CDP_WS_URL PAGES_URL HEADLESS: a person at the live view, in a browser of the person's own, and a
// program on the session at the same time. It leaves live.png, what the person saw last.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [live, endpoint, pages, headless] = process.argv.slice(2);
const patience = { timeout: 120000 };
const program = await chromium.connectOverCDP(endpoint, patience);
program.contexts()[0].setDefaultTimeout(patience.timeout);
const page = program.contexts()[0].pages()[0];
// The person's browser belongs to this test and opens only its own pages, so it runs without a sandbox.
const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], ...patience });
const context = await own.newContext({ viewport: { width: 1280, height: 800 } });
context.setDefaultTimeout(patience.timeout);
await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(live).origin });
const saw = {};

// Returns whether the middle of the picture has about this colour: it is a JPEG.
const middle = (person, colour) =>
  person.waitForFunction((wanted) => {
    const canvas = document.getElementById('screen');
    const found = canvas.getContext('2d').getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data;
    return wanted.every((value, index) => Math.abs(value - found[index]) <= 8);
  }, colour, { ...patience, polling: 50 });

// Returns the position of a point of the session's page on the picture: with a display the picture shows the whole display.
async function place(person, x, y) {
  const [left, top, width, height] = await page.evaluate((whole) => (whole
    ? [screenX + (outerWidth - innerWidth) / 2, screenY + outerHeight - innerHeight, screen.width, screen.height]
    : [0, 0, innerWidth, innerHeight]), headless !== 'true');
  const box = await person.locator('#screen').boundingBox();
  return [box.x + ((left + x) / width) * box.width, box.y + ((top + y) / height) * box.height];
}
const click = async (person, x, y) => person.mouse.click(...await place(person, x, y));
const value = (wanted) =>
  page.waitForFunction((text) => document.getElementById('name').value === text, wanted, patience);

try {
  const person = await context.newPage();
  await page.goto(`${pages}/green`);
  await person.goto(live);
  await person.waitForFunction(() => document.getElementById('status').textContent === 'Live', null, patience);
  await middle(person, [0, 160, 80]);
  saw.green = true;

  await page.goto(`${pages}/form`);
  await middle(person, [255, 255, 255]);
  await click(person, 240, 70);
  await person.keyboard.type('Grüße 42');
  await value('Grüße 42');
  await person.keyboard.press('Backspace');
  await value('Grüße 4');
  await person.evaluate(() => navigator.clipboard.writeText(' – aus der Ablage'));
  await person.keyboard.press('Control+V');
  await value('Grüße 4 – aus der Ablage');
  await click(person, 240, 180);
  await page.waitForFunction(() => document.title === 'Pressed', null, patience);
  saw.said = await page.textContent('#said');
  saw.seen = await page.evaluate(() => window.seen);
  if (headless === 'true') {
    // Keys of the browser act, and the mouse meets its place in a zoomed page.
    await person.keyboard.press('Control+Equal');
    await page.waitForFunction(() => devicePixelRatio > 1.05, null, patience);
    await page.evaluate(() => addEventListener('mousedown', (event) => { window.at = Math.hypot(event.clientX - 300, event.clientY - 300); }));
    for (let met = false; !met;) {
      await click(person, 300, 300);
      met = await page.waitForFunction(() => window.at < 3, null, { timeout: 1000 }).then(() => true, () => false);
    }
    await person.keyboard.press('Control+Digit0');
    await page.waitForFunction(() => devicePixelRatio === 1, null, patience);
  }
  // The address is reported separately from the picture.
  await person.waitForFunction((url) => document.getElementById('url').textContent === url, `${pages}/form`, patience);
  saw.address = await person.textContent('#url');
  // A page that is not drawn yet does not scroll.
  await page.evaluate(() => {
    document.body.style.height = '5000px';
    return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  });
  for (let scrolled = false; !scrolled;) {
    await person.mouse.wheel(0, 300);
    scrolled = await page.waitForFunction(() => scrollY > 0, null, { timeout: 5000 }).then(() => true, () => false);
  }
  await page.evaluate(() => { document.body.style.height = ''; });
  await person.keyboard.press('Shift+Escape'); // every other key belongs to the session's browser
  saw.focus = await person.evaluate(() => document.activeElement.id);

  // Files that the person drops reach the session and the page.
  await page.evaluate(() => {
    document.addEventListener('dragover', (event) => event.preventDefault());
    document.addEventListener('drop', async (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      window.dropped = `${file.name}: ${await file.text()}`;
    });
  });
  // The message about it disappears after some seconds.
  await person.evaluate(() => {
    const status = document.getElementById('status');
    window.told = [];
    new MutationObserver(() => window.told.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true });
  });
  const [dropX, dropY] = await place(person, 300, 400);
  await person.evaluate(([clientX, clientY]) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['von außen'], 'Notiz ü.txt'));
    const target = document.getElementById('screen');
    for (const kind of ['dragenter', 'dragover', 'drop']) {
      target.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer, clientX, clientY }));
    }
  }, [dropX, dropY]);
  await page.waitForFunction(() => window.dropped, null, patience);
  saw.dropped = await page.evaluate(() => window.dropped);
  await person.waitForFunction(() => window.told.some((text) => !['Live', 'Uploading…'].includes(text)), null, patience);
  saw.notice = await person.evaluate(() => window.told.find((text) => !['Live', 'Uploading…'].includes(text)));

  // With a display the window can be used: the page is opened by typing its address.
  if (headless !== 'true') {
    await click(person, 500, -25);
    await person.keyboard.press('Control+A');
    await person.keyboard.type(`${pages}/form?typed`);
    await person.keyboard.press('Enter');
    await page.waitForURL(`${pages}/form?typed`, patience);
    saw.typed = true;
    await page.goto(`${pages}/form`);
    await page.evaluate((name) => { window.seen = ['click']; document.getElementById('name').value = name; }, 'Grüße 4 – aus der Ablage');
  }

  // The link to share only shows the picture, and takes no input, not even from a manipulated page.
  await person.click('#share');
  // The copy happens a moment after the click.
  const copied = await person.waitForFunction(async () => {
    const text = await navigator.clipboard.readText();
    return text !== ' – aus der Ablage' && text;
  }, null, patience);
  const view = await copied.jsonValue();
  assert.notEqual(view, live);
  const viewer = await context.newPage();
  await viewer.goto(view);
  await viewer.waitForFunction(() => document.getElementById('status').textContent === 'Live, view only', null, patience);
  await click(viewer, 240, 180);
  await viewer.evaluate(() => {
    for (const k of ['down', 'up']) {
      socket.send(JSON.stringify({ t: 'mouse', k, x: 240 / 1920, y: 180 / 1080, b: 'left', held: k === 'down' ? 1 : 0, n: 1, m: 0 }));
    }
    socket.send(JSON.stringify({ t: 'text', s: 'not from a viewer' }));
  });
  // Pictures come after the input was processed, so a new colour shows that it was.
  await page.evaluate(() => { document.documentElement.style.background = document.body.style.background = 'rgb(200, 40, 40)'; });
  await middle(viewer, [200, 40, 40]).catch((error) => { saw.viewer = String(error); });
  saw.after = await page.evaluate(() => [window.seen, document.getElementById('name').value]);
  await middle(person, [200, 40, 40]);
  await person.screenshot({ path: 'live.png' });
} finally {
  await own.close();
  await program.close();
}
console.log(JSON.stringify(saw));
