// The page of engines: what starts the browsers of the installation, and what each engine can do.
import { el } from './dom.js';
import { current, list } from './api.js';

const SUPPORT = { full: { tone: 'good', text: 'Yes' }, partial: { tone: 'busy', text: 'Partly' }, none: { tone: 'bad', text: 'No' } };
const KINDS = { local: 'Chromium in sandboxes of this server', webdriver: 'browsers of a WebDriver server' };

const words = (name) => name.replaceAll('_', ' ');

function row(capability) {
  const support = SUPPORT[capability.support];
  return el('tr', {},
    el('th', { scope: 'row' }, words(capability.name)),
    el('td', {}, el('span', { class: `state ${support.tone}` }, support.text)),
    el('td', {}, capability.note ?? ''));
}

function card(engine) {
  const about = [KINDS[engine.kind] ?? engine.kind, engine.default ? 'for requests that name no engine' : '',
    engine.max_sessions === undefined ? '' : `at most ${engine.max_sessions} browsers`].filter(Boolean).join(' · ');
  return el('section', { class: 'card pool', 'aria-label': engine.name },
    el('h2', {}, engine.name),
    el('p', { class: 'hint' }, about),
    el('table', {},
      el('thead', {}, el('tr', {}, ['Capability', 'Support', 'Note'].map((text) => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, engine.capabilities.map(row))));
}

export async function show(place) {
  const said = el('p', { class: 'hint', role: 'status' });
  const engines = el('div', { class: 'grid wide' });
  place.append(el('h1', {}, 'Engines'), said, engines);
  if (current().project_id) {
    said.textContent = 'A key of one project does not show the engines. Sign in with a key of the organization.';
    return undefined;
  }
  try {
    const { items } = await list('/engines?limit=100&offset=0');
    engines.replaceChildren(...items.map(card));
    said.textContent = `${items.length} ${items.length === 1 ? 'engine' : 'engines'}. What an engine cannot do is refused before anything is done.`;
  } catch (error) {
    if (error.status !== 401) said.textContent = `The engines could not be read: ${error.message}`;
  }
  return undefined;
}
