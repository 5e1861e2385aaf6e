//! `casement serve`: wires everything, runs it, and stops it in order.

mod background;
mod infrastructure;
mod periodic_jobs;
mod pool_fill_progress;
mod reload;
mod repositories;
mod service_manager;
mod sessions;
mod shutdown;
mod use_cases;

use std::io::Write as _;
use std::net::TcpListener;
use std::num::NonZeroU32;

use anyhow::Context as _;
use casement_domain::node::Nodes;
use casement_http::{Config, Server, ServerCertificate};
use casement_telemetry::traces::RecordedTraces;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use self::background::{BackgroundJobs, Events};
use self::infrastructure::Infrastructure;
use self::pool_fill_progress::PoolFillProgress;
use self::reload::Reload;
use self::sessions::{SessionServices, Writers};
use self::use_cases::UseCases;
use crate::cluster_node::ClusterListener;
use crate::cluster_supervisor::ClusterSupervisor;
use crate::data_dir::DataDir;
use crate::doctor::raise_open_files;
use crate::documents;
use crate::first_start;
use crate::jobs::{CertificateReload, spawn};
use crate::metrics_catalogue;
use crate::node_drain::NodeDrain;
use crate::settings::ServeSettings;
use crate::spare_space::SpareSpace;
use crate::stop::{self, StopOrder};
use crate::store::Store;

const WORKERS: usize = 2;
/// The maximum number of refused credentials per address and second.
const REFUSED_LIMIT: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
/// The buckets of every histogram, in seconds.
const SECONDS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Disables core dumps of this process and of the database that it starts, because their memory holds secrets.
pub(crate) fn no_core_dumps() -> anyhow::Result<()> {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).context("cannot disable core dumps")
}

/// Runs the server until a signal or `casement stop` ends it.
pub(crate) async fn run(settings: ServeSettings, traces: Option<RecordedTraces>) -> anyhow::Result<()> {
    Box::pin(run_for(settings, Purpose::Serve, traces)).await
}

/// Ends the sessions and browsers that a server has left. Only a server can: it adopts them, saves their profiles and
/// ends their sandboxes.
pub(crate) async fn end_sessions(settings: ServeSettings) -> anyhow::Result<()> {
    // No client connects, so an invalid certificate must not prevent the end.
    let settings = ServeSettings { tls_cert: None, tls_key: None, ..settings };
    Box::pin(run_for(settings, Purpose::EndSessions, None)).await
}

/// The reason for which the server starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Serve,
    EndSessions,
}

async fn run_for(settings: ServeSettings, purpose: Purpose, traces: Option<RecordedTraces>) -> anyhow::Result<()> {
    raise_open_files();
    no_core_dumps()?;
    let data_dir = DataDir::take(settings.data_dir.path()?)?;
    SpareSpace::new(data_dir.path()).make_room();
    let listener =
        TcpListener::bind(settings.listen).with_context(|| format!("cannot listen on {}", settings.listen))?;
    let certificate = certificate(&settings)?;
    let for_nodes = ClusterListener::open(&settings.cluster, &data_dir)?;
    let (orders, mut ordered) = mpsc::channel(4);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let starting = async {
        let mut store = Store::open(data_dir.path(), settings.database_url.as_deref()).await?;
        let cluster_supervisor = store.watch(data_dir.path());
        match Running::start(
            &settings,
            &data_dir,
            &store,
            Listeners { public: listener, certificate: certificate.clone(), for_nodes },
            traces,
        )
        .await
        {
            Ok((running, pool_fill_progress)) => anyhow::Ok((store, cluster_supervisor, running, pool_fill_progress)),
            // Leaves nothing running, because there may be no other start for a long time.
            Err(error) => {
                if let Err(also) = close(&store, cluster_supervisor).await {
                    warn!(error = %also, "the private PostgreSQL was not stopped");
                }
                Err(error)
            }
        }
    };
    // The next start adopts or ends the remains of an aborted start, as after a kill.
    let (store, cluster_supervisor, running, pool_fill_progress) = tokio::select! {
        started = starting => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let order = if purpose == Purpose::EndSessions {
        StopOrder::EndSessions
    } else {
        let drain = running.drain();
        stop::listen(data_dir.path(), orders, drain.clone())?;
        if let Err(error) = running.announce(&data_dir) {
            warn!(%error, "cannot print on standard output that the server is ready");
        }
        service_manager::report_ready(running.infrastructure.public_url.as_str());
        // Starts after `announce`, whose first line must be the first of the output.
        tokio::spawn(pool_fill_progress.print_progress());
        let mut reload = Reload::new(certificate, running.infrastructure.rows.organizations.clone());
        let mut draining: Option<JoinHandle<anyhow::Result<()>>> = None;
        loop {
            tokio::select! {
                Some(order) = ordered.recv() => break order,
                Some(drained) = finished(&mut draining) => match drained {
                    Ok(()) => break StopOrder::KeepSessions,
                    Err(error) => {
                        warn!(%error, "the drain of SIGTERM has ended, and the server goes on");
                        draining = None;
                    }
                },
                _ = terminate.recv() => {
                    if !settings.node.drain_on_term || draining.is_some() {
                        break StopOrder::KeepSessions;
                    }
                    info!("SIGTERM: draining; a second one stops the server at once");
                    service_manager::report_draining();
                    let drain = drain.clone();
                    draining = Some(tokio::spawn(async move { drain.run().await }));
                }
                _ = interrupt.recv() => break StopOrder::KeepSessions,
                Some(()) = hang_up.recv() => reload.run().await,
            }
        }
    };
    info!(sessions = order.of_sessions(), "stopping");
    service_manager::report_stopping();
    Box::pin(running.stop(order)).await;
    close(&store, cluster_supervisor).await?;
    stop::remove_control_socket(data_dir.path());
    info!("stopped");
    Ok(())
}

/// Reads the certificate that the settings name.
fn certificate(settings: &ServeSettings) -> anyhow::Result<Option<ServerCertificate>> {
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => {
            ServerCertificate::load(certificate, key).map(Some).context("cannot serve HTTPS")
        }
        (Some(_), None) => anyhow::bail!("--tls-cert: there is no --tls-key"),
        (None, Some(_)) => anyhow::bail!("--tls-key: there is no --tls-cert"),
        (None, None) => Ok(None),
    }
}

