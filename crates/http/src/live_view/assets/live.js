'use strict';
// Shows frames of the session's browser and sends input back. Values from the browser's pages (titles, addresses) are
// inserted as text only.
const $ = (id) => document.getElementById(id);
const [screen, keys, tabs, address, status, keyboard, share] =
  ['screen', 'keys', 'tabs', 'url', 'status', 'keyboard', 'share'].map($);
const context = screen.getContext('2d', { alpha: false });
const BUTTONS = ['left', 'middle', 'right', 'back', 'forward'];
const ENDED = {
  4000: 'The session was deleted.', 4001: 'The session ended: nobody used it.', 4002: 'The browser crashed.',
  4003: 'The session was given back.', 4004: 'The browser was restarted.', 4006: 'The session ran out of memory.',
  4007: 'The browser was closed.', 4008: 'The browser did not answer any more.',
  4010: 'The session ended: its server was drained.',
  4012: 'Too many people watch this session. Reload to try again.',
};
let socket = null;
let input = false;
let viewUrl = null;
let retries = 0;
// Whether frames are changed parts of the whole display; otherwise each frame is a complete picture of the page.
let display = false;
// Frames are drawn in the order of their arrival.
let drawing = Promise.resolve();

const send = (message) => {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
};
const drive = (message) => { if (input) send(message); };

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss://' : 'ws://';
  socket = new WebSocket(scheme + location.host + location.pathname.replace(/\/$/, '') + '/socket' + location.search);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => { retries = 0; status.textContent = 'Waiting for the picture…'; fit(); };
  socket.onmessage = (event) => { typeof event.data === 'string' ? hear(JSON.parse(event.data)) : enqueue(event.data); };
  socket.onclose = (event) => {
    input = false;
    keys.disabled = true;
    if (ENDED[event.code] && event.code !== 4004) { status.textContent = ENDED[event.code]; return; }
    if (retries >= 8) { status.textContent = 'Not connected. Reload to try again.'; return; }
    retries += 1;
    status.textContent = 'Connecting again…';
    setTimeout(connect, Math.min(250 * 2 ** retries, 10000));
  };
}

function enqueue(bytes) {
  drawing = drawing.then(() => draw(bytes)).catch(() => {});
}

async function draw(bytes) {
  try {
    const head = display ? new DataView(bytes, 0, 8) : null;
    const image = await createImageBitmap(new Blob([head ? new Uint8Array(bytes, 8) : bytes], { type: 'image/jpeg' }));
    const [width, height, x, y] = head ? [0, 2, 4, 6].map((at) => head.getUint16(at)) : [image.width, image.height, 0, 0];
    if (screen.width !== width || screen.height !== height) {
      screen.width = width;
      screen.height = height;
    }
    context.drawImage(image, x, y);
    image.close();
    if (!noticed) status.textContent = input ? 'Live' : 'Live, view only';
  } finally {
    send({ t: 'ack' });
  }
}

// The timer of a notice that is shown for five seconds.
let noticed = 0;
function notice(text) {
  status.textContent = text;
  clearTimeout(noticed);
  noticed = setTimeout(() => { noticed = 0; status.textContent = input ? 'Live' : 'Live, view only'; }, 5000);
}

function hear(message) {
  if (message.t === 'hello') {
    input = message.input;
    display = message.display;
    screen.setAttribute('aria-label', display ? "The session's display" : "The browser's page");
    keys.disabled = !input;
    tabs.disabled = !input;
    keyboard.hidden = !input;
    viewUrl = message.view_url;
    share.hidden = !viewUrl;
  } else if (message.t === 'tabs') {
    tabs.replaceChildren(...message.tabs.map((tab) => {
      const option = document.createElement('option');
      option.value = tab.id;
      option.textContent = tab.title || tab.url || 'Untitled';
      option.selected = tab.id === message.current;
      return option;
    }));
    const current = message.tabs.find((tab) => tab.id === message.current);
    address.textContent = current ? current.url : '';
    document.title = current && current.title ? current.title + ' · Live view' : 'Live view';
  } else if (message.t === 'dialogs') {
    ask(message.dialogs[0] || null);
  } else if (message.t === 'unavailable') {
    status.textContent = 'There is no picture now. Trying again…';
  }
}

