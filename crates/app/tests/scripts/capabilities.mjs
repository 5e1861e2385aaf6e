// node capabilities.mjs NAME=CDP_WS_URL...: what pages find in sessions, and in the browsers that Playwright and Puppeteer start by their
// own defaults. Prints, for each client, one list of capabilities for its own browser (`own`) and for each session.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';

// The program itself: the script of the distribution around it adds switches.
const executablePath = '/usr/lib/chromium/chromium';
const timeout = 120000;
const page = `<!doctype html><title>page</title><p>text<script>
  let ticks = 0;
  setInterval(() => ticks++, 100);
  // Clients evaluate expressions as if the user had clicked, so the page asks by itself.
  const opened = location.pathname === '/' ? window.open('about:blank', '_blank', 'width=300,height=300') : null;
  const opensWindows = opened !== null;
  opened?.close();
</script>`;
const worker = `self.addEventListener('sync', async () => { for (const client of await clients.matchAll({ includeUncontrolled: true })) client.postMessage('synced'); });
  self.addEventListener('activate', (event) => event.waitUntil(clients.claim()));`;
const site = createServer((request, response) => {
  const isWorker = request.url === '/worker.js';
  response.writeHead(200, { 'content-type': isWorker ? 'text/javascript' : 'text/html' });
  const names = request.rawHeaders.filter((_, index) => index % 2 === 0);
  response.end(isWorker ? worker : request.url === '/headers' ? names.join() : page);
});
await new Promise((listening) => site.listen(0, '127.0.0.1', listening));
const at = `http://127.0.0.1:${site.address().port}`;
const closing = createServer();
await new Promise((listening) => closing.listen(0, '127.0.0.1', listening));
const dead = `http://127.0.0.1:${closing.address().port}/`;
await new Promise((closed) => closing.close(closed));

