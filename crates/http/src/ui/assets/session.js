// The page of one session: its thumbnail, its properties and its telemetry events.
import { el, every, foreign, inert, moment, notice, span } from './dom.js';
import { call, list, segment } from './api.js';
import { end, liveView, nameOf } from './sessions.js';
import { follow } from './stream.js';
import { watch } from './thumbnails.js';
import { CATEGORIES, Timeline } from './timeline.js';

const REFRESH_SECONDS = 10;
const PICTURE_MS = 5000;
const PAGE = 100;

function fact(name, ...value) {
  return [el('dt', {}, name), el('dd', {}, ...value)];
}

function facts(session, ignored) {
  const rows = [
    fact('Id', el('code', {}, session.session_id)),
    fact('Began', moment(session.created_at)),
    session.deleted_at ? fact('Ended', moment(session.deleted_at), ` after ${span(session.usage.uptime_ms / 1000)}`) : fact('Runs for', span(session.usage.uptime_ms / 1000)),
    fact('Engine', session.engine),
    fact('Browser', `${session.headless ? 'headless' : 'with a display'}, ${session.viewport.width} × ${session.viewport.height}`),
    session.pool && fact('Pool', foreign(session.pool.name ?? session.pool.id, 80)),
    session.start_url && fact('Began at', foreign(session.start_url, 200)),
    session.proxy_id && fact('Proxy', el('code', {}, session.proxy_id)),
    ...network(session.network),
    fact('Idle timeout', span(session.timeout_seconds)),
    fact('Captured', captured(session)),
    ignored.length > 0 && fact('Ignored fields', ...ignored.flatMap((name, at) => [at > 0 ? ', ' : '', el('code', {}, inert(name, 64))])),
  ];
  return rows.filter(Boolean).flat();
}

/** What the session may reach, and what was refused because of that. */
function network(configured) {
  if (!configured) return [];
  const hosts = (all) => foreign(all.join(', ') || 'none', 400);
  const denied = configured.denied_requests;
  return [
    configured.allowed_hosts && fact('Allowed hosts', hosts(configured.allowed_hosts)),
    configured.private_hosts && fact('Private hosts', hosts(configured.private_hosts)),
    configured.proxy_routes?.length && fact('Routes', hosts(configured.proxy_routes.flatMap((route) => route.hosts.map((host) => `${host} by ${route.proxy.id}`)))),
    denied?.count > 0 && fact('Refused', `${denied.count} requests, last to `, hosts(denied.last)),
  ].filter(Boolean);
}

function captured(session) {
  const on = Object.entries(session.telemetry?.browser ?? {}).filter(([, state]) => state.enabled).map(([name]) => CATEGORIES[name] ?? inert(name, 20));
  return on.length === 0 ? 'nothing' : on.join(', ');
}

export async function show(place, { id, go }) {
  let session = await (await call(`/browsers/${segment(id)}?include_deleted=true`)).json();
  const path = `/browsers/${segment(session.session_id)}`;
  const ignored = await (await call(`${path}/ignored_fields`)).json();
  const picture = el('div', { class: 'picture large' });
  const about = el('dl', { class: 'facts' });
  const heading = el('h1', {});
  const actions = el('div', { class: 'actions' });
  const tags = el('ul', { class: 'chips' });
  const pictures = watch({ everyMs: PICTURE_MS });
  let ended = null;

  const update = () => {
    heading.replaceChildren(foreign(nameOf(session), 120));
    about.replaceChildren(...facts(session, ignored));
    tags.replaceChildren(...Object.entries(session.tags ?? {}).map(([key, value]) => el('li', {},
      el('a', { class: 'chip', href: `/ui?${new URLSearchParams({ status: 'all', tag: `${key}=${value}` })}` }, inert(`${key}=${value}`, 60)))));
    const now = Boolean(session.deleted_at);
    if (now === ended) return;
    ended = now;
    pictures.set(picture, ended ? null : session.session_id);
    picture.hidden = ended;
    actions.replaceChildren(...(ended ? [el('span', { class: 'badge' }, 'Ended')] : [
      el('a', { class: 'button primary', href: liveView(session), target: '_blank', rel: 'noopener noreferrer' }, 'Live view', el('span', { class: 'unseen' }, ', in a new tab')),
      el('button', { type: 'button', class: 'danger quiet', onclick: async () => { if (await end(session)) go('/ui'); } }, 'End session'),
    ]));
  };
  const refresh = async () => {
    if (ended) return;
    try {
      session = await (await call(`${path}?include_deleted=true`)).json();
      update();
    } catch (error) {
      if (error.status !== 401) notice(error.message);
    }
  };

  update();
  const events = new Events(path, () => session, refresh);
  place.append(
    el('p', {}, el('a', { href: '/ui' }, '← All sessions')),
    el('div', { class: 'title' }, heading, actions), tags,
    el('div', { class: 'two' }, picture, about),
    events.element);
  const stop = every(REFRESH_SECONDS, refresh);
  await events.begin();
  return () => { stop(); pictures.end(); events.end(); };
}

