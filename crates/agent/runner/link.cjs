'use strict';
// The connection to the session's browser, and the page that a script is given.

const http = require('node:http');
const { chromium } = require('playwright-core');

const { ownKeys } = Reflect;
const PATIENCE = 15_000;

/** What a script may ask Playwright for without changing anything about the connection: it is as good as new afterwards. */
const PLAIN = new Set([
  'Frame: addScriptTag addStyleTag ariaSnapshot blur check click content dblclick dispatchEvent dragAndDrop evalOnSelector',
  'Frame: evalOnSelectorAll evaluateExpression evaluateExpressionHandle expect fill focus frameElement getAttribute goto hover innerHTML',
  'Frame: innerText inputValue isChecked isDisabled isEditable isEnabled isHidden isVisible press queryCount querySelector',
  'Frame: querySelectorAll resolveSelector selectOption setContent setInputFiles tap textContent title type uncheck waitForFunction',
  'Frame: waitForSelector waitForTimeout',
  'Page: bringToFront goBack goForward keyboardInsertText keyboardPress keyboardType pdf reload screenshot',
  'BrowserContext: addCookies clearCookies cookies storageState',
  'JSHandle: dispose evaluateExpression getProperty getPropertyList jsonValue',
  'ElementHandle: boundingBox check click contentFrame dblclick dispatchEvent dispose evalOnSelector evalOnSelectorAll fill focus',
  'ElementHandle: evaluateExpression getAttribute getProperty hover innerHTML innerText inputValue isChecked isDisabled isEditable',
  'ElementHandle: isEnabled isHidden isVisible jsonValue ownerFrame press querySelector querySelectorAll screenshot selectOption',
  'ElementHandle: scrollIntoViewIfNeeded selectText setInputFiles tap textContent type uncheck waitForElementState waitForSelector',
  'Request: rawRequestHeaders response',
  'Response: body httpVersion rawResponseHeaders securityDetails serverAddr sizes',
].flatMap((line) => line.split(': ')[1].split(' ').map((method) => `${line.split(':')[0]}.${method}`)));

/** What comes and goes with the pages, whoever drives them. */
const PASSING = new Set(['Request', 'Response', 'Frame', 'WebSocket']);

class Link {
  #endpoint = '';
  #browser = null;
  #plain = false;
  #before = null;

  /** The browser with its context, and the page that was focused last; one is opened if there is none. */
  async to(endpoint) {
    if (this.#endpoint !== endpoint || !this.#browser?.isConnected()) await this.#connect(endpoint);
    const browser = this.#browser;
    const context = browser.contexts()[0] ?? await browser.newContext();
    const pages = context.pages();
    const page = pages.length < 2 ? pages[0] : await focused(endpoint, context, pages);
    return { page: page ?? await context.newPage(), context, browser };
  }

  /** A connection on which nothing has been set and nobody listens: the one there is, if it is as new, or another one. */
  async renew(endpoint) {
    if (!this.#asNew()) await this.#connect(endpoint).catch(() => {});
  }

  async close() {
    const browser = this.#browser;
    this.#browser = null;
    await browser?.close().catch(() => {});
  }

  /** The objects whose classes a script can reach. */
  roots() {
    const context = this.#browser?.contexts()[0];
    return [this.#browser, this.#browser?._connection, context, ...(context?.pages().slice(0, 1) ?? [])].filter(Boolean);
  }

  async #connect(endpoint) {
    await this.close();
    // Without Playwright's defaults: a script that comes and goes changes nothing about downloads, focus or media of the session.
    this.#browser = await chromium.connectOverCDP(endpoint, { noDefaults: true, isLocal: true, timeout: PATIENCE });
    this.#endpoint = endpoint;
    this.#watch(this.#browser._connection);
  }

  /** Sees every request of the script. A Playwright that is built in another way is never taken for as new. */
  #watch(connection) {
    this.#plain = typeof connection?.sendMessageToServer === 'function' && connection._callbacks instanceof Map && connection._objects instanceof Map;
    if (!this.#plain) return;
    const { sendMessageToServer } = connection;
    connection.sendMessageToServer = (object, method, params, options) => {
      if (!PLAIN.has(`${object._type}.${method}`) && method !== '__waitInfo__') this.#plain = false;
      return sendMessageToServer.call(connection, object, method, params, options);
    };
    this.#before = look(connection);
  }

  #asNew() {
    if (!this.#plain || !this.#browser?.isConnected()) return false;
    const connection = this.#browser._connection;
    return connection._callbacks.size === 0 && same(this.#before, look(connection));
  }
}

/** Who listens to what, what hangs on Playwright's objects, and which there are. */
function look(connection) {
  const seen = new Map();
  for (const object of connection._objects.values()) {
    if (PASSING.has(object._type)) continue;
    const listeners = object.eventNames?.().map((name) => [name, object.listenerCount(name)]) ?? [];
    const parts = [object, object.keyboard, object.mouse, object.touchscreen, object.request, object.clock, object.tracing].filter(Boolean);
    const own = parts.flatMap((part) => ownKeys(part).map((key) => [part, key, typeof part[key] === 'function' ? part[key] : null]));
    seen.set(object, [...listeners.flat(), ...own.flat()]);
  }
  return seen;
}

function same(before, now) {
  if (before.size !== now.size) return false;
  for (const [object, marks] of before) {
    const others = now.get(object);
    if (!others || others.length !== marks.length || marks.some((mark, index) => mark !== others[index])) return false;
  }
  return true;
}

/** The browser lists its pages with the last active first. */
async function focused(endpoint, context, pages) {
  try {
    const order = (await list(new URL(endpoint).host)).filter((target) => target.type === 'page').map((target) => target.id);
    const ids = await Promise.all(pages.map((page) => id(context, page)));
    const ranks = ids.map((target) => { const rank = order.indexOf(target); return rank < 0 ? order.length : rank; });
    return pages[ranks.indexOf(Math.min(...ranks))];
  } catch {
    return pages.at(-1);
  }
}

async function id(context, page) {
  const session = await context.newCDPSession(page);
  const { targetInfo } = await session.send('Target.getTargetInfo');
  await session.detach();
  return targetInfo.targetId;
}

function list(host) {
  return new Promise((resolve, reject) => {
    const request = http.get(`http://${host}/json/list`, { agent: false, timeout: 2000 }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part) => { text += part; }).on('error', reject);
      response.on('end', () => { try { resolve(JSON.parse(text)); } catch (error) { reject(error); } });
    });
    request.on('timeout', () => request.destroy(new Error('no answer'))).on('error', reject);
  });
}

module.exports = { Link };
