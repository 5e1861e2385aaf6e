// The page of deployments and invocations.
import { el, every, foreign, inert, moment } from './dom.js';
import { list, segment } from './api.js';

const REFRESH_SECONDS = 5;
const PAGE = 50;

/** The CSS class of each status. */
export const TONES = { running: 'good', succeeded: 'good', queued: 'busy', in_progress: 'busy', failed: 'bad', stopped: '' };
const WORDS = { in_progress: 'being built' };

/** The badge of a status. */
export const badge = (status, running = 'running') =>
  el('span', { class: `badge ${TONES[status] ?? ''}` }, status === 'running' ? running : WORDS[status] ?? inert(status, 20));

function deployment(item, apps) {
  const link = `/ui/deployments/${segment(item.id)}`;
  const mine = apps.filter((app) => app.deployment === item.id);
  const names = mine.map((app) => `${inert(app.app_name, 60)} ${inert(app.version, 40)}`).join(', ');
  const actions = mine.flatMap((app) => app.actions.map((action) => el('li', {}, el('span', { class: 'chip' }, inert(action.name, 60)))));
  return el('li', { class: 'card app' },
    el('div', { class: 'title' }, el('h3', {}, el('a', { href: link }, names || inert(item.entrypoint_rel_path, 80))), badge(item.status)),
    el('p', { class: 'hint' }, moment(item.created_at), ` · ${inert(item.source_type, 20)}`, item.source_ref ? [' · ', foreign(item.source_ref, 60)] : ''),
    actions.length ? el('ul', { class: 'chips', 'aria-label': 'Actions' }, actions) : null,
    item.status_reason ? el('p', { class: 'state bad' }, inert(item.status_reason, 300)) : null);
}

function invocation(item) {
  const took = item.finished_at ? `${((new Date(item.finished_at) - new Date(item.started_at)) / 1000).toFixed(1)} s` : '';
  return el('tr', {},
    el('td', {}, el('a', { href: `/ui/invocations/${segment(item.id)}` }, inert(`${item.app_name} · ${item.action_name}`, 120))),
    el('td', {}, badge(item.status)),
    el('td', {}, moment(item.started_at)),
    el('td', {}, took),
    el('td', {}, item.status_reason ? foreign(item.status_reason, 160) : ''));
}

/** A list that is read periodically, from its first page to the last one that was requested. */
class Rows {
  constructor(path, draw, place, empty) {
    Object.assign(this, { path, draw, place, empty, pages: 1 });
    this.said = el('p', { class: 'hint', role: 'status' });
    this.more = el('button', { type: 'button', hidden: true, onclick: () => { this.pages += 1; this.refresh(); } }, 'Show more');
  }

  async refresh() {
    const items = [];
    let next = '0';
    try {
      for (let page = 0; page < this.pages && next !== null; page += 1) {
        const found = await list(`${this.path}?limit=${PAGE}&offset=${next}`);
        items.push(...found.items);
        next = found.next;
      }
      this.place.replaceChildren(...await this.draw(items));
      this.more.hidden = next === null;
      const text = items.length ? '' : this.empty;
      // Screen readers read the text again when it is set, even if it has not changed.
      if (this.said.textContent !== text) this.said.textContent = text;
    } catch (error) {
      if (error.status !== 401) this.said.textContent = `That could not be read: ${error.message}`;
    }
  }
}

export async function show(place) {
  const cards = el('ul', { class: 'grid wide', 'aria-label': 'Deployments' });
  const rows = el('tbody');
  const withApps = async (items) => {
    const { items: apps } = await list('/apps?limit=100');
    return items.map((item) => deployment(item, apps));
  };
  const deployments = new Rows('/deployments', withApps, cards, 'Nothing is deployed. Deploy a folder with: casement deploy PATH');
  const invocations = new Rows('/invocations', (items) => items.map(invocation), rows, 'Nothing was called yet. Call an action with: casement invoke APP ACTION');
  const heads = ['Action', 'State', 'Began', 'Took', 'Reason'].map((text) => el('th', { scope: 'col' }, text));
  place.append(el('h1', {}, 'Apps'),
    el('section', { 'aria-labelledby': 'deployments' }, el('h2', { id: 'deployments' }, 'Deployments'), deployments.said, cards, deployments.more),
    el('section', { 'aria-labelledby': 'invocations' }, el('h2', { id: 'invocations' }, 'Invocations'), invocations.said,
      el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'invocations' },
        el('table', { class: 'rows' }, el('thead', {}, el('tr', {}, heads)), rows)), invocations.more));
  return every(REFRESH_SECONDS, () => Promise.all([deployments.refresh(), invocations.refresh()]));
}
