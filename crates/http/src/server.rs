//! The HTTP server: started on a listener, stopped by draining.

use std::{
    io,
    net::TcpListener,
    num::NonZeroU32,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_http::HttpService;
use actix_server::ServerHandle;
use actix_service::{
    IntoServiceFactory as _, ServiceFactory as _, ServiceFactoryExt as _, fn_factory, fn_service, map_config,
};
use actix_web::{
    App,
    dev::AppConfig,
    middleware::from_fn,
    web::{self, Data},
};
use governor::Quota;
use rustix::process::{Resource, getrlimit};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::{Acceptor, Clients},
    audit::TrustedProxies,
    cluster::{NodeConnections, Owners},
    connections::ConnectionRegistry,
    cors::Cors,
    host::Hosts,
    live_view::{SharedDisplays, ViewPlaces},
    middleware,
    plain_errors::Connection,
    public_url::PublicUrl,
    rate::{AddressRate, Rate},
    routes,
    spool::Spool,
    state::{Api, Config, Services},
    ui::SignInAttempts,
    waits::Waits,
    webdriver::{ClassicSessions, RemoteUploads},
};

/// The time that running requests have to finish once the server drains.
const DRAIN_TIMEOUT_SECONDS: u64 = 30;
/// The time that a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that a connection has to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum idle time of a connection between two requests; longer than in the connection pools of common clients.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);
/// The maximum number of connections that a worker serves at a time.
const MAX_CONNECTIONS: u64 = 25_600;
/// The number of files that everything but the connections of clients needs in a small server.
const MIN_OTHER_FILES: u64 = 256;

/// A running server.
pub struct Server {
    handle: ServerHandle,
    stopping: CancellationToken,
    done: JoinHandle<io::Result<()>>,
    draining: Arc<AtomicBool>,
    connections: ConnectionRegistry,
    local: std::net::SocketAddr,
}

/// Serves the API on `listener`, and to other nodes on `for_nodes`. Must be called on a multi-threaded runtime; the
/// caller handles signals.
///
/// # Errors
/// The listener's address cannot be read, or its workers cannot start.
pub fn serve(
    config: Config,
    services: Services,
    listener: TcpListener,
    for_nodes: Option<TcpListener>,
) -> io::Result<Server> {
    let local = listener.local_addr()?;
    let (workers, connections, certificate) =
        (config.workers, services.connections.clone(), config.certificate.clone());
    let services_cluster = services.cluster.clone();
    let api = Data::new(build_api(config, services, local));
    let draining = api.draining.clone();
    let per_worker = connections_per_worker(getrlimit(Resource::Nofile).current, workers);
    let waits = Waits::new(per_worker * workers.max(1), &api.trusted_proxies);
    let stopping = CancellationToken::new();
    let (stop_signal, stopping_connections) = (stopping.clone(), stopping.clone());
    let nodes = services_cluster.zip(for_nodes);
    let app = move |clients: Clients| {
        let app = App::new()
            .app_data(api.clone())
            .app_data(Rc::new(NodeConnections::default()))
            .configure(routes::all)
            .default_service(web::to(routes::unknown))
            .wrap(from_fn(middleware::outermost));
        let stop_signal = stop_signal.clone();
        let http = HttpService::build()
            .client_request_timeout(HEAD_TIMEOUT)
            .client_disconnect_timeout(CLOSE_TIMEOUT)
            .keep_alive(KEEP_ALIVE_TIMEOUT)
            // A client that closes its write half counts as disconnected: its waiter leaves the wait queue at once.
            .h1_allow_half_closed(false)
            .graceful_shutdown_signal(move || stop_signal.clone().cancelled_owned())
            .local_addr(local)
            .on_connect_ext(|connection: &Connection, extensions| {
                extensions.insert(connection.backlog());
                extensions.insert(connection.active_requests());
                extensions.insert(connection.receipt());
                extensions.insert(connection.body_end());
                if let Some(node) = connection.node() {
                    extensions.insert(node);
                }
            })
            .h1(map_config(app.into_factory().map_err(|error| error.error_response()), |()| AppConfig::default()));
        let acceptor = Acceptor {
            clients,
            ids: api.services.ids.clone(),
            waits: waits.clone(),
            stopping: stopping_connections.clone(),
        };
        fn_factory(move || {
            let (http, acceptor) = (http.new_service(()), acceptor.clone());
            async move {
                let http = Rc::new(http.await?);
                Ok::<_, ()>(fn_service(move |socket: TcpStream| {
                    let (http, acceptor) = (Rc::clone(&http), acceptor.clone());
                    async move { acceptor.serve(socket, &http).await }
                }))
            }
        })
    };
    let (public, app_of_nodes) = (app.clone(), app);
    let mut server = actix_server::Server::build()
        .workers(workers)
        .max_concurrent_connections(per_worker)
        .shutdown_timeout(DRAIN_TIMEOUT_SECONDS)
        .disable_signals()
        .listen("casement", listener, move || public(Clients::Public(certificate.clone())))?;
    if let Some((cluster, listener)) = nodes {
        server = server.listen("nodes", listener, move || app_of_nodes(Clients::Nodes(cluster.clone())))?;
    }
    let server = server.run();
    let handle = server.handle();
    let done = tokio::spawn(server);
    Ok(Server { handle, done, stopping, draining, connections, local })
}

