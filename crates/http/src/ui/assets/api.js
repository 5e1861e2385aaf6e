// The requests of the pages to the server. The browser adds the cookie; requests that change something also send the
// CSRF token.

let who = null;

/** A response without a success status. */
export class Refusal extends Error {
  constructor(status, body) {
    super(body?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = body?.code;
  }
}

async function send(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const all = new Headers(headers);
  if (body !== undefined) all.set('Content-Type', 'application/json');
  if (method !== 'GET' && who) all.set('X-Casement-CSRF', who.csrf_token);
  const options = { method, headers: all, signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error' };
  const answer = await fetch(path, { ...options, body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.ok) return answer;
  const refusal = new Refusal(answer.status, await answer.json().catch(() => null));
  if (answer.status === 401) {
    who = null;
    if (path !== '/ui/session') window.dispatchEvent(new Event('signed-out'));
  }
  throw refusal;
}

/** Reads the current sign-in; null if there is none. */
export async function recall() {
  const answer = await send('/ui/session');
  who = answer.status === 204 ? null : await answer.json();
  return who;
}

export const current = () => who;

export async function signIn(key) {
  who = await (await send('/ui/session', { method: 'POST', body: { key } })).json();
  return who;
}

export async function signOut() {
  try {
    if (who) await send('/ui/session', { method: 'DELETE' });
  } finally {
    who = null;
    project.set('');
  }
}

/** The id of the selected project, for a key of the whole organization; empty for the default project. */
export const project = {
  get: () => sessionStorage.getItem('project') ?? '',
  set: (id) => { id ? sessionStorage.setItem('project', id) : sessionStorage.removeItem('project'); },
};

/** Calls the API and returns the response. */
export function call(path, options = {}) {
  const chosen = project.get();
  const headers = chosen ? { ...options.headers, 'X-Kernel-Project-Id': chosen } : options.headers;
  return send(`/ui/api${path}`, { ...options, headers });
}

/** Reads a page of a list: its items, and the offset of the next page, null if there is none. */
export async function list(path, options) {
  const answer = await call(path, options);
  const more = answer.headers.get('X-Has-More') === 'true';
  return { items: await answer.json(), next: more ? answer.headers.get('X-Next-Offset') : null };
}

export const segment = (text) => encodeURIComponent(text);
