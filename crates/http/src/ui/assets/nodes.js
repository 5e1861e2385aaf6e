// The page of nodes: the servers of the installation, their load, and buttons that drain one or let it serve again.
import { confirmed, el, every, foreign, moment, notice } from './dom.js';
import { call, current, list, segment } from './api.js';

const REFRESH_SECONDS = 5;
const COUNT_SHOWN = 500;

const STATES = {
  serving: { tone: 'good', text: 'Takes new sessions.' },
  draining: { tone: 'busy', text: 'Takes no new sessions; those that it has live on.' },
  drained: { tone: 'busy', text: 'Takes no new sessions, and has none: it can be stopped.' },
  lost: { tone: 'bad', text: 'Has been silent for too long; its sessions have ended.' },
};

function figure(name, value, tone) {
  return el('div', { class: tone ? `figure ${tone}` : 'figure' }, el('dt', {}, name), el('dd', {}, String(value)));
}

function card(node, change) {
  const state = STATES[node.state];
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`).join(' · ');
  const drains = node.state === 'serving';
  return el('li', { class: 'card pool' },
    el('h2', {}, foreign(node.host, 80)),
    el('p', { class: 'hint' }, el('code', {}, node.id)),
    el('p', { class: 'hint' }, `${node.address} · version ${node.version} · started `, moment(node.started_at)),
    labels ? el('p', { class: 'hint' }, foreign(labels, 500)) : '',
    el('dl', { class: 'figures' },
      figure('Room', node.max_sessions), figure('Sessions', node.sessions, 'busy'), figure('Ready', node.idle_browsers, 'good')),
    el('p', { class: `state ${state.tone}` }, state.text,
      node.state === 'draining' && node.drain_ends_at ? [' What is left ends ', moment(node.drain_ends_at), '.'] : ''),
    node.state === 'lost' ? el('p', { class: 'hint' }, 'Last heard of ', moment(node.heartbeat_at), '.')
      : el('button', { type: 'button', class: 'quiet', onclick: () => change(node, drains) }, drains ? 'Drain' : 'Serve again'));
}

export async function show(place) {
  const nodes = el('ul', { class: 'grid wide', 'aria-label': 'Nodes' });
  const said = el('p', { class: 'hint', role: 'status' });
  place.append(el('h1', {}, 'Nodes'), said, nodes);
  if (current().project_id) {
    said.textContent = 'A key of one project does not show the nodes. Sign in with a key of the organization.';
    return undefined;
  }
  const fill = async () => {
    try {
      const found = [];
      let next = '0';
      while (next !== null && found.length < COUNT_SHOWN) {
        const page = await list(`/nodes?limit=100&offset=${next}`);
        found.push(...page.items);
        next = page.next;
      }
      nodes.replaceChildren(...found.map((node) => card(node, change)));
      const text = `${found.length} ${found.length === 1 ? 'node' : 'nodes'}`;
      // Screen readers read the text again when it is set, even if it has not changed.
      if (said.textContent !== text) said.textContent = text;
    } catch (error) {
      if (error.status !== 401) said.textContent = `The nodes could not be read: ${error.message}`;
    }
  };
  const change = async (node, drains) => {
    const effect = 'It takes no new sessions from now on. Its sessions live until they end by themselves or its deadline is over.';
    if (drains && !await confirmed(`Drain ${node.host}?`, effect, 'Drain')) return;
    try {
      await call(`/nodes/${segment(node.id)}/${drains ? 'drain' : 'resume'}`, { method: 'POST', body: {} });
      notice(drains ? 'Draining.' : 'Serving again.');
      await fill();
    } catch (error) {
      notice(`The node was not changed: ${error.message}`);
    }
  };
  return every(REFRESH_SECONDS, fill);
}
