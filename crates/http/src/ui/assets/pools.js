// The page of pools: their browsers, their waiters, and the reason why a pool does not fill.
import { el, every, foreign, span } from './dom.js';
import { list } from './api.js';

const REFRESH_SECONDS = 5;

/** Texts for the server's kinds of failure. */
const BLOCKED = {
  agent_error: 'what runs inside the sandbox failed',
  browser_crashed: 'the browser crashed while it started',
  browser_hung: 'the browser stopped answering while it started',
  engine_error: 'the server of its browsers refused or failed',
  display_error: 'the display did not start',
  extension: 'an extension could not be loaded',
  no_room: 'this host has no room for another browser',
  not_running: 'the browser ended while it started',
  out_of_range: 'the configuration asks for what this host cannot give',
  profile: 'its profile could not be loaded',
  proxy_error: 'its proxy does not answer',
  timeout: 'the browser took too long to start',
};

export function health(pool) {
  const size = pool.browser_pool_config.size;
  const missing = Math.max(0, size - pool.available_count - pool.acquired_count);
  if (pool.failed_starts > 0) {
    const why = BLOCKED[pool.blocked] ?? pool.blocked ?? 'the start failed';
    const often = pool.failed_starts === 1 ? 'The last start failed' : `The last ${pool.failed_starts} starts failed`;
    return { tone: 'bad', text: `${often}: ${why}. It is tried again, with longer and longer pauses.` };
  }
  if (missing > 0) {
    return { tone: 'busy', text: `${missing} of ${size} are being started. It may grow by ${pool.browser_pool_config.fill_rate_per_minute} % of its size a minute.` };
  }
  if (pool.available_count === 0) {
    return { tone: 'busy', text: pool.waiting > 0 ? 'All browsers are leased, and callers wait: it is too small.' : 'All browsers are leased.' };
  }
  return { tone: 'good', text: 'Full.' };
}

function figure(name, value, tone) {
  return el('div', { class: tone ? `figure ${tone}` : 'figure' }, el('dt', {}, name), el('dd', {}, String(value)));
}

function card(pool) {
  const config = pool.browser_pool_config;
  const state = health(pool);
  const what = [config.engine === 'local' ? '' : `engine ${config.engine}`, config.headless ? 'headless' : 'with a display', `${config.viewport.width} × ${config.viewport.height}`,
    `idle timeout ${span(config.timeout_seconds)}`].filter(Boolean).join(' · ');
  return el('li', { class: 'card pool' },
    el('h2', {}, pool.name ? foreign(pool.name, 80) : el('code', {}, pool.id)),
    el('p', { class: 'hint' }, what),
    el('div', { class: 'bar', 'aria-hidden': 'true' },
      ...parts(config.size, pool.available_count, pool.acquired_count)),
    el('dl', { class: 'figures' },
      figure('Size', config.size), figure('Ready', pool.available_count, 'good'), figure('Leased', pool.acquired_count, 'busy'),
      figure('Waiting', pool.waiting, pool.waiting > 0 ? 'bad' : '')),
    pool.blocked_reason ? el('p', { class: 'hint' }, 'The reason of the last failed start: ', foreign(pool.blocked_reason, 500)) : '',
    el('p', { class: `state ${state.tone}` }, state.text, pool.waiting > 0 ? ` The first in line has waited for ${span(pool.longest_wait_seconds)}.` : ''));
}

/** Creates one cell per browser; for more than 60 browsers, a proportional number. */
function parts(size, ready, leased) {
  const most = 60;
  const scale = Math.min(1, most / size);
  const cells = [['good', ready], ['busy', leased], ['none', Math.max(0, size - ready - leased)]];
  return cells.flatMap(([tone, count]) => Array.from({ length: Math.round(count * scale) }, () => el('span', { class: tone })));
}

export async function show(place) {
  const pools = el('ul', { class: 'grid wide', 'aria-label': 'Pools' });
  const said = el('p', { class: 'hint', role: 'status' });
  place.append(el('h1', {}, 'Pools'), said, pools);
  return every(REFRESH_SECONDS, async () => {
    try {
      const found = [];
      let next = '0';
      while (next !== null && found.length < 500) {
        const page = await list(`/browser_pools?limit=100&offset=${next}`);
        found.push(...page.items);
        next = page.next;
      }
      pools.replaceChildren(...found.map(card));
      const text = found.length ? `${found.length} ${found.length === 1 ? 'pool' : 'pools'}` : 'There is no pool. Make one with POST /browser_pools.';
      // Screen readers read the text again when it is set, even if it has not changed.
      if (said.textContent !== text) said.textContent = text;
    } catch (error) {
      if (error.status !== 401) said.textContent = `The pools could not be read: ${error.message}`;
    }
  });
}
