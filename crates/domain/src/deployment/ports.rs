//! The ports of builds, and log lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::OffsetDateTime;
use url::Url;

use super::{Entrypoint, PackagePath};
use crate::ids::{DeploymentId, ProjectId};
use crate::session_operation::{ByteStream, OperationError};

/// The environment variables of the programs of a deployment.
#[derive(Clone)]
pub struct Environment {
    /// The base URL of the API: `KERNEL_BASE_URL`.
    pub base_url: String,
    /// The API key of the deployment: `KERNEL_API_KEY`.
    pub api_key: SecretString,
    /// The deployment's own variables, which take precedence.
    pub env_vars: BTreeMap<String, SecretString>,
}

impl Environment {
    /// Returns all variables by name.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, SecretString> {
        let mut all = BTreeMap::from([
            ("KERNEL_BASE_URL".to_owned(), self.base_url.clone().into()),
            ("KERNEL_API_KEY".to_owned(), self.api_key.clone()),
        ]);
        all.extend(self.env_vars.iter().map(|(name, value)| (name.clone(), value.clone())));
        all
    }
}

/// Shows the names of the variables and no values.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables().keys()).finish()
    }
}

/// An uploaded archive that passed the inspection.
pub struct InspectedPackage {
    /// The size in bytes.
    pub size_bytes: u64,
    /// The SHA-256 hash in hexadecimal.
    pub checksum: String,
    /// The content.
    pub content: ByteStream,
}

/// The port that inspects uploaded packages.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait PackageArchives: Send + Sync {
    /// Reads an archive to its end and inspects it without unpacking it.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] in the field `file` if the content is not a ZIP archive or an unsafe one (paths or
    /// links that leave it, devices, encrypted or duplicate entries, too many or too large entries), in the field
    /// `entrypoint_rel_path` if the archive has no such file; [`OperationError::TooLarge`]; the error of `content`.
    async fn inspect(&self, entrypoint: &PackagePath, content: ByteStream) -> Result<InspectedPackage, OperationError>;
}

/// The source of a build.
#[derive(Clone, Debug)]
pub enum BuildSource {
    /// A stored archive that was inspected.
    Archive {
        /// The blob key.
        blob: String,
        /// The SHA-256 hash in hexadecimal.
        checksum: String,
        /// The entrypoint, relative to the root, which contains the list of dependencies.
        entrypoint: Entrypoint,
    },
    /// A Git repository.
    Git {
        /// `<origin>/<owner>/<repository>`. The operator allows the origin, so only the origin may have a private
        /// address.
        url: Url,
        /// The branch, tag or commit; it never begins with `-`.
        git_ref: String,
        /// The folder of the package; `None`: the whole repository.
        path: Option<PackagePath>,
        /// The entrypoint, relative to `path`.
        entrypoint: Entrypoint,
        /// The token of a private repository.
        token: Option<SecretString>,
    },
}

/// A build.
#[derive(Clone, Debug)]
pub struct Build {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The project. Artifacts of one project are never used for another.
    pub project: ProjectId,
    /// The source.
    pub source: BuildSource,
    /// The environment in which the entrypoint is loaded to find the apps that it registers.
    pub environment: Environment,
}

/// An unchecked app, as an entrypoint registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltApp {
    /// The name.
    pub name: String,
    /// The names of the actions, in order.
    pub actions: Vec<String>,
}

/// The result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The SHA-256 hash of the source archive in hexadecimal.
    pub source_checksum: String,
    /// The apps that the entrypoint registers, in order.
    pub apps: Vec<BuiltApp>,
    /// The name of the runnable artifact, the same on every node and for the same source.
    pub artifact: String,
}

/// The step at which a build failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// The source could not be fetched, or is no valid package.
    Fetch,
    /// The dependencies could not be installed.
    Install,
    /// The entrypoint could not be loaded.
    Load,
    /// The server failed: no sandbox, no room or no store.
    Host,
}

/// The error of a build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BuildFailure {
    /// The step.
    pub step: BuildStep,
    /// The reason for the caller, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// The port that builds deployments.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Builder: Send + Sync {
    /// Fetches, unpacks, installs and loads a package, and logs each step to `lines`. The same source is built once per
    /// project. Dropping the future ends the build with its processes. The remains of the builds of a killed server are
    /// removed when the next one starts.
    async fn build(&self, build: Build, lines: Arc<dyn Lines>) -> Result<Built, BuildFailure>;

    /// Returns the artifacts on this node and in the blob store, each with its time of storing.
    async fn stored(&self) -> Vec<(String, OffsetDateTime)>;

    /// Deletes an artifact that no deployment may run any more, on this node and in the blob store. Does not delete an
    /// artifact that a build of this node used recently, because a deployment may be about to use it.
    async fn discard(&self, artifact: &str);
}

/// A log line of a program or of its build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number among the lines of the build or invocation, from 0 on.
    pub number: u64,
    /// The time of writing.
    pub at: OffsetDateTime,
    /// The text without its line break, cut at [`Line::MAX_BYTES`].
    pub text: String,
}

impl Line {
    /// The maximum length of a stored line, in bytes.
    pub const MAX_BYTES: usize = 16 << 10;
    /// The maximum number of stored bytes of one build or invocation. Later lines are not stored.
    pub const MAX_BYTES_IN_ALL: u64 = 10 << 20;
    /// The minimum size that a line counts as, in bytes, because even an empty line takes room in the store.
    pub const MIN_BYTES: u64 = 48;
}

/// The port that receives the lines of one build or invocation.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Lines: Send + Sync {
    /// Returns the number of the next line. The number is above 0 if a killed server stored lines before.
    async fn taken(&self) -> u64;

    /// Receives lines in the order of their numbers; numbers that were received before are skipped. Waits while the
    /// store is behind, as backpressure for the writer. Lines beyond the limit are dropped at once. The implementation
    /// handles errors.
    async fn push(&self, lines: Vec<Line>);
}
