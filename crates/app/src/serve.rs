//! `casement serve`: puts everything together, runs it, and takes it apart in order.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use casement_domain::access::Access;
use casement_domain::api_key::{ApiKeys, KeyAdministration};
use casement_domain::audit::{AuditLogs, AuditRepository};
use casement_domain::auth_connection::{
    AuthConnectionDeps, AuthConnectionRepository, AuthConnections, FlowRunner, RunnerDeps,
};
use casement_domain::browser::{BrowserEngine, BrowserRepository, BrowserState};
use casement_domain::computer::Computers;
use casement_domain::credential::CredentialRepository;
use casement_domain::credential_provider::CredentialProviderRepository;
use casement_domain::curl::Curl;
use casement_domain::extension::ExtensionRepository;
use casement_domain::fs::Files;
use casement_domain::node::{Node, NodeRepository};
use casement_domain::pool::{Leases, PoolDeps, PoolFiller, PoolRepository, Pools, WaitingLine};
use casement_domain::process::Processes;
use casement_domain::profile::ProfileRepository;
use casement_domain::project::{ProjectRepository, Projects};
use casement_domain::proxy::{ProxyRepository, ProxyRouting};
use casement_domain::replay::{ReplayRepository, Replays};
use casement_domain::script::Scripts;
use casement_domain::session::{Activity, EndSessionError, SessionDeps, SessionEvent, SessionRepository, Sessions};
use casement_domain::session_log::SessionLogs;
use casement_domain::telemetry::{Outlet, TelemetryEvents, TelemetryStore};
use casement_domain::{BrowserId, Clock, NodeId, StoreError};
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_http::{Config, ConnectionRegistry, Server, Services, SessionTokens};
use casement_otlp::{Export, Exporter};
use casement_postgres::{
    Notifications, PgApiKeys, PgAudit, PgAuthConnections, PgBrowsers, PgCredentialProviders, PgCredentials,
    PgDeployments, PgExtensions, PgInvocations, PgLines, PgNodes, PgOrganizations, PgPools, PgProfiles, PgProjects,
    PgProxies, PgReplays, PgSessions, PgTelemetry, PgWaitingLine, RecentKeys, node_channel,
};
use casement_webdriver::{Engine, EngineConfig, check_script_runner};
use futures_util::{StreamExt as _, stream};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use crate::apps::{AppGround, AppMachines, AppRows, Apps, NewsRoom};
use crate::connections::LoggedConnections;
use crate::credential_providers;
use crate::credentials;
use crate::data_dir::DataDir;
use crate::dial::{EngineDial, NodeHealth};
use crate::doctor::raise_open_files;
use crate::egress::WaysOut;
use crate::extensions;
use crate::first_start;
use crate::logins;
use crate::loops::{
    AppWork, AuthNews, Housekeeping, PoolBell, PoolFigures, PoolLoop, Spares, StartSlots, carry_logins, fill_pools,
    follow_browsers, hear, keep_audit, keep_logins, keep_spares, keep_telemetry,
};
use crate::metered::Metered;
use crate::profiles;
use crate::proxies;
use crate::replays::{self, RemainsBell};
use crate::sealing::MasterKeys;
use crate::settings::ServeSettings;
use crate::stop::{self, StopOrder};
use crate::store::Store;
use crate::system::System;
use crate::telemetry::{self, EventWriter};
use crate::trail::{GroupedTrail, TrailWriter};
use crate::turns::WaitingRoom;
use crate::web_store::ChromeWebStore;
use crate::workshop;

const WORKERS: usize = 2;
/// The buckets of every histogram; all of them hold seconds.
const SECONDS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// How often the metrics fold what they gathered.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// How long the last audit records may take.
const WRITE_AUDIT: Duration = Duration::from_secs(10);
/// How long the last telemetry may take to leave.
const EXPORT_TELEMETRY: Duration = Duration::from_secs(5);
/// How long ending all sessions may take before the process ends all the same: the largest profile may take ten minutes, its browser's
/// good end one. What is not kept by then stays where it is, for the next start.
const END_SESSIONS: Duration = Duration::from_secs(11 * 60);
/// How many sessions end at once: what they leave is read, packed and sealed.
const ENDS_AT_ONCE: usize = 8;

