//! Web pages that the test serves to browsers, with a record of the requests.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// A page with a text, a button and a field. `window.seen` and the title show whether the button was pressed.
const FORM: &str = "<!doctype html><meta charset=utf-8><title>A form</title>\
    <style>html,body{margin:0;background:#fff}\
    #name{position:absolute;left:40px;top:40px;width:400px;height:60px;font-size:32px}\
    #press{position:absolute;left:40px;top:140px;width:400px;height:80px;font-size:32px}\
    #said{position:absolute;left:40px;top:260px;font-size:32px}</style>\
    <input id=name aria-label=Name><button id=press>Press</button><p id=said>nothing yet</p>\
    <script>window.seen=[];press.onclick=e=>{seen.push(e.isTrusted?'click':'false click');\
    said.textContent='Hello, '+document.getElementById('name').value;document.title='Pressed'};</script>";

/// A page of one colour, so that one pixel of a screenshot identifies it.
const GREEN: &str = "<!doctype html><title>Green</title><style>html{background:rgb(0,160,80)}</style>";

const INDEX: &str = "<!doctype html><meta charset=utf-8><title>A page</title><h1>It works</h1><a href=/form>A form</a>";

/// The idle timeout of a connection.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A small web server on 127.0.0.1. It serves `/`, `/form` and `/green`; [`Pages::put`] adds other pages.
pub struct Pages {
    address: SocketAddr,
    store: Arc<PageStore>,
}

/// A response.
#[derive(Clone)]
struct Answer {
    status: &'static str,
    /// The header lines, without `Content-Length`.
    head: String,
    body: String,
    /// The part of the response that is sent, and the delay.
    sent: Sent,
}

impl Answer {
    fn nothing_here() -> Self {
        Self {
            status: "404 Not Found",
            head: "Content-Type: text/plain".to_owned(),
            body: "nothing here".to_owned(),
            sent: Sent::Whole,
        }
    }
}

/// The part of a response that is sent, and the delay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    Late(Duration),
    WithoutEnd,
    Nothing,
}

#[derive(Default)]
struct PageStore {
    /// The pages by path.
    pages: Mutex<HashMap<String, Answer>>,
    requests: Mutex<Vec<String>>,
}

impl Pages {
    /// Starts the server, which runs until the test program ends.
    pub fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let pages = Self { address: listener.local_addr()?, store: Arc::default() };
        for (path, html) in [("/", INDEX), ("/form", FORM), ("/green", GREEN)] {
            pages.put(path, html);
        }
        let store = Arc::clone(&pages.store);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let store = Arc::clone(&store);
                // The browser may close a connection early.
                thread::spawn(move || drop(store.serve(stream)));
            }
        });
        Ok(pages)
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value of `--egress-allow` that lets a server's browsers open the pages.
    pub fn allow(&self) -> String {
        self.address.to_string()
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves `html` at `path` from now on.
    pub fn put(&self, path: &str, html: &str) {
        self.put_as(path, "Content-Type: text/html; charset=utf-8", html);
    }

    /// Serves `body` at `path` from now on, with these header lines.
    pub fn put_as(&self, path: &str, head: &str, body: &str) {
        self.answer(path, "200 OK", (head, body), Sent::Whole);
    }

    /// Redirects `path` to another address from now on.
    pub fn redirect(&self, path: &str, to: &str) {
        self.answer(path, "302 Found", (&format!("Location: {to}"), ""), Sent::Whole);
    }

    /// Serves `html` at `path` from now on, in a response that never ends.
    pub fn put_without_end(&self, path: &str, html: &str) {
        self.answer(path, "200 OK", ("Content-Type: text/html; charset=utf-8", html), Sent::WithoutEnd);
    }

    /// Serves `text` at `path` from now on, after a delay.
    pub fn put_late(&self, path: &str, after: Duration, text: &str) {
        self.answer(path, "200 OK", ("Content-Type: text/plain", text), Sent::Late(after));
    }

    /// Holds requests for `path` until another page is put there.
    pub fn hold(&self, path: &str) {
        self.answer(path, "", ("", ""), Sent::Nothing);
    }

    fn answer(&self, path: &str, status: &'static str, (head, body): (&str, &str), sent: Sent) {
        let answer = Answer { status, head: head.to_owned(), body: body.to_owned(), sent };
        self.store.pages.lock().insert(path.to_owned(), answer);
    }

    /// Returns all requests so far, as `GET /path?query`, in order.
    pub fn requests(&self) -> Vec<String> {
        self.store.requests.lock().clone()
    }
}

impl PageStore {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.by_ref().take(16_384).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut words = line.split(' ');
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            self.requests.lock().push(format!("{method} {target}"));
            body(&mut reader)?;
            let path = target.split('?').next().unwrap_or_default();
            let Some(answer) = self.answer_at(path, reader.get_mut())? else { return Ok(()) };
            let Answer { status, head, body, sent } = answer;
            let length = if sent == Sent::WithoutEnd { usize::MAX >> 12 } else { body.len() };
            if let Sent::Late(after) = sent {
                thread::sleep(after);
            }
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}")?;
            if sent == Sent::WithoutEnd {
                return until_disconnected(reader.get_mut());
            }
        }
    }

    /// Returns the response for `path` once it is not held, or `None` if the client disconnected before.
    fn answer_at(&self, path: &str, stream: &mut TcpStream) -> std::io::Result<Option<Answer>> {
        loop {
            let found = self.pages.lock().get(path).cloned().unwrap_or_else(Answer::nothing_here);
            if found.sent != Sent::Nothing {
                return Ok(Some(found));
            }
            if is_disconnected(stream)? {
                return Ok(None);
            }
        }
    }
}

/// Waits 20 ms for the client to disconnect. Returns true if it did.
fn is_disconnected(stream: &mut TcpStream) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let peeked = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    match peeked {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
        peeked => Ok(peeked? == 0),
    }
}

fn until_disconnected(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(None)?;
    std::io::copy(stream, &mut std::io::sink()).map(drop)
}

/// Reads the rest of the head, and returns the body, which is empty without a `Content-Length`.
pub fn body(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.by_ref().take(65_536).read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut body)?;
    Ok(body)
}