/** The timeline, with the selection of categories and the live stream. */
class Events {
  constructor(path, session, refresh) {
    this.path = path;
    this.session = session;
    this.refresh = refresh;
    this.timeline = new Timeline();
    this.next = null;
    this.stop = () => {};
    this.waiting = [];
    this.isPaused = false;
    this.state = el('span', { class: 'live', role: 'status' });
    this.pause = el('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false', onclick: () => this.toggle() }, 'Pause');
    this.more = el('button', { type: 'button', hidden: true, onclick: () => this.older() }, 'Show earlier');
    this.empty = el('div', { class: 'empty', hidden: true });
    const choice = ([category, text]) => el('label', { class: `chip choice ${category}` },
      el('input', { type: 'checkbox', checked: true, onchange: (event) => this.timeline.show(category, event.target.checked) }), text);
    this.element = el('section', { 'aria-labelledby': 'timeline' },
      el('div', { class: 'title' }, el('h2', { id: 'timeline' }, 'What happened'), el('div', { class: 'actions' }, this.state, this.pause)),
      el('fieldset', { class: 'chips' }, el('legend', { class: 'unseen' }, 'Which events are shown'), Object.entries(CATEGORIES).map(choice)),
      this.empty, this.timeline.element, this.more);
  }

  async page(offset) {
    const parts = new URLSearchParams({ order: 'desc', limit: PAGE });
    if (offset) parts.set('offset', offset);
    return list(`${this.path}/telemetry/events?${parts}`);
  }

  async begin() {
    let last;
    try {
      const { items, next } = await this.page();
      this.timeline.addOlder(items);
      this.next = next;
      last = items[0]?.seq;
    } catch (error) {
      this.said(`What happened could not be read: ${error.message}`);
      return;
    }
    this.more.hidden = this.next === null;
    this.tellEmpty();
    if (this.session().deleted_at) {
      this.told('ended');
      return;
    }
    // Without stored events, the stream begins with the first one, so that none is missed before the stream is open.
    const from = last === undefined ? `${this.path}/telemetry/stream?replay=all` : `${this.path}/telemetry/stream`;
    this.stop = follow(from, { after: last, hear: (item) => this.hear(item), tell: (state) => this.told(state) });
  }

  hear(item) {
    if (this.isPaused) {
      this.waiting.push(item);
      if (this.waiting.length > 5000) this.waiting.shift();
      this.pause.textContent = `Go on (${this.waiting.length} new)`;
      return;
    }
    this.timeline.add(item);
    this.empty.hidden = true;
  }

  toggle() {
    this.isPaused = !this.isPaused;
    this.pause.setAttribute('aria-pressed', String(this.isPaused));
    this.pause.textContent = this.isPaused ? 'Go on' : 'Pause';
    if (!this.isPaused) this.waiting.splice(0).forEach((item) => this.hear(item));
  }

  async older() {
    this.more.disabled = true;
    try {
      const { items, next } = await this.page(this.next);
      this.timeline.addOlder(items);
      this.next = next;
      this.more.hidden = next === null;
    } catch (error) {
      notice(error.message);
    } finally {
      this.more.disabled = false;
    }
  }

  told(state) {
    const text = { live: 'Live', again: 'Connecting again…', ended: 'The session has ended' }[state];
    this.state.textContent = text;
    this.state.classList.toggle('on', state === 'live');
    this.pause.hidden = state === 'ended';
    if (state === 'ended' && !this.session().deleted_at) this.refresh();
  }

  tellEmpty() {
    const session = this.session();
    if (!this.timeline.isEmpty) return;
    if (session.deleted_at) return this.said('Nothing is kept of this session.');
    if (session.telemetry) return this.said('Nothing has happened yet.');
    this.said('Nothing of this session is captured.',
      el('button', { type: 'button', onclick: () => this.capture() }, 'Capture everything from now on'));
  }

  said(text, ...more) {
    this.empty.hidden = false;
    this.empty.replaceChildren(el('p', {}, text), ...more);
  }

  async capture() {
    const all = Object.keys(CATEGORIES).filter((name) => name !== 'monitor');
    const browser = Object.fromEntries(all.map((name) => [name, { enabled: true }]));
    try {
      await call(this.path, { method: 'PATCH', body: { telemetry: { enabled: true, browser } } });
      await this.refresh();
      this.said('Nothing has happened yet.');
      this.stop();
      this.stop = follow(`${this.path}/telemetry/stream?replay=all`, { hear: (item) => this.hear(item), tell: (state) => this.told(state) });
    } catch (error) {
      notice(`Not captured: ${error.message}`);
    }
  }

  end() { this.stop(); }
}
