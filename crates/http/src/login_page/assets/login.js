// The page of one login. Texts of a site are inserted into the document as text only.
'use strict';

const byId = id => document.getElementById(id);
const [title, status, refusal, form, fields, send, ways, choices, browser, look, view, left] =
  ['title', 'status', 'refusal', 'form', 'fields', 'send', 'ways', 'choices', 'browser', 'look', 'view', 'left'].map(byId);
const here = location.pathname.replace(/\/+$/, '');

// Replaces control and formatting characters, with which a site could reorder or hide text.
const plain = text => String(text ?? '').replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, ' ');
// Returns the text as a complete sentence.
function sentence(text) {
  const said = plain(text).trim();
  return said && said[0].toUpperCase() + said.slice(1) + (/[.!?…]$/.test(said) ? ' ' : '. ');
}
function make(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...inside.map(one => typeof one === 'string' ? plain(one) : one));
  return made;
}
function say(element, text) {
  const said = plain(text);
  if (element.textContent !== said) element.textContent = said;
  element.hidden = !text;
}

let shown = '', revision = 0, sentAt = 0, sending = false, ends = 0, stream, over = false;
// Typed values that are not secret, for the case that the same fields are requested again.
const typed = new Map();

const INPUTS = 'input, select';
const KEYS = { email: 'email', tel: 'tel', number: 'decimal', url: 'url', code: 'numeric', totp: 'numeric' };
function fieldOf(field, at) {
  const id = `field-${at}`, secret = field.input === 'password' || field.kind === 'totp_secret';
  const code = field.input === 'code' || field.input === 'totp';
  const about = [];
  const hint = field.hint ? make('p', { class: 'hint', id: `${id}-hint` }, field.hint) : '';
  if (hint) about.push(hint.id);
  const fault = make('p', { class: 'fault', id: `${id}-fault`, role: 'alert', hidden: '' });
  about.push(fault.id);
  const list = field.options?.length > 0;
  const input = list ? make('select', {
    id, 'data-field': field.id, 'data-kept': '', 'aria-required': String(field.required), 'aria-describedby': about.join(' '),
  }, make('option', { value: '' }, field.placeholder || 'Choose…'), ...field.options.map(optionOf)) : make('input', {
    id, type: secret ? 'password' : field.input === 'email' || field.input === 'tel' || field.input === 'url' ? field.input : 'text',
    'data-field': field.id, 'data-kept': !secret && !code ? '' : undefined, inputmode: KEYS[field.input], placeholder: field.placeholder ? plain(field.placeholder) : undefined,
    autocomplete: code ? 'one-time-code' : 'off', autocapitalize: 'none', autocorrect: 'off', spellcheck: 'false', maxlength: '4096',
    'aria-required': String(field.required), 'aria-describedby': about.join(' '),
  });
  const row = make('div', { class: 'row' }, input);
  if (secret) {
    const named = plain(`Show ${field.label || 'value'}`);
    const show = make('button', { type: 'button', 'aria-pressed': 'false', 'aria-controls': id, 'aria-label': named }, 'Show');
    show.onclick = () => {
      const visible = input.type === 'password';
      input.type = visible ? 'text' : 'password';
      show.setAttribute('aria-pressed', String(visible));
      input.focus();
    };
    row.append(show);
  }
  const label = make('label', { for: id }, field.label || 'Value', field.required ? '' : ' (optional)');
  return make('div', { class: 'field' }, label, hint, row, fault);
}
// The value is the site's own text, even if the shown text differs.
function optionOf(option) {
  const made = make('option', {}, option);
  made.value = option;
  return made;
}
function choiceOf(choice) {
  const button = make('button', { type: 'button' }, choice.label || choice.id);
  if (choice.description && !choice.label?.includes(choice.description)) button.append(make('small', {}, choice.description));
  button.onclick = () => submit({ selected_choice_id: choice.id });
  return make('li', {}, button);
}

function busy(is) {
  sending = is;
  for (const button of document.querySelectorAll('#send, #choices button')) button.disabled = is;
}
function fault(input, text) {
  const said = byId(`${input.id}-fault`);
  say(said, text);
  if (text) input.setAttribute('aria-invalid', 'true'); else input.removeAttribute('aria-invalid');
}

