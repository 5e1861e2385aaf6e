//! What deployments need from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::OffsetDateTime;
use url::Url;

use super::{Entrypoint, PackagePath};
use crate::ids::{DeploymentId, ProjectId};
use crate::session_operation::{ByteStream, OperationError};

/// What a program of a deployment finds in its environment, besides what every process has.
#[derive(Clone)]
pub struct Environment {
    /// Where the API is: `KERNEL_BASE_URL`.
    pub base_url: String,
    /// A key of the project, made for the deployment: `KERNEL_API_KEY`.
    pub api_key: SecretString,
    /// The deployment's own; they win.
    pub env_vars: BTreeMap<String, SecretString>,
}

impl Environment {
    /// All of it, by name.
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

/// Names the variables, and none of what they hold.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables().keys()).finish()
    }
}

/// An uploaded archive that may be unpacked and holds the entrypoint.
pub struct InspectedPackage {
    /// How long it is.
    pub size_bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub checksum: String,
    /// Its bytes.
    pub content: ByteStream,
}

/// Looks through uploaded packages before anything is done with them.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait PackageArchives: Send + Sync {
    /// Reads an archive to its end and looks through it; it is not unpacked here.
    ///
    /// # Errors
    /// [`OperationError::Invalid`]: in the field `file` what is no ZIP archive, or one that nobody should unpack (paths that leave it,
    /// links that leave it, devices, encrypted or doubled entries, too many, too much), in the field `entrypoint_rel_path` one that is
    /// no file of it; [`OperationError::TooLarge`]; what is wrong with `content` itself.
    async fn inspect(&self, entrypoint: &PackagePath, content: ByteStream) -> Result<InspectedPackage, OperationError>;
}

/// Where a program comes from.
#[derive(Clone, Debug)]
pub enum BuildSource {
    /// An archive that was looked through and is kept.
    Archive {
        /// Its key in the store of bytes.
        blob: String,
        /// Its SHA-256, in hexadecimal.
        checksum: String,
        /// Relative to its root, which is where dependencies are looked for.
        entrypoint: Entrypoint,
    },
    /// A Git repository.
    Git {
        /// `<origin>/<owner>/<repository>`; the origin is one that the operator allows, so it may be reached wherever it lies. Nothing
        /// else of a private address may.
        url: Url,
        /// A branch, a tag or a commit; never begins with `-`.
        git_ref: String,
        /// What of it is the package; `None`: all.
        path: Option<PackagePath>,
        /// Relative to `path`.
        entrypoint: Entrypoint,
        /// For a private one.
        token: Option<SecretString>,
    },
}

/// A program to build.
#[derive(Clone, Debug)]
pub struct Build {
    /// For which deployment.
    pub deployment: DeploymentId,
    /// Whose. What was built for one project is never used for another.
    pub project: ProjectId,
    /// Where it comes from.
    pub source: BuildSource,
    /// What the entrypoint finds when it is loaded to learn what it registers.
    pub environment: Environment,
}

/// An app as an entrypoint registers it; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltApp {
    /// Its name.
    pub name: String,
    /// The names of its actions, in their order.
    pub actions: Vec<String>,
}

/// What a build leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// SHA-256 of the source's archive, in hexadecimal.
    pub source_checksum: String,
    /// What the entrypoint registers, in its order.
    pub apps: Vec<BuiltApp>,
    /// Under which the builder keeps what can be run, on whatever node: the same for the same source.
    pub artifact: String,
}

/// What a build failed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// The source could not be fetched, or is not what a package may be.
    Fetch,
    /// Its dependencies could not be installed.
    Install,
    /// Its entrypoint could not be loaded.
    Load,
    /// Ours: there was no sandbox, no room, no store.
    Host,
}

/// A program was not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BuildFailure {
    /// At what.
    pub step: BuildStep,
    /// For the one who deployed, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// Builds programs.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Builder: Send + Sync {
    /// Fetches, unpacks, installs and loads once, each step said in `lines`; what was built before of the same source for the same
    /// project is not built again. Who drops the future ends the build and all that it has begun; of a server that was killed, whatever
    /// is left of its builds is ended when the next one starts.
    async fn build(&self, build: Build, lines: Arc<dyn Lines>) -> Result<Built, BuildFailure>;

    /// What builds have left on this node and in the store of bytes, and since when each is there.
    async fn kept(&self) -> Vec<(String, OffsetDateTime)>;

    /// Forgets what a build left, on this node and in the store of bytes. No deployment that may run names it any more; if a build of this
    /// node has used it a while ago, and may be about to name it, it stays.
    async fn discard(&self, artifact: &str);
}

/// A line that a program has written, or that was said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its place among the lines of this build or call, from 0 on.
    pub number: u64,
    /// When it was written.
    pub at: OffsetDateTime,
    /// Without its end. More than [`Line::MAX_BYTES`] are cut.
    pub text: String,
}

impl Line {
    /// How much of a line is kept.
    pub const MAX_BYTES: usize = 16 << 10;
    /// How much of all lines of one build or one call is kept: the first so many bytes.
    pub const MAX_BYTES_IN_ALL: u64 = 10 << 20;
    /// What the shortest line counts as: it takes that much room wherever it is kept, also if it is empty.
    pub const MIN_BYTES: u64 = 48;
}

/// Takes the lines of one build or one call.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Lines: Send + Sync {
    /// How many lines were taken before, by a server that was killed: the number that the next one bears.
    async fn taken(&self) -> u64;

    /// Takes lines in order of their numbers; a number that was taken before is passed over. Waits while the store is behind, so that who
    /// writes faster is held up; what is more than is kept is dropped at once. Whatever fails is this side's to handle.
    async fn push(&self, lines: Vec<Line>);
}
