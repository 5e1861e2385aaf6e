//! The network outside of the sandbox: a proxy on a unix socket that serves a few pages itself and refuses all others.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use casement_test_support::telemetry_site;

/// Reports the browser as each kind of script sees it. `localhost` counts as secure, so client hints are sent there.
const INDEX: &str = r#"<!doctype html><title>index</title><body><script>
const seen = `async () => ({
  agent: navigator.userAgent,
  webdriver: navigator.webdriver,
  full: navigator.userAgentData
    ? (await navigator.userAgentData.getHighEntropyValues(['fullVersionList'])).fullVersionList.map(b => b.version).join()
    : null,
  brands: navigator.userAgentData ? navigator.userAgentData.brands.map(b => b.brand).join() : null,
})`;
// Distinguishes a context that never answers from the others, with a timeout that a slow one does not reach.
const note = promise => Promise.race([promise, new Promise(done => setTimeout(() => done({ agent: "silent" }), 30000))]);
const inWorker = async () => {
  const worker = new Worker(URL.createObjectURL(new Blob([`(${seen})().then(x => postMessage(x))`])));
  return new Promise(done => { worker.onmessage = e => done(e.data); });
};
const inFrame = async () => {
  const frame = document.createElement('iframe');
  frame.src = '/empty';
  await new Promise(done => { frame.onload = done; document.body.append(frame); });
  return frame.contentWindow.eval(`(${seen})()`);
};
const inService = async () => {
  await navigator.serviceWorker.register('/service.js');
  const registration = await navigator.serviceWorker.ready;
  return new Promise(done => {
    navigator.serviceWorker.onmessage = e => done(e.data);
    registration.active.postMessage(seen);
  });
};
window.result = (async () => ({
  page: await eval(seen)(), worker: await note(inWorker()), frame: await note(inFrame()), service: await note(inService()),
  headers: await note(fetch('/headers').then(answer => answer.text())),
}))();
</script>"#;

const SERVICE: &str = "onmessage = async e => e.source.postMessage(await eval(e.data)());";

/// A service worker that responds for its site.
const KEEPER: &str =
    "onfetch = e => { if (e.request.url.endsWith('/from-worker')) e.respondWith(new Response('the worker')); };";

const COLOURED: &str = "<!doctype html><title>coloured</title><style>html,body{margin:0}</style>\
    <div style='width:100px;height:100px;background:rgb(255,0,0)'></div>\
    <div style='height:5000px;background:rgb(0,0,255)'></div>";

const FORM: &str = "<!doctype html><title>form</title><form method=post><input name=user autocomplete=username>\
    <input name=mail type=email><input name=word type=password><button>in</button>\
    <textarea lang=en spellcheck=true autofocus></textarea></form>";

/// A page with tools of each kind.
const TOOLS: &str = "<title>Tools</title><form toolname=search tooldescription=searches><input name=q><button>Go</button></form><script>
    const add = (name, execute, more) => document.modelContext.registerTool({ name, description: `the tool ${name}`, execute, ...more });
    add('sum', async ({ a, b }) => ({ sum: a + b }), { title: 'Sum', inputSchema: { type: 'object', properties: { a: { type: 'number' } } },
        annotations: { readOnlyHint: true } });
    add('fails', async () => { throw new TypeError('no') });
    add('hangs', () => new Promise(() => {}));
    add('long', async () => 'x'.repeat(5 << 20));
    </script>";
/// A page that embeds the page with tools.
const TOOL_FRAMES: &str = "<title>Frames</title><iframe src=/tools></iframe>";

/// Returns the cookies in the head of a request.
fn cookies(head: &str) -> String {
    let line = head.lines().find_map(|line| line.to_lowercase().strip_prefix("cookie: ").map(str::to_owned));
    line.unwrap_or_default()
}

/// The URLs of the requests that left the sandbox.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// Serves at `path` as long as the test's runtime exists. Returns the URLs of the requests.
pub(crate) fn serve(path: &Path) -> Seen {
    let listener = UnixListener::bind(path).unwrap();
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move { drop(answer(stream, log).await) });
        }
    });
    seen
}

async fn answer(stream: UnixStream, log: Seen) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        stream.read_exact(&mut vec![0; length.unwrap_or(0)]).await?;
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        log.lock().push(target.clone());
        let (status, kind, body) = match target.as_str() {
            "http://localhost/" => ("200 OK", "text/html", INDEX.to_owned()),
            "http://localhost/empty" => ("200 OK", "text/html", String::new()),
            "http://localhost/service.js" => ("200 OK", "text/javascript", SERVICE.to_owned()),
            "http://localhost/headers" => ("200 OK", "text/plain", head.clone()),
            "http://localhost/login" => {
                ("200 OK", "text/html\r\nset-cookie: ends=with the browser; HttpOnly", String::new())
            }
            "http://localhost/kept" => ("200 OK", "text/html", String::new()),
            "http://localhost/kept.js" => ("200 OK", "text/javascript", KEEPER.to_owned()),
            "http://localhost/cookies" => ("200 OK", "text/plain", cookies(&head)),
            "http://localhost/tools" | "http://page.test/tools" => ("200 OK", "text/html", TOOLS.to_owned()),
            "http://localhost/tools/frames" => ("200 OK", "text/html", TOOL_FRAMES.to_owned()),
            "http://form.test/" => ("200 OK", "text/html", FORM.to_owned()),
            "http://page.test/" => ("200 OK", "text/html", COLOURED.to_owned()),
            site if site.contains("/telemetry/") => {
                let path = site.find("/telemetry/").map_or("", |at| &site[at..]);
                telemetry_site::answer(path).unwrap_or(("404 Not Found", "text/plain", String::new()))
            }
            _ => ("403 Forbidden", "text/plain", "refused".to_owned()),
        };
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await?;
    }
}
