// The page of all sessions of the project: their thumbnails and properties, and a button that ends each.
import { confirmed, el, every, foreign, inert, notice, span } from './dom.js';
import { call, list, segment } from './api.js';
import { watch } from './thumbnails.js';

const REFRESH_SECONDS = 10;
const PAGE = 60;
const STATUS = [['active', 'Active'], ['deleted', 'Ended'], ['all', 'All']];

/** Reads the filter from the URL, which can therefore be shared. */
function asked() {
  const address = new URLSearchParams(location.search);
  const status = STATUS.some(([value]) => value === address.get('status')) ? address.get('status') : 'active';
  return { status, query: address.get('query') ?? '', tags: address.getAll('tag').filter((tag) => tag.includes('=')) };
}

function search({ status, query, tags }) {
  const parts = [];
  if (status !== 'active') parts.push(['status', status]);
  if (query) parts.push(['query', query]);
  tags.forEach((tag) => parts.push(['tag', tag]));
  const text = new URLSearchParams(parts).toString();
  return text ? `?${text}` : '';
}

function wanted({ status, query, tags }, offset) {
  const parts = new URLSearchParams({ status, limit: PAGE, offset });
  if (query) parts.set('query', query);
  for (const tag of tags) {
    const at = tag.indexOf('=');
    parts.set(`tags[${tag.slice(0, at)}]`, tag.slice(at + 1));
  }
  return `/browsers?${parts}`;
}

export const nameOf = (session) => session.name ?? session.session_id;

/** Returns the path of the live view on the origin of this page, which may differ from the server's public URL. */
export function liveView(session) {
  const address = new URL(session.browser_live_view_url);
  return address.pathname + address.search;
}

/** Ends a session after a confirmation. Returns whether the session has ended. */
export async function end(session) {
  const text = 'Its browser, its files and everything open in it are gone at once. Whoever uses it is disconnected.';
  if (!await confirmed(`End ${inert(nameOf(session), 60)}?`, text, 'End session')) return false;
  try {
    await call(`/browsers/${segment(session.session_id)}`, { method: 'DELETE' });
    notice('The session has ended.');
  } catch (error) {
    if (error.status !== 404) { notice(`Not ended: ${error.message}`); return false; }
    notice('It had ended before.');
  }
  return true;
}

export function facts(session) {
  const parts = [session.headless ? 'headless' : 'with a display', `${session.viewport.width} × ${session.viewport.height}`];
  if (session.engine !== 'local') parts.push(`engine ${session.engine}`);
  if (session.pool) parts.push(`pool ${inert(session.pool.name ?? session.pool.id, 40)}`);
  return parts.join(' · ');
}