// Runs in the page.
async function ask() {
  const seen = {};
  const name = (call) => Promise.resolve().then(call).then((value) => value ?? null, (error) => error.name);
  const within = (promise, ms) => Promise.race([promise, new Promise((done) => setTimeout(done, ms, `nothing in ${ms} ms`))]);
  for (const kind of ['webgl', 'webgl2']) {
    const gl = document.createElement('canvas').getContext(kind);
    const pixel = new Uint8Array(4);
    gl?.clearColor(1, 0, 0, 1);
    gl?.clear(gl.COLOR_BUFFER_BIT);
    gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    seen[kind] = gl && [gl.getParameter(gl.VERSION), pixel.join()];
  }
  const draw = (text, font = '60px sans-serif') => {
    const context = document.createElement('canvas').getContext('2d');
    context.font = font;
    context.fillText(text, 5, 70);
    return [...context.getImageData(0, 0, 100, 100).data];
  };
  seen.canvas = draw('x').some((value) => value > 0);
  seen['canvas in workers'] = typeof OffscreenCanvas;
  seen.emoji = draw('\u{1F600}').some((value, index, all) => index % 4 === 0 && all[index + 3] > 0 && value !== all[index + 1]);
  const texts = { Arabic: 'مرحبا', Bengali: 'নমস্কার', Chinese: '中文', Georgian: 'გამარჯობა', Greek: 'γειά', Hebrew: 'שלום', Hindi: 'नमस्ते', Japanese: 'かなカナ', Korean: '한국어',
    Russian: 'Привет', Tamil: 'வணக்கம்', Thai: 'ไทย', emoji: '\u{1F600}\u{1F680}\u{1F44D}' };
  // No font has a letter for an unassigned number.
  const box = draw('\u0378').join();
  seen['letters drawn as boxes'] = Object.keys(texts).filter((name) => [...texts[name]].some((letter) => draw(letter).join() === box));
  const width = (font) => Object.assign(document.createElement('canvas').getContext('2d'), { font: `60px ${font}` }).measureText('mmmiii').width;
  seen.fonts = ['serif', 'sans-serif', 'monospace', 'system-ui', 'Arial', 'Courier New'].map((font) => `${font} ${Math.round(width(font))}`);
  const types = ['video/mp4; codecs="avc1.42E01E"', 'video/webm; codecs="vp8"', 'video/webm; codecs="vp9"', 'video/mp4; codecs="av01.0.05M.08"',
    'audio/mpeg', 'audio/ogg; codecs="opus"', 'audio/mp4; codecs="mp4a.40.2"', 'audio/flac', 'audio/wav'];
  seen['codecs that play'] = types.map((type) => `${type} ${document.createElement('video').canPlayType(type)} ${MediaSource.isTypeSupported(type)}`);
  seen['codecs that record'] = ['video/webm;codecs=vp8', 'video/webm;codecs=vp9', 'audio/webm;codecs=opus'].map((type) => MediaRecorder.isTypeSupported(type));
  const encodable = (codec) => name(() => VideoEncoder.isConfigSupported({ codec, width: 640, height: 480 }).then(({ supported }) => supported));
  seen['codecs that encode'] = await Promise.all(['vp8', 'vp09.00.10.08', 'avc1.42001f'].map(encodable));
  const offline = new OfflineAudioContext(1, 100, 44100);
  const tone = offline.createOscillator();
  tone.connect(offline.destination);
  tone.start();
  seen.audio = [(await offline.startRendering()).getChannelData(0).some((value) => value !== 0), new AudioContext().sampleRate];
  seen['media devices'] = [(await navigator.mediaDevices.enumerateDevices()).map(({ kind }) => kind), await within(name(() => navigator.mediaDevices.getUserMedia({ audio: true })), 5000)];
  const permissions = ['geolocation', 'notifications', 'camera', 'microphone', 'clipboard-read', 'clipboard-write', 'persistent-storage', 'midi',
    'background-sync', 'storage-access', 'local-fonts', 'screen-wake-lock'];
  seen.permissions = await Promise.all(permissions.map(async (permission) => `${permission} ${await name(() => navigator.permissions.query({ name: permission }).then(({ state }) => state))}`));
  seen.locale = [navigator.language, navigator.languages.join(), Intl.DateTimeFormat().resolvedOptions().locale];
  seen.interfaces = ['indexedDB', 'caches', 'SharedWorker', 'PushManager', 'SyncManager', 'PaymentRequest', 'USB', 'HID', 'EyeDropper', 'showOpenFilePicker',
    'RTCPeerConnection', 'WebTransport', 'ImageCapture', 'webkitSpeechRecognition', 'documentPictureInPicture'].filter((key) => key in window);
  seen['PDF viewer'] = navigator.pdfViewerEnabled;
  seen['full screen'] = [document.fullscreenEnabled, document.pictureInPictureEnabled];
  seen.pointer = ['(hover: hover)', '(pointer: fine)', '(any-pointer: coarse)'].filter((query) => matchMedia(query).matches);
  seen.scrollbars = (() => {
    const box = document.body.appendChild(document.createElement('div'));
    box.style.cssText = 'width: 100px; height: 100px; overflow: scroll';
    return box.offsetWidth > box.clientWidth;
  })();
  seen['navigator.webdriver'] = navigator.webdriver;
  seen['windows without a click'] = opensWindows;
  seen['300 entries of the history'] = (() => {
    for (let entry = 1; entry <= 300; entry++) history.pushState({}, '', `#${entry}`);
    return location.hash === '#300';
  })();
  seen['WebRTC between pages'] = await (async () => {
    const [one, other] = [new RTCPeerConnection(), new RTCPeerConnection()];
    one.onicecandidate = ({ candidate }) => other.addIceCandidate(candidate);
    other.onicecandidate = ({ candidate }) => one.addIceCandidate(candidate);
    const channel = one.createDataChannel('channel');
    const open = new Promise((done) => { channel.onopen = () => done(true); });
    await one.setLocalDescription(await one.createOffer());
    await other.setRemoteDescription(one.localDescription);
    await other.setLocalDescription(await other.createAnswer());
    await one.setRemoteDescription(other.localDescription);
    return within(open, 2000).then((value) => value === true);
  })();
  return seen;
}

// Runs in the page: the browser knows a network, and fires what it holds back without one.
async function askNetwork() {
  const synced = new Promise((done) => { navigator.serviceWorker.onmessage = ({ data }) => done(data); });
  await navigator.serviceWorker.register('/worker.js');
  const registration = await navigator.serviceWorker.ready;
  await registration.sync.register('tag');
  const answer = await Promise.race([synced, new Promise((done) => setTimeout(done, 30000, 'nothing in 30 s'))]);
  return { 'navigator.onLine': navigator.onLine, 'connection.rtt': navigator.connection.rtt > 0, 'background sync': answer };
}