/// The repositories, as ports.
struct Repositories {
    organizations: Arc<PgOrganizations>,
    projects: Arc<dyn ProjectRepository>,
    nodes: Arc<dyn NodeRepository>,
    sessions: Arc<dyn SessionRepository>,
    browsers: Arc<dyn BrowserRepository>,
    pools: Arc<dyn PoolRepository>,
    line: Arc<dyn WaitingLine>,
    audit: Arc<dyn AuditRepository>,
    telemetry: Arc<dyn TelemetryStore>,
    extensions: Arc<dyn ExtensionRepository>,
    profiles: Arc<dyn ProfileRepository>,
    replays: Arc<dyn ReplayRepository>,
    credentials: Arc<dyn CredentialRepository>,
    apps: AppRows,
    credential_providers: Arc<dyn CredentialProviderRepository>,
    auth_connections: Arc<dyn AuthConnectionRepository>,
    proxies: Arc<dyn ProxyRepository>,
    keys: ApiKeys,
    key_rows: Arc<PgApiKeys>,
}

impl Repositories {
    fn new(store: &Store) -> Self {
        let database = || store.database.clone();
        let system = Arc::new(System);
        let recent_keys = RecentKeys::default();
        let key_rows = Arc::new(PgApiKeys::new(database()).remembering(recent_keys.clone()));
        Self {
            organizations: Arc::new(PgOrganizations::new(database())),
            apps: AppRows {
                deployments: Arc::new(PgDeployments::new(database()).forgetting(recent_keys.clone())),
                invocations: Arc::new(PgInvocations::new(database())),
                lines: Arc::new(PgLines::new(database())),
            },
            projects: Arc::new(PgProjects::new(database()).forgetting(recent_keys)),
            nodes: Arc::new(PgNodes::new(database())),
            sessions: Arc::new(PgSessions::new(database())),
            browsers: Arc::new(PgBrowsers::new(database())),
            pools: Arc::new(PgPools::new(database())),
            line: Arc::new(PgWaitingLine::new(database())),
            audit: Arc::new(PgAudit::new(database())),
            telemetry: Arc::new(PgTelemetry::new(database())),
            extensions: Arc::new(PgExtensions::new(database())),
            profiles: Arc::new(PgProfiles::new(database())),
            replays: Arc::new(PgReplays::new(database())),
            credentials: Arc::new(PgCredentials::new(database())),
            credential_providers: Arc::new(PgCredentialProviders::new(database())),
            auth_connections: Arc::new(PgAuthConnections::new(database())),
            proxies: Arc::new(PgProxies::new(database())),
            keys: ApiKeys::new(key_rows.clone(), system.clone(), system.clone(), system),
            key_rows,
        }
    }
}

/// Nothing that this process, or the database that it starts, holds in memory may be written out when it crashes.
fn no_core_dumps() -> anyhow::Result<()> {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).context("cannot switch core dumps off")
}

