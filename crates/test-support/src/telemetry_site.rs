//! A site that causes every type of telemetry event. It can be served under any host.

/// The page that causes most types of events.
const PAGE: &str = r#"<!doctype html><meta charset=utf-8><title>telemetry</title>
<meta http-equiv=Content-Security-Policy content="img-src 'self' data:">
<style>html,body{margin:0} #late{background:#eee} h1{font-size:60px}</style>
<div id=late></div>
<h1 id=large>Everything happens here, one thing after the other, as large as can be</h1>
<form><input id=plain name=plain><input id=word type=password name=word><input id=card autocomplete="section-a cc-number">
<input id=code autocomplete=one-time-code><input id=shown name=shown></form>
<form><input id=f1 name=kennwort><input id=cc_number><input id=f2 aria-label="Verification code"><input id=f3 placeholder="Security code">
<label for=f4>Card number</label><input id=f4><label>Your <b>PIN</b><input id=f5></label><i id=said>Code</i><input id=f6 aria-labelledby="none said"></form>
<form name=getElementById></form>
<style>.masked { -webkit-text-security: disc } @font-face { font-family: dotsfont; src: local(monospace) } .dots { font-family: dotsfont }</style>
<div style="position:fixed;right:0;bottom:0"><input id=m1 class=masked><input id=m2 class=dots><input id=m3 type=password>
<input id=m4 autocomplete=current-password><div id=m5 contenteditable><span class=masked>.</span></div><div id=edited contenteditable>.</div>
<span id=m6 aria-label="Your password"></span><span id=m7></span></div>
<button id=button>press <b>me</b></button> <button id=popup onclick="window.open('/telemetry/popup')">open</button>
<div id=host></div>
<iframe id=frame src="/telemetry/frame"></iframe>
<div style="height:5000px">far down</div>
<script>
// The page overrides functions; the capture must not call them.
const said = { log: console.log, error: console.error };
EventTarget.prototype.addEventListener = () => { throw new Error('overridden'); };
window.fetch = new Proxy(window.fetch, {});
said.log('hello', 42, { a: 'x', get b() { throw new Error('looked into'); } }, [1, 2]);
console.warn('careful');
said.error('it failed', new Error('inner'));
console.log = console.error = () => {};
setTimeout(() => { throw new TypeError('nobody catches this'); });
Promise.reject(new Error('nor this'));
(async () => {
  await (await fetch('/telemetry/data.json', { method: 'POST', body: 'asked=1', headers: {
    authorization: 'Bearer secret', 'X-Auth-Token': 'secret', 'X-CSRF-Token': 'secret', 'X-Plain': 'plain' } })).json();
  const query = 'mutation { login(user: "ada", password: "secret") { id } }';
  const asked = { query, variables: { password: 'secret' } };
  await (await fetch('/telemetry/empty?graphql', { method: 'POST', body: JSON.stringify(asked) })).text();
  await (await fetch('/telemetry/moved')).text();
  const broken = new Image();
  broken.src = 'http://refused.test/x.png';
  new Worker('/telemetry/worker.js');
})();
addEventListener = null;
// Nothing shifts that was not painted before.
requestAnimationFrame(() => requestAnimationFrame(() => {
  setTimeout(() => { document.querySelector('#late').style.height = '150px'; }, 300);
}));
const shadow = document.querySelector('#host').attachShadow({ mode: 'closed' });
shadow.innerHTML = '<input>';
window.focusHidden = () => shadow.firstChild.focus();
const deep = document.createElement('p');
// In view wherever the page is: typing into it scrolls nothing.
deep.style = 'position: fixed; right: 0; top: 0';
deep.attachShadow({ mode: 'open' }).innerHTML = '<div></div>';
deep.shadowRoot.firstChild.attachShadow({ mode: 'open' }).innerHTML = '<input type=password>';
document.body.append(deep);
window.focusDeep = () => deep.shadowRoot.firstChild.shadowRoot.firstChild.focus({ preventScroll: true });
for (const id of ['m6', 'm7']) {
  document.querySelector('#' + id).attachShadow({ mode: 'open' }).innerHTML = id === 'm6' ? '<input>' : '<input type=password>';
}
const inner = id => document.querySelector('#' + id).shadowRoot?.firstChild || document.querySelector('#' + id);
// Shown before anybody went into it.
window.show = id => { inner(id).type = 'text'; };
window.enter = id => {
  inner(id).focus({ preventScroll: true });
  if (id === 'm5') getSelection().collapse(inner(id).firstChild.firstChild, 1);
};
window.reveal = () => { document.querySelector('#word').type = 'text'; };
</script>"#;

