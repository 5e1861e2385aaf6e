// The page of API keys: what each opens and allows, a form for a new one, and a button that revokes one.
import { confirmed, el, foreign, moment, notice } from './dom.js';
import { call, current, list, project, segment } from './api.js';

const COUNT_SHOWN = 200;

/** The usual policies: their texts, and the part of the request that makes them. */
const POLICIES = [
  { id: 'everything', text: 'Everything', hint: 'All projects, and the organization itself.', body: () => ({}) },
  { id: 'read', text: 'Read only', hint: 'Reads all records and watches sessions. Changes nothing, and drives no browser.',
    body: () => ({ policy: statements('*:read', '*') }) },
  { id: 'sessions', text: 'Sessions only', hint: 'Makes, drives and ends sessions, and leases from pools, in all projects.',
    body: () => ({ policy: { statements: [
      { action: 'browsers:*', resource: 'projects/*/browsers/*' }, { action: 'browser_pools:use', resource: 'projects/*/browser_pools/*' },
      { action: 'browser_pools:read', resource: 'projects/*/browser_pools/*' }] } }) },
  { id: 'project', text: 'One project only', hint: 'Everything in that project, and nothing of the organization.',
    body: (chosen) => ({ project_id: chosen }) },
];

const statements = (action, resource) => ({ statements: [{ action, resource }] });

/** The days until a new key expires; empty: never. */
const LIFETIMES = [['30', '30 days'], ['90', '90 days'], ['365', 'A year'], ['', 'Never']];

const allowed = (key) => !key.policy ? 'everything'
  : key.policy.statements.map((one) => `${one.action} on ${one.resource}`).join(', ') || 'nothing';

function card(key, revoke) {
  const opens = key.project_id ? ['project ', foreign(key.project_name ?? key.project_id, 80)] : ['all projects'];
  const own = key.id === current()?.api_key_id;
  return el('li', { class: 'card form' },
    el('h2', {}, foreign(key.name, 80)),
    el('p', { class: 'hint' }, el('code', {}, key.masked_key)),
    el('p', {}, 'Opens ', ...opens, '. Allows ', foreign(allowed(key), 2000), '.'),
    el('p', { class: 'hint' }, 'Made ', moment(key.created_at), key.expires_at ? [', expires ', moment(key.expires_at)] : ', never expires', '.'),
    own ? el('p', { class: 'hint' }, 'You are signed in with this key.')
      : el('button', { type: 'button', class: 'quiet', onclick: () => revoke(key) }, 'Revoke'));
}

/** Creates the form for a new key. Calls `made` with the record of the new key, which has its text. */
function form(projects, made) {
  const name = el('input', { id: 'key-name', required: true, maxlength: 255, autocomplete: 'off' });
  const policy = el('select', { id: 'key-policy', 'aria-describedby': 'key-hint' }, ...POLICIES.map((one) => el('option', { value: one.id }, one.text)));
  const chosen = el('select', { id: 'key-project' }, ...projects.map((one) => el('option', { value: one.id, selected: one.id === project.get() }, one.name)));
  const life = el('select', { id: 'key-life' }, ...LIFETIMES.map(([days, text]) => el('option', { value: days, selected: days === '90' }, text)));
  const where = el('div', { class: 'form', hidden: true }, el('label', { for: 'key-project' }, 'Project'), chosen);
  const hint = el('p', { class: 'hint', id: 'key-hint' }, POLICIES[0].hint);
  const wrong = el('p', { class: 'wrong', role: 'alert' });
  const button = el('button', { class: 'primary' }, 'Make a key');
  const kind = () => POLICIES.find((one) => one.id === policy.value);
  policy.addEventListener('change', () => {
    hint.textContent = kind().hint;
    where.hidden = policy.value !== 'project';
  });
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    wrong.textContent = '';
    try {
      const body = { name: name.value, ...kind().body(chosen.value) };
      if (life.value) body.days_to_expire = Number(life.value);
      const record = await (await call('/org/api_keys', { method: 'POST', body })).json();
      name.value = '';
      await made(record);
    } catch (error) {
      wrong.textContent = `The key was not made: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  };
  return el('form', { class: 'card form', onsubmit: submit },
    el('h2', {}, 'A new key'),
    el('label', { for: 'key-name' }, 'Name'), name,
    el('label', { for: 'key-policy' }, 'Allows'), policy, hint, where,
    el('label', { for: 'key-life' }, 'Expires after'), life, wrong, button,
    el('p', { class: 'hint' }, 'Any other policy can be given with ', el('code', {}, 'POST /org/api_keys'), '.'));
}

/** Shows the text of a new key, once. */
function shown(record) {
  const text = el('input', { id: 'new-key', readonly: true, value: record.key, spellcheck: 'false' });
  text.addEventListener('focus', () => text.select());
  return [el('h2', {}, 'The new key'), el('label', { for: 'new-key' }, 'Copy it now. It is not shown again.'), text];
}

export async function show(place) {
  const said = el('p', { class: 'hint', role: 'status' });
  const keys = el('ul', { class: 'grid wide', 'aria-label': 'API keys' });
  const fresh = el('div', { class: 'card form', hidden: true });
  place.append(el('h1', {}, 'API keys'));
  if (current().project_id) {
    place.append(el('p', { class: 'hint' }, 'A key of one project cannot manage keys. Sign in with a key of the organization.'));
    return;
  }
  const fill = async () => {
    const found = await list(`/org/api_keys?limit=100`);
    while (found.next !== null && found.items.length < COUNT_SHOWN) {
      const page = await list(`/org/api_keys?limit=100&offset=${found.next}`);
      found.items.push(...page.items);
      found.next = page.next;
    }
    keys.replaceChildren(...found.items.map((key) => card(key, revoke)));
    said.textContent = found.next === null ? `${found.items.length} keys` : `The newest ${found.items.length} keys`;
  };
  // A key may be allowed to make keys and not to list them.
  const read = () => fill().catch((error) => { said.textContent = `The keys cannot be listed: ${error.message}`; });
  const revoke = async (key) => {
    const question = `Revoke ${key.name}?`;
    if (!await confirmed(question, 'Programs that use the key are refused from now on. This cannot be undone.', 'Revoke')) return;
    try {
      await call(`/org/api_keys/${segment(key.id)}`, { method: 'DELETE' });
      notice('Revoked.');
      await read();
    } catch (error) {
      notice(`The key was not revoked: ${error.message}`);
    }
  };
  const made = async (record) => {
    fresh.replaceChildren(...shown(record));
    fresh.hidden = false;
    fresh.querySelector('input').focus();
    await read();
  };
  const projects = await list('/org/projects?limit=100').then((page) => page.items).catch(() => []);
  place.append(form(projects, made), fresh, said, keys);
  await read();
}