/// Runs the server until it is told to stop.
pub(crate) async fn run(settings: ServeSettings) -> anyhow::Result<()> {
    raise_open_files();
    no_core_dumps()?;
    let data_dir = DataDir::take(settings.data_dir.path()?)?;
    let listener =
        TcpListener::bind(settings.listen).with_context(|| format!("cannot listen on {}", settings.listen))?;
    let (orders, mut ordered) = mpsc::channel(4);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let starting = async {
        let mut store = Store::open(data_dir.path(), settings.database_url.as_deref()).await?;
        let postmaster = store.watch(data_dir.path());
        let running = Running::start(&settings, &data_dir, &store, listener).await?;
        anyhow::Ok((store, postmaster, running))
    };
    // What a start that is broken off leaves, the next one takes up or ends, as after a kill.
    let (store, postmaster, running) = tokio::select! {
        started = starting => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    stop::hear(data_dir.path(), orders)?;
    running.announce(&data_dir)?;

    let order = tokio::select! {
        Some(order) = ordered.recv() => order,
        _ = terminate.recv() => StopOrder::KeepSessions,
        _ = interrupt.recv() => StopOrder::KeepSessions,
    };
    info!(?order, "stopping");
    running.stop(order).await;
    store.database.close();
    if let Some(postmaster) = postmaster {
        postmaster.stop().await?;
    }
    stop::unhear(data_dir.path());
    info!("stopped");
    Ok(())
}

/// A server at work.
struct Running {
    server: Server,
    engine: Engine,
    sessions: Sessions,
    session_rows: Arc<dyn SessionRepository>,
    browser_rows: Arc<dyn BrowserRepository>,
    spares: Spares,
    room: WaitingRoom,
    news: NewsRoom,
    apps: AppWork,
    clearing: JoinHandle<()>,
    stop: CancellationToken,
    /// Ends the heartbeat: while sessions end, no other node may take this one for lost.
    beating: CancellationToken,
    trail: TrailWriter,
    telemetry: EventWriter,
    export: Option<Export>,
    node: NodeId,
    public_url: Url,
    has_default_pool: bool,
}

impl Running {
    async fn start(
        settings: &ServeSettings,
        data_dir: &DataDir,
        store: &Store,
        listener: TcpListener,
    ) -> anyhow::Result<Self> {
        let metrics =
            PrometheusBuilder::new().set_buckets(&SECONDS)?.install_recorder().context("cannot set up the metrics")?;
        let local = listener.local_addr()?;
        let public_url = match &settings.public_url {
            Some(url) => url.clone(),
            None => Url::parse(&format!("http://{local}"))?,
        };
        let node = data_dir.node()?;
        let repositories = Repositories::new(store);
        announce_node(&*repositories.nodes, node, local).await?;

        let (ways_out, failed_proxies) = ways_out(settings);
        let master_keys = MasterKeys::open(data_dir.path(), settings.master_key.as_ref())?;
        let sealer = Arc::new(master_keys.clone());
        let upstreams = Arc::new(settings.upstreams.read()?);
        let routing = ProxyRouting::new(repositories.proxies.clone(), sealer, ways_out.clone(), upstreams.clone());
        let engine = engine(settings, data_dir, ways_out.clone()).await?;
        let blobs = extensions::blobs(data_dir.path())?;
        let engine = engine.with_extensions(extensions::kept(repositories.extensions.clone(), blobs.clone()));
        let kept_profiles = profiles::kept(repositories.profiles.clone(), blobs.clone(), &master_keys);
        let engine = engine.with_profiles(Arc::new(kept_profiles.clone()));
        let machines =
            workshop::open(&settings.builds, data_dir, engine.config(), blobs.clone(), ways_out.clone()).await?;
        let (trail, trail_writer) = GroupedTrail::start(repositories.audit.clone());
        let trail = Arc::new(trail);
        let connections = ConnectionRegistry::new();
        let spares = Spares::new(settings.spares);
        let bell = PoolBell::default();
        let figures = PoolFigures::default();
        let room = WaitingRoom::default();
        let system = Arc::new(System);
        let port: Arc<dyn BrowserEngine> = Arc::new(Metered(engine.clone()));
        let logged = Arc::new(LoggedConnections(connections.clone()));
        let stop = CancellationToken::new();
        let (events, tap) = (repositories.telemetry.clone(), Arc::new(engine.clone()));
        let stopping = stop.child_token();
        let (outlet, export) = exporter(settings, node)?.unzip();
        let outlet = outlet.map(|outlet| Arc::new(outlet) as Arc<dyn Outlet>);
        let (recorder, feed, event_writer) = telemetry::start(events, tap, connections.clone(), outlet, stopping);
        let recorder = Arc::new(recorder);
        let wake = Arc::new(bell.clone());
        let profiles = profiles::of_sessions(kept_profiles.clone(), &engine, (trail.clone(), recorder.clone()), wake);
        let kept_replays = replays::kept(repositories.replays.clone(), blobs.clone(), settings);
        let remains = RemainsBell::default();
        let sessions = Sessions::new(SessionDeps {
            node,
            sessions: repositories.sessions.clone(),
            browsers: repositories.browsers.clone(),
            engine: port.clone(),
            extensions: repositories.extensions.clone(),
            profiles: profiles.clone(),
            replays: replays::of_sessions(kept_replays.clone(), &engine, remains.clone()),
            proxies: routing.clone(),
            spares: Arc::new(spares.clone()),
            connections: logged.clone(),
            pools: Arc::new(bell.clone()),
            activity: Activity::new(system.clone()),
            recorder: recorder.clone(),
            clock: system.clone(),
            ids: system.clone(),
        });
        let limits = &settings.limits;
        let pool_deps = PoolDeps {
            node,
            pools: repositories.pools.clone(),
            sessions: repositories.sessions.clone(),
            line: repositories.line.clone(),
            turns: Arc::new(room.clone()),
            engine: port.clone(),
            extensions: repositories.extensions.clone(),
            profiles,
            proxies: routing.clone(),
            wake: Arc::new(bell.clone()),
            clock: system.clone(),
            ids: system.clone(),
            max_pools: limits.max_pools,
        };
        let pools = Pools::new(pool_deps.clone(), sessions.clone());
        let leases = Leases::new(pool_deps.clone(), sessions.clone());
        let events = engine.events();
        proxies::restore(&routing, &*repositories.browsers, node).await?;
        take_up(&engine, &sessions, &*repositories.line, node).await?;

        let (organizations, with_pool) = (&*repositories.organizations, !settings.no_default_pool);
        first_start::begin(data_dir, organizations, &repositories.keys, with_pool).await?;
        first_start::default_pool(data_dir, organizations, &*repositories.projects, &pools).await?;
        first_start::set_limits(organizations, limits).await?;
        let has_default_pool = first_start::has_default_pool(organizations, &*repositories.projects, &pools).await?;

        let web_store = ChromeWebStore { egress: ways_out.egress(), url: settings.web_store_url.clone() };
        let (rows, data) = (repositories.extensions.clone(), data_dir.path());
        let fetched = (web_store, limits.max_extensions);
        let extensions = extensions::use_cases(rows, blobs.clone(), data, &engine, &sessions, logged, fetched);
        let dialer = proxies::Dialer { egress: ways_out.egress(), address_url: settings.proxy_check_url.clone() };
        let kept_proxies =
            proxies::use_cases(repositories.proxies.clone(), &master_keys, dialer, upstreams, limits.max_proxies);
        let use_profiles = profiles::use_cases(kept_profiles, limits.max_profiles);
        let ground = AppGround {
            node,
            public_url: &public_url,
            sessions: sessions.clone(),
            keys: repositories.keys.clone(),
            blobs: blobs.clone(),
            sealer: &master_keys,
        };
        let machines = AppMachines { archives: machines.packages, builder: machines.workshop, runner: machines.crew };
        let apps = Apps::new(ground, repositories.apps.clone(), machines, &settings.apps, stop.child_token());
        let use_credentials =
            credentials::use_cases(repositories.credentials.clone(), &master_keys, limits.max_credentials);
        let use_providers =
            credential_providers::use_cases(repositories.credential_providers.clone(), &master_keys, settings);
        let (machine, activity) = (Arc::new(engine.clone()), sessions.activity().clone());
        let replays = Replays::new(machine, kept_replays.clone(), activity, system.clone());
        let auth_news = AuthNews::default();
        let auth_connections = AuthConnections::new(AuthConnectionDeps {
            connections: repositories.auth_connections.clone(),
            credentials: repositories.credentials.clone(),
            external: Arc::new(use_providers.clone()),
            profiles: use_profiles.clone(),
            proxies: routing.clone(),
            sessions: sessions.clone(),
            news: Arc::new(auth_news.clone()),
            sealer: Arc::new(master_keys.clone()),
            entropy: system.clone(),
            clock: system.clone(),
            ids: system.clone(),
            most: limits.max_auth_connections,
        });
        let logins = FlowRunner::new(
            auth_connections.clone(),
            RunnerDeps {
                node,
                pages: Arc::new(engine.clone()),
                projects: repositories.projects.clone(),
                credentials: use_credentials.clone(),
                replays: replays.clone(),
                pictures: logins::pictures(data_dir.path()),
            },
        );
        let services = Services {
            api_keys: repositories.keys.clone(),
            key_administration: KeyAdministration::new(
                repositories.keys.clone(),
                repositories.key_rows.clone(),
                repositories.projects.clone(),
                system.clone(),
            ),
            access: Access::new(repositories.projects.clone()),
            projects: Projects::new(repositories.projects.clone(), system.clone(), system.clone()),
            sessions: sessions.clone(),
            leases: leases.clone(),
            pools,
            audit: AuditLogs::new(repositories.audit.clone(), system.clone()),
            trail,
            files: Files::new(Arc::new(engine.clone()), sessions.activity().clone()),
            computers: Computers::new(Arc::new(engine.clone()), sessions.activity().clone()),
            displays: Arc::new(engine.clone()),
            extensions: extensions.clone(),
            auth_connections,
            credentials: use_credentials,
            deployments: apps.deployments.clone(),
            invocations: apps.invocations.clone(),
            credential_providers: use_providers,
            profiles: use_profiles.clone(),
            proxies: kept_proxies.clone(),
            processes: Processes::new(Arc::new(engine.clone()), sessions.activity().clone(), system.clone()),
            session_logs: SessionLogs::new(Arc::new(engine.clone()), sessions.activity().clone()),
            curl: Curl::new(Arc::new(engine.clone()), sessions.activity().clone()),
            replays,
            scripts: Scripts::new(Arc::new(engine.clone()), sessions.activity().clone()),
            telemetry: TelemetryEvents::new(repositories.telemetry.clone(), Arc::new(feed), system.clone()),
            recorder,
            tokens: SessionTokens::new(&data_dir.token_key()?),
            dial: Arc::new(EngineDial(engine.clone())),
            connections,
            health: Arc::new(NodeHealth { database: store.database.clone(), spares: spares.clone() }),
            metrics: rendered(metrics.clone(), figures.clone()),
            outlook: Arc::new(figures.clone()),
            entropy: system.clone(),
            clock: system.clone(),
            ids: system,
            runtime: tokio::runtime::Handle::current(),
        };
        let config = Config {
            public_url: public_url.clone(),
            extra_hosts: settings.allowed_hosts.clone(),
            trusted_proxies: settings.trusted_proxies.clone(),
            cors_origins: settings.cors_origins.clone(),
            rate_limit: settings.rate_limit,
            workers: WORKERS,
        };
        let server = casement_http::serve(config, services, listener)?;

        let slots = StartSlots::per_core();
        let house = Housekeeping {
            node,
            nodes: repositories.nodes,
            pools: repositories.pools.clone(),
            line: repositories.line,
            sessions: sessions.clone(),
            runs: apps.runs.clone(),
            leases: leases.clone(),
            room: room.clone(),
            figures: figures.clone(),
        };
        let notifications = Notifications::listen(&store.config, vec![node_channel(node)]);
        tokio::spawn(stop.clone().run_until_cancelled_owned(hear(notifications, house.clone())));
        let beating = CancellationToken::new();
        tokio::spawn(house.clone().beat(beating.clone()));
        let clearing = tokio::spawn(house.clone().clear(remains, stop.child_token()));
        tokio::spawn(house.run(stop.child_token()));
        let telling = proxies::tell_failed(failed_proxies, sessions.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(telling));
        tokio::spawn(follow_browsers(engine.clone(), events, sessions.clone(), spares.clone()));
        let browser_rows = repositories.browsers;
        let filler = PoolFiller::new(pool_deps, browser_rows.clone(), sessions.clone());
        let pool_loop = PoolLoop {
            filler,
            pools: repositories.pools,
            sessions: sessions.clone(),
            bell,
            slots: slots.clone(),
            figures,
        };
        tokio::spawn(fill_pools(pool_loop, stop.child_token()));
        tokio::spawn(keep_spares(spares.clone(), port, slots, stop.child_token()));
        let kept = time::Duration::days(settings.audit_days.into());
        tokio::spawn(keep_audit(repositories.audit, kept, stop.child_token()));
        let kept = time::Duration::days(settings.telemetry_days.into());
        tokio::spawn(keep_telemetry(repositories.telemetry, kept, stop.child_token()));
        let news = apps.room.clone();
        let apps = apps.spawn(store);
        tokio::spawn(extensions::sweep(extensions, stop.child_token()));
        tokio::spawn(profiles::sweep(use_profiles, blobs, stop.child_token()));
        tokio::spawn(replays::sweep(kept_replays, stop.child_token()));
        tokio::spawn(auth_news.clone().hear(store.config.clone(), stop.child_token()));
        tokio::spawn(carry_logins(logins.clone(), auth_news, stop.child_token()));
        tokio::spawn(keep_logins(logins, stop.child_token()));
        tokio::spawn(proxies::keep_checked(kept_proxies, stop.child_token()));
        tokio::spawn(upkeep(metrics, ways_out, spares.clone()));
        Ok(Self {
            server,
            engine,
            sessions,
            session_rows: repositories.sessions,
            browser_rows,
            spares,
            room,
            news,
            apps,
            clearing,
            stop,
            beating,
            trail: trail_writer,
            telemetry: event_writer,
            export,
            node,
            public_url,
            has_default_pool,
        })
    }

    /// Says that the server is ready, for whoever started it: a program reads the first line, a person the rest.
    fn announce(&self, data_dir: &DataDir) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "casement ready http://{}", self.server.local_addr())?;
        let url = self.public_url.as_str().trim_end_matches('/');
        let (key, pool) = (data_dir.key_file(), first_start::DEFAULT_POOL);
        let key = key.display();
        writeln!(out, "\n  URL       {url}\n  API key   {key}\n")?;
        let (what, path) = if self.has_default_pool {
            (format!("Take a browser from the pool `{pool}`"), format!("browser_pools/{pool}/acquire"))
        } else {
            ("Make a browser".to_owned(), "browsers".to_owned())
        };
        writeln!(
            out,
            "  {what} and take a picture of it:\n\n    \
             KEY=$(cat '{key}')\n    \
             ID=$(curl -sX POST {url}/{path} -H \"Authorization: Bearer $KEY\" \\\n      \
             | sed -E 's/.*\"session_id\": ?\"([^\"]+)\".*/\\1/')\n    \
             curl -sX POST {url}/browsers/$ID/computer/screenshot -H \"Authorization: Bearer $KEY\" -o screenshot.png\n"
        )?;
        Ok(out.flush()?)
    }

    /// Ends the server in order. Sessions go on unless they are to end, too.
    async fn stop(self, order: StopOrder) {
        self.stop.cancel();
        self.room.close();
        self.news.close();
        if let Err(error) = self.server.drain().await {
            warn!(%error, "the server did not stop as it should");
        }
        // Whoever lets go in the middle leaves the rest to what comes now, or to the next start.
        if let Err(error) = self.clearing.await {
            warn!(%error, "whoever clears away did not end as it should");
        }
        let ending = async {
            self.apps.end_calls().await;
            end_sessions(&self.sessions, &*self.session_rows, self.node).await;
        };
        if order == StopOrder::EndSessions && tokio::time::timeout(END_SESSIONS, ending).await.is_err() {
            warn!("not all calls and sessions could be ended in time; the next start ends what is left");
        }
        self.beating.cancel();
        match order {
            StopOrder::KeepSessions => {
                // Spares are this life's alone.
                for browser in self.spares.clear() {
                    let _ = BrowserEngine::end(&self.engine, browser).await;
                }
                self.engine.detach().await;
            }
            StopOrder::EndSessions => {
                match in_sessions(&*self.browser_rows, self.node).await {
                    Ok(kept) => {
                        if let Err(error) = self.engine.end_all_but(&kept).await {
                            warn!(%error, "not all browsers could be ended; the next start ends what is left");
                        }
                        if !kept.is_empty() {
                            warn!(
                                browsers = kept.len(),
                                "what some sessions leave is not kept yet; the next start does it"
                            );
                        }
                    }
                    Err(error) => {
                        warn!(%error, "cannot tell what is still to be kept; the next start ends all browsers")
                    }
                }
                self.engine.detach().await;
            }
        }
        // What ends leaves its records, too.
        self.trail.finish(WRITE_AUDIT).await;
        self.telemetry.finish(WRITE_AUDIT).await;
        if let Some(export) = self.export {
            export.finish(EXPORT_TELEMETRY).await;
        }
    }
}

