//! Wires deployments and invocations.

mod change_feed;
mod log_writer;

use std::sync::Arc;
use std::time::Duration;

use casement_domain::api_key::ApiKeys;
use casement_domain::blob::BlobStore;
use casement_domain::deployment::{
    Builder, Builds, DeploymentDeps, DeploymentRepository, DeploymentRules, Deployments, LineStore, PackageArchives,
};
use casement_domain::invocation::{CallLimits, InvocationDeps, InvocationRepository, Invocations, Runner, Runs};
use casement_domain::node::OwnState;
use casement_domain::session::Sessions;
use casement_postgres::{NotificationHub, apps_channel};
pub(crate) use change_feed::{AppWakers, ChangeFeed};
pub(crate) use log_writer::LogWriter;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use crate::jobs::{AppJobs, AppsDue, AwaitedCalls, MaxAges};
use crate::settings::AppSettings;
use crate::system::System;
use casement_sealing::MasterKeys;

/// The timeout of connecting to the public address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The repositories of deployments and invocations.
#[derive(Clone)]
pub(crate) struct AppRepositories {
    pub(crate) deployments: Arc<dyn DeploymentRepository>,
    pub(crate) invocations: Arc<dyn InvocationRepository>,
    pub(crate) lines: Arc<dyn LineStore>,
}

/// The implementations that check, build and run deployments.
#[derive(Clone)]
pub(crate) struct AppRuntime {
    pub(crate) archives: Arc<dyn PackageArchives>,
    pub(crate) builder: Arc<dyn Builder>,
    pub(crate) runner: Arc<dyn Runner>,
}

/// The services that deployments and invocations need.
pub(crate) struct AppServices<'a> {
    pub(crate) own: OwnState,
    pub(crate) public_url: &'a Url,
    pub(crate) sessions: Sessions,
    pub(crate) keys: ApiKeys,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) sealer: &'a MasterKeys,
    pub(crate) due: AppsDue,
}

/// The use cases of deployments and invocations, and their background jobs.
pub(crate) struct Apps {
    pub(crate) deployments: Deployments,
    pub(crate) invocations: Invocations,
    pub(crate) change_feed: ChangeFeed,
    pub(crate) runs: Runs,
    work: AppJobs,
    public_url: Url,
}

impl Apps {
    /// Creates everything, but starts nothing.
    pub(crate) fn new(
        services: AppServices<'_>,
        rows: AppRepositories,
        runtime: AppRuntime,
        settings: &AppSettings,
        stop: CancellationToken,
    ) -> Self {
        let change_feed = ChangeFeed::default();
        let notifier = Arc::new(change_feed.clone());
        let system = Arc::new(System);
        let deployments = Deployments::new(DeploymentDeps {
            deployments: rows.deployments.clone(),
            invocations: rows.invocations.clone(),
            lines: rows.lines.clone(),
            notifier: notifier.clone(),
            blobs: services.blobs,
            archives: runtime.archives,
            keys: services.keys,
            sealer: Arc::new(services.sealer.clone()),
            clock: system.clone(),
            ids: system.clone(),
            rules: DeploymentRules { regions: settings.regions.clone(), origins: settings.git_origins.clone() },
            max: Deployments::DEFAULT_MAX,
        });
        let invocations = Invocations::new(InvocationDeps {
            invocations: rows.invocations.clone(),
            deployments: rows.deployments.clone(),
            lines: rows.lines.clone(),
            notifier: notifier.clone(),
            sessions: services.sessions,
            clock: system.clone(),
            ids: system.clone(),
        });
        let base_url = services.public_url.as_str().trim_end_matches('/').to_owned();
        let builds = Builds::new(deployments.clone(), services.own.id(), base_url);
        let at_once = settings.app_parallel as usize;
        let runs = Runs::new(rows.invocations, rows.deployments, system, builds.clone(), CallLimits::DEFAULT, at_once);
        let work = AppJobs {
            own: services.own,
            builds,
            runs: runs.clone(),
            invocations: invocations.clone(),
            builder: runtime.builder,
            runner: runtime.runner,
            lines: rows.lines,
            change_feed: notifier,
            wakers: Arc::new(AppWakers::default()),
            ready: settings.app_ready,
            ages: MaxAges {
                lines: time::Duration::days(settings.app_log_days.into()),
                invocations: time::Duration::days(settings.invocation_days.into()),
            },
            awaited: AwaitedCalls::default(),
            due: services.due,
            stop,
        };
        Self { deployments, invocations, change_feed, runs, work, public_url: services.public_url.clone() }
    }

    /// Starts the background jobs and returns them.
    pub(crate) fn spawn(self, notifications: &NotificationHub) -> AppJobs {
        let notifications = notifications.subscribe(vec![apps_channel()]);
        let listening = change_feed::listen(notifications, self.change_feed, self.work.wakers.clone());
        tokio::spawn(self.work.stop.clone().run_until_cancelled_owned(listening));
        tokio::spawn(self.work.stop.clone().run_until_cancelled_owned(check_public_address(self.public_url)));
        self.work.clone().spawn();
        self.work
    }
}

/// Logs a warning if this machine cannot reach the public address, because app sandboxes reach it through this machine.
async fn check_public_address(public_url: Url) {
    let place = public_url.host_str().zip(public_url.port_or_known_default());
    let Some((host, port)) = place.map(|(host, port)| (host.trim_matches(['[', ']']), port)) else { return };
    let to_egress_proxy = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
    let failed = to_egress_proxy.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).err();
    if let Some(error) = failed {
        warn!(%public_url, %error, "this machine cannot reach the public address, so apps cannot either");
    }
}
