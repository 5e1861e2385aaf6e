// The page for signing in with an API key.
import { el } from './dom.js';
import { current, signIn } from './api.js';

export const open = true;

/** Returns the page to open after the sign-in: only a page of the web interface. */
function target() {
  const to = new URLSearchParams(location.search).get('to') ?? '';
  return /^\/ui(?:[/?]|$)/.test(to) && !to.startsWith('/ui/sign-in') ? to : '/ui';
}

export function show(place, { go }) {
  if (current()) {
    go(target(), { replace: true });
    return;
  }
  const field = el('input', {
    id: 'key', name: 'key', type: 'password', required: true, 'data-focus': true, autocomplete: 'current-password', spellcheck: 'false',
    autocapitalize: 'off', placeholder: 'csk_…', 'aria-describedby': 'where wrong', maxlength: 256,
  });
  const wrong = el('p', { id: 'wrong', role: 'alert', class: 'wrong' });
  const button = el('button', { class: 'primary' }, 'Sign in');
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    wrong.textContent = '';
    try {
      await signIn(field.value.trim());
      field.value = '';
      go(target(), { replace: true });
    } catch (error) {
      wrong.textContent = error.status === 401 ? 'That key opens nothing. It may have been revoked, or not all of it was copied.'
        : error.status === 429 ? 'Too many tries. Wait a minute.' : `That did not work: ${error.message}`;
      field.setAttribute('aria-invalid', 'true');
      field.select();
    } finally {
      button.disabled = false;
    }
  };
  place.classList.add('narrow');
  place.append(
    el('h1', {}, 'Sign in'),
    el('form', { class: 'card form', onsubmit: submit },
      // Password managers require a user name for each password.
      el('input', { type: 'text', name: 'username', autocomplete: 'username', value: 'API key', hidden: true }),
      el('label', { for: 'key' }, 'API key'), field, wrong,
      button,
      el('p', { id: 'where', class: 'hint' }, 'The first start of Casement wrote one into the file ', el('code', {}, 'api-key'),
        ' of its data directory; ', el('code', {}, 'casement keys create --name LABEL'), ' on its host prints another. ',
        'Your browser keeps a cookie that only this server can read, and forgets it after twelve hours; the key itself is not kept.')));
}