async function submit(body) {
  if (sending || over) return;
  sentAt = revision;
  busy(true);
  say(status, 'Sending…');
  let answer;
  try {
    answer = await fetch(`${here}/submit`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  } catch {
    busy(false);
    say(status, 'The server could not be reached. Try again.');
    return;
  }
  // The stream reports the result. 409: the login no longer waits for this input.
  if (answer.ok || answer.status === 409) return;
  if (answer.status === 404) { finish('This page has expired', 'The login is over, or was begun anew. Ask for a new link.'); return; }
  busy(false);
  const told = await answer.json().catch(() => ({}));
  const wrong = [...fields.querySelectorAll(INPUTS)].filter(input => {
    const begins = `field_values.${input.dataset.field}: `;
    const said = told.details?.find(detail => detail.message?.startsWith(begins))?.message;
    if (said) fault(input, `This ${said.slice(begins.length)}.`);
    return said;
  });
  wrong[0]?.focus();
  say(status, wrong.length ? 'That was not taken.' : told.message || 'That was not taken. Try again.');
}

form.onsubmit = event => {
  event.preventDefault();
  const given = {};
  let first;
  for (const input of fields.querySelectorAll(INPUTS)) {
    const missing = input.getAttribute('aria-required') === 'true' && input.value === '';
    fault(input, missing ? 'Fill this in.' : '');
    if (missing) first ??= input;
    if (input.value !== '') given[input.dataset.field] = input.value;
    if ('kept' in input.dataset) typed.set(input.dataset.field, input.value);
  }
  if (first) { first.focus(); return; }
  if (Object.keys(given).length) submit({ field_values: given });
};

look.onclick = () => {
  const open = look.getAttribute('aria-expanded') !== 'true';
  look.setAttribute('aria-expanded', String(open));
  look.textContent = open ? 'Hide the browser' : 'Show the browser';
  document.querySelector('main').classList.toggle('wide', open);
  view.replaceChildren(...(open ? [make('iframe', { src: `${here}/live`, title: 'The browser of the login' })] : []));
};

function finish(headline, words) {
  over = true;
  stream?.close();
  for (const part of [form, ways, browser, refusal, left]) part.hidden = true;
  fields.replaceChildren();
  view.replaceChildren();
  document.querySelector('main').classList.remove('wide');
  title.textContent = headline;
  document.title = headline;
  say(status, words);
  title.focus();
}

const WAITING = {
  DISCOVERING: 'Opening the site…', SUBMITTING: 'The site is being told. One moment…', COMPLETED: 'Logged in. Saving…',
};
function show(state) {
  const site = plain(state.domain);
  const step = state.step;
  if (state.status !== 'IN_PROGRESS') {
    if (state.status === 'SUCCESS') finish('You are signed in', `The login at ${site} is done. This page can be closed.`);
    else if (state.status === 'EXPIRED') finish('This login has expired', 'It took too long. Ask for a new link.');
    else if (state.status === 'CANCELED') finish('This login is over', 'It was canceled, or begun anew.');
    else {
      // The error may contain the site's message already.
      const told = !state.website_error || state.error?.includes(state.website_error);
      const words = told ? '' : `The site said: ${state.website_error}`;
      finish('The login did not succeed', `${sentence(state.error)}${sentence(words)}Ask for a new link to try again.`);
    }
    return;
  }
  title.textContent = document.title = `Sign in to ${site}`;
  ends = Date.parse(state.expires_at);
  say(refusal, state.website_error);
  const waits = step === 'AWAITING_INPUT' || step === 'AWAITING_EXTERNAL_ACTION';
  revision = state.revision;
  const asks = JSON.stringify([waits, state.fields, state.choices]);
  form.hidden = !state.fields.length;
  ways.hidden = !state.choices.length;
  // The fields are created again only if the request differs or is repeated, because a person may be typing.
  if (asks !== shown || (waits && sending && revision !== sentAt)) {
    shown = asks;
    fields.replaceChildren(...state.fields.map(fieldOf));
    for (const input of fields.querySelectorAll(INPUTS)) input.value = typed.get(input.dataset.field) ?? '';
    choices.replaceChildren(...state.choices.map(choiceOf));
    byId('ways-title').textContent = state.fields.length ? 'Or choose another way' : 'Choose how to go on';
    busy(!waits);
    if (waits) ([...fields.querySelectorAll(INPUTS)].find(it => it.value === '') ?? choices.querySelector('button'))?.focus();
  }
  if (waits) say(status, state.message || (state.fields.length ? 'The site asks for the following. What you type goes to its page.' : 'The site asks how to go on.'));
  else say(status, WAITING[step] ?? 'One moment…');
  browser.hidden = !state.live;
  if (!state.live) view.replaceChildren();
}

function tick() {
  const minutes = Math.ceil((ends - Date.now()) / 60000);
  if (!over && ends && minutes >= 0) say(left, minutes <= 1 ? 'This page expires in less than a minute.' : `This page expires in ${minutes} minutes.`);
}
setInterval(tick, 10000);

function listen() {
  stream = new EventSource(`${here}/events`);
  stream.onmessage = event => { show(JSON.parse(event.data)); tick(); };
  stream.onerror = () => {
    if (over) return;
    // The server refused the stream: the cookie is no longer valid.
    if (stream.readyState === EventSource.CLOSED) finish('This page has expired', 'The login is over, or was begun anew. Ask for a new link.');
    else say(status, 'The connection was lost. Trying again…');
  };
}
listen();
