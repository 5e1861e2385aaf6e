//! Deployments and the apps that they register.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;
use url::Url;

use super::{Entrypoint, PackagePath};
use crate::ids::{ApiKeyId, AppVersionId, DeploymentId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// The status of a deployment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DeploymentStatus {
        /// The source is stored, and the deployment waits for a build.
        Queued => "queued",
        /// The deployment is being built.
        InProgress => "in_progress",
        /// The actions can be invoked.
        Running => "running",
        /// The deployment could not be built, or its processes failed. Final.
        Failed => "failed",
        /// The deployment was stopped. Final.
        Stopped => "stopped",
    }
}

impl DeploymentStatus {
    /// Returns whether the status is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }
}

/// The source of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentSource {
    /// An uploaded archive.
    File,
    /// A Git repository.
    Git {
        /// `<origin>/<owner>/<repository>`.
        url: Url,
        /// The requested branch, tag or commit.
        git_ref: String,
        /// The folder of the package; `None`: the whole repository.
        path: Option<PackagePath>,
    },
}

/// The right of a node to build a deployment. If two nodes hold a lease, the one with the higher number builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLease {
    /// The node.
    pub node: NodeId,
    /// The number, which rises with every lease.
    pub number: u32,
    /// The time from which another node may take the lease.
    pub expires_at: OffsetDateTime,
}

/// A deployment: the source code of apps at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The id.
    pub id: DeploymentId,
    /// The project.
    pub project: ProjectId,
    /// The status.
    pub status: DeploymentStatus,
    /// The reason of the status.
    pub status_reason: Option<String>,
    /// The region that callers see.
    pub region: String,
    /// The version of the apps.
    pub version: String,
    /// True if the deployment may replace an app that has the version already.
    pub force: bool,
    /// The entrypoint: the file that is loaded.
    pub entrypoint: Entrypoint,
    /// The source.
    pub source: DeploymentSource,
    /// The SHA-256 hash of the source archive in hexadecimal, once it is known.
    pub source_checksum: Option<String>,
    /// The names of the environment variables, whose values are sealed elsewhere.
    pub env_names: BTreeSet<String>,
    /// The API key of the programs.
    pub api_key: ApiKeyId,
    /// The artifact of the build; see [`Built::artifact`](super::Built::artifact).
    pub artifact: Option<String>,
    /// The latest build lease.
    pub lease: Option<BuildLease>,
    /// The time of the first start of the build.
    pub begun_at: Option<OffsetDateTime>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

/// One secret of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentSecret {
    /// The environment variable with this name.
    EnvVar(String),
    /// The token of the private repository.
    Token,
    /// The text of the API key.
    ApiKey,
}

/// The secrets of a deployment, each sealed for its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedDeployment {
    /// The environment variables by name.
    pub env_vars: BTreeMap<String, Vec<u8>>,
    /// The token of the private repository.
    pub token: Option<Vec<u8>>,
    /// The text of the API key.
    pub api_key: Vec<u8>,
}

impl Deployment {
    /// Returns the place that a secret is sealed for.
    #[must_use]
    pub fn place(id: DeploymentId, secret: &DeploymentSecret) -> String {
        match secret {
            DeploymentSecret::EnvVar(name) => format!("deployments/{id}/env_vars/{name}"),
            DeploymentSecret::Token => format!("deployments/{id}/token"),
            DeploymentSecret::ApiKey => format!("deployments/{id}/api_key"),
        }
    }

    /// Returns the blob key of the archive, which is stored until the deployment is built.
    #[must_use]
    pub fn blob(id: DeploymentId) -> String {
        format!("{}{id}", Self::BLOBS)
    }

    /// The prefix of the blob keys of all archives.
    pub const BLOBS: &str = "deployments/";

    /// Returns the blob key of a build's artifact.
    #[must_use]
    pub fn artifact_blob(artifact: &str) -> String {
        format!("{}{artifact}", Self::ARTIFACT_BLOBS)
    }

    /// The prefix of the blob keys of all artifacts.
    pub const ARTIFACT_BLOBS: &str = "artifacts/";
}

/// An app at one version, registered by a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppVersion {
    /// The id.
    pub id: AppVersionId,
    /// The project.
    pub project: ProjectId,
    /// The deployment.
    pub deployment: DeploymentId,
    /// The name of the app.
    pub name: LabelName,
    /// The version, which is an opaque label.
    pub version: String,
    /// The region of the deployment.
    pub region: String,
    /// The actions in the order of their registration.
    pub actions: Vec<LabelName>,
    /// The time of registration.
    pub created_at: OffsetDateTime,
}
