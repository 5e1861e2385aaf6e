// The telemetry events of a session, one line each. Every value of an event may come from a page and is shown as text
// only.
import { el, foreign, inert } from './dom.js';

/** The maximum number of lines on the page. */
const MOST_ROWS = 1500;
const LONGEST_DETAIL = 20000;

/** The texts of proxy failures by their codes. */
const proxyFailures = {
  unreachable: 'no connection to it could be made',
  timeout: 'it did not answer in time',
  closed: 'it closed the connection without an answer',
  reset: 'it reset the connection',
  protocol: 'its answer is not in the proxy\'s protocol',
  tls: 'no trusted TLS connection to it could be made',
  authentication: 'it does not accept the credentials',
  unknown: 'the server does not know it any more',
};

export const CATEGORIES = {
  page: 'Navigation', network: 'Network', console: 'Console', interaction: 'Clicks and keys', screenshot: 'Pictures', control: 'API calls',
  connection: 'Connections', system: 'System', captcha: 'Captchas', monitor: 'Capture',
};

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hour12: false });
const milliseconds = (count) => (count >= 1000 ? `${(count / 1000).toFixed(2)} s` : `${Math.round(count)} ms`);
const kilobytes = (count) => (count >= 1024 ? `${Math.round(count / 1024)} KiB` : `${count} B`);
const at = (data) => (Number.isFinite(data.x) ? `at ${Math.round(data.x)}, ${Math.round(data.y)}` : '');
const words = (...parts) => parts.filter((part) => part !== undefined && part !== null && part !== '').join(' ');

/** The line of each type of event: its title, its text and its colour. */
const TELL = {
  console_log: (d) => ({ title: d.level && d.level !== 'log' ? d.level : 'log', text: d.text, tone: d.level === 'warning' || d.level === 'warn' ? 'warn' : '', code: true }),
  console_error: (d) => ({ title: 'error', text: d.text, tone: 'bad', code: true, aside: d.source_url ? `${d.source_url}${d.line === undefined ? '' : `:${d.line}`}` : '' }),
  network_request: (d) => ({ title: d.method ?? 'GET', text: d.url, aside: d.resource_type, code: true }),
  network_response: (d) => ({ title: String(d.status ?? 'answer'), text: d.url, tone: d.status >= 400 ? 'bad' : '', aside: words(d.resource_type, d.mime_type), code: true }),
  network_loading_failed: (d) => ({ title: d.canceled ? 'canceled' : 'failed', text: words(d.url, d.error_text, proxyFailures[d.proxy_failure] && `(the session's proxy: ${proxyFailures[d.proxy_failure]})`), tone: d.canceled ? '' : 'bad', aside: d.resource_type, code: true }),
  network_idle: () => ({ title: 'Network idle', quiet: true }),
  page_navigation: (d) => ({ title: d.parent_frame_id ? 'A frame went to' : 'Went to', text: d.url, head: !d.parent_frame_id, code: true }),
  page_dom_content_loaded: (d) => ({ title: 'Document ready', text: d.url, quiet: true }),
  page_load: (d) => ({ title: 'Page loaded', text: d.url, quiet: true }),
  page_tab_opened: (d) => ({ title: 'New tab', text: words(d.title, d.url) }),
  page_layout_shift: (d) => ({ title: 'Layout shifted', text: d.layout_shift_details?.value?.toFixed?.(4), quiet: true }),
  page_lcp: (d) => ({ title: 'Largest paint', text: words(d.lcp_details?.size && `${d.lcp_details.size} px`, d.lcp_details?.url), quiet: true }),
  page_layout_settled: () => ({ title: 'Layout settled', quiet: true }),
  page_navigation_settled: (d) => ({ title: 'Page settled', text: d.url }),
  interaction_click: (d) => ({ title: 'Click', text: words(d.text ? `“${inert(d.text, 80)}”` : d.selector ?? d.tag, at(d)), aside: d.text ? d.selector : '' }),
  interaction_key: (d) => ({ title: 'Key', text: d.key, aside: d.selector ?? d.tag }),
  interaction_scroll_settled: (d) => ({ title: 'Scrolled', text: words('to', Math.round(d.to_x ?? 0), Math.round(d.to_y ?? 0)), quiet: true }),
  api_call: (d) => ({ title: 'API', text: d.operation_id, tone: d.status >= 400 ? 'bad' : '', aside: words(d.status, Number.isFinite(d.duration_ms) ? milliseconds(d.duration_ms) : '') }),
  cdp_connect: () => ({ title: 'A client connected' }),
  cdp_disconnect: (d) => ({ title: 'A client left', text: d.reason, aside: words(milliseconds(d.duration_ms ?? 0), `${d.message_count ?? 0} messages`) }),
  live_view_connect: () => ({ title: 'Somebody began to watch' }),
  live_view_disconnect: (d) => ({ title: 'Somebody stopped watching', aside: milliseconds(d.duration_ms ?? 0) }),
  system_oom_kill: (d) => ({ title: 'Out of memory', text: words(d.process_name, d.rss_kb && `(${kilobytes(d.rss_kb * 1024)})`), tone: 'bad' }),
  service_crashed: (d) => ({ title: 'Crashed', text: words(d.service_name, d.phase), tone: 'bad' }),
  proxy_error: (d) => ({ title: d.code === 'network_policy_denied' ? 'Refused' : 'Proxy error', text: words(d.method, d.url, d.code === 'network_policy_denied' ? '' : d.code), tone: 'bad', code: true }),
  network_proxy_failed: (d) => ({ title: 'Proxy failed', text: proxyFailures[d.proxy_failure] ?? 'it could not be used', tone: 'bad' }),
  profile_version_replaced: () => ({ title: 'Saved over a profile', text: 'that another session had saved meanwhile; what was there is kept', tone: 'warn' }),
  monitor_screenshot: () => ({ title: 'Picture', quiet: true }),
  captcha_solve_result: (d) => ({ title: 'Captcha', text: words(d.captcha_type, d.status), aside: d.website_host, tone: d.status === 'success' ? 'good' : 'warn' }),
  monitor_disconnected: () => ({ title: 'Capture was interrupted', tone: 'warn' }),
  monitor_reconnected: () => ({ title: 'Capture goes on' }),
  monitor_reconnect_failed: () => ({ title: 'Capture has ended', tone: 'bad' }),
  monitor_init_failed: (d) => ({ title: 'Capture did not begin', text: d.step, tone: 'bad' }),
  telemetry_dropped: (d) => ({ title: 'Not kept', text: `${d.count} events, there were too many`, tone: 'warn' }),
};