/// Waits for the end of a drain; returns `None` at once if there is none.
async fn finished(draining: &mut Option<JoinHandle<anyhow::Result<()>>>) -> Option<anyhow::Result<()>> {
    let ended = draining.as_mut()?.await;
    Some(ended.unwrap_or_else(|error| Err(error.into())))
}

async fn close(store: &Store, cluster_supervisor: Option<ClusterSupervisor>) -> anyhow::Result<()> {
    store.database.close();
    match cluster_supervisor {
        Some(cluster_supervisor) => cluster_supervisor.stop().await,
        None => Ok(()),
    }
}

/// What the server listens on.
struct Listeners {
    public: TcpListener,
    certificate: Option<ServerCertificate>,
    for_nodes: Option<ClusterListener>,
}

/// A running server.
struct Running {
    server: Server,
    infrastructure: Infrastructure,
    services: SessionServices,
    jobs: BackgroundJobs,
    writers: Writers,
    has_default_pool: bool,
    /// Whether the server speaks TLS.
    is_encrypted: bool,
}

impl Running {
    async fn start(
        settings: &ServeSettings,
        data_dir: &DataDir,
        store: &Store,
        listeners: Listeners,
        traces: Option<RecordedTraces>,
    ) -> anyhow::Result<(Self, PoolFillProgress)> {
        let Listeners { public: listener, certificate, for_nodes } = listeners;
        let metrics =
            PrometheusBuilder::new().set_buckets(&SECONDS)?.install_recorder().context("cannot set up the metrics")?;
        metrics_catalogue::describe_all();
        let (infrastructure, failed_requests) =
            Infrastructure::connect(settings, data_dir, store, (listener.local_addr()?, for_nodes.as_ref())).await?;
        let (services, writers) = SessionServices::new(&infrastructure, settings, traces)?;
        // Subscribes before browsers are adopted, because an adopted browser may end at once.
        let events = Events { browsers: infrastructure.engine.events(), failed_requests };
        infrastructure.adopt_browsers(&services.sessions).await?;
        let has_default_pool = begin(settings, data_dir, &infrastructure, &services).await?;
        let (checked_pools, pool_fill_progress) = PoolFillProgress::begin(infrastructure.rows.pools.clone()).await?;
        // Other nodes must know of this node's records before the first call, so that no export passes them.
        services.trail.reconcile().await?;
        let cases = UseCases::new(&infrastructure, &services, settings, data_dir)?;
        let http_services = cases.services(&infrastructure, &services, store, data_dir, &metrics)?;
        let config = config(settings, data_dir, &infrastructure, certificate.clone());
        let server = casement_http::serve(config, http_services, listener, for_nodes.map(|nodes| nodes.listener))?;
        if let Some(certificate) = certificate {
            spawn(CertificateReload::new(certificate), services.stop.clone());
        }
        let jobs =
            BackgroundJobs::spawn(&infrastructure, &services, cases, events, checked_pools, (settings, store, metrics));
        let is_encrypted = settings.tls_cert.is_some();
        let running = Self { server, infrastructure, services, jobs, writers, has_default_pool, is_encrypted };
        Ok((running, pool_fill_progress))
    }

