// The page of one deployment or invocation: its properties, and its log, live while it runs.
import { confirmed, el, foreign, inert, moment, notice } from './dom.js';
import { call, segment } from './api.js';
import { TONES, badge } from './apps.js';
import { follow } from './stream.js';

/** The maximum number of lines on the page. */
const MOST_LINES = 5000;
const LONGEST_TEXT = 20000;

const DEPLOYMENT = {
  path: 'deployments',
  state: 'deployment_state',
  over: ['stopped', 'failed'],
  name: (item) => item.entrypoint_rel_path,
  facts: (item) => [
    ['Id', el('code', {}, item.id)],
    ['Made', moment(item.created_at)],
    ['Source', foreign([item.source_type, item.source_url, item.source_ref, item.source_path].filter(Boolean).join(' '), 300)],
    ['Entry point', foreign(item.entrypoint_rel_path, 200)],
    ['Region', inert(item.region, 40)],
    ['Variables', foreign(Object.keys(item.env_vars ?? {}).join(', ') || 'none', 300)],
    item.source_checksum && ['Checksum', el('code', {}, inert(item.source_checksum, 64))],
  ],
  end: {
    action: 'Stop',
    text: 'Its actions cannot be called any more, and those that are under way fail.',
    send: (path) => call(path, { method: 'DELETE' }),
  },
};

const INVOCATION = {
  path: 'invocations',
  state: 'invocation_state',
  over: ['succeeded', 'failed'],
  name: (item) => `${item.app_name} · ${item.action_name}`,
  facts: (item) => [
    ['Id', el('code', {}, item.id)],
    ['Version', inert(item.version, 80)],
    ['Began', moment(item.started_at)],
    item.finished_at && ['Ended', moment(item.finished_at)],
    item.payload !== undefined && ['Payload', text(item.payload)],
    item.output !== undefined && ['Output', text(item.output)],
  ],
  end: {
    action: 'Cancel',
    text: 'Its process is ended, and so are the browsers that it made.',
    send: (path) => call(path, { method: 'PATCH', body: { status: 'failed' } }),
  },
};

function text(json) {
  const pre = el('pre', { class: 'value', tabindex: '0' });
  pre.textContent = inert(json, LONGEST_TEXT);
  return pre;
}

async function page(place, kind, { id }) {
  const path = `/${kind.path}/${segment(id)}`;
  let item = await (await call(path)).json();
  const heading = el('h1', {});
  const state = el('span', { role: 'status' });
  const about = el('dl', { class: 'facts' });
  const why = el('p', { class: 'state', hidden: true });
  const lines = el('ol', { class: 'log', tabindex: '0', 'aria-label': 'What it said' });
  const live = el('span', { class: 'live', role: 'status' });
  const end = el('button', { type: 'button', class: 'danger quiet' }, kind.end.action);
  const isOver = () => kind.over.includes(item.status);

  const update = () => {
    heading.replaceChildren(foreign(kind.name(item), 120));
    state.replaceChildren(badge(item.status));
    about.replaceChildren(...kind.facts(item).filter(Boolean).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
    why.hidden = !item.status_reason;
    why.className = `state ${TONES[item.status] ?? ''}`;
    why.textContent = inert(item.status_reason, 1000);
    end.hidden = isOver();
  };
  end.addEventListener('click', async () => {
    if (!await confirmed(`${kind.end.action} ${inert(kind.name(item), 60)}?`, kind.end.text, kind.end.action)) return;
    try {
      await kind.end.send(path);
    } catch (error) {
      notice(`Not done: ${error.message}`);
    }
  });

  const say = (event) => {
    // Scrolls on only if the end of the log is visible.
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.append(el('li', {}, el('time', { datetime: event.timestamp }, inert(event.timestamp.slice(11, 23), 12)), foreign(event.message, 4000)));
    while (lines.childElementCount > MOST_LINES) lines.firstElementChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  };
  const hear = (event) => {
    if (event.event === 'log') say(event);
    if (event.event === kind.state) {
      item = event[kind.state === DEPLOYMENT.state ? 'deployment' : 'invocation'];
      update();
    }
    if (event.event === 'error') notice(event.error?.message ?? 'The log broke off.');
  };
  const tell = (now) => {
    // A stream begins with all stored lines.
    if (now === 'live') lines.replaceChildren();
    live.textContent = { live: 'Live', again: 'Connecting again…', ended: 'Over' }[now];
    live.classList.toggle('on', now === 'live');
  };

  update();
  place.append(el('p', {}, el('a', { href: '/ui/apps' }, '← All apps')),
    el('div', { class: 'title' }, heading, el('div', { class: 'actions' }, state, end)), why, about,
    el('section', { 'aria-labelledby': 'said' },
      el('div', { class: 'title' }, el('h2', { id: 'said' }, 'Log'), live), lines));
  return follow(`${path}/events`, { hear, tell, over: isOver });
}

export const deployment = { show: (place, options) => page(place, DEPLOYMENT, options) };
export const invocation = { show: (place, options) => page(place, INVOCATION, options) };
