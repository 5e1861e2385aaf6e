//! Helper: a web site that creates all kinds of state in a browser, and reports which are present.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// The page. `plant()` creates state of every kind; `look()` reports each kind except the clipboard, which
/// `clipboard()` reports, because reading it needs a permission.
const PAGE: &str = r#"<!doctype html><meta charset=utf-8><title>A site</title><script>
async function plant() {
  document.cookie = 'canary=1; max-age=86400';
  localStorage.canary = sessionStorage.canary = window.name = window.canary = 'canary';
  await new Promise((done, fail) => {
    const opening = indexedDB.open('canary', 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore('canary');
    opening.onsuccess = () => { opening.result.close(); done(); };
    opening.onerror = fail;
  });
  await (await caches.open('canary')).put('/canary', new Response('canary'));
  await navigator.serviceWorker.register('/worker.js');
  await navigator.serviceWorker.ready;
  await fetch('/kept');
  await (await navigator.storage.getDirectory()).getFileHandle('canary', { create: true });
  await navigator.clipboard.writeText('canary');
}
async function look() {
  const files = [];
  for await (const name of (await navigator.storage.getDirectory()).keys()) files.push(name);
  const permission = async name => (await navigator.permissions.query({ name })).state === 'granted';
  return {
    'cookie': document.cookie.includes('canary'),
    'cookie of the server': (await (await fetch('/cookies')).text()).includes('hidden'),
    'local storage': 'canary' in localStorage,
    'session storage': 'canary' in sessionStorage,
    'window.name': window.name === 'canary',
    'script global': window.canary === 'canary',
    'IndexedDB': (await indexedDB.databases()).length > 0,
    'Cache API': (await caches.keys()).length > 0,
    'service worker': (await navigator.serviceWorker.getRegistrations()).length > 0,
    'HTTP cache': await fetch('/kept', { cache: 'only-if-cached', mode: 'same-origin' }).then(it => it.ok, () => false),
    'HTTP authentication': (await (await fetch('/locked?quietly')).text()) === 'in',
    'private files': files.length > 0,
    'geolocation': await permission('geolocation'),
    'notifications': Notification.permission === 'granted',
  };
}
async function clipboard() { return (await navigator.clipboard.readText()) === 'canary'; }
async function scan(ports) {
  const said = {};
  const one = async port => {
    try { said[port] = (await fetch(`http://127.0.0.1:${port}/`, { mode: 'no-cors', cache: 'no-store' })).type; }
    catch (error) { said[port] = error.name; }
  };
  const worker = async () => { while (ports.length) await one(ports.pop()); };
  await Promise.all(Array.from({ length: 64 }, worker));
  return said;
}
function socket(url) {
  return new Promise(done => {
    const made = new WebSocket(url);
    made.onopen = () => done('open');
    made.onclose = event => done(event.code);
  });
}
</script>"#;

/// A service worker that requests the URLs that it receives as messages.
const MESSENGER: &str = "onmessage = event => event.waitUntil(fetch(event.data, { mode: 'no-cors' }).catch(() => {}));";

/// A server that runs until the test program ends.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                // The browser may close a connection early.
                thread::spawn(move || drop(serve(stream, &noted)));
            }
        });
        Ok(Self { address, requests })
    }

    /// Returns true if this target was requested.
    pub(super) fn was_requested(&self, target: &str) -> bool {
        self.requests.lock().iter().any(|one| one == target)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn serve(stream: TcpStream, requests: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.by_ref().take(65_536).read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let target = head.split(' ').nth(1).unwrap_or_default();
        requests.lock().push(target.to_owned());
        let named = |name: &str| {
            let of = |line: &str| {
                line.split_once(": ").filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|it| it.1.to_owned())
            };
            head.lines().find_map(of).unwrap_or_default()
        };
        let (status, headers, body) = answer(target, &named);
        let length = body.len();
        write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")?;
    }
}

/// Returns the status, the header lines and the body of a response.
fn answer(target: &str, named: &dyn Fn(&str) -> String) -> (&'static str, String, String) {
    let html = "Content-Type: text/html\r\n".to_owned();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => ("200 OK", html, PAGE.to_owned()),
        "/plant" => ("200 OK", html + "Set-Cookie: hidden=1; HttpOnly; Max-Age=86400\r\n", PAGE.to_owned()),
        "/worker.js" => ("200 OK", "Content-Type: text/javascript\r\n".to_owned(), "// canary".to_owned()),
        "/messenger.js" => ("200 OK", "Content-Type: text/javascript\r\n".to_owned(), MESSENGER.to_owned()),
        "/kept" => {
            let cached = "Cache-Control: public, max-age=31536000, immutable\r\nETag: \"canary\"\r\n";
            ("200 OK", cached.to_owned(), "canary".to_owned())
        }
        "/cookies" => ("200 OK", "Cache-Control: no-store\r\n".to_owned(), named("Cookie")),
        // No challenge here, because it would open a dialog and block.
        "/locked" if named("Authorization").is_empty() && query == "quietly" => {
            ("200 OK", "Cache-Control: no-store\r\n".to_owned(), "out".to_owned())
        }
        "/locked" if named("Authorization").is_empty() => {
            ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"canary\"\r\n".to_owned(), String::new())
        }
        "/locked" => ("200 OK", html + "Cache-Control: no-store\r\n", "in".to_owned()),
        "/download" => {
            let file = "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=\"canary.txt\"\r\n";
            ("200 OK", file.to_owned(), "canary".to_owned())
        }
        "/away" => ("302 Found", format!("Location: {query}\r\n"), String::new()),
        _ => ("404 Not Found", html, String::new()),
    }
}