async fn end_sessions(sessions: &Sessions, rows: &dyn SessionRepository, node: NodeId) {
    let found = match rows.of_node(node).await {
        Ok(found) => found,
        Err(error) => return warn!(%error, "cannot list the sessions"),
    };
    let active = found.into_iter().filter(casement_domain::session::Session::is_active);
    let ends = stream::iter(active).for_each_concurrent(ENDS_AT_ONCE, async |session| {
        if let Err(EndSessionError::Store(error)) = sessions.end(session.id, SessionEvent::Delete).await {
            warn!(session = %session.id, %error, "cannot end a session");
        }
    });
    ends.await;
    let remains = match sessions.remains().await {
        Ok(remains) => remains,
        Err(error) => return warn!(%error, "cannot list what the sessions left"),
    };
    let burials = stream::iter(remains).for_each_concurrent(ENDS_AT_ONCE, async |browser| {
        if let Err(error) = sessions.lay_to_rest(&browser).await {
            warn!(browser = %browser.id, %error, "cannot keep what a session left");
        }
    });
    burials.await;
}

/// The browsers of this node whose sessions have not ended, or left what is not kept yet.
async fn in_sessions(browsers: &dyn BrowserRepository, node: NodeId) -> Result<Vec<BrowserId>, StoreError> {
    let found = browsers.of_node(node).await?;
    let in_session = found.iter().filter(|one| matches!(one.state, BrowserState::Leased | BrowserState::Ending));
    Ok(in_session.map(|one| one.id).collect())
}