function told(event) {
  try {
    return (TELL[event.type] ?? (() => ({ title: event.type })))(event.data ?? {});
  } catch {
    // A field has an unexpected type.
    return { title: event.type };
  }
}

/** Creates the image of an event from its PNG data; null if they are invalid. */
function picture(event) {
  try {
    const bytes = Uint8Array.from(atob(event.data.png), (sign) => sign.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes], { type: 'image/png' }));
    return el('img', { src: address, alt: 'What the browser showed', onload: (loaded) => URL.revokeObjectURL(loaded.target.src) });
  } catch {
    return null;
  }
}

/** Returns the event with the size of its PNG data in place of the data, because the image is shown separately. */
function kept(event) {
  const png = event.data?.png;
  return png ? { ...event, data: { ...event.data, png: `(${kilobytes(Math.round(png.length * 0.75))})` } } : event;
}

function detail(event) {
  const text = JSON.stringify({ type: event.type, ...(event.truncated ? { truncated: true } : {}), ...event.data }, null, 2);
  const pre = el('pre', { tabindex: '0' });
  pre.textContent = text.split('\n').map((line) => inert(line, 2000)).join('\n').slice(0, LONGEST_DETAIL);
  return pre;
}

/** A list of events, newest first. */
export class Timeline {
  constructor() {
    this.element = el('ol', { class: 'timeline', 'aria-label': 'Events, newest first' });
    this.hidden = new Set();
    this.first = null;
    this.rows = new Map();
    /** Requests without a final response, by their id. */
    this.open = new Map();
  }

