// Runs in an isolated world in every document: the page can neither see the script nor change the functions it uses.
// The names of elements can still hide their properties, so these are read through the prototypes that define them.
(() => {
  'use strict';
  const report = globalThis.__binding__;
  // The name of an element cannot hide a property whose key is a symbol.
  const STOP = Symbol.for('casement.stop');
  if (globalThis[STOP] || typeof report !== 'function') return;
  const stopped = new AbortController();
  globalThis[STOP] = () => {
    delete globalThis[STOP];
    stopped.abort();
    changes.disconnect();
  };
  const getter = (type, name) => {
    const { get } = Object.getOwnPropertyDescriptor(type.prototype, name);
    return object => { try { return get.call(object); } catch { return null; } };
  };
  const tagOf = getter(Element, 'tagName');
  const idOf = getter(Element, 'id');
  const parentOf = getter(Node, 'parentNode');
  const childrenOf = getter(Element, 'previousElementSibling');
  const shadowOf = getter(Element, 'shadowRoot');
  const editable = getter(HTMLElement, 'isContentEditable');
  const textOf = getter(Node, 'textContent');
  const attribute = (element, name) => {
    try { return Element.prototype.getAttribute.call(element, name) || ''; } catch { return ''; }
  };
  const allOf = root => (root instanceof Document ? Document : DocumentFragment).prototype.querySelectorAll.call(root, '*');
  const isElement = node => node instanceof Element;

  const cut = (text, most) => (text.length > most ? text.slice(0, most) : text);
  const selectorOf = element => {
    const steps = [];
    for (let at = element; isElement(at) && steps.length < 6; at = parentOf(at)) {
      const id = idOf(at);
      const tag = cut(String(tagOf(at)).toLowerCase(), 40);
      if (typeof id === 'string' && id) {
        steps.unshift('#' + CSS.escape(cut(id, 100)));
        break;
      }
      let nth = 1;
      for (let before = childrenOf(at); before && nth < 1000; before = childrenOf(before)) {
        if (tagOf(before) === tagOf(at)) nth += 1;
      }
      steps.unshift(isElement(parentOf(at)) ? `${tag}:nth-of-type(${nth})` : tag);
    }
    return steps.join(' > ');
  };
  const targetOf = event => {
    const first = event.composedPath()[0];
    return isElement(first) ? first : document.documentElement;
  };
  const about = element => ({ selector: selectorOf(element), tag: cut(String(tagOf(element) || ''), 40) });

  // The fields that have once been secret. They stay secret, because a page may make their values visible.
  const secrets = new WeakSet();
  const SECRETS = '__secrets__';
  const wordsOf = text => text.replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, '$1 $2').toLowerCase().split(/[^\p{Alphabetic}\p{N}]+/u);
  const namesSecret = text => {
    const parts = wordsOf(cut(text, 1000));
    const whole = parts.join('');
    return SECRETS.words.some(word => whole.includes(word)) || parts.some(part => SECRETS.parts.includes(part)) || SECRETS.names.includes(whole);
  };
  const labelled = [HTMLInputElement, HTMLTextAreaElement, HTMLSelectElement].map(type => getter(type, 'labels'));
  const rootOf = node => Node.prototype.getRootNode.call(node);
  const byId = (root, id) => {
    const type = root instanceof Document ? Document : DocumentFragment;
    return type.prototype.getElementById.call(root, id);
  };
  // The texts of all labels of a field.
  const labelsOf = element => {
    const around = labelled.flatMap(labels => [...(labels(element) || [])]);
    const named = attribute(element, 'aria-labelledby').split(/\s+/).filter(Boolean).slice(0, 20).map(id => byId(rootOf(element), id));
    return [...around.slice(0, 20), ...named].filter(Boolean).map(label => String(textOf(label) || ''));
  };
  // Returns true if a style sheet masks the text, by a property or by a special font.
  const isMasked = element => {
    const style = getComputedStyle(element);
    const security = style.getPropertyValue('-webkit-text-security');
    return (security !== '' && security !== 'none') || /text-?security|password|dotsfont/i.test(style.fontFamily);
  };
  // Returns the element that contains the caret of an editable text.
  const caretOf = element => {
    const root = rootOf(element);
    const selection = root instanceof ShadowRoot && root.getSelection ? root.getSelection() : document.getSelection();
    const node = selection && selection.anchorNode;
    return isElement(node) ? node : node && parentOf(node);
  };
  const isNamedSecret = element => {
    const words = attribute(element, 'autocomplete').toLowerCase().split(/\s+/);
    return attribute(element, 'type').toLowerCase() === 'password'
      || words.some(word => word.startsWith('cc-') || word.includes('password') || word === 'one-time-code')
      || ['name', 'id', 'title', 'aria-label', 'placeholder', 'label'].some(name => namesSecret(attribute(element, name)))
      || labelsOf(element).some(namesSecret);
  };
  // Returns the hosts of the shadow trees that contain an element, and the frame of its document if that is accessible.
  const hostsOf = element => {
    const hosts = [];
    for (let root = rootOf(element); root instanceof ShadowRoot && hosts.length < 20; root = rootOf(root.host)) hosts.push(root.host);
    const frame = globalThis.frameElement;
    return isElement(frame) ? [...hosts, frame] : hosts;
  };
  const isSecretNow = element => {
    if (secrets.has(element)) return true;
    const hosts = hostsOf(element);
    const caret = editable(element) ? caretOf(element) : null;
    return isNamedSecret(element) || isMasked(element)
      || hosts.some(host => isNamedSecret(host) || (String(tagOf(host)).includes('-') && namesSecret(String(tagOf(host)))))
      || (isElement(caret) && (secrets.has(caret) || isMasked(caret)));
  };
  const isSecret = element => {
    const secret = isSecretNow(element);
    if (secret) secrets.add(element);
    return secret;
  };
  // A field whose type changes from `password` stays secret: it shows the typed password, and may receive more of it.
  const changes = new MutationObserver(records => {
    for (const { oldValue, target } of records) {
      if (String(oldValue).toLowerCase() === 'password') secrets.add(target);
    }
  });
  const watched = new WeakSet();
  const watch = root => {
    if (watched.has(root)) return;
    watched.add(root);
    changes.observe(root, { subtree: true, attributes: true, attributeFilter: ['type'], attributeOldValue: true });
  };
  watch(document);
  // Input in a closed shadow tree has the host of the tree as its target.
  const TEXT = new Set(['INPUT', 'TEXTAREA', 'SELECT', 'BUTTON', 'A', 'HTML', 'SUMMARY', 'IFRAME', 'VIDEO', 'AUDIO']);
  const mayHide = element => !TEXT.has(tagOf(element)) && !editable(element) && !shadowOf(element);

  const tell = message => report(JSON.stringify(message));
  const listen = (name, heard) => {
    addEventListener(name, event => {
      try { if (event.isTrusted) heard(event); } catch { /* The page goes on. */ }
    }, { capture: true, passive: true, signal: stopped.signal });
  };

  // An observer of a document does not observe its shadow trees. They are searched before a click can change them.
  const watchWithin = root => {
    let left = 10_000;
    for (const roots = [root]; roots.length > 0 && left > 0;) {
      for (const element of allOf(roots.pop())) {
        const inner = shadowOf(element);
        if (inner) roots.push(inner);
        if (inner) watch(inner);
        if ((left -= 1) === 0) break;
      }
    }
  };
  listen('pointerdown', () => watchWithin(document));
  for (const name of ['focusin', 'keydown']) {
    listen(name, event => event.composedPath().filter(node => node instanceof ShadowRoot).forEach(watch));
  }
  listen('focusin', event => isSecret(targetOf(event)));
  listen('click', event => {
    const element = targetOf(event);
    const form = ['INPUT', 'TEXTAREA', 'SELECT'].includes(tagOf(element)) || editable(element) || isMasked(element);
    const text = form ? '' : cut(String(textOf(element) || '').trim().replace(/\s+/g, ' '), 200);
    tell({ kind: 'click', x: event.clientX, y: event.clientY, text, ...about(element) });
  });
  listen('keydown', event => {
    const element = targetOf(event);
    if (isSecret(element) || (event.key.length === 1 && mayHide(element))) return;
    tell({ kind: 'key', key: cut(event.key, 40), ...about(element) });
  });

  // A scroll counts as an interaction if the user acted just before.
  let acted = 0;
  for (const name of ['wheel', 'touchmove', 'keydown', 'mousedown']) listen(name, () => { acted = performance.now(); });
  const places = new WeakMap();
  const moving = new Map();
  const placeOf = scrolled => (scrolled === document
    ? { x: globalThis.scrollX, y: globalThis.scrollY }
    : { x: scrolled.scrollLeft, y: scrolled.scrollTop });
  const settle = scrolled => {
    const { from, timer } = moving.get(scrolled);
    moving.delete(scrolled);
    const to = placeOf(scrolled);
    places.set(scrolled, to);
    const selector = scrolled === document ? 'html' : selectorOf(scrolled);
    const whole = number => Math.round(Number(number) || 0);
    tell({ kind: 'scroll', from_x: whole(from.x), from_y: whole(from.y), to_x: whole(to.x), to_y: whole(to.y), selector });
  };
  listen('scroll', event => {
    const scrolled = event.target;
    const known = moving.get(scrolled);
    if (known) clearTimeout(known.timer);
    else if (performance.now() - acted > 1000) return void places.set(scrolled, placeOf(scrolled));
    if (moving.size > 100) return;
    const from = known ? known.from : places.get(scrolled) || { x: 0, y: 0 };
    moving.set(scrolled, { from, timer: setTimeout(() => settle(scrolled), 250) });
  });
})();
