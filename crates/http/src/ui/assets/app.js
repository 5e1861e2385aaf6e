// Selects the page by the URL and shows it with the header.
import { $, el, notice } from './dom.js';
import { call, current, project, recall, signOut } from './api.js';
import * as apps from './apps.js';
import * as engines from './engines.js';
import * as keys from './keys.js';
import * as nodes from './nodes.js';
import * as pools from './pools.js';
import * as reference from './reference.js';
import * as run from './run.js';
import * as session from './session.js';
import * as sessions from './sessions.js';
import * as signIn from './sign-in.js';

const main = $('main');
/** Ends the timers and streams of the shown page. */
let leave = () => {};
/** The number of pages shown so far. Results for an earlier page are discarded. */
let turn = 0;

function pageAt(path) {
  const parts = path.split('/').filter(Boolean).slice(1);
  if (parts.length === 0) return { page: sessions };
  if (parts.length === 1 && parts[0] === 'apps') return { page: apps };
  if (parts.length === 1 && parts[0] === 'engines') return { page: engines };
  if (parts.length === 1 && parts[0] === 'keys') return { page: keys };
  if (parts.length === 1 && parts[0] === 'nodes') return { page: nodes };
  if (parts.length === 1 && parts[0] === 'pools') return { page: pools };
  if (parts.length === 1 && parts[0] === 'reference') return { page: reference };
  if (parts.length === 1 && parts[0] === 'sign-in') return { page: signIn };
  if (parts.length === 2 && parts[0] === 'sessions') return { page: session, id: decodeURIComponent(parts[1]) };
  if (parts.length === 2 && parts[0] === 'deployments') return { page: run.deployment, id: decodeURIComponent(parts[1]) };
  if (parts.length === 2 && parts[0] === 'invocations') return { page: run.invocation, id: decodeURIComponent(parts[1]) };
  return { page: null };
}

/** Navigates to a path of the web interface. */
export function go(path, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', path);
  show({ focus: true });
}

async function show({ focus = false } = {}) {
  const mine = ++turn;
  leave();
  leave = () => {};
  const { page, id } = pageAt(location.pathname);
  if (!current() && page && !page.open) {
    const back = location.pathname + location.search;
    return go(back === '/ui' ? '/ui/sign-in' : `/ui/sign-in?to=${encodeURIComponent(back)}`, { replace: true });
  }
  around();
  const place = el('div', { class: 'page' });
  main.replaceChildren(place);
  if (!page) {
    place.append(el('h1', {}, 'There is no such page'), el('p', {}, el('a', { href: '/ui' }, 'To the sessions')));
  } else {
    try {
      const end = await page.show(place, { id, go });
      if (mine === turn) leave = end ?? (() => {});
      else end?.();
    } catch (error) {
      if (error.name !== 'AbortError' && error.status !== 401) place.replaceChildren(failed(error));
    }
  }
  document.title = `${main.querySelector('h1')?.textContent ?? 'Casement'} · Casement`;
  const first = main.querySelector('[data-focus]');
  if (mine === turn && (focus || first)) {
    window.scrollTo(0, 0);
    (first ?? main).focus({ preventScroll: true });
  }
}

function failed(error) {
  return el('div', { class: 'empty', role: 'alert' }, el('h1', {}, 'That did not work'), el('p', {}, error.message),
    el('button', { type: 'button', onclick: () => show() }, 'Try again'));
}

/** The path prefixes of the pages that belong to a link of the header. */
const BELOW = { '/ui': ['/ui/sessions/'], '/ui/apps': ['/ui/deployments/', '/ui/invocations/'] };

/** Updates the header for the current sign-in. */
function around() {
  const signedIn = Boolean(current());
  for (const element of document.querySelectorAll('[data-signed-in]')) element.hidden = !signedIn;
  $('sign-in').hidden = signedIn || location.pathname === '/ui/sign-in';
  for (const link of document.querySelectorAll('nav a')) {
    const path = link.getAttribute('href');
    const here = location.pathname === path || (BELOW[path] ?? []).some((below) => location.pathname.startsWith(below));
    here ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current');
  }
  projects(signedIn);
}

let known = null;
/** Fills the selection of the project, for a key of the whole organization. */
async function projects(signedIn) {
  if (!signedIn || current().project_id) {
    $('project-label').hidden = true;
    known = null;
    return;
  }
  if (known === current().api_key_id) return;
  known = current().api_key_id;
  try {
    const found = await (await call('/org/projects?limit=100')).json();
    const option = (item) => el('option', { value: item.id, selected: item.id === project.get() }, item.name);
    $('project').replaceChildren(el('option', { value: '' }, 'Default'), ...found.filter((item) => item.name !== 'default').map(option));
    $('project-label').hidden = found.length < 2;
  } catch {
    known = null;
  }
}

$('project').addEventListener('change', (event) => {
  project.set(event.target.value);
  const above = Object.keys(BELOW).find((path) => BELOW[path].some((below) => location.pathname.startsWith(below)));
  if (above) go(above);
  else show();
});
$('sign-out').addEventListener('click', async () => {
  await signOut().catch(() => {});
  go('/ui/sign-in');
  notice('Signed out.');
});
window.addEventListener('signed-out', () => {
  if (location.pathname !== '/ui/sign-in') {
    notice('You are not signed in any more.');
    show();
  }
});
window.addEventListener('popstate', () => show({ focus: true }));
document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || event.defaultPrevented) return;
  const address = new URL(link.href);
  const ours = address.origin === location.origin && /^\/ui(\/(?!assets|api)|$)/.test(address.pathname);
  if (!ours || (address.hash && address.pathname === location.pathname)) return;
  event.preventDefault();
  go(address.pathname + address.search);
});

await recall().catch((error) => notice(error.message));
show();