async fn announce_node(nodes: &dyn NodeRepository, id: NodeId, local: SocketAddr) -> anyhow::Result<()> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let now = System.now();
    Ok(nodes.announce(&Node { id, host, address: local.to_string(), started_at: now, heartbeat_at: now }).await?)
}

/// The ways out, and of which browsers' proxies requests fail.
fn ways_out(settings: &ServeSettings) -> (Arc<WaysOut>, mpsc::Receiver<String>) {
    let rules = Rules::new(settings.egress_allow.clone());
    let egress = Egress::new(rules, Arc::new(SystemResolver::default()), Limits::default());
    let (egress, failed_proxies) = proxies::telling(egress);
    (Arc::new(WaysOut::new(egress)), failed_proxies)
}

async fn engine(settings: &ServeSettings, data_dir: &DataDir, ways_out: Arc<WaysOut>) -> anyhow::Result<Engine> {
    let mut config = EngineConfig::discover(data_dir.path().to_owned())?;
    config.memory_bytes = settings.session_memory << 20;
    config.disk_bytes = settings.session_disk << 20;
    if let Some(folder) = &settings.script_runner {
        let found = check_script_runner(folder).map_err(|error| anyhow::anyhow!("--script-runner: {error}"))?;
        config.script_runner = Some(found);
    }
    if config.script_runner.is_none() {
        warn!("no script runner: sessions run no scripts; casement doctor says what to do");
    }
    Engine::new(config, ways_out).await.context("browsers cannot be run here; see casement doctor")
}

