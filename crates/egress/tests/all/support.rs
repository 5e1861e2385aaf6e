//! Test support: an egress with a client, origins behind it, and a scripted resolver.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use casement_egress::{Egress, EgressHandle, Limits, LookupPermit, Resolver, Rules};
pub(crate) use casement_test_support::until;
pub(crate) use casement_test_support::websocket::{header, read_head};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    time::timeout,
};

/// A timeout much longer than any test takes.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A resolver that returns the next scripted answer of a name, and repeats the last one.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) requests: AtomicUsize,
}

impl Names {
    pub(crate) fn answer(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers.iter().map(|ips| ips.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
        self.answers.lock().insert(name.to_owned(), answers);
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str, _: LookupPermit) -> io::Result<Vec<IpAddr>> {
        self.requests.fetch_add(1, SeqCst);
        let mut all = self.answers.lock();
        let answers = all.get_mut(host).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}

/// The egress of one session.
pub(crate) struct Session {
    directory: tempfile::TempDir,
    pub(crate) handle: EgressHandle,
    pub(crate) names: Arc<Names>,
}

impl Session {
    pub(crate) fn open(allow: &[&str]) -> Self {
        Self::with_limits(allow, Limits::default())
    }

    pub(crate) fn with_limits(allow: &[&str], limits: Limits) -> Self {
        Self::shaped(allow, limits, |egress| egress)
    }

    pub(crate) fn shaped(allow: &[&str], limits: Limits, shape: impl FnOnce(Egress) -> Egress) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("egress")).unwrap();
        let rules = Rules::new(allow.iter().map(|text| Rules::parse(text).unwrap()).collect());
        let names = Arc::new(Names::default());
        let egress = shape(Egress::new(rules, Arc::clone(&names) as _, limits));
        let handle = egress.serve("s1".to_owned(), listener);
        Self { directory, handle, names }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("egress")
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: BufReader::new(UnixStream::connect(self.socket()).await.unwrap()) }
    }

    /// Sends one request on a separate connection.
    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.connect().await.get(url).await
    }

    /// Opens a tunnel to `address`.
    pub(crate) async fn tunnel(&self, address: SocketAddr) -> BufReader<UnixStream> {
        let mut client = self.connect().await;
        let answer = client.ask(&format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n")).await;
        assert_eq!(answer.status, 200);
        client.stream
    }
}

pub(crate) struct Client {
    pub(crate) stream: BufReader<UnixStream>,
}

/// A received response, split into head and body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).await.unwrap();
    }

    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    pub(crate) async fn get(&mut self, url: &str) -> Answer {
        self.ask(format!("GET {url} HTTP/1.1\r\nHost: ignored.example\r\nProxy-Connection: keep-alive\r\n\r\n")).await
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        timeout(TEST_TIMEOUT, read_answer(&mut self.stream)).await.expect("an answer in time")
    }

    /// Returns true if the proxy closes this connection without sending anything.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = timeout(TEST_TIMEOUT, self.stream.read_to_end(&mut rest)).await.expect("an end in time");
        read.is_err() || rest.is_empty()
    }
}

/// The status of a connection that was closed without a response.
pub(crate) const NO_RESPONSE: u16 = 0;

async fn read_answer(stream: &mut BufReader<UnixStream>) -> Answer {
    if stream.fill_buf().await.unwrap().is_empty() {
        return Answer { status: NO_RESPONSE, head: String::new(), body: Vec::new() };
    }
    let head = read_head(stream).await;
    let status = head.split(' ').nth(1).expect("a status").parse().unwrap();
    let mut body = Vec::new();
    if let Some(length) = header(&head, "content-length") {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).await.unwrap();
    } else if header(&head, "transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).await.unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).await.unwrap();
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Answer { status, head, body }
}

/// Returns false if the peer has closed the connection.
pub(crate) async fn has_more(stream: &mut (impl AsyncBufReadExt + Unpin)) -> bool {
    stream.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty())
}

/// A server that counts its connections and hands each to the test's handler.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    pub(crate) async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(BufReader<TcpStream>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0", serve).await
    }

    pub(crate) async fn start_at<F, R>(address: &str, serve: F) -> Self
    where
        F: Fn(BufReader<TcpStream>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::start_on(TcpListener::bind(address).await.unwrap(), serve)
    }

    pub(crate) fn start_on<F, R>(listener: TcpListener, serve: F) -> Self
    where
        F: Fn(BufReader<TcpStream>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, SeqCst);
                serving.spawn(serve(BufReader::new(stream)));
            }
        });
        Self { address, connections, task }
    }

    /// Answers every request with its head, on connections that stay open.
    pub(crate) async fn echo_heads() -> Self {
        Self::start(|mut stream| async move {
            while has_more(&mut stream).await {
                let head = read_head(&mut stream).await;
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await
    }

    /// Answers the first request of each connection with these bytes, then closes the connection.
    pub(crate) async fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |mut stream| async move {
            read_head(&mut stream).await;
            stream.get_mut().write_all(answer).await.unwrap();
        })
        .await
    }

    /// Accepts connections and never answers.
    pub(crate) async fn silent() -> Self {
        Self::start(|mut stream| async move {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.ok();
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Returns a loopback port that stays closed: it is bound until the process ends, and never listens.
pub(crate) fn closed_port() -> SocketAddr {
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = taken.local_addr().unwrap();
    std::mem::forget(taken);
    address
}

/// Returns listeners at 127.0.0.2 and at 127.0.0.1 on the same port. Tries several ports, because a port that is free
/// on one address may be in use on the other.
pub(crate) async fn at_one_port() -> (TcpListener, TcpListener) {
    loop {
        let outer = TcpListener::bind("127.0.0.2:0").await.unwrap();
        match TcpListener::bind(("127.0.0.1", outer.local_addr().unwrap().port())).await {
            Ok(inner) => return (outer, inner),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
    }
}
