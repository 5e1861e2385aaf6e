//! The server: started on a listener, ended by draining.

use std::{
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_web::{
    App, HttpServer,
    dev::ServerHandle,
    middleware::from_fn,
    web::{self, Data},
};
use tokio::task::JoinHandle;

use crate::{
    connections::ConnectionRegistry,
    host::Hosts,
    middleware, relay, routes,
    state::{Api, Config, Services},
};

/// How long requests may still run once the server drains.
const DRAIN_SECONDS: u64 = 30;
/// How long a client may take for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may lie idle between two requests; longer than the pools of common clients keep theirs.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A running server.
pub struct Server {
    handle: ServerHandle,
    done: JoinHandle<io::Result<()>>,
    draining: Arc<AtomicBool>,
    connections: ConnectionRegistry,
    local: std::net::SocketAddr,
}

/// Serves the API on `listener`. To be called on a multi-threaded runtime; signals are the caller's business.
///
/// # Errors
/// The listener's address cannot be read, or its workers cannot be started.
pub fn serve(config: Config, services: Services, listener: TcpListener) -> io::Result<Server> {
    let local = listener.local_addr()?;
    let draining = Arc::<AtomicBool>::default();
    let connections = services.connections.clone();
    let api = Data::new(Api {
        hosts: Hosts::new(&config.public_url, local, &config.extra_hosts),
        public_url: config.public_url,
        services,
        draining: draining.clone(),
    });
    let app = move || {
        App::new()
            .app_data(api.clone())
            .configure(routes::all)
            .default_service(web::to(routes::unknown))
            .wrap(from_fn(middleware::outermost))
    };
    let server = HttpServer::new(app)
        .workers(config.workers)
        .on_connect(relay::on_connect)
        .client_request_timeout(HEAD_PATIENCE)
        .client_disconnect_timeout(Duration::from_secs(5))
        .keep_alive(KEEP_ALIVE)
        // A caller that closes its half has gone: its place in a line is given up at once.
        .h1_allow_half_closed(false)
        .shutdown_timeout(DRAIN_SECONDS)
        .disable_signals()
        .listen(listener)?
        .run();
    let handle = server.handle();
    let done = tokio::spawn(server);
    Ok(Server { handle, done, draining, connections, local })
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> std::net::SocketAddr {
        self.local
    }

    /// Takes no new work, lets what runs finish for 30 s at most, ends every WebSocket as `drain`, and returns when
    /// nothing is open any more. Callers in line are told by whoever wakes them; the sessions go on.
    ///
    /// # Errors
    /// The server had failed.
    pub async fn drain(self) -> io::Result<()> {
        self.draining.store(true, Ordering::Relaxed);
        self.connections.drain();
        self.handle.stop(true).await;
        self.done.await.map_err(io::Error::other)?
    }
}
