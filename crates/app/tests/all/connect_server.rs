//! A 1Password Connect server on loopback that accepts only documented requests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

pub(super) const TOKEN: &str = "s3cr3t-connect-token";
const VAULT: &str = "vaultvaultvaultvaultvault1";

/// A response that replaces the right one: the status, further header lines and the body.
type Instead = (u16, String, Vec<u8>);

/// A server that runs until the test program ends.
pub(super) struct ConnectServer {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    instead: Arc<Mutex<Option<Instead>>>,
}

impl ConnectServer {
    /// Starts a server with one vault, `Team`, and these logins: the title, the URL, and the user name, the password
    /// and the secret of one-time codes, which may be empty.
    pub(super) fn start(logins: &[(&str, &str, [&str; 3])]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Self { address: listener.local_addr()?, connections: Arc::default(), instead: Arc::default() };
        let items: Arc<Vec<Value>> = Arc::new(logins.iter().enumerate().map(|(n, login)| item(n, login)).collect());
        let (connections, instead) = (server.connections.clone(), server.instead.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, SeqCst);
                let instead = instead.lock().clone();
                let items = items.clone();
                // The client may close a connection early.
                thread::spawn(move || drop(serve(stream, instead, &items)));
            }
        });
        Ok(server)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Sets the response to every request from now on.
    pub(super) fn answer(&self, status: u16, head: &str, body: &[u8]) {
        let instead = Some((status, head.to_owned(), body.to_vec()));
        *self.instead.lock() = instead;
    }
}

fn item(n: usize, (title, url, [username, password, codes]): &(&str, &str, [&str; 3])) -> Value {
    let mut fields = vec![
        json!({ "id": "username", "type": "STRING", "purpose": "USERNAME", "label": "username", "value": username }),
        json!({ "id": "password", "type": "CONCEALED", "purpose": "PASSWORD", "label": "password", "value": password }),
        json!({ "id": "notesPlain", "type": "STRING", "purpose": "NOTES", "label": "notesPlain" }),
    ];
    if !codes.is_empty() {
        fields.push(
            json!({ "id": "TOTP_1", "type": "OTP", "label": "one-time password", "value": codes, "totp": "134253" }),
        );
    }
    json!({
        "id": format!("i{n:025}"), "title": title, "version": 1, "category": "LOGIN", "vault": { "id": VAULT },
        "urls": [{ "primary": true, "href": url }], "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-02T00:00:00Z",
        "fields": fields,
    })
}

/// Returns the path of a documented request, or the status and the message of the error.
fn requested_path(head: &[String]) -> Result<&str, (u16, &'static str)> {
    let line = head.first().map(String::as_str).unwrap_or_default();
    let path = line.strip_prefix("GET ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")).ok_or((405, "only GET"))?;
    let header = |name: &str| {
        let lines = head[1..].iter().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect::<Vec<_>>()
    };
    if header("authorization") != [format!("Bearer {TOKEN}")] {
        return Err((401, "Invalid token signature"));
    }
    if path.contains('?') || header("host").len() != 1 || !header("cookie").is_empty() {
        return Err((400, "asked otherwise than documented"));
    }
    Ok(path)
}

fn answer(head: &[String], items: &[Value]) -> (u16, Value) {
    let refused = |status: u16, message: &str| (status, json!({ "status": status, "message": message }));
    let path = match requested_path(head) {
        Ok(path) => path,
        Err((status, message)) => return refused(status, message),
    };
    let overview = |item: &Value| {
        let mut item = item.clone();
        item.as_object_mut().map(|members| members.remove("fields"));
        item
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "v1", "vaults"] => {
            (200, json!([{ "id": VAULT, "name": "Team", "items": items.len(), "type": "USER_CREATED" }]))
        }
        ["", "v1", "vaults", VAULT, "items"] => (200, items.iter().map(overview).collect()),
        ["", "v1", "vaults", VAULT, "items", id] => match items.iter().find(|item| item["id"] == id) {
            Some(item) => (200, item.clone()),
            None => refused(404, "item not found"),
        },
        _ => refused(404, "not found"),
    }
}

fn serve(mut stream: TcpStream, instead: Option<Instead>, items: &[Value]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let (status, more, body) = instead.unwrap_or_else(|| {
        let (status, body) = answer(&head, items);
        (status, String::new(), body.to_string().into_bytes())
    });
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n")?;
    stream.write_all(&body)
}