    /// Returns the drain of this node.
    fn drain(&self) -> NodeDrain {
        NodeDrain {
            own: self.infrastructure.own.clone(),
            nodes: Nodes::new(self.infrastructure.rows.nodes.clone()),
            waker: self.services.node_waker.clone(),
        }
    }

    /// Announces that the server is ready: the first line is for programs, the rest for people.
    fn announce(&self, data_dir: &DataDir) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let scheme = if self.is_encrypted { "https" } else { "http" };
        writeln!(out, "casement ready {scheme}://{}", self.server.local_addr())?;
        let url = self.infrastructure.public_url.as_str().trim_end_matches('/');
        let (key, pool) = (data_dir.key_file(), first_start::DEFAULT_POOL);
        // The file is missing if the database was created with another data directory.
        let (key_location, key) = if key.exists() {
            (key.display().to_string(), format!("$(cat '{}')", key.display()))
        } else {
            let creating = format!("casement keys create --data-dir {} --name NAME", data_dir.path().display());
            (format!("made by `{creating}`"), "'the API key'".to_owned())
        };
        writeln!(out, "\n  URL       {url}\n  API key   {key_location}")?;
        writeln!(out, "  Pages     {url}/ui, for people, who sign in with the key")?;
        if let Some(guide) = documents::first_guide() {
            writeln!(out, "  Guide     {}", guide.display())?;
        }
        writeln!(out)?;
        let (what, path) = if self.has_default_pool {
            (format!("Take a browser from the pool `{pool}`"), format!("browser_pools/{pool}/acquire"))
        } else {
            ("Make a browser".to_owned(), "browsers".to_owned())
        };
        writeln!(
            out,
            "  {what} and take a picture of it:\n\n    \
             KEY={key}\n    \
             ID=$(curl -sX POST {url}/{path} -H \"Authorization: Bearer $KEY\" \\\n      \
             | sed -E 's/.*\"session_id\": ?\"([^\"]+)\".*/\\1/')\n    \
             curl -sX POST {url}/browsers/$ID/computer/screenshot -H \"Authorization: Bearer $KEY\" -o screenshot.png\n"
        )?;
        if self.is_encrypted {
            writeln!(out, "  With a certificate of your own, curl needs `--cacert FILE` in both commands.\n")?;
        }
        writeln!(
            out,
            "  Ctrl-C stops the server alone: browsers go on, and the next start finds them again.\n  \
             `casement stop --end-sessions` ends them too.\n"
        )?;
        Ok(out.flush()?)
    }
}

/// Performs the first start, and applies the settings of the organization; returns whether the pool `default` exists.
async fn begin(
    settings: &ServeSettings,
    data_dir: &DataDir,
    infrastructure: &Infrastructure,
    services: &SessionServices,
) -> anyhow::Result<bool> {
    let (organizations, projects) = (&*infrastructure.rows.organizations, &*infrastructure.rows.projects);
    first_start::begin(data_dir, organizations, &infrastructure.rows.keys, !settings.no_default_pool).await?;
    first_start::default_pool(data_dir, organizations, projects, &services.pools).await?;
    first_start::set_limits(organizations, &settings.limits).await?;
    first_start::has_default_pool(organizations, projects, &services.pools).await
}

fn config(
    settings: &ServeSettings,
    data_dir: &DataDir,
    infrastructure: &Infrastructure,
    certificate: Option<ServerCertificate>,
) -> Config {
    Config {
        certificate,
        public_url: infrastructure.public_url.clone(),
        follows_host: settings.public_url.is_none() && infrastructure.listens_everywhere,
        extra_hosts: settings.allowed_hosts.clone(),
        trusted_proxies: settings.trusted_proxies.clone(),
        sandbox_addresses: casement_egress::SANDBOX_SOURCE_ADDRESSES.into(),
        cors_origins: settings.cors_origins.clone(),
        rate_limit: settings.rate_limit,
        refused_limit: REFUSED_LIMIT,
        workers: WORKERS,
        spool_directory: data_dir.path().to_owned(),
    }
}