export async function show(place) {
  const state = asked();
  const cards = new Map();
  const grid = el('ul', { class: 'grid', 'aria-label': 'Sessions' });
  const count = el('p', { class: 'hint', role: 'status' });
  const more = el('button', { type: 'button', hidden: true, onclick: () => { pages += 1; refresh(); } }, 'Show more');
  let pages = 1;
  const pictures = watch();

  const change = (next) => {
    Object.assign(state, next);
    pages = 1;
    history.replaceState(null, '', location.pathname + search(state));
    chips();
    refresh();
  };
  const addTag = (tag) => { if (!state.tags.includes(tag)) change({ tags: [...state.tags, tag] }); };

  const chosen = el('ul', { class: 'chips', 'aria-label': 'Only sessions with these tags' });
  const chips = () => chosen.replaceChildren(...state.tags.map((tag) => el('li', {},
    el('button', { type: 'button', class: 'chip on', 'aria-label': `Remove the tag ${tag}`, onclick: () => { change({ tags: state.tags.filter((other) => other !== tag) }); tagField.focus(); } },
      foreign(tag, 60), el('span', { 'aria-hidden': 'true' }, ' ×')))));

  const tagField = el('input', { id: 'tag', type: 'text', placeholder: 'key=value', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', maxlength: 200 });
  const takeTag = (event) => {
    event.preventDefault();
    const tag = tagField.value.trim();
    tagField.setCustomValidity(!tag || tag.indexOf('=') > 0 ? '' : 'A tag is written as key=value');
    if (!tagField.reportValidity() || !tag) return;
    tagField.value = '';
    addTag(tag);
  };
  tagField.addEventListener('input', () => tagField.setCustomValidity(''));

  let typing = 0;
  const queryField = el('input', { id: 'query', type: 'search', value: state.query, placeholder: 'Name, pool, or whole id', autocomplete: 'off', spellcheck: 'false', maxlength: 200,
    oninput: () => { clearTimeout(typing); typing = setTimeout(() => change({ query: queryField.value.trim() }), 250); } });

  const filters = el('form', { class: 'filters', role: 'search', 'aria-label': 'Filter sessions', onsubmit: takeTag },
    el('fieldset', { class: 'segments' }, el('legend', { class: 'unseen' }, 'Status'),
      STATUS.map(([value, text]) => el('label', {},
        el('input', { type: 'radio', name: 'status', value, checked: value === state.status, onchange: () => change({ status: value }) }), el('span', {}, text)))),
    el('label', { class: 'field' }, el('span', {}, 'Search'), queryField),
    el('label', { class: 'field' }, el('span', {}, 'Tag'), tagField),
    el('button', { class: 'quiet' }, 'Add tag'));

  function card(session) {
    const picture = el('a', { class: 'picture', href: `/ui/sessions/${segment(session.session_id)}`, tabindex: '-1', 'aria-hidden': 'true' });
    const title = el('a', { href: `/ui/sessions/${segment(session.session_id)}` });
    const about = el('p', { class: 'hint' });
    const tags = el('ul', { class: 'chips' });
    const actions = el('div', { class: 'actions' });
    const item = el('li', { class: 'card session' }, picture, el('div', { class: 'body' }, el('h2', {}, title), about, tags), actions);
    const parts = { item, picture, ended: null };
    parts.update = (now) => {
      title.replaceChildren(foreign(nameOf(now), 80));
      const age = span(now.usage.uptime_ms / 1000);
      about.textContent = `${now.deleted_at ? `ended after ${age}` : age} · ${facts(now)}`;
      const pairs = Object.entries(now.tags ?? {}).map(([key, value]) => `${key}=${value}`);
      if (tags.textContent !== pairs.join('')) {
        tags.replaceChildren(...pairs.map((pair) => el('li', {},
          el('button', { type: 'button', class: 'chip', 'aria-label': `Only sessions with the tag ${pair}`, onclick: () => addTag(pair) }, inert(pair, 60)))));
      }
      const ended = Boolean(now.deleted_at);
      if (parts.ended === ended) return;
      parts.ended = ended;
      item.classList.toggle('over', ended);
      pictures.set(picture, ended ? null : now.session_id);
      actions.replaceChildren(...(ended ? [el('span', { class: 'badge' }, 'Ended')] : [
        el('a', { class: 'button', href: liveView(now), target: '_blank', rel: 'noopener noreferrer' }, 'Live view', el('span', { class: 'unseen' }, ` of ${inert(nameOf(now), 80)}, in a new tab`)),
        el('button', { type: 'button', class: 'danger quiet', onclick: async () => { if (await end(now)) refresh(); } }, 'End', el('span', { class: 'unseen' }, ` ${inert(nameOf(now), 80)}`)),
      ]));
    };
    return parts;
  }

  let asking = 0;
  async function refresh() {
    const mine = ++asking;
    const items = [];
    let next = '0';
    try {
      for (let page = 0; page < pages && next !== null; page += 1) {
        const found = await list(wanted(state, next));
        items.push(...found.items);
        next = found.next;
      }
    } catch (error) {
      if (mine === asking && error.status !== 401) count.textContent = `The list could not be read: ${error.message}`;
      return;
    }
    if (mine !== asking) return;
    const ids = new Set(items.map((session) => session.session_id));
    for (const [id, old] of cards) if (!ids.has(id)) { pictures.set(old.picture, null); old.item.remove(); cards.delete(id); }
    items.forEach((session, at) => {
      const known = cards.get(session.session_id) ?? card(session);
      cards.set(session.session_id, known);
      known.update(session);
      // Moves a card only if its position has changed, because a moved element loses the focus.
      if (grid.children[at] !== known.item) grid.insertBefore(known.item, grid.children[at] ?? null);
    });
    const filtered = state.query || state.tags.length || state.status !== 'active';
    count.textContent = items.length ? `${items.length}${next === null ? '' : ' or more'} ${items.length === 1 ? 'session' : 'sessions'}`
      : filtered ? 'No session is like that.' : 'No session is running. Make one with POST /browsers, or take one from a pool.';
    more.hidden = next === null;
  }

  chips();
  place.append(el('h1', {}, 'Sessions'), filters, chosen, count, grid, more);
  const stop = every(REFRESH_SECONDS, refresh);
  return () => { asking += 1; clearTimeout(typing); stop(); pictures.end(); };
}
