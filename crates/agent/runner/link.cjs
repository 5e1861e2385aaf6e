'use strict';
// The connection to the session's browser, and the page for a script.
//
// Playwright connects without its defaults, because a connection that waits for code must not change the session. While
// code runs, the parts of the defaults are active without which methods of Playwright do not work: pages behind others
// draw and take input as the page in front does, and downloads are reported. Chromium reverts both when the connection
// closes.

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const CONNECT_TIMEOUT_MS = 15_000;
/** The time without an answer after which a screenshot is requested again; twice as long each further time. */
const SCREENSHOT_RETRY_MS = 500;

class Link {
  #chromium;
  #endpoint = '';
  #browser = null;
  /** Playwright's own objects behind `#browser`. */
  #core = null;
  #isInUse = false;
  /** Whether the one script of this process is over. */
  #isOver = false;
  /** The directory of the session's downloads; empty for a browser on another machine. */
  #downloads = '';
  /** The open dialogs that no listener has received. */
  #unknownDialogs = new Set();

  /** `chromium` is the browser type of Playwright. */
  constructor(chromium) {
    this.#chromium = chromium;
    // Playwright answers a dialog that nobody listens for, also while it connects. While no code runs, dialogs are those of
    // other clients.
    const { instrumentation } = chromium._connection.toImpl(chromium);
    const nothing = async () => {};
    instrumentation.addListener({
      onDialog: (dialog) => {
        if (!this.#isInUse) dialog._close = nothing;
        if (this.#isOver) dialog._onHandle = nothing;
      },
    }, null);
  }

  /**
   * Returns the browser, its context, and the page of the target. Without a target it is the page that was focused last,
   * one of the targets `others` only if there is no other page; it is opened if there is none. `tab` says which page it is
   * and whether it was opened. Downloads go to the directory `downloads`; without one, where the browser puts them.
   */
  async to(endpoint, target, others, downloads) {
    await this.connect(endpoint);
    const browser = this.#browser;
    const context = browser.contexts()[0] ?? await browser.newContext();
    const pages = context.pages();
    if (target) {
      const page = withTarget(browser, pages, target);
      this.#begin(downloads);
      return { page, context, browser, tab: { target_id: target, created: false } };
    }
    // Before every page seems to have the focus.
    const found = await focused(endpoint, browser, pages, others);
    this.#begin(downloads);
    const page = found?.page ?? await context.newPage();
    return { page, context, browser, tab: { target_id: found?.target ?? id(browser, page), created: !found } };
  }

  /** Connects to the endpoint, unless it is connected already. */
  async connect(endpoint) {
    if (this.#endpoint === endpoint && this.#browser?.isConnected()) return;
    await this.close();
    const browser = await this.#chromium.connectOverCDP(endpoint, { noDefaults: true, isLocal: true, timeout: CONNECT_TIMEOUT_MS });
    const core = browser._connection.toImpl(browser);
    const context = core._defaultContext;
    context.dialogManager.addDialogHandler((dialog) => {
      if (!this.#isInUse && !listensForDialogs(browser)) this.#unknownDialogs.add(dialog);
      return !this.#isInUse;
    });
    context.dialogManager.addDialogClosedListener((dialog) => this.#unknownDialogs.delete(dialog));
    const prepare = (page) => retryScreenshots(page.delegate._mainFrameSession._client);
    context.pages().forEach(prepare);
    context.on('page', (page) => {
      prepare(page);
      if (this.#isInUse) emulateFocus(page, true);
    });
    const { send } = core._session;
    core._session.send = (method, params) => send.call(core._session, method, this.#withDownloads(method, params));
    // Before Playwright's own listener, which declares the download finished.
    core._session.prependListener('Browser.downloadProgress', (progress) => link(core.options.downloadsPath, progress));
    this.#browser = browser;
    this.#core = core;
    this.#endpoint = endpoint;
  }

  /** Returns true if a page waits for the answer to a dialog that the code of the REPL does not know. */
  isBlocked() {
    return this.#unknownDialogs.size > 0;
  }

  /** Has the downloads of a context that code creates go where those of the session go. */
  #withDownloads(method, params) {
    const isOfContext = method === 'Browser.setDownloadBehavior' && params.behavior === 'allowAndName';
    return isOfContext && this.#downloads ? { ...params, behavior: 'allow', downloadPath: this.#downloads } : params;
  }

  #begin(downloads) {
    this.#isInUse = true;
    this.#downloads = downloads ?? '';
    const behavior = downloads ? { behavior: 'allow', downloadPath: downloads } : { behavior: 'default' };
    this.#core._session.send('Browser.setDownloadBehavior', { ...behavior, eventsEnabled: true }).catch(() => {});
    this.#focusPages();
  }

  /** Leaves dialogs to other clients, also those that a listener of the script gets: it is over, and this process ends soon. */
  leaveDialogs() {
    this.#isInUse = false;
    this.#isOver = true;
  }

  /** Ends the use that `to` began. The connection, its listeners and its reports of downloads remain. */
  release() {
    this.#isInUse = false;
    if (this.#browser?.isConnected()) this.#focusPages();
  }

  #focusPages() {
    for (const page of this.#core._defaultContext.pages()) emulateFocus(page, this.#isInUse);
  }

  async close() {
    const browser = this.#browser;
    this.#browser = null;
    this.#isInUse = false;
    this.#unknownDialogs.clear();
    await browser?.close().catch(() => {});
  }
}

/** Returns true if code has a listener for dialogs. */
function listensForDialogs(browser) {
  const contexts = browser.contexts();
  return [...contexts, ...contexts.flatMap((context) => context.pages())].some((emitter) => emitter.listenerCount('dialog') > 0);
}

/**
 * Has the page draw and take input as if it were in front, or ends this. Calls that follow find it done, because the
 * browser processes the messages of a connection in their order.
 */
function emulateFocus(page, enabled) {
  page.delegate._mainFrameSession._client.send('Emulation.setFocusEmulationEnabled', { enabled }).catch(() => {});
}

/**
 * Has the session of a page request a screenshot again that is not answered. Chromium waits for the next frame of a page
 * behind others, which draws none if nothing changes; the second request causes one.
 */
function retryScreenshots(session) {
  const { send } = session;
  session.send = (method, params) => {
    const answer = send.call(session, method, params);
    if (method !== 'Page.captureScreenshot') return answer;
    return new Promise((resolve, reject) => {
      let timer;
      const settle = (end) => (value) => { clearTimeout(timer); end(value); };
      const retry = (delay) => {
        timer = setTimeout(() => {
          retry(2 * delay);
          send.call(session, method, params).then(settle(resolve), () => {});
        }, delay);
      };
      retry(SCREENSHOT_RETRY_MS);
      answer.then(settle(resolve), settle(reject));
    });
  };
}

/** Creates the file that Playwright looks for, named by the id of the download: a link to the file of the session. */
function link(folder, { state, guid, filePath }) {
  if (state !== 'completed' || !filePath) return;
  try {
    fs.symlinkSync(filePath, path.join(folder, guid));
  } catch { /* Contexts of a browser on another machine download to this file themselves. */ }
}

/**
 * Returns the page that was active last, with its target: the browser lists its pages in that order. The targets
 * `others` come last.
 */
async function focused(endpoint, browser, pages, others) {
  const known = pages.map((page) => ({ page, target: id(browser, page) }));
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
function withTarget(browser, pages, target) {
  const found = pages.find((page) => id(browser, page) === target);
  if (!found) throw new Error('the tab of the executor was closed');
  return found;
}

/** Returns the target of a page. No call is needed, which a page with a dialog would not answer. */
function id(browser, page) {
  return browser._connection.toImpl(page).delegate._targetId;
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
