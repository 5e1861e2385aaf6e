//! A server with mocked ports, and a client that sends exactly the given bytes.

mod fakes;
mod grid;
mod keys;
mod ports;
mod reply;

use std::{fmt, net::TcpListener, sync::Arc, time::Duration};

use casement_domain::{
    SessionId,
    session::Sessions,
    testing::{FixedClock, NOON, node_id, project_id},
};
use casement_http::{Config, ConnectionRegistry, Owner, Permission, Server, SessionTokens, serve};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use self::reply::is_complete;
pub(super) use self::{
    fakes::{ARCHIVE, FailingConnector, MemorySignIns, Trail},
    grid::{FakeGrid, GRID_HOST, GRID_SECRET, GRID_SESSION},
    keys::{Key, default_keys, keys_after, keys_with_policy, other_project, projects},
    ports::Ports,
    reply::{Reply, request},
};

/// The maximum wait for a response.
const TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const TOKEN_KEY: [u8; 32] = [7; 32];

/// The owner of the sessions of tests.
pub(in crate::api) fn owner() -> Owner {
    Owner { node: node_id(), project: project_id() }
}

/// A running server.
pub(in crate::api) struct TestApi {
    pub(in crate::api) server: Server,
    pub(in crate::api) tokens: SessionTokens,
    pub(in crate::api) sessions: Sessions,
    pub(in crate::api) connections: ConnectionRegistry,
    pub(in crate::api) clock: Arc<FixedClock>,
}

impl TestApi {
    pub(in crate::api) fn start(mut ports: Ports) -> Self {
        let (clock, tokens) = (Arc::new(FixedClock::default()), SessionTokens::new(&TOKEN_KEY));
        let config = Config {
            certificate: ports.certificate.clone(),
            follows_host: ports.follows_host,
            public_url: ports.public_url.as_deref().unwrap_or("https://casement.test").parse().unwrap(),
            extra_hosts: Vec::new(),
            trusted_proxies: ports.trusted_proxies.iter().map(|net| net.parse().unwrap()).collect(),
            sandbox_addresses: Vec::new(),
            cors_origins: ports.cors_origins.iter().map(|origin| origin.parse().unwrap()).collect(),
            rate_limit: ports.rate_limit.and_then(std::num::NonZeroU32::new),
            refused_limit: std::num::NonZeroU32::new(ports.refused_limit.unwrap_or(1000)).expect("one at least"),
            workers: 1,
            spool_directory: std::env::temp_dir(),
        };
        let for_nodes = ports.for_nodes.take();
        let services = ports.into_services(&clock, tokens.clone());
        let (sessions, connections) = (services.sessions.clone(), services.connections.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = serve(config, services, listener, for_nodes).unwrap();
        Self { server, tokens, sessions, connections, clock }
    }

    pub(in crate::api) fn token(&self, session: SessionId, permission: Permission) -> String {
        self.tokens.mint(session, owner(), permission, NOON)
    }

    pub(in crate::api) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr()).await.unwrap()
    }

    /// Sends `raw` unchanged and reads one response.
    pub(in crate::api) async fn raw(&self, raw: impl AsRef<[u8]>) -> Reply {
        let head_only = raw.as_ref().starts_with(b"HEAD ");
        let mut stream = self.connect().await;
        let (mut read, mut write) = stream.split();
        let mut bytes = Vec::new();
        let sending = async {
            // The server may refuse the request before it has read all of it.
            let _ = write.write_all(raw.as_ref()).await;
            std::future::pending::<()>().await;
        };
        let reading = async {
            while !is_complete(&bytes, head_only) && read.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {}
        };
        tokio::select! {
            () = sending => {}
            read = tokio::time::timeout(TIMEOUT, reading) => read.expect("a reply"),
        }
        Reply::parse(&bytes)
    }

    /// Sends a request with these header lines and a body.
    pub(in crate::api) async fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        self.raw(request(method, path, headers, body)).await
    }

    /// Sends a request with the organization's key.
    pub(in crate::api) async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        self.request(method, path, &[&key], body).await
    }

    pub(in crate::api) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "").await
    }

    pub(in crate::api) async fn post(&self, path: &str, body: impl fmt::Display) -> Reply {
        self.call("POST", path, &body.to_string()).await
    }

    /// Posts a serialized multipart form with the boundary `b`.
    pub(in crate::api) async fn form(&self, path: &str, body: Vec<u8>) -> Reply {
        let length = format!("Content-Length: {}", body.len());
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        let lines = [key.as_str(), "Content-Type: multipart/form-data; boundary=b", &length];
        let mut raw = request("POST", path, &lines, "");
        raw.extend_from_slice(&body);
        self.raw(raw).await
    }

    pub(in crate::api) async fn patch(&self, path: &str, body: impl fmt::Display) -> Reply {
        self.call("PATCH", path, &body.to_string()).await
    }
}
