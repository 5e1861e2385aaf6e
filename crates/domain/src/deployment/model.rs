//! What a deployment is.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;
use url::Url;

use super::{Entrypoint, PackagePath};
use crate::ids::{ApiKeyId, AppVersionId, DeploymentId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// Where a deployment stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DeploymentStatus {
        /// Its source is kept; nobody builds it yet.
        Queued => "queued",
        /// It is being built.
        InProgress => "in_progress",
        /// Its actions can be invoked.
        Running => "running",
        /// It could not be built, or not be kept up. Final.
        Failed => "failed",
        /// It was stopped. Final.
        Stopped => "stopped",
    }
}

impl DeploymentStatus {
    /// Whether nothing can happen to it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }
}

/// Where the program of a deployment comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentSource {
    /// An archive was uploaded.
    File,
    /// A Git repository.
    Git {
        /// `<origin>/<owner>/<repository>`.
        url: Url,
        /// Branch, tag or commit, as asked for.
        git_ref: String,
        /// What of it is the package; `None`: all.
        path: Option<PackagePath>,
    },
}

/// Who builds a deployment, until when, and the how-manieth this is. Of two that believe to build it, the one with the higher number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLease {
    /// Which node.
    pub node: NodeId,
    /// Rises with every taking.
    pub number: u32,
    /// From then on another may take it.
    pub expires_at: OffsetDateTime,
}

/// A program that was brought, at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Which one.
    pub id: DeploymentId,
    /// Whose.
    pub project: ProjectId,
    /// Where it stands.
    pub status: DeploymentStatus,
    /// Why it stands there.
    pub status_reason: Option<String>,
    /// Where it is said to run.
    pub region: String,
    /// The version under which its apps are registered.
    pub version: String,
    /// Whether it may take the place of an app that has the version already.
    pub force: bool,
    /// What is loaded.
    pub entrypoint: Entrypoint,
    /// Where it comes from.
    pub source: DeploymentSource,
    /// SHA-256 of the source's archive, in hexadecimal, once it is known.
    pub source_checksum: Option<String>,
    /// The names of its variables; what they hold is sealed elsewhere.
    pub env_names: BTreeSet<String>,
    /// The key that its programs call the API with.
    pub api_key: ApiKeyId,
    /// What its build left; see [`Built::artifact`](super::Built::artifact).
    pub artifact: Option<String>,
    /// Who builds it, or did last.
    pub lease: Option<BuildLease>,
    /// When its build began first.
    pub begun_at: Option<OffsetDateTime>,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it last moved.
    pub updated_at: OffsetDateTime,
}

/// One secret of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentSecret {
    /// The variable of that name.
    EnvVar(String),
    /// What opens its private repository.
    Token,
    /// The text of its API key.
    ApiKey,
}

/// The secrets of a deployment, each sealed in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedDeployment {
    /// By name.
    pub env_vars: BTreeMap<String, Vec<u8>>,
    /// What opens its private repository.
    pub token: Option<Vec<u8>>,
    /// The text of its API key.
    pub api_key: Vec<u8>,
}

impl Deployment {
    /// Where that secret of it is sealed.
    #[must_use]
    pub fn place(id: DeploymentId, secret: &DeploymentSecret) -> String {
        match secret {
            DeploymentSecret::EnvVar(name) => format!("deployments/{id}/env_vars/{name}"),
            DeploymentSecret::Token => format!("deployments/{id}/token"),
            DeploymentSecret::ApiKey => format!("deployments/{id}/api_key"),
        }
    }

    /// Under which key its archive lies, until it is built.
    #[must_use]
    pub fn blob(id: DeploymentId) -> String {
        format!("{}{id}", Self::BLOBS)
    }

    /// What all those keys begin with.
    pub const BLOBS: &str = "deployments/";
}

/// An app at one version, as a deployment registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppVersion {
    /// Which one.
    pub id: AppVersionId,
    /// Whose.
    pub project: ProjectId,
    /// By which deployment.
    pub deployment: DeploymentId,
    /// The app.
    pub name: LabelName,
    /// A label, compared as a whole.
    pub version: String,
    /// The deployment's.
    pub region: String,
    /// Its actions, in the order in which they were registered.
    pub actions: Vec<LabelName>,
    /// When it was registered.
    pub created_at: OffsetDateTime,
}
