//! The use cases of deployments.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;

use super::input::NewDeployment;
use super::{
    AppFilter, ChangeNotifier, Deployment, DeploymentEvent, DeploymentFilter, DeploymentRefused, DeploymentRepository,
    DeploymentRequest, DeploymentRules, DeploymentSecret, DeploymentSource, DeploymentStatus, DeploymentStored,
    FollowDeps, Follower, LineStore, ListedApp, PackageArchives, SealedDeployment, Subject,
};
use crate::access::Scope;
use crate::api_key::{ApiKeys, CreatedKey, KeyRequest};
use crate::blob::{BlobError, BlobStore};
use crate::clock::{Clock, IdSource};
use crate::error::{NotFound, UseCaseError};
use crate::ids::{DeploymentId, UserId};
use crate::invocation::{InvocationEvent, InvocationRepository, end_all};
use crate::page::{Listed, Page};
use crate::sealing::{Resealed, SealError, Sealer};
use crate::session_operation::ByteStream;
use crate::store_error::{Replaced, StoreError};

/// The maximum size of an uploaded archive, in bytes.
pub const MAX_PACKAGE_BYTES: u64 = 256 << 20;

/// The error of a use case of deployments.
pub type DeploymentError = UseCaseError<BlobError>;

/// The dependencies of the use cases of deployments.
#[derive(Clone)]
pub struct DeploymentDeps {
    /// The repository of deployments.
    pub deployments: Arc<dyn DeploymentRepository>,
    /// The repository of invocations.
    pub invocations: Arc<dyn InvocationRepository>,
    /// The store of log lines.
    pub lines: Arc<dyn LineStore>,
    /// The notifications of changes.
    pub notifier: Arc<dyn ChangeNotifier>,
    /// The blob store of archives.
    pub blobs: Arc<dyn BlobStore>,
    /// Inspects uploaded archives.
    pub archives: Arc<dyn PackageArchives>,
    /// Creates the API keys of deployments.
    pub keys: ApiKeys,
    /// Seals the secrets of deployments.
    pub sealer: Arc<dyn Sealer>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The rules of this installation.
    pub rules: DeploymentRules,
    /// The maximum number of deployments of a project that have not ended.
    pub max: u32,
}

impl DeploymentDeps {
    pub(crate) fn follow(&self) -> FollowDeps {
        FollowDeps {
            deployments: self.deployments.clone(),
            invocations: self.invocations.clone(),
            lines: self.lines.clone(),
            notifier: self.notifier.clone(),
        }
    }
}

/// The use cases of deployments.
#[derive(Clone)]
pub struct Deployments {
    pub(super) deps: DeploymentDeps,
}

