// Thumbnails of sessions: fetched only for visible elements, at most two at a time, and every ten seconds by default.
import { el } from './dom.js';
import { call, segment } from './api.js';

const EVERY_MS = 10000;
const AT_A_TIME = 2;

/** Shows thumbnails in elements: `set(element, id)` starts the updates of one, `set(element, null)` ends them. */
export function watch({ everyMs = EVERY_MS } = {}) {
  const places = new Map();
  let over = false;
  let under = 0;

  const seen = new IntersectionObserver((changes) => {
    for (const change of changes) {
      const known = places.get(change.target);
      if (known) known.visible = change.isIntersecting;
    }
    turn();
  }, { rootMargin: '100px' });

  async function take(element, known) {
    under += 1;
    known.at = Date.now();
    try {
      const blob = await (await call(`/browsers/${segment(known.id)}/thumbnail`)).blob();
      if (over || places.get(element) !== known) return;
      const address = URL.createObjectURL(blob);
      const image = el('img', { src: address, alt: '' });
      await image.decode();
      if (known.address) URL.revokeObjectURL(known.address);
      known.address = address;
      element.replaceChildren(image);
    } catch {
      if (!known.address) element.replaceChildren(el('span', { class: 'hint' }, 'No picture'));
    } finally {
      under -= 1;
      turn();
    }
  }

  function turn() {
    if (over || document.hidden) return;
    const due = [...places].filter(([, known]) => known.visible && Date.now() - known.at >= everyMs);
    due.sort(([, a], [, b]) => a.at - b.at);
    for (const [element, known] of due.slice(0, AT_A_TIME - under)) take(element, known);
  }

  const clock = setInterval(turn, 500);
  document.addEventListener('visibilitychange', turn);

  return {
    set(element, id) {
      const known = places.get(element);
      if (known?.address) URL.revokeObjectURL(known.address);
      places.delete(element);
      seen.unobserve(element);
      element.replaceChildren();
      if (id === null) return;
      places.set(element, { id, at: 0, visible: false, address: null });
      seen.observe(element);
    },
    end() {
      over = true;
      clearInterval(clock);
      seen.disconnect();
      document.removeEventListener('visibilitychange', turn);
      for (const known of places.values()) if (known.address) URL.revokeObjectURL(known.address);
    },
  };
}