/// Where telemetry is exported to, if it is.
fn exporter(settings: &ServeSettings, node: NodeId) -> anyhow::Result<Option<(Exporter, Export)>> {
    let Some(endpoint) = &settings.otlp_endpoint else {
        anyhow::ensure!(settings.otlp_headers.is_empty(), "--otlp-header: there is no --otlp-endpoint");
        return Ok(None);
    };
    let (headers, version) = (&settings.otlp_headers, env!("CARGO_PKG_VERSION"));
    let destination = casement_otlp::Settings::new(endpoint, headers, &node.to_string(), version)
        .and_then(|destination| Exporter::start(&destination))
        .context("--otlp-endpoint and --otlp-header")?;
    Ok(Some(destination))
}

/// Takes up what an earlier life of this node left, and ends what is nobody's.
async fn take_up(engine: &Engine, sessions: &Sessions, line: &dyn WaitingLine, node: NodeId) -> anyhow::Result<()> {
    let alive = engine.find_running().await?;
    line.clear(node, System.now()).await?;
    let kept = sessions.adopt(&alive).await?;
    let ended = engine.sweep(&kept).await.unwrap_or_else(|error| {
        // One that cannot be ended must not keep all others from being served.
        warn!(%error, "not everything that the last run left could be ended");
        Vec::new()
    });
    if !kept.is_empty() || !ended.is_empty() {
        info!(browsers = kept.len(), ended = ended.len(), "took up what the last run left");
    }
    Ok(())
}

fn rendered(metrics: PrometheusHandle, pools: PoolFigures) -> Arc<dyn Fn() -> String + Send + Sync> {
    Arc::new(move || metrics.render() + &pools.render())
}

async fn upkeep(metrics: PrometheusHandle, ways_out: Arc<WaysOut>, spares: Spares) {
    let mut tick = tokio::time::interval(METRICS_UPKEEP);
    loop {
        tick.tick().await;
        ways_out.measure();
        metrics::gauge!("casement_spare_browsers").set(f64::from(spares.ready()));
        metrics.run_upkeep();
    }
}