  get isEmpty() { return this.rows.size === 0; }

  /** Adds one event. An event that was added before is ignored. */
  add({ seq, event }, { older = false } = {}) {
    if (this.rows.has(seq)) return;
    if (event.type === 'network_response' || event.type === 'network_loading_failed') {
      if (this.answered(event)) { this.rows.set(seq, null); return; }
    }
    const row = this.row(event);
    this.rows.set(seq, row);
    older ? this.element.append(row) : this.element.prepend(row);
    if (event.type === 'network_request' && event.data?.request_id) this.open.set(event.data.request_id, { row, event });
    if (!older) this.cut();
  }

  /** Adds an older page of events, newest first. The request of a response may be on another page. */
  addOlder(items) {
    const ordered = [...items].reverse();
    const rows = [];
    for (const item of ordered) {
      if (this.rows.has(item.seq)) continue;
      const isAnswer = item.event.type === 'network_response' || item.event.type === 'network_loading_failed';
      if (isAnswer && this.answered(item.event)) { this.rows.set(item.seq, null); continue; }
      const row = this.row(item.event);
      this.rows.set(item.seq, row);
      rows.unshift(row);
      if (item.event.type === 'network_request' && item.event.data?.request_id) this.open.set(item.event.data.request_id, { row, event: item.event });
    }
    this.element.append(...rows);
  }

  /** Adds a response to the line of its request. Returns false if the request is unknown. */
  answered(event) {
    const asked = this.open.get(event.data?.request_id);
    if (!asked) return false;
    const { title, tone } = told(event);
    const status = asked.row.querySelector('.status');
    status.textContent = inert(`${event.type === 'network_response' ? title : words(title, event.data.error_text)} · ${milliseconds((event.ts - asked.event.ts) / 1000)}`, 80);
    if (tone) asked.row.classList.add(tone);
    asked.row.take(event);
    // A request may have a response and then fail.
    if (event.type === 'network_loading_failed') this.open.delete(event.data.request_id);
    return true;
  }

  row(event) {
    const { title, text, aside, tone, quiet, head, code } = told(event);
    const time = new Date(event.ts / 1000);
    const good = Number.isFinite(time.getTime());
    const classes = ['event', inert(event.category, 20).replace(/[^a-z]/g, ''), tone, quiet ? 'quiet' : '', head ? 'head' : ''].filter(Boolean).join(' ');
    const line = el('summary', {},
      el('time', good ? { datetime: time.toISOString() } : {}, good ? CLOCK.format(time) : ''),
      el('span', { class: 'what' }, inert(title, 60)),
      text === undefined ? null : foreign(text, 500, { class: code ? 'text code' : 'text' }),
      el('bdi', { class: 'status' }, aside ? inert(aside, 120) : ''));
    const events = [kept(event)];
    // Created when the line is opened, because there are many.
    const draw = () => { while (more.open && more.children.length <= events.length) more.append(detail(events[more.children.length - 1])); };
    const more = el('details', { ontoggle: draw }, line);
    const row = el('li', { class: classes, hidden: this.hidden.has(event.category) }, more);
    row.take = (answer) => { events.push(answer); draw(); };
    row.dataset.category = event.category;
    if (event.type === 'monitor_screenshot' && event.data?.png) {
      const image = picture(event);
      if (image) row.append(image);
    }
    return row;
  }

  /** Shows or hides a category. */
  show(category, isShown) {
    isShown ? this.hidden.delete(category) : this.hidden.add(category);
    for (const row of this.element.children) if (row.dataset.category === category) row.hidden = !isShown;
  }

  /** Removes the oldest lines above the maximum. */
  cut() {
    while (this.element.children.length > MOST_ROWS) this.element.lastElementChild.remove();
    if (this.rows.size > MOST_ROWS * 4) {
      for (const [seq, row] of this.rows) { if (this.rows.size <= MOST_ROWS * 2) break; if (!row?.isConnected) this.rows.delete(seq); }
    }
    if (this.open.size > MOST_ROWS) for (const id of [...this.open.keys()].slice(0, this.open.size - MOST_ROWS)) this.open.delete(id);
  }
}