/// Builds the shared state of the server.
fn build_api(config: Config, mut services: Services, local: std::net::SocketAddr) -> Api {
    services.displays = Arc::new(SharedDisplays::new(services.displays));
    Api {
        hosts: Hosts::new(&config.public_url, local, &config.extra_hosts),
        public_url: PublicUrl::new(config.public_url, config.follows_host),
        trusted_proxies: TrustedProxies::new(config.trusted_proxies, config.sandbox_addresses),
        cors: Cors::new(&config.cors_origins),
        rate: Rate::new(config.rate_limit.map(Quota::per_second), "this key calls too often"),
        refused: AddressRate::new(
            refused_credentials_quota(config.refused_limit),
            "too many refused credentials came from this address",
        ),
        sign_in_attempts: SignInAttempts::new(),
        permissions: routes::permissions(),
        classic_sessions: ClassicSessions::default(),
        remote_uploads: RemoteUploads::default(),
        view_places: ViewPlaces::default(),
        spool: Spool::new(config.spool_directory, services.disk.clone()),
        services: Arc::new(services),
        owners: Owners::default(),
        draining: Arc::default(),
    }
}

fn refused_credentials_quota(per_second: NonZeroU32) -> Quota {
    let burst = per_second.get().saturating_mul(20);
    Quota::per_second(per_second).allow_burst(NonZeroU32::new(burst).unwrap_or(per_second))
}

/// Returns the maximum number of connections of each worker: its share of the process's file limit without what
/// sessions, the database and files need, a fifth of the limit and at least [`MIN_OTHER_FILES`] or half of a lower limit.
/// Further clients wait in the listener's backlog.
fn connections_per_worker(open_files: Option<u64>, workers: usize) -> usize {
    let share = open_files.map_or(MAX_CONNECTIONS, |files| {
        let others = (files / 5).max(MIN_OTHER_FILES.min(files / 2));
        (files - others) / (workers.max(1) as u64)
    });
    usize::try_from(share.clamp(1, MAX_CONNECTIONS)).unwrap_or(usize::MAX)
}

impl Server {
    /// Returns the address that the server listens on.
    #[must_use]
    pub fn local_addr(&self) -> std::net::SocketAddr {
        self.local
    }

    /// Stops accepting work, lets running requests finish for at most 30 s, closes every WebSocket with the reason
    /// `drain`, and returns when no connection is open. The caller must wake the waiters. Sessions continue.
    ///
    /// # Errors
    /// The server has failed before.
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
        assert_eq!(connections_per_worker(Some(1_024), 2), 384);
        assert_eq!(connections_per_worker(Some(256), 4), 32);
        assert_eq!(connections_per_worker(Some(5), 4), 1);
        assert_eq!(connections_per_worker(Some(u64::MAX), 2), 25_600);
        assert_eq!(connections_per_worker(None, 0), 25_600);
    }
}