// Ticks of 100 ms: 15 of them take 1.5 s, and 15 s where timers run once a second.
const untilTicks = () => new Promise((done) => {
  const [from, began] = [ticks, performance.now()];
  const check = setInterval(() => { if (ticks - from >= 15) { clearInterval(check); done(performance.now() - began < 8000); } }, 100);
});

// `open` opens a further page; the page before it is then behind. The pages end with their browser: Puppeteer waits for ever for
// the end of a page that shows an error, if another page is closed at the same time.
async function list(open, { network }) {
  const first = await open();
  await first.goto(`${at}/`, { timeout });
  const seen = await first.evaluate(ask);
  const pdf = Buffer.from(await first.pdf({ tagged: true })).toString('latin1');
  seen.printing = [pdf.startsWith('%PDF'), pdf.includes('StructTreeRoot')];
  seen['visibility in front'] = await first.evaluate(() => document.visibilityState);
  const second = await open();
  await second.bringToFront();
  seen['visibility behind'] = await first.evaluate(() => document.visibilityState);
  seen['timers behind'] = await first.evaluate(untilTicks);
  seen.network = network ? await second.goto(`${at}/`, { timeout }).then(() => second.evaluate(askNetwork)) : null;
  await second.goto(`${at}/one`, { timeout });
  await second.goto(`${at}/two`, { timeout });
  seen['back in the history'] = await second.goBack({ timeout: 20000 }).then(() => second.url().slice(at.length), ({ name }) => name);
  const answer = await second.goto(`${at}/headers`, { timeout });
  const sent = (await answer.text()).split(',');
  seen['headers of a request'] = sent;
  const [got, told] = [sent.map((header) => header.toLowerCase()), Object.keys(await answer.request().allHeaders?.() ?? {})];
  seen['headers that only the client sees'] = told.filter((header) => !got.includes(header));
  const address = answer.serverAddr ? await answer.serverAddr() : answer.remoteAddress();
  seen['port of the server, for the client'] = address.port === site.address().port ? 'that of the server' : 'another';
  const how = (promise) => promise.then(() => 'a response', ({ message }) => /ERR_[A-Z_]+/.exec(message)?.[0]);
  seen['a server that is down'] = [await second.evaluate((url) => fetch(url, { mode: 'no-cors' }).then(() => 'a response', () => 'an error'), dead),
    await how((await open()).goto(dead, { timeout })), await how((await open()).goto(dead.replace('http:', 'https:'), { timeout }))];
  return seen;
}

const switchesOf = (pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(1).filter((word) => word.startsWith('--'));
const seen = { playwright: {}, puppeteer: {}, switches: {} };
{
  const launched = await chromium.launchServer({ executablePath, timeout });
  seen.switches.playwright = switchesOf(launched.process().pid);
  const own = await chromium.connect(launched.wsEndpoint());
  const context = await own.newContext();
  seen.playwright.own = await list(() => context.newPage(), { network: false });
  await launched.close();
}
{
  const own = await puppeteer.launch({ executablePath, args: ['--no-sandbox'], timeout, defaultViewport: null });
  seen.switches.puppeteer = switchesOf(own.process().pid);
  seen.puppeteer.own = await list(() => own.newPage(), { network: false });
  await own.close();
}
for (const session of process.argv.slice(2)) {
  const [name, url] = session.split(/=(.*)/s);
  const connected = await chromium.connectOverCDP(url, { timeout });
  seen.playwright[name] = await list(() => connected.contexts()[0].newPage(), { network: true });
  await connected.close();
  // The browsers of the other kinds are the same for both clients.
  if (['headless', 'display'].includes(name)) {
    const other = await puppeteer.connect({ browserWSEndpoint: url, defaultViewport: null });
    seen.puppeteer[name] = await list(() => other.newPage(), { network: true });
    await other.disconnect();
  }
}
site.close();
site.closeAllConnections();
console.log(JSON.stringify(seen));
process.exit();
