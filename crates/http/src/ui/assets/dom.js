// Creates the elements of the pages. Foreign values (titles, addresses, console lines, names) are inserted as text
// only.

/** Creates an element: `el('p', { class: 'hint' }, 'text', child)`. Attributes that are false or nullish are left out. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PICTURES = 0x2400;

/**
 * Makes a foreign text harmless: replaces control characters and characters that change the direction of writing by
 * visible ones, and truncates the text to `most` UTF-16 code units.
 */
export function inert(text, most = 300) {
  const whole = String(text ?? '');
  const part = whole.length > most ? `${whole.slice(0, most)}…` : whole;
  return part
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (sign) => String.fromCharCode(PICTURES + sign.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, '\ufffd');
}

/** Creates an element with a harmless foreign text that does not change the direction of the text around it. */
export const foreign = (text, most, attributes = {}) => el('bdi', attributes, inert(text, most));

export const $ = (id) => document.getElementById(id);

let clearing = 0;
/** Shows a notice for six seconds. */
export function notice(text) {
  const place = $('notice');
  place.textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => { place.textContent = ''; }, 6000);
}

/** Shows a confirmation dialog; resolves to whether the action was confirmed. */
export function confirmed(question, explanation, action) {
  return new Promise((resolve) => {
    const yes = el('button', { value: 'yes', class: 'danger' }, action);
    const dialog = el('dialog', { 'aria-labelledby': 'question', onclose: () => { dialog.remove(); resolve(dialog.returnValue === 'yes'); } },
      el('form', { method: 'dialog' },
        el('h2', { id: 'question' }, question), el('p', {}, explanation),
        el('div', { class: 'actions' }, el('button', { value: 'no', class: 'quiet', autofocus: true }, 'Cancel'), yes)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Formats a duration with at most two units: `3 min`, `2 h 5 min`. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  return minutes ? `${minutes} min` : `${whole} s`;
}

const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
export const moment = (text) => el('time', { datetime: text }, MOMENT.format(new Date(text)));

/** Runs `work` now and then periodically while the page is visible. Returns a function that stops it. */
export function every(seconds, work) {
  let timer = 0;
  let over = false;
  const turn = async () => {
    clearTimeout(timer);
    if (over) return;
    if (!document.hidden) await work();
    if (!over) timer = setTimeout(turn, seconds * 1000);
  };
  const seen = () => { if (!document.hidden) turn(); };
  document.addEventListener('visibilitychange', seen);
  turn();
  return () => { over = true; clearTimeout(timer); document.removeEventListener('visibilitychange', seen); };
}