impl Deployments {
    /// The default maximum number of deployments of a project that have not ended.
    pub const DEFAULT_MAX: u32 = 500;
    /// The default origin of repositories.
    pub const DEFAULT_ORIGIN: &str = "https://github.com";
    /// The default region.
    pub const DEFAULT_REGION: &str = "aws.us-east-1a";

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: DeploymentDeps) -> Self {
        Self { deps }
    }

    /// Stores a new deployment of an archive, which is read to its end, or of a repository. It then waits for a build.
    ///
    /// # Errors
    /// See [`DeploymentError`]; then nothing is stored.
    pub async fn create(
        &self,
        scope: &Scope,
        user: UserId,
        request: DeploymentRequest,
        archive: Option<ByteStream>,
    ) -> Result<Deployment, DeploymentError> {
        scope.writable()?;
        let new = request.parse(&self.deps.rules)?;
        let id = DeploymentId::mint(self.deps.ids.as_ref());
        let checksum = match archive {
            Some(content) => {
                let inspected = self.deps.archives.inspect(new.entrypoint.path(), content).await?;
                self.deps.blobs.put(&Deployment::blob(id), inspected.content).await?;
                Some(inspected.checksum)
            }
            None => None,
        };
        let stored = self.store(scope, user, id, new, checksum).await;
        // After an error of the store the row may exist; `Builds::clear` deletes the archive if it does not.
        if !matches!(stored, Ok(_) | Err(DeploymentError::Store(_))) {
            let _ = self.deps.blobs.delete(&Deployment::blob(id)).await;
        }
        stored
    }

    async fn store(
        &self,
        scope: &Scope,
        user: UserId,
        id: DeploymentId,
        new: NewDeployment,
        checksum: Option<String>,
    ) -> Result<Deployment, DeploymentError> {
        let request = KeyRequest {
            name: Some(format!("deployment {id}")),
            project: Some(scope.project_id()),
            ..KeyRequest::default()
        };
        let mut key = self.deps.keys.draft(scope.organization(), user, request)?;
        key.key.for_deployment = true;
        key.key.policy = scope.permissions.policy().cloned();
        let secrets = self.seal(id, &new.env_vars, new.token.as_ref(), &key)?;
        let now = self.deps.clock.now();
        let deployment = Deployment {
            id,
            project: scope.project_id(),
            status: DeploymentStatus::Queued,
            status_reason: None,
            region: new.region,
            version: new.version,
            force: new.force,
            entrypoint: new.entrypoint,
            source: new.source,
            source_checksum: checksum,
            env_names: new.env_vars.into_keys().collect(),
            api_key: key.key.id,
            artifact: None,
            lease: None,
            begun_at: None,
            created_at: now,
            updated_at: now,
        };
        let rows = &self.deps.deployments;
        match rows.create(scope.organization(), &deployment, &secrets, &key.key, self.deps.max).await? {
            DeploymentStored::Yes => Ok(deployment),
            DeploymentStored::LimitExceeded(limit) => Err(limit.into()),
            DeploymentStored::ProjectGone => Err(DeploymentError::ProjectDeleted),
        }
    }

    fn seal(
        &self,
        id: DeploymentId,
        env_vars: &BTreeMap<String, SecretString>,
        token: Option<&SecretString>,
        key: &CreatedKey,
    ) -> Result<SealedDeployment, SealError> {
        let seal = |secret: &DeploymentSecret, clear: &str| {
            self.deps.sealer.seal(&Deployment::place(id, secret), clear.as_bytes())
        };
        let variable = |(name, value): (&String, &SecretString)| {
            Ok((name.clone(), seal(&DeploymentSecret::EnvVar(name.clone()), value.expose_secret())?))
        };
        Ok(SealedDeployment {
            env_vars: env_vars.iter().map(variable).collect::<Result<_, SealError>>()?,
            token: token.map(|token| seal(&DeploymentSecret::Token, token.expose_secret())).transpose()?,
            api_key: seal(&DeploymentSecret::ApiKey, &key.secret.key_text(key.key.id))?,
        })
    }

    /// Returns the project's deployment.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Deployment, DeploymentError> {
        let found = match which.parse() {
            Ok(id) => self.deps.deployments.find(scope.project_id(), id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| NotFound::new("deployment", which).into())
    }

    /// Returns the project's deployments, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &DeploymentFilter,
        page: Page,
    ) -> Result<Listed<Deployment>, StoreError> {
        self.deps.deployments.list(scope.project_id(), filter, page).await
    }

    /// Returns the project's apps that can be invoked, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn apps(&self, scope: &Scope, filter: &AppFilter, page: Page) -> Result<Listed<ListedApp>, StoreError> {
        self.deps.deployments.list_apps(scope.project_id(), filter, page).await
    }

    /// Follows a deployment, with the log lines from `since` on, or all stored ones.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn follow(
        &self,
        scope: &Scope,
        which: &str,
        since: Option<OffsetDateTime>,
    ) -> Result<Follower, DeploymentError> {
        let Deployment { id, .. } = self.get(scope, which).await?;
        Ok(Follower::new(self.deps.follow(), Subject::Deployment(id), since))
    }

    /// Stops a deployment; its unfinished invocations fail. Does nothing if the deployment has ended.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn stop(&self, scope: &Scope, which: &str) -> Result<(), DeploymentError> {
        let Deployment { id, .. } = self.get(scope, which).await?;
        self.end(id, &DeploymentEvent::Stop).await?;
        Ok(())
    }

    /// Ends a deployment by an event, with its invocations; `None` if it does not exist, or the event is not possible.
    ///
    /// # Errors
    /// Returns the error of the store. Background jobs then end the remaining invocations and delete the archive.
    pub async fn end(&self, id: DeploymentId, event: &DeploymentEvent) -> Result<Option<Deployment>, StoreError> {
        // The loop ends: a race is lost only to another transition, and `on` refuses events in a final status.
        loop {
            let Some(current) = self.deps.deployments.get(id).await? else { return Ok(None) };
            let next = match current.on(event, self.deps.clock.now()) {
                Ok(next) => next,
                Err(DeploymentRefused { .. }) => return Ok(None),
            };
            if self.deps.deployments.replace(&current, &next).await? == Replaced::Yes {
                self.ended(&next).await.map_err(|error| error.with_maybe_done(true))?;
                return Ok(Some(next));
            }
        }
    }

    /// Ends the invocations of a deployment that was stored as ended, and deletes its archive.
    pub(super) async fn ended(&self, deployment: &Deployment) -> Result<(), StoreError> {
        if deployment.source == DeploymentSource::File {
            // If this fails, `Builds::clear` deletes the archive later.
            let _ = self.deps.blobs.delete(&Deployment::blob(deployment.id)).await;
        }
        let unfinished = self.deps.invocations.unfinished_of(deployment.id).await?;
        let event = match deployment.status {
            DeploymentStatus::Failed => InvocationEvent::DeploymentFailed,
            _ => InvocationEvent::DeploymentStopped,
        };
        end_all(&*self.deps.invocations, &*self.deps.clock, unfinished, |_| event.clone()).await
    }

    /// Reseals secrets that are not sealed with the current master key. Secrets that cannot be opened are unchanged.
    ///
    /// # Errors
    /// See [`DeploymentError`]; secrets that were resealed before the error stay resealed.
    pub async fn reseal(&self) -> Result<Resealed, DeploymentError> {
        reseal(&*self.deps.deployments, &*self.deps.sealer).await
    }
}

/// Like [`Deployments::reseal`], for callers that have only the repository and the sealer.
///
/// # Errors
/// See [`DeploymentError`]; secrets that were resealed before the error stay resealed.
pub async fn reseal(deployments: &dyn DeploymentRepository, sealer: &dyn Sealer) -> Result<Resealed, DeploymentError> {
    let mut resealed = Resealed::default();
    loop {
        let processed = resealed.processed();
        for one in &deployments.sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
            if let Some(next) =
                resealed.reseal_value(sealer, Deployment::place(one.deployment, &one.secret), &one.sealed)?
            {
                deployments.reseal(one, &next).await?;
                resealed.done += 1;
            }
        }
        if resealed.processed() == processed {
            return Ok(resealed);
        }
    }
}
