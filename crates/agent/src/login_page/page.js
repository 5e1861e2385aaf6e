// Reads one document and acts on it, in an isolated world: the page can neither see nor change the functions called
// here. Properties are read through the prototypes, because a form returns its fields for properties with their names.
globalThis.casement ??= (() => {
  const getter = (kind, name) => { const { get } = Object.getOwnPropertyDescriptor(kind.prototype, name); return it => get.call(it); };
  const tagOf = getter(Element, 'localName'), shadowOf = getter(Element, 'shadowRoot'), parentOf = getter(Node, 'parentNode');
  const firstOf = getter(Node, 'firstChild'), nextOf = getter(Node, 'nextSibling'), previousOf = getter(Node, 'previousSibling');
  const typeOf = getter(Node, 'nodeType'), connected = getter(Node, 'isConnected'), valueOfNode = getter(Node, 'nodeValue');
  const attr = (el, name) => Element.prototype.getAttribute.call(el, name) ?? '';
  const has = (el, name) => Element.prototype.hasAttribute.call(el, name);
  const matches = (el, what) => Element.prototype.matches.call(el, what);
  const closest = (el, what) => Element.prototype.closest.call(el, what);
  const inside = (el, what) => Element.prototype.querySelector.call(el, what);
  const rectOf = el => Element.prototype.getBoundingClientRect.call(el);
  const rootOf = el => Node.prototype.getRootNode.call(el);
  const isElement = node => typeOf(node) === 1;

  // The closed shadow roots, as the browser reports them.
  const closed = new WeakMap();
  const rootsSeen = new Set();
  const shadow = el => { const root = shadowOf(el) ?? closed.get(el); if (root && rootsSeen.size < 200) rootsSeen.add(root); return root; };
  // The parent in the rendered tree: the slot of a slotted element, the host of a shadow root.
  const above = el => {
    const slot = el.assignedSlot;
    if (slot) return slot;
    const up = parentOf(el);
    return up && typeOf(up) === 11 ? up.host ?? null : up && isElement(up) ? up : null;
  };

  const numbers = new WeakMap(), elements = new Map();
  let last = 0;
  const number = el => {
    let it = numbers.get(el);
    if (!it) { it = ++last; numbers.set(el, it); elements.set(it, new WeakRef(el)); }
    return it;
  };
  const at = it => { const el = elements.get(it)?.deref(); return el && connected(el) ? el : null; };

  const SILENT = new Set(['script', 'style', 'noscript', 'template', 'head', 'meta', 'link', 'title', 'datalist', 'object', 'embed',
    'canvas', 'video', 'audio', 'math']);
  const BLOCKS = new Set(['block', 'flex', 'grid', 'list-item', 'table', 'table-row', 'table-cell', 'flow-root']);

  // The text of a tree in lines, up to `most` characters. The cost is bounded, regardless of the size of the tree.
  function lines(top, most, skip) {
    const found = [''];
    let left = most, nodes = 600;
    const visit = (node, depth) => {
      if (left <= 0 || nodes-- <= 0 || depth > 60) return;
      if (typeOf(node) === 3) {
        const text = (valueOfNode(node) ?? '').slice(0, left * 4).replace(/\s+/g, ' ');
        if (!text.trim()) { if (found.at(-1) !== '') found[found.length - 1] += ' '; return; }
        found[found.length - 1] += text.slice(0, left);
        left -= text.length;
        return;
      }
      if (!isElement(node)) return;
      const tag = tagOf(node);
      if (SILENT.has(tag) || node === skip || attr(node, 'aria-hidden') === 'true') return;
      if (tag === 'br') { found.push(''); return; }
      if (tag === 'img') { found[found.length - 1] += ' ' + attr(node, 'alt').slice(0, 80); return; }
      if (tag === 'input' || tag === 'select' || tag === 'textarea') return;
      const style = getComputedStyle(node);
      if (style.display === 'none' || style.visibility === 'hidden') return;
      const block = BLOCKS.has(style.display) && node !== top;
      if (block && found.at(-1).trim()) found.push('');
      children(node, child => visit(child, depth + 1));
      if (block && found.at(-1).trim()) found.push('');
    };
    visit(top, 0);
    return found.map(line => line.replace(/\s+/g, ' ').trim()).filter(Boolean);
  }
  const textOf = (el, most, skip) => lines(el, most, skip).join(' ').slice(0, most);

  function children(el, visit) {
    const root = shadow(el);
    if (root) { for (let node = firstOf(root); node; node = nextOf(node)) visit(node); return; }
    if (tagOf(el) === 'slot' && typeOf(rootOf(el)) === 11) {
      const given = HTMLSlotElement.prototype.assignedNodes.call(el);
      if (given.length) { for (const node of given) visit(node); return; }
    }
    for (let node = firstOf(el); node; node = nextOf(node)) visit(node);
  }

  // The label of a field: its ARIA labels and its `label` elements, else its title, else the text before it.
  const byIds = (el, name) => attr(el, name).split(/\s+/).filter(Boolean).slice(0, 4)
    .map(id => rootOf(el).getElementById?.(id)).filter(Boolean).map(it => textOf(it, 200)).join(' ').trim();
  function labelOf(el) {
    const told = byIds(el, 'aria-labelledby') || attr(el, 'aria-label').trim();
    const labels = el.labels ? [...el.labels].slice(0, 3).map(label => textOf(label, 200, el)).join(' ').trim() : '';
    return (labels && told && labels !== told ? `${labels} ${told}` : labels || told) || attr(el, 'title').trim() || (attr(el, 'placeholder').trim() ? '' : before(el));
  }
  function before(el) {
    let from = el;
    for (let step = 0; step < 3 && from; step++) {
      for (let node = previousOf(from), many = 0; node && many < 6; node = previousOf(node), many++) {
        const text = typeOf(node) === 3 ? (valueOfNode(node) ?? '').slice(0, 400).trim() : isElement(node) ? outside(node) : '';
        if (text === null) return '';
        if (text) return text.length <= 120 ? text : '';
      }
      from = parentOf(from);
      if (!from || !isElement(from) || from.querySelectorAll('input:not([type=hidden]),select,textarea').length > 1) return '';
    }
    return '';
  }
  // `null` for another field or a button: the label of this field is not beyond it.
  const outside = el => matches(el, 'input:not([type=hidden]),select,textarea,button') || inside(el, 'input:not([type=hidden]),select,textarea')
    ? null : textOf(el, 200);

  function sees(el) {
    if (!Element.prototype.checkVisibility.call(el, { opacityProperty: true, visibilityProperty: true })) return false;
    const box = rectOf(el);
    return box.width >= 3 && box.height >= 3 && box.right + scrollX > 0 && box.bottom + scrollY > 0
      && box.left < Math.max(innerWidth, document.documentElement.scrollWidth);
  }
  const tickable = el => tagOf(el) === 'input' && (el.type === 'checkbox' || el.type === 'radio');
  // A checkbox that is drawn by its label is visible if the label is.
  const shown = el => sees(el) ? !(closest(el, '[aria-hidden=true]') && attr(el, 'tabindex') === '-1')
    : tickable(el) && !!el.labels && [...el.labels].slice(0, 2).some(sees);

  function hit(el, x, y) {
    const found = rootOf(el).elementFromPoint?.(x, y);
    if (!found) return true;
    for (let it = found, many = 0; it && many < 200; it = above(it), many++) if (it === el) return true;
    for (let it = el, many = 0; it && many < 200; it = above(it), many++) if (it === found) return true;
    const label = closest(found, 'label');
    return !!label && label.control === el;
  }
  function covered(el) {
    const drawn = !sees(el) && el.labels?.[0] ? el.labels[0] : el;
    const box = rectOf(drawn);
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    return x >= 0 && y >= 0 && x < innerWidth && y < innerHeight && !hit(drawn, x, y);
  }

  const quoted = text => `"${text.replace(/["\\\n]/g, '\\$&')}"`;
  function selectorOf(el) {
    const parts = [];
    for (let it = el; it && isElement(it) && parts.length < 6; it = parentOf(it)) {
      const id = attr(it, 'id'), name = attr(it, 'name');
      if (id && id.length < 60 && /^[A-Za-z][\w-]*$/.test(id)) { parts.unshift(`#${id}`); break; }
      if (it === el && name && name.length < 60) { parts.unshift(`${tagOf(it)}[name=${quoted(name)}]`); break; }
      let nth = 1;
      for (let p = previousOf(it); p && nth < 500; p = previousOf(p)) if (isElement(p) && tagOf(p) === tagOf(it)) nth++;
      parts.unshift(`${tagOf(it)}:nth-of-type(${nth})`);
    }
    return parts.join(' > ').slice(0, 300);
  }
  function xpathOf(el) {
    const parts = [];
    for (let it = el; it && isElement(it) && parts.length < 40; it = parentOf(it)) {
      const id = attr(it, 'id');
      if (id && id.length < 60 && !/["']/.test(id)) return `//*[@id="${id}"]${parts.map(part => `/${part}`).join('')}`.slice(0, 400);
      let nth = 1;
      for (let p = previousOf(it); p && nth < 500; p = previousOf(p)) if (isElement(p) && tagOf(p) === tagOf(it)) nth++;
      parts.unshift(`${tagOf(it)}[${nth}]`);
    }
    return `/${parts.join('/')}`.slice(0, 400);
  }

  const INPUTS = new Set(['input', 'textarea', 'select']);
  const PRESSED = new Set(['submit', 'button', 'image', 'reset']);
  const PRESSABLE = new Set(['button', 'link', 'menuitem', 'option', 'radio', 'tab', 'menuitemradio', 'listitem']);
  const BAD = /(^|[-_\s])(errors?|err|invalid|danger|alert|warning|warn|fail(ed|ure)?|fehler|erreur|flash|critical)([-_\s]|$)|error|Error/;
  const CAPTCHAS = [['g-recaptcha', 'recaptcha'], ['h-captcha', 'hcaptcha'], ['cf-turnstile', 'turnstile'], ['frc-captcha', 'friendlycaptcha'],
    ['geetest_captcha', 'geetest'], ['smart-captcha', 'smartcaptcha']];
  const UNSEEN_CAPTCHA = 'button,input,a,[role=button],[data-size=invisible]';
  const PROOFS = '[name=g-recaptcha-response],[name=h-captcha-response],[name=cf-turnstile-response],[name=geetest_validate],' +
    '[name=fc-token],[name=frc-captcha-solution],[name=smart-token],[name=mtcaptcha-verifiedtoken]';
  let layers = [];

  function read(most) {
    const out = { url: location.href.slice(0, 2000), origin: self.origin, title: document.title.slice(0, 300), language: attr(document.documentElement, 'lang').slice(0, 20),
      status: performance.getEntriesByType('navigation')[0]?.responseStatus || null, width: innerWidth, height: innerHeight,
      inputs: [], buttons: [], texts: [], layers: [], captchas: [], cut: false };
    rootsSeen.clear();
    layers = [];
    const unseen = parent !== self && (innerWidth < 20 || innerHeight < 10);
    if (unseen || !document.body) return { ...out, suspects: 0 };
    const forms = new Map(), suspects = [], ends = performance.now() + 2500;
    const formOf = form => { if (!form) return null; if (!forms.has(form)) forms.set(form, forms.size); return forms.get(form); };
    let nodes = most.nodes, size = 0, places = 0;
    const add = (list, limit, it) => {
      size += 150 + Object.values(it).reduce((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0);
      if (list.length >= limit || size > most.size) { out.cut = true; return; }
      it.place = ++places;
      list.push(it);
    };
    const visit = (node, up, depth) => {
      if (!isElement(node)) return;
      if (nodes-- <= 0 || depth > 250 || performance.now() > ends) { out.cut = true; return; }
      const tag = tagOf(node);
      if (SILENT.has(tag)) return;
      const style = getComputedStyle(node);
      if (style.display === 'none') return;
      const here = { ...up };
      const role = attr(node, 'role').toLowerCase();
      const names = `${attr(node, 'id')} ${attr(node, 'class')}`.slice(0, 300);
      const dialog = tag === 'dialog' || role === 'dialog' || role === 'alertdialog' || attr(node, 'aria-modal') === 'true';
      if (dialog || style.position === 'fixed' || style.position === 'sticky') {
        if (layers.length < most.layers && (dialog || up.layer === null)) {
          here.layer = layers.length;
          layers.push(node);
          out.layers.push({ marks: `${tag} ${role} ${attr(node, 'aria-label')} ${names}`.slice(0, 200), dialog });
        }
      }
      if (role === 'alert' || role === 'alertdialog' || attr(node, 'aria-live') === 'assertive') here.news = role === 'alertdialog' ? here.news : 'alert';
      else if (!here.news && BAD.test(names) && !inside(node, 'input,button,select')) here.news = 'error';
      if (/^h[1-6]$/.test(tag) || role === 'heading') here.heading = true;
      for (const [name, kind] of CAPTCHAS) {
        // On a button, or marked as invisible, a captcha shows only on demand, in a frame of its own.
        if (!matches(node, `.${name}`) || matches(node, UNSEEN_CAPTCHA)) continue;
        const box = rectOf(node);
        if (sees(node)) out.captchas.push({ kind, blocking: box.width * box.height > innerWidth * innerHeight / 4, solved: solved() });
      }
      if (INPUTS.has(tag) && !(tag === 'input' && PRESSED.has(node.type))) { input(node, tag, here); return; }
      if (tag === 'iframe' || tag === 'frame' || tag === 'svg') return;
      const pressed = button(node, tag, role, style, here);
      if (pressed) { here.pressed = true; here.told = true; }
      if (!here.told && tag !== 'label' && direct(node)) {
        here.told = true;
        const text = textOf(node, most.text);
        const red = text.length >= 4 && reddish(style.color);
        const kind = here.news ?? (here.heading ? 'heading' : red ? 'error' : 'plain');
        if (text && sees(node)) add(out.texts, most.texts, { kind, text, layer: here.layer });
      } else if (tag === 'label' && !node.control && !here.told && direct(node)) {
        here.told = true;
        const text = textOf(node, most.text);
        if (text && sees(node)) add(out.texts, most.texts, { kind: here.news ?? 'plain', text, layer: here.layer });
      } else if (tag === 'img' && !here.told && attr(node, 'alt')) {
        add(out.texts, most.texts, { kind: 'plain', text: attr(node, 'alt').slice(0, 120), layer: here.layer });
      }
      if (!shadow(node) && suspects.length < most.suspects && mayHide(node, tag)) suspects.push(node);
      children(node, child => visit(child, here, depth + 1));
    };
    const input = (el, tag, here) => {
      const kind = tag === 'input' ? el.type : tag;
      if (kind === 'hidden' || kind === 'file' || kind === 'range' || kind === 'color') return;
      const filled = kind === 'checkbox' || kind === 'radio' ? el.checked : !!el.value;
      add(out.inputs, most.inputs, {
        handle: number(el), form: formOf(el.form), kind, name: attr(el, 'name').slice(0, 120), id: attr(el, 'id').slice(0, 120),
        label: labelOf(el).slice(0, most.label), placeholder: attr(el, 'placeholder').slice(0, most.label),
        hint: byIds(el, 'aria-describedby').slice(0, most.label), autocomplete: attr(el, 'autocomplete').toLowerCase().slice(0, 80),
        mode: attr(el, 'inputmode').toLowerCase().slice(0, 20), max_length: el.maxLength > 0 && el.maxLength < 100000 ? el.maxLength : null,
        required: !!el.required || attr(el, 'aria-required') === 'true', invalid: attr(el, 'aria-invalid') === 'true', filled,
        disabled: matches(el, ':disabled') || !!el.readOnly || attr(el, 'aria-disabled') === 'true', visible: shown(el), layer: here.layer,
        covered: covered(el), selector: selectorOf(el),
        options: tag === 'select' ? [...el.options].slice(0, most.options).map(it => it.text.slice(0, most.label).trim()) : [],
      });
      if (attr(el, 'aria-invalid') === 'true') {
        const message = byIds(el, 'aria-errormessage') || byIds(el, 'aria-describedby');
        if (message) add(out.texts, most.texts, { kind: 'alert', text: message.slice(0, most.text), layer: here.layer });
      }
    };
    const button = (el, tag, role, style, here) => {
      if (here.pressed) return false;
      const kind = tag === 'button' ? (el.type === 'submit' && el.form ? 'submit' : 'button')
        : tag === 'input' && PRESSED.has(el.type) ? (el.type === 'submit' || el.type === 'image' ? 'submit' : 'button')
        : tag === 'a' && (has(el, 'href') || role === 'button') ? (role === 'button' ? 'button' : 'link')
        : role === 'radio' || role === 'menuitemradio' ? 'radio' : role === 'option' || role === 'listitem' && style.cursor === 'pointer' ? 'item'
        : PRESSABLE.has(role) && role !== 'listitem' ? 'button' : tag === 'summary' ? 'button'
        : !inside(el, 'a,button,input,select,textarea,iframe') && tag !== 'label' && style.cursor === 'pointer'
          && getComputedStyle(above(el) ?? el).cursor !== 'pointer' ? 'item' : null;
      if (!kind || !sees(el)) return false;
      const said = lines(el, 300);
      const aria = byIds(el, 'aria-labelledby') || attr(el, 'aria-label').trim();
      const own = tag === 'input' ? el.value || attr(el, 'alt') || (el.type === 'submit' ? 'Submit' : '') : said[0] ?? '';
      const whole = aria.length > own.length && aria.toLowerCase().includes(own.toLowerCase());
      const label = (whole ? aria : /\p{L}{2}/u.test(own) ? own : aria || own || attr(el, 'title') || inside(el, 'svg title')?.textContent || '').trim();
      const rest = said.slice(1).join(' ') || byIds(el, 'aria-describedby');
      const picture = inside(el, 'img');
      const data = ['data-provider', 'data-testid', 'data-action', 'data-method', 'data-social', 'data-idp', 'data-challengetype', 'value', 'formaction', 'title']
        .map(name => attr(el, name)).filter(Boolean).join(' ');
      add(out.buttons, most.buttons, {
        handle: number(el), form: formOf(el.form ?? closest(el, 'form')), kind, label: label.slice(0, most.label), description: rest.slice(0, most.label),
        marks: `${attr(el, 'name')} ${names(el)} ${data.slice(0, 100)} ${picture ? attr(picture, 'src').split(/[?#]/)[0].slice(-40) : ''} ${(el.form && kind === 'submit' ? attr(el.form, 'action') : '').slice(0, 60)} ${aria.slice(0, 80)}`
          .replace(/\s+/g, ' ').trim().slice(0, 300),
        href: tag === 'a' ? String(el.href?.baseVal ?? el.href ?? '').slice(0, 300) : '', disabled: matches(el, ':disabled') || attr(el, 'aria-disabled') === 'true',
        layer: here.layer, covered: covered(el), selector: selectorOf(el), xpath: xpathOf(el),
      });
      return true;
    };
    const names = el => `${attr(el, 'id')} ${attr(el, 'class')}`.slice(0, 120);
    visit(document.body, { layer: null, news: null, heading: false, told: false, pressed: false }, 0);
    kept = suspects;
    return { ...out, suspects: suspects.length };
  }
  let kept = [];

  const direct = el => {
    let many = 0;
    const any = start => { for (let node = start; node && many < 200; node = nextOf(node), many++) {
      if (typeOf(node) === 3 && (valueOfNode(node) ?? '').slice(0, 2000).trim()) return true;
    } return false; };
    return any(firstOf(shadow(el) ?? el));
  };
  const reddish = color => { const [r, g, b] = (color.match(/\d+(\.\d+)?/g) ?? []).map(Number); return r >= 140 && g <= 90 && b <= 100; };
  const solved = () => [...document.querySelectorAll(PROOFS)].slice(0, 20).some(it => typeof it.value === 'string' && it.value !== '');

  // Elements that may have a closed shadow root: custom elements, and visible elements without visible content.
  const MAY = new Set(['div', 'span', 'section', 'article', 'main', 'aside', 'header', 'footer', 'nav', 'p', 'body', 'blockquote']);
  function mayHide(el, tag) {
    const own = tag.includes('-');
    if (!own && !MAY.has(tag)) return false;
    if (!own && inside(el, 'input,button,a,iframe,img,svg')) return false;
    const box = rectOf(el);
    if (box.width < 20 || box.height < 10) return false;
    if (own) return true;
    for (let node = firstOf(el), many = 0; node && many < 50; node = nextOf(node), many++) {
      if (typeOf(node) === 3 && (valueOfNode(node) ?? '').trim()) return false;
      if (isElement(node) && Element.prototype.checkVisibility.call(node)) return false;
    }
    return true;
  }

  const WATCHED = { subtree: true, childList: true, characterData: true, attributes: true,
    attributeFilter: ['class', 'style', 'hidden', 'disabled', 'open', 'type', 'aria-hidden', 'aria-busy', 'aria-invalid', 'aria-disabled', 'src', 'value'] };
  function observe(changed) {
    const observer = new MutationObserver(changed);
    observer.observe(document, WATCHED);
    for (const root of rootsSeen) observer.observe(root, WATCHED);
    return observer;
  }
  // Resolves to true once nothing has changed for `quiet` ms, or to false after `longest` ms.
  function rest(quiet, longest) {
    return new Promise(done => {
      const finish = calm => { observer.disconnect(); clearTimeout(timer); clearTimeout(end); document.removeEventListener('readystatechange', again); done(calm); };
      let timer;
      const again = () => { clearTimeout(timer); if (document.readyState !== 'loading') timer = setTimeout(() => finish(true), quiet); };
      const observer = observe(again);
      document.addEventListener('readystatechange', again);
      const end = setTimeout(() => finish(false), longest);
      again();
    });
  }
  // Resolves once something changes, or after `longest` ms.
  function change(longest) {
    return new Promise(done => {
      const finish = () => { observer.disconnect(); clearTimeout(end); done(true); };
      const observer = observe(finish);
      const end = setTimeout(finish, longest);
    });
  }

  const focused = () => { let it = document.activeElement; for (let many = 0; it && many < 50; many++) { const in_ = (shadowOf(it) ?? closed.get(it))?.activeElement; if (!in_) break; it = in_; } return it; };
  const usable = el => !sees(el) && !shown(el) ? 'it is not seen' : matches(el, ':disabled') ? 'it is switched off' : '';

  // Synchronous, so that the document cannot change between the check of the origin and the typing.
  function fill(it, text, origin) {
    if (self.origin !== origin) return { found: self.origin };
    const el = at(it);
    if (!el) return { stale: true };
    const reason = usable(el) || (el.readOnly ? 'it cannot be changed' : '');
    if (reason) return { reason };
    el.focus();
    if (focused() !== el) return { reason: 'it does not take the focus' };
    if (typeof el.select === 'function') el.select();
    const typed = text === '' ? document.execCommand('delete') : document.execCommand('insertText', false, text);
    const plain = value => String(value ?? '').replace(/[^\p{L}\p{N}]/gu, '');
    if (!connected(el) || plain(el.value) === plain(text) || (typed && plain(el.value).endsWith(plain(text)))) return {};
    // For a page that does not accept typed text, but accepts a value.
    const kind = tagOf(el) === 'textarea' ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(kind.prototype, 'value').set.call(el, text);
    el.dispatchEvent(new InputEvent('input', { bubbles: true, composed: true, inputType: 'insertText' }));
    el.dispatchEvent(new Event('change', { bubbles: true }));
    return plain(el.value) === plain(text) ? {} : { reason: 'it does not take the text' };
  }
  const lengths = numbers => numbers.map(it => { const el = at(it); return el ? String(el.value ?? '').length : -1; });

  function aim(it) {
    const el = at(it);
    if (!el) return { stale: true };
    const reason = usable(el);
    if (reason) return { reason };
    const drawn = !sees(el) && el.labels?.[0] ? el.labels[0] : el;
    drawn.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    return covered(el) ? { reason: 'something lies over it' } : { target: number(drawn) };
  }
  function focus(it) {
    const el = at(it);
    if (!el) return { stale: true };
    el.focus();
    return focused() === el ? {} : { reason: 'it does not take the focus' };
  }
  const ticked = el => typeof el.checked === 'boolean' ? el.checked : attr(el, 'aria-checked') === 'true';
  const isTicked = it => { const el = at(it); return el ? { on: ticked(el) } : { stale: true }; };
  const tick = (it, on) => { const el = at(it); if (!el) return { stale: true }; if (ticked(el) !== on) HTMLElement.prototype.click.call(el); return ticked(el) === on ? {} : { reason: 'it stays as it is' }; };
  function choose(it, option, origin) {
    if (self.origin !== origin) return { found: self.origin };
    const el = at(it);
    if (!el) return { stale: true };
    if (tagOf(el) !== 'select') return { reason: 'it is no list' };
    const found = [...el.options].findIndex(one => one.text.replace(/\s+/g, ' ').trim() === option || one.value === option);
    if (found < 0) return { reason: 'there is no such option' };
    el.focus();
    el.selectedIndex = found;
    el.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
    el.dispatchEvent(new Event('change', { bubbles: true }));
    return {};
  }

  // Makes the values of fields illegible until `unveil`.
  let veiled = [];
  function veil() {
    unveil();
    const every = root => {
      for (const el of root.querySelectorAll('input,textarea,[contenteditable]')) {
        if (veiled.length >= 500) return;
        veiled.push([el, attr(el, 'style'), has(el, 'style')]);
        for (const [name, value] of [['color', 'transparent'], ['-webkit-text-fill-color', 'transparent'], ['text-shadow', 'none'], ['transition', 'none'], ['background-image', 'none']]) el.style.setProperty(name, value, 'important');
      }
    };
    every(document);
    for (const root of rootsSeen) every(root);
    return new Promise(done => { setTimeout(done, 200); requestAnimationFrame(() => requestAnimationFrame(done)); }).then(() => true);
  }
  function unveil() {
    for (const [el, style, had] of veiled) if (had) el.setAttribute('style', style); else el.removeAttribute('style');
    veiled = [];
    return true;
  }

  return {
    read, rest, change, fill, lengths, aim, focus, isTicked, tick, choose, veil, unveil, at,
    mine: el => el.ownerDocument === document,
    suspect: index => kept[index] ?? null,
    keep: (host, root) => { closed.set(host, root); rootsSeen.add(root); return true; },
    owner: el => { let layer = null; for (let it = el, many = 0; it && many < 200; it = above(it), many++) { const found = layers.indexOf(it); if (found >= 0) { layer = found; break; } }
      return { visible: sees(el), covered: covered(el), layer, solved: solved(), width: rectOf(el).width, height: rectOf(el).height, of: innerWidth * innerHeight }; },
  };
})();
