'use strict';
// The connection to the session's browser, and the page for a script.

const http = require('node:http');

const CONNECT_TIMEOUT_MS = 15_000;

class Link {
  #chromium;
  #endpoint = '';
  #browser = null;

  /** `chromium` is the browser type of Playwright. */
  constructor(chromium) {
    this.#chromium = chromium;
  }

  /**
   * Returns the browser, its context, and the page of the target. Without a target it is the page that was focused last,
   * one of the targets `others` only if there is no other page; it is opened if there is none. `tab` says which page it is
   * and whether it was opened.
   */
  async to(endpoint, target, others) {
    await this.connect(endpoint);
    const browser = this.#browser;
    const context = browser.contexts()[0] ?? await browser.newContext();
    const pages = context.pages();
    if (target) {
      const page = await withTarget(context, pages, target);
      return { page, context, browser, tab: { target_id: target, created: false } };
    }
    const found = await focused(endpoint, context, pages, others);
    const page = found?.page ?? await context.newPage();
    return { page, context, browser, tab: { target_id: found?.target ?? await id(context, page), created: !found } };
  }

  /** Connects to the endpoint, unless it is connected already. */
  async connect(endpoint) {
    if (this.#endpoint === endpoint && this.#browser?.isConnected()) return;
    await this.close();
    // Without Playwright's defaults, so that a script does not change downloads, focus or media of the session.
    this.#browser = await this.#chromium.connectOverCDP(endpoint, { noDefaults: true, isLocal: true, timeout: CONNECT_TIMEOUT_MS });
    this.#endpoint = endpoint;
  }

  async close() {
    const browser = this.#browser;
    this.#browser = null;
    await browser?.close().catch(() => {});
  }
}

/**
 * Returns the page that was active last, with its target: the browser lists its pages in that order. The targets
 * `others` come last.
 */
async function focused(endpoint, context, pages, others) {
  const known = await identified(context, pages);
  const own = known.filter(({ target }) => !others.includes(target));
  const candidates = own.length > 0 ? own : known;
  if (candidates.length < 2) return candidates[0];
  try {
    const order = (await list(new URL(endpoint).host)).filter((target) => target.type === 'page').map((target) => target.id);
    const rank = ({ target }) => (order.includes(target) ? order.indexOf(target) : order.length);
    return candidates.reduce((first, next) => (rank(next) < rank(first) ? next : first));
  } catch {
    return candidates.at(-1);
  }
}

/** Returns the page of a target. */
async function withTarget(context, pages, target) {
  const found = (await identified(context, pages)).find((known) => known.target === target);
  if (!found) throw new Error('the tab of the executor was closed');
  return found.page;
}

/** Returns the pages with their targets, without those that close meanwhile. */
async function identified(context, pages) {
  const known = await Promise.all(pages.map(async (page) => ({ page, target: await id(context, page).catch(() => '') })));
  return known.filter(({ target }) => target !== '');
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