// The dialog of a page in a session without a display. The page waits for its answer. Its message is inserted as text.
let asked = null;
const dialog = $('dialog');
function ask(open) {
  const same = open && asked && JSON.stringify(open) === JSON.stringify(asked);
  asked = open;
  dialog.hidden = !open;
  if (!open || same) return;
  const left = open.kind === 'beforeunload';
  $('asks').textContent = left ? 'Leave the page? Changes may not be saved.' : open.message;
  $('reply').hidden = open.kind !== 'prompt';
  $('reply').value = open.default;
  $('dismiss').hidden = open.kind === 'alert';
  for (const id of ['reply', 'agree', 'dismiss']) $(id).disabled = !input;
  if (input) (open.kind === 'prompt' ? $('reply') : $('agree')).focus();
}
function settle(accept) {
  if (!asked) return;
  drive({ t: 'dialog', page: asked.page, accept, text: asked.kind === 'prompt' ? $('reply').value : '' });
  dialog.hidden = true;
  keys.focus();
}
$('agree').addEventListener('click', () => settle(true));
$('dismiss').addEventListener('click', () => settle(false));
dialog.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') settle(false);
  if (event.key === 'Enter' && event.target === $('reply')) settle(true);
});

let fitting = 0;
function fit() {
  const box = screen.parentElement.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  send({ t: 'size', w: Math.round(box.width * scale), h: Math.round(box.height * scale) });
}
window.addEventListener('resize', () => { clearTimeout(fitting); fitting = setTimeout(fit, 200); });

// A mouse, a pen or one finger acts as a mouse; two fingers scroll.
const place = (event) => {
  const box = screen.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
};
const modifiers = (event) =>
  (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0);
const fingers = new Map();
let clicks = { time: 0, x: 0, y: 0, count: 0 };
let moving = null;

function count(event) {
  const near = Math.hypot(event.clientX - clicks.x, event.clientY - clicks.y) < 6;
  const again = near && event.timeStamp - clicks.time < 500 && clicks.count < 3;
  clicks = { time: event.timeStamp, x: event.clientX, y: event.clientY, count: again ? clicks.count + 1 : 1 };
}
const flushMove = () => { if (moving) { drive(moving); moving = null; } };

screen.addEventListener('pointerdown', (event) => {
  event.preventDefault();
  if (event.pointerType !== 'touch') keys.focus({ preventScroll: true });
  screen.setPointerCapture(event.pointerId);
  if (event.pointerType === 'touch') {
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (fingers.size > 1) return;
  }
  count(event);
  flushMove();
  drive({ t: 'mouse', k: 'down', ...place(event), b: BUTTONS[event.button] || 'left', held: event.buttons & 31, n: clicks.count, m: modifiers(event) });
});
screen.addEventListener('pointermove', (event) => {
  if (fingers.size > 1) {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    drive({ t: 'wheel', ...place(event), dx: last.x - event.clientX, dy: last.y - event.clientY, m: 0 });
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    return;
  }
  const held = event.buttons & 31;
  const button = held & 1 ? 'left' : held & 2 ? 'right' : held & 4 ? 'middle' : 'none';
  if (!moving) requestAnimationFrame(flushMove);
  moving = { t: 'mouse', k: 'move', ...place(event), b: button, held, m: modifiers(event) };
});
function release(event) {
  const several = fingers.size > 1;
  fingers.delete(event.pointerId);
  if (several) return;
  flushMove();
  drive({ t: 'mouse', k: 'up', ...place(event), b: BUTTONS[event.button] || 'left', held: event.buttons & 31, n: clicks.count, m: modifiers(event) });
}
screen.addEventListener('pointerup', release);
screen.addEventListener('pointercancel', release);
screen.addEventListener('contextmenu', (event) => event.preventDefault());
screen.addEventListener('wheel', (event) => {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 40 : event.deltaMode === 2 ? screen.clientHeight : 1;
  drive({ t: 'wheel', ...place(event), dx: event.deltaX * unit, dy: event.deltaY * unit, m: modifiers(event) });
}, { passive: false });

