//! A WebDriver server of the test's own, which answers as a Selenium Grid does, and makes mistakes on request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// A mistake that the server makes once.
#[derive(Clone)]
pub(crate) enum Mistake {
    /// Does what it is asked, and closes the connection without an answer.
    LoseAnswer,
    /// Does what it is asked, and answers late.
    Slow(Duration),
    /// Answers this instead of doing what it is asked.
    Answer(u16, String),
    /// Does what it is asked, and answers this.
    Instead(u16, String),
}

impl Mistake {
    /// An error of WebDriver.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        Self::Answer(status, json!({ "value": { "error": code, "message": message, "stacktrace": "" } }).to_string())
    }
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Model {
    sessions: BTreeMap<String, Value>,
    count: usize,
    mistakes: Vec<(Method, &'static str, Mistake)>,
    /// Mistakes that are made each time, by the beginning of the path.
    habits: Vec<(&'static str, Mistake)>,
    received: Vec<Received>,
}

/// The server.
pub(crate) struct Fake {
    model: Arc<Mutex<Model>>,
    pub(crate) address: SocketAddr,
    task: Mutex<AbortHandle>,
    /// Bound without listening, so that no connection of the machine takes the port while the server is stopped.
    _reserved: TcpSocket,
}

/// Binds a socket beside others of this test.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(1024)
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let reserved = bound(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = reserved.local_addr().expect("bound");
        let model = Arc::new(Mutex::new(Model::default()));
        let task = Mutex::new(serve(listener(address).expect("the reserved port"), model.clone()));
        Self { model, address, task, _reserved: reserved }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a mistake once, at the next request whose path begins so.
    pub(crate) fn once(&self, method: Method, path: &'static str, mistake: Mistake) {
        self.model.lock().mistakes.push((method, path, mistake));
    }

    /// Makes a mistake at each GET whose path begins so.
    pub(crate) fn always(&self, path: &'static str, mistake: Mistake) {
        self.model.lock().habits.push((path, mistake));
    }

    pub(crate) fn behave(&self) {
        self.model.lock().habits.clear();
    }

    pub(crate) fn sessions(&self) -> Vec<String> {
        self.model.lock().sessions.keys().cloned().collect()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.model.lock().received.clone()
    }

    /// Adds a session that somebody else has created.
    pub(crate) fn add(&self, id: &str, capabilities: Value) {
        self.model.lock().sessions.insert(id.to_owned(), capabilities);
    }

    pub(crate) fn forget_all(&self) {
        self.model.lock().sessions.clear();
    }

    /// Closes the port and all connections.
    pub(crate) async fn stop(&self) {
        self.task.lock().abort();
        sleep(Duration::from_millis(50)).await;
    }

    /// Opens the same port again.
    pub(crate) async fn restart(&self) {
        let listener = listener(self.address).expect("the same port");
        *self.task.lock() = serve(listener, self.model.clone());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.lock().abort();
    }
}

fn serve(listener: TcpListener, model: Arc<Mutex<Model>>) -> AbortHandle {
    let serving = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(converse(stream, model.clone()));
        }
    };
    tokio::spawn(serving).abort_handle()
}

async fn converse(stream: TcpStream, model: Arc<Mutex<Model>>) {
    let service = service_fn(move |request| answer(request, model.clone()));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(request: Request<Incoming>, model: Arc<Mutex<Model>>) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path().to_owned();
    let authorization = head.headers.get(AUTHORIZATION).map(|value| value.to_str().expect("ASCII").to_owned());
    let received = Received {
        method: head.method.clone(),
        path: path.clone(),
        authorization,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let mistake = model.lock().mistake(&received);
    let response = match mistake {
        Some(Mistake::Answer(status, text)) => (status, text),
        Some(Mistake::Instead(status, text)) => {
            model.lock().act(&received);
            (status, text)
        }
        Some(Mistake::LoseAnswer) => {
            model.lock().act(&received);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(Mistake::Slow(pause)) => {
            let (status, value) = model.lock().act(&received);
            sleep(pause).await;
            (status, json!({ "value": value }).to_string())
        }
        None => {
            let (status, value) = model.lock().act(&received);
            (status, json!({ "value": value }).to_string())
        }
    };
    Ok(respond(response).expect("a response"))
}

fn respond((status, text): (u16, String)) -> Result<Response<Full<Bytes>>, Infallible> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json; charset=utf-8");
    let response = if status == 302 { response.header(LOCATION, "http://127.0.0.1:1/elsewhere") } else { response };
    Ok(response.body(Full::new(Bytes::from(text))).expect("a response"))
}

impl Model {
    fn mistake(&mut self, received: &Received) -> Option<Mistake> {
        self.received.push(received.clone());
        let wanted =
            |(method, path, _): &(Method, &str, Mistake)| *method == received.method && received.path.starts_with(path);
        if let Some(index) = self.mistakes.iter().position(wanted) {
            return Some(self.mistakes.remove(index).2);
        }
        let mut habits = self.habits.iter();
        let habit = habits.find(|(path, _)| received.method == Method::GET && received.path.starts_with(path));
        habit.map(|(_, mistake)| mistake.clone())
    }

    fn act(&mut self, received: &Received) -> (u16, Value) {
        let parts: Vec<_> = received.path.split('/').skip(1).collect();
        match (&received.method, parts.as_slice()) {
            (&Method::POST, ["session"]) => {
                self.count += 1;
                let id = format!("session{}", self.count);
                let mut capabilities = received.body["capabilities"]["alwaysMatch"].clone();
                capabilities["browserVersion"] = json!("156.0");
                capabilities["webSocketUrl"] = json!(format!("ws://10.9.8.7:1/session/{id}/se/bidi"));
                capabilities["se:cdp"] = json!(format!("ws://10.9.8.7:1/session/{id}/se/cdp"));
                self.sessions.insert(id.clone(), capabilities.clone());
                (200, json!({ "sessionId": id, "capabilities": capabilities }))
            }
            (&Method::GET, ["status"]) => (200, self.status()),
            (_, ["session", id, ..]) if !self.sessions.contains_key(*id) => {
                (404, json!({ "error": "invalid session id", "message": "Cannot find session", "stacktrace": "" }))
            }
            (&Method::DELETE, ["session", id]) => {
                self.sessions.remove(*id);
                (200, Value::Null)
            }
            (&Method::GET, ["session", _, "timeouts"]) => (200, json!({ "implicit": 0 })),
            _ => (404, json!({ "error": "unknown command", "message": received.path, "stacktrace": "" })),
        }
    }

    fn status(&self) -> Value {
        let slots = self.sessions.iter().map(|(id, capabilities)| {
            let session = json!({ "sessionId": id, "capabilities": capabilities });
            json!({ "session": session, "stereotype": { "browserName": "chrome" } })
        });
        let slots: Vec<Value> = slots.collect();
        let node = json!({ "availability": "UP", "maxSessions": slots.len(), "version": "4.48.0", "slots": slots });
        json!({ "ready": true, "message": "Selenium Grid ready.", "nodes": [node] })
    }
}