/// A page whose URLs all have a query, which appears in many kinds of events.
const ADDRESSES: &str = r#"<!doctype html><body><button style="position:fixed;left:0;top:0;width:200px;height:100px" onclick="window.open('/telemetry/untitled?hidden')">open</button>
<img src="/telemetry/large.svg?hidden" style="width:400px;height:400px">
<iframe src="http://static.geetest.com/telemetry/captcha?hidden"></iframe>
<script src="/telemetry/throws.js?hidden"></script>
<script>
console.log(location.href, { at: location.href }, new Error('here'));
history.pushState(null, '', '/telemetry/addresses?hidden=2#hidden');
(async () => {
  await fetch('/telemetry/moved?hidden', { referrerPolicy: 'unsafe-url' });
  await fetch('http://refused.test/?hidden').catch(() => {});
  console.log('all asked');
})();
</script>"#;

/// A page with a captcha that is solved after half a second.
const GUARDED: &str = r#"<!doctype html><title>guarded</title>
<iframe src="http://static.geetest.com/telemetry/captcha"></iframe><input type=hidden name=geetest_validate>
<script>onmessage = () => document.querySelector('input').value = 'proof';</script>"#;

/// A page with a captcha that cannot be loaded and one that is removed.
const UNSOLVED: &str = r#"<!doctype html><title>unsolved</title>
<iframe src="https://newassets.hcaptcha.com/captcha/v1/x/static/hcaptcha.html"></iframe>
<iframe src="http://static.geetest.com/telemetry/captcha" onload="setTimeout(() => this.remove(), 500)"></iframe>"#;

/// A page that tries to make its telemetry large, endless or wrong.
const HOSTILE: &str = r#"<!doctype html><title>hostile</title><script>
const ring = { name: 'ring' };
ring.self = ring;
const getter = { get bad() { document.title = 'looked into'; return 1; } };
class Evil { toString() { document.title = 'made a text'; return 'x'; } }
console.log('x'.repeat(10_000_000), ring, getter, new Evil(), new Proxy({}, { get() { document.title = 'went through a proxy'; } }));
console.log('\ud800 half \u0000 \u001b[31m<script>');
console.log(...Array.from({ length: 5_000 }, (_, i) => i));
const error = new Error('own stack');
Object.defineProperty(error, 'stack', { get() { document.title = 'asked for a stack'; return 'x'; } });
console.log(error);
fetch('/telemetry/empty?' + 'u'.repeat(1_000_000)).catch(() => {});
fetch('data:text/plain,' + 'd'.repeat(1_000_000)).catch(() => {});
console.log('the end');
</script>"#;

/// Returns the status line of a path without the protocol, the content type with further header lines, and the content.
pub fn answer(path: &str) -> Option<(&'static str, &'static str, String)> {
    let html = |content: &str| ("200 OK", "text/html", content.to_owned());
    Some(match path.split('?').next().unwrap_or_default() {
        "/telemetry/" => html(PAGE),
        "/telemetry/frame" => html(
            "<!doctype html><title>inner</title><input type=password style='width:100%;height:80px'>\
                  <script>console.info('from the frame')</script>",
        ),
        "/telemetry/popup" => html("<!doctype html><title>popup</title><script>console.log('the first word')</script>"),
        "/telemetry/guarded" => html(GUARDED),
        "/telemetry/unsolved" => html(UNSOLVED),
        "/telemetry/captcha" => html("<script>setTimeout(() => parent.postMessage('solved', '*'), 500)</script>"),
        "/telemetry/hostile" => html(HOSTILE),
        "/telemetry/addresses" => html(ADDRESSES),
        "/telemetry/untitled" => html("<p>untitled<script>console.log('opened')</script>"),
        "/telemetry/throws.js" => {
            ("200 OK", "text/javascript", "console.error('from a script'); throw new Error('thrown')".to_owned())
        }
        "/telemetry/large.svg" => (
            "200 OK",
            "image/svg+xml",
            "<svg xmlns='http://www.w3.org/2000/svg' width='400' height='400'><rect width='400' height='400' fill='red'/><text y='99'>large</text></svg>".to_owned(),
        ),
        "/telemetry/service.js" => {
            ("200 OK", "text/javascript", "onfetch = () => {}; console.log('the service')".to_owned())
        }
        "/telemetry/empty" => html(""),
        "/telemetry/plain" => html("<!doctype html><title>plain</title><p>plain"),
        "/telemetry/data.json" => ("200 OK", "application/json", format!("{{\"data\":\"{}\"}}", "j".repeat(20_000))),
        "/telemetry/moved" if path.ends_with("?hidden") => {
            ("302 Found", "text/plain\r\nlocation: /telemetry/empty?hidden\r\nlink: </telemetry/empty?hidden>; rel=next", String::new())
        }
        "/telemetry/moved" => ("302 Found", "text/plain\r\nlocation: /telemetry/empty", String::new()),
        "/telemetry/worker.js" => ("200 OK", "text/javascript", "console.log('from the worker')".to_owned()),
        _ => return None,
    })
}
