//! The server: started on a listener, ended by draining.

use std::{
    io,
    net::TcpListener,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_http::{HttpService, error::DispatchError};
use actix_server::ServerHandle;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::{
    App,
    dev::AppConfig,
    middleware::from_fn,
    rt::net::TcpStream,
    web::{self, Data},
};
use governor::Quota;
use rustix::process::{Resource, getrlimit};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    audit::TrustedProxies,
    connections::ConnectionRegistry,
    cors::Cors,
    host::Hosts,
    middleware,
    plain_errors::Connection,
    rate::{AddressRate, Rate},
    relay,
    request_heads::Heads,
    routes,
    state::{Api, Config, Services},
    ui::SignIns,
    webdriver::ClassicSessions,
};

/// How long requests may still run once the server drains.
const DRAIN_SECONDS: u64 = 30;
/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may lie idle between two requests; longer than the pools of common clients keep theirs.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// The fewest and the most connections that a worker takes at a time.
const FEWEST_CONNECTIONS: u64 = 512;
const MAX_CONNECTIONS: u64 = 25_600;

/// A running server.
pub struct Server {
    handle: ServerHandle,
    stopping: CancellationToken,
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
        trusted_proxies: TrustedProxies::new(config.trusted_proxies, config.sandbox_addresses),
        cors: Cors::new(&config.cors_origins),
        rate: Rate::new(config.rate_limit.map(Quota::per_second), "this key calls too often"),
        refused: AddressRate::new(
            refused_tries(config.refused_limit),
            "too many refused credentials came from this address",
        ),
        sign_ins: SignIns::new(),
        classic_sessions: ClassicSessions::default(),
        services: Arc::new(services),
        draining: draining.clone(),
    });
    let per_worker = connections_per_worker(getrlimit(Resource::Nofile).current, config.workers);
    let heads = Heads::new(per_worker * config.workers.max(1), api.trusted_proxies.clone());
    let stopping = CancellationToken::new();
    let stopped = stopping.clone();
    let app = move || {
        let app = App::new()
            .app_data(api.clone())
            .configure(routes::all)
            .default_service(web::to(routes::unknown))
            .wrap(from_fn(middleware::outermost));
        let stopped = stopped.clone();
        let http = HttpService::build()
            .client_request_timeout(HEAD_TIMEOUT)
            .client_disconnect_timeout(CLOSE_TIMEOUT)
            .keep_alive(KEEP_ALIVE)
            // A caller that closes its half has gone: its place in a line is given up at once.
            .h1_allow_half_closed(false)
            .graceful_shutdown_signal(move || stopped.clone().cancelled_owned())
            .local_addr(local)
            .on_connect_ext(|connection: &Connection, extensions| {
                extensions.insert(connection.backlog());
                extensions.insert(connection.answering());
                extensions.insert(connection.receipt());
                relay::on_connect(connection.stream(), extensions);
            })
            .h1(map_config(app.into_factory().map_err(|error| error.error_response()), |()| AppConfig::default()));
        let (ids, heads) = (api.services.ids.clone(), heads.clone());
        let accept = move |stream: TcpStream| {
            let peer = stream.peer_addr().ok();
            std::future::ready(Ok::<_, DispatchError>((Connection::new(stream, ids.clone(), heads.clone()), peer)))
        };
        fn_service(accept).and_then(http)
    };
    let server = actix_server::Server::build()
        .workers(config.workers)
        .max_concurrent_connections(per_worker)
        .shutdown_timeout(DRAIN_SECONDS)
        .disable_signals()
        .listen("casement", listener, app)?
        .run();
    let handle = server.handle();
    let done = tokio::spawn(server);
    Ok(Server { handle, done, stopping, draining, connections, local })
}

fn refused_tries(in_a_second: NonZeroU32) -> Quota {
    let at_once = in_a_second.get().saturating_mul(20);
    Quota::per_second(in_a_second).allow_burst(NonZeroU32::new(at_once).unwrap_or(in_a_second))
}

/// How many connections each worker takes: four fifths of the files that the process may have open, since the rest of the server
/// needs some, too, and without any it could not even refuse. Clients beyond that wait in the listener's queue.
fn connections_per_worker(open_files: Option<u64>, workers: usize) -> usize {
    let share = open_files.map_or(MAX_CONNECTIONS, |files| files / 10 * 8 / (workers.max(1) as u64));
    usize::try_from(share.clamp(FEWEST_CONNECTIONS, MAX_CONNECTIONS)).unwrap_or(usize::MAX)
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
        self.stopping.cancel();
        self.handle.stop(true).await;
        self.done.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::connections_per_worker;

    #[test]
    fn connections_leave_room_for_the_files_of_everything_else() {
        assert_eq!(connections_per_worker(Some(20_000), 2), 8_000, "10,000 waiters have room");
        assert_eq!(connections_per_worker(Some(20_000), 4), 4_000);
        assert_eq!(connections_per_worker(Some(1_024), 2), 512);
        assert_eq!(connections_per_worker(Some(u64::MAX), 2), 25_600);
        assert_eq!(connections_per_worker(None, 0), 25_600);
    }
}
