//! The builds of a node: takes queued deployments, and stores the results.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};
use time::{Duration, OffsetDateTime};

use super::{
    AppVersion, Build, BuildFailure, BuildLease, BuildSource, Built, BuiltApp, Deployment, DeploymentError,
    DeploymentEvent, DeploymentSecret, DeploymentSource, Deployments, Environment, Registered, SealedDeployment,
};
use crate::error::NotFound;
use crate::ids::{AppVersionId, DeploymentId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::pool::{FairSlot, FairSlots};
use crate::sealing::SealError;
use crate::store_error::{Replaced, StoreError};

/// The maximum numbers of apps of a deployment and of actions of an app.
const MAX_APPS: usize = 50;
const MAX_ACTIONS: usize = 200;
/// The number of builds that are considered, and of artifacts that are released, at once.
const BATCH: u32 = 20;
/// The number of artifacts that are looked up at once.
const LOOKED_UP_AT_ONCE: usize = 1000;
/// The time for which an unused artifact stays stored, so that another upload of the same source is not built again.
const KEEP_ARTIFACTS: Duration = Duration::days(1);

/// The builds of a node.
#[derive(Clone)]
pub struct Builds {
    deployments: Deployments,
    node: NodeId,
    base_url: String,
    began: OffsetDateTime,
    places: FairSlots<ProjectId>,
}

/// A build that this node has taken.
#[derive(Debug)]
pub struct LeasedBuild {
    /// The stored deployment.
    pub deployment: Deployment,
    /// The build.
    pub build: Build,
    /// The deadline.
    pub deadline: OffsetDateTime,
    /// The slot, which is released at the end of the build.
    pub place: FairSlot<ProjectId>,
}

/// The outcome of a build.
#[derive(Debug)]
pub enum BuildEnd {
    /// The result of the builder.
    Done(Result<Built, BuildFailure>),
    /// The build reached its deadline.
    TimedOut,
}

impl Builds {
    /// The maximum number of concurrent builds of a node; each uses a core. One project has at most two of the slots.
    pub const AT_ONCE: usize = 3;
    /// The maximum duration of a build.
    pub const LIMIT: Duration = Duration::minutes(15);
    /// The lifetime of a lease that is not renewed.
    pub const LEASE: Duration = Duration::seconds(45);

    /// Creates the builds of `node`. `base_url` is the base URL of the API for deployed programs.
    #[must_use]
    pub fn new(deployments: Deployments, node: NodeId, base_url: String) -> Self {
        let began = deployments.deps.clock.now();
        Self { deployments, node, base_url, began, places: FairSlots::new(Self::AT_ONCE) }
    }

    /// Takes the next waiting build, if there is a free slot: a queued deployment, or one that a lost node or an
    /// earlier run of this node was building. The project with the fewest running builds on this node comes first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn take(&self) -> Result<Option<LeasedBuild>, StoreError> {
        let deps = &self.deployments.deps;
        let now = deps.clock.now();
        // Leases of this run end later than those of the previous run.
        let own_before = self.began + Self::LEASE;
        if self.places.free() == 0 {
            return Ok(None);
        }
        let mut due = deps.deployments.due(self.node, now, own_before, BATCH).await?;
        self.places.fewest_first(&mut due, |deployment| deployment.project);
        for current in due {
            let Some(place) = self.places.take(&current.project) else { continue };
            let lease = BuildLease {
                node: self.node,
                number: current.lease.map_or(0, |lease| lease.number) + 1,
                expires_at: now + Self::LEASE,
            };
            let Ok(next) = current.on(&DeploymentEvent::Take(lease), now) else { continue };
            if deps.deployments.replace(&current, &next).await? == Replaced::LostRace {
                continue;
            }
            let deadline = next.begun_at.unwrap_or(now) + Self::LIMIT;
            match self.build(&next).await {
                Ok(build) => return Ok(Some(LeasedBuild { deployment: next, build, deadline, place })),
                Err(DeploymentError::Store(error)) => return Err(error),
                Err(error) => self.fail(&next, format!("it cannot be prepared: {error}")).await?,
            }
        }
        Ok(None)
    }

    async fn build(&self, deployment: &Deployment) -> Result<Build, DeploymentError> {
        let deps = &self.deployments.deps;
        let sealed = deps.deployments.secrets(deployment.id).await?.unwrap_or_default();
        let source = match &deployment.source {
            DeploymentSource::File => BuildSource::Archive {
                blob: Deployment::blob(deployment.id),
                checksum: deployment.source_checksum.clone().unwrap_or_default(),
                entrypoint: deployment.entrypoint.clone(),
            },
            DeploymentSource::Git { url, git_ref, path } => BuildSource::Git {
                url: url.clone(),
                git_ref: git_ref.clone(),
                path: path.clone(),
                entrypoint: deployment.entrypoint.clone(),
                token: sealed
                    .token
                    .as_ref()
                    .map(|token| self.open(deployment.id, &DeploymentSecret::Token, token))
                    .transpose()?,
            },
        };
        let environment = self.open_environment(deployment.id, &sealed)?;
        Ok(Build { deployment: deployment.id, project: deployment.project, source, environment })
    }

    fn open(&self, id: DeploymentId, secret: &DeploymentSecret, sealed: &[u8]) -> Result<SecretString, SealError> {
        let clear = self.deployments.deps.sealer.open(&Deployment::place(id, secret), sealed)?;
        let text = String::from_utf8(clear.expose_secret().to_vec()).map_err(|_| SealError::Damaged)?;
        Ok(text.into())
    }

    fn open_environment(&self, id: DeploymentId, sealed: &SealedDeployment) -> Result<Environment, SealError> {
        let variable = |(name, value): (&String, &Vec<u8>)| {
            Ok((name.clone(), self.open(id, &DeploymentSecret::EnvVar(name.clone()), value)?))
        };
        Ok(Environment {
            base_url: self.base_url.clone(),
            api_key: self.open(id, &DeploymentSecret::ApiKey, &sealed.api_key)?,
            env_vars: sealed.env_vars.iter().map(variable).collect::<Result<_, SealError>>()?,
        })
    }

    /// Returns the environment of the programs of a deployment.
    ///
    /// # Errors
    /// See [`DeploymentError`].
    pub(crate) async fn environment(&self, id: DeploymentId) -> Result<Environment, DeploymentError> {
        let sealed = self.deployments.deps.deployments.secrets(id).await?;
        let sealed = sealed.ok_or_else(|| NotFound::new("deployment", id.to_string()))?;
        Ok(self.open_environment(id, &sealed)?)
    }

    /// Returns the use cases of deployments.
    #[must_use]
    pub fn deployments(&self) -> &Deployments {
        &self.deployments
    }

    /// Returns the node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Renews the lease of a build; returns `false` if this node has lost it, or the deployment was stopped.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn renew(&self, deployment: &Deployment) -> Result<bool, StoreError> {
        let deps = &self.deployments.deps;
        let number = deployment.lease.map_or(0, |lease| lease.number);
        deps.deployments.renew(deployment.id, number, deps.clock.now() + Self::LEASE).await
    }

    /// Stores the outcome of a build: the deployment runs or has failed. Does nothing if the status changed meanwhile.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn finish(&self, deployment: &Deployment, end: &BuildEnd) -> Result<(), StoreError> {
        match end {
            BuildEnd::Done(Ok(built)) => match apps(&built.apps) {
                Ok(apps) => self.register(deployment, built, apps).await,
                Err(why) => self.fail(deployment, why).await,
            },
            BuildEnd::Done(Err(failure)) => self.fail(deployment, failure.reason.clone()).await,
            BuildEnd::TimedOut => {
                self.fail(deployment, format!("not built within {} minutes", Self::LIMIT.whole_minutes())).await
            }
        }
    }

    async fn register(&self, current: &Deployment, built: &Built, apps: Vec<App>) -> Result<(), StoreError> {
        let deps = &self.deployments.deps;
        let now = deps.clock.now();
        let event =
            DeploymentEvent::Built { checksum: built.source_checksum.clone(), artifact: built.artifact.clone() };
        let Ok(next) = current.on(&event, now) else { return Ok(()) };
        let apps: Vec<AppVersion> = apps
            .into_iter()
            .map(|App { name, actions }| AppVersion {
                id: AppVersionId::mint(deps.ids.as_ref()),
                project: current.project,
                deployment: current.id,
                name,
                version: current.version.clone(),
                region: current.region.clone(),
                actions,
                created_at: now,
            })
            .collect();
        match deps.deployments.register(current, &next, &apps).await? {
            Registered::Yes(replaced) => {
                let _ = deps.blobs.delete(&Deployment::blob(current.id)).await;
                for older in &replaced {
                    self.deployments.ended(older).await?;
                }
                Ok(())
            }
            Registered::VersionExists { app } => {
                self.fail(current, format!("version exists: {app} {}", current.version)).await
            }
            Registered::LostRace => Ok(()),
        }
    }

    async fn fail(&self, current: &Deployment, why: String) -> Result<(), StoreError> {
        let deps = &self.deployments.deps;
        let Ok(next) = current.on(&DeploymentEvent::BuildFailed(why), deps.clock.now()) else { return Ok(()) };
        if deps.deployments.replace(current, &next).await? == Replaced::Yes {
            self.deployments.ended(&next).await?;
        }
        Ok(())
    }

    /// Deletes the remaining archives of deployments that were built or have ended.
    ///
    /// # Errors
    /// See [`DeploymentError`]; the call may be repeated.
    pub async fn clear(&self) -> Result<(), DeploymentError> {
        let deps = &self.deployments.deps;
        // Listed before the lookup, so that archives that are stored meanwhile are not deleted.
        let stored = deps.blobs.list(Deployment::BLOBS).await?;
        let old = deps.clock.now() - Self::LIMIT;
        let ids: Vec<DeploymentId> = stored
            .iter()
            .filter(|(_, since)| *since < old)
            .filter_map(|(key, _)| key.strip_prefix(Deployment::BLOBS)?.parse().ok())
            .collect();
        let needed = deps.deployments.unbuilt(&ids).await?;
        for id in ids.into_iter().filter(|id| !needed.contains(id)) {
            deps.blobs.delete(&Deployment::blob(id)).await?;
        }
        Ok(())
    }

    /// Releases and returns the artifacts that no deployment needs any more; the builder may discard them. They include
    /// those of `stored`, a list with times of storing, that no deployment ever referred to, because their builds
    /// failed.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn spent_artifacts(&self, stored: Vec<(String, OffsetDateTime)>) -> Result<Vec<String>, StoreError> {
        let deps = &self.deployments.deps;
        let old = deps.clock.now() - KEEP_ARTIFACTS;
        let mut spent = deps.deployments.release_artifacts(old, BATCH).await?;
        let unused: Vec<String> = stored.into_iter().filter(|(_, since)| *since < old).map(|(name, _)| name).collect();
        for some in unused.chunks(LOOKED_UP_AT_ONCE) {
            spent.extend(deps.deployments.unnamed_artifacts(some).await?);
        }
        spent.sort_unstable();
        spent.dedup();
        Ok(spent)
    }
}