// The viewer's browser names keys by the viewer's layout, so any layout works. Input that has no key name (a
// composition, a phone's keyboard) is sent as text.
const isPaste = (event) => (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'v';
const isText = (event) => event.isComposing || event.key === 'Process' || event.key === 'Unidentified' || event.key === 'Dead';
function key(kind, event) {
  if (isText(event) || isPaste(event)) return;
  if (event.key === 'Escape' && event.shiftKey) {
    if (kind === 'down') { event.preventDefault(); (tabs.disabled ? share : tabs).focus(); }
    return;
  }
  event.preventDefault();
  const third = event.getModifierState('AltGraph');
  const plain = third || !(event.ctrlKey || event.metaKey || event.altKey);
  const text = kind === 'up' || !plain ? '' : event.key === 'Enter' ? '\r' : [...event.key].length === 1 ? event.key : '';
  drive({
    t: 'key', k: kind, key: event.key, code: event.code, text, vk: event.keyCode & 255,
    m: third ? modifiers(event) & 12 : modifiers(event), loc: event.location, repeat: event.repeat,
  });
}
// The page gets no event for a key that goes up while another window has the focus, or while Command is held.
const down = new Map();
function letGo() {
  for (const [code, name] of down) drive({ t: 'key', k: 'up', key: name, code, m: 0 });
  down.clear();
}
keys.addEventListener('keydown', (event) => { key('down', event); if (event.defaultPrevented) down.set(event.code, event.key); });
keys.addEventListener('keyup', (event) => {
  key('up', event);
  down.delete(event.code);
  if (event.key === 'Meta') letGo();
});
keys.addEventListener('blur', letGo);
function flushText() {
  const text = keys.value;
  keys.value = '';
  if (text) drive({ t: 'text', s: text });
}
keys.addEventListener('input', (event) => {
  if (event.isComposing) return;
  if (event.inputType === 'deleteContentBackward' && !keys.value) {
    for (const k of ['down', 'up']) drive({ t: 'key', k, key: 'Backspace', code: 'Backspace', vk: 8 });
    return;
  }
  flushText();
});
keys.addEventListener('compositionend', flushText);
keys.addEventListener('paste', (event) => {
  event.preventDefault();
  const text = event.clipboardData.getData('text/plain');
  if (new TextEncoder().encode(text).length > 1048576) { notice('That is too long to paste (more than 1 MiB).'); return; }
  if (text) drive({ t: 'text', s: text, paste: true });
});

// Dropped files are uploaded to the session and then dropped onto the page at the same position.
const UPLOADS = '/home/casement/Uploads/';
const holdsFiles = (event) => input && event.dataTransfer && [...event.dataTransfer.types].includes('Files');
for (const kind of ['dragenter', 'dragover']) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    if (event.dataTransfer) event.dataTransfer.dropEffect = holdsFiles(event) ? 'copy' : 'none';
  });
}
document.addEventListener('drop', async (event) => {
  event.preventDefault();
  if (!holdsFiles(event)) return;
  const files = [...event.dataTransfer.files];
  const at = place(event);
  const here = location.pathname.replace(/\/$/, '');
  status.textContent = 'Uploading…';
  try {
    for (const file of files) {
      const answer = await fetch(`${here}/uploads/${encodeURIComponent(file.name)}${location.search}`, { method: 'PUT', body: file });
      if (!answer.ok) throw new Error((await answer.json()).message);
    }
    drive({ t: 'drop', ...at, paths: files.map((file) => UPLOADS + file.name) });
    notice(files.length === 1 ? `${files[0].name} is in ${UPLOADS}` : `${files.length} files are in ${UPLOADS}`);
  } catch (error) {
    notice(`Not uploaded: ${error.message}`);
  }
});

keyboard.addEventListener('click', () => keys.focus());
tabs.addEventListener('change', () => drive({ t: 'tab', id: tabs.value }));
share.addEventListener('click', async () => {
  try {
    await navigator.clipboard.writeText(viewUrl);
    notice('Link copied.');
  } catch {
    window.prompt('View-only link', viewUrl);
  }
});
connect();