struct App {
    name: LabelName,
    actions: Vec<LabelName>,
}

/// Checks the apps that an entrypoint registers; returns the reason if they cannot be registered.
fn apps(built: &[BuiltApp]) -> Result<Vec<App>, String> {
    let label = |what: &str, text: &str| {
        LabelName::parse(text).map_err(|bad| format!("{what} {:?}: {bad}", text.chars().take(100).collect::<String>()))
    };
    if built.iter().all(|app| app.actions.is_empty()) {
        return Err("the entrypoint registers no app with an action".to_owned());
    }
    if built.len() > MAX_APPS {
        return Err(format!("the entrypoint registers {} apps; {MAX_APPS} are allowed", built.len()));
    }
    let mut seen = BTreeSet::new();
    let mut apps = Vec::new();
    for app in built {
        let name = label("the name of the app", &app.name)?;
        if !seen.insert(name.as_str().to_owned()) {
            return Err(format!("the entrypoint registers the app {name} twice"));
        }
        if app.actions.len() > MAX_ACTIONS {
            return Err(format!("the app {name} has {} actions; {MAX_ACTIONS} are allowed", app.actions.len()));
        }
        let mut actions = Vec::new();
        for action in &app.actions {
            let action = label("the name of the action", action)?;
            if actions.contains(&action) {
                return Err(format!("the app {name} has the action {action} twice"));
            }
            actions.push(action);
        }
        apps.push(App { name, actions });
    }
    Ok(apps)
}
