//! Deployments: source code of apps that callers upload, built once and then ready to run.

mod builds;
mod entrypoint;
mod follow;
mod input;
mod lines;
mod model;
mod ports;
mod repository;
mod service;
mod transitions;

pub use builds::{BuildEnd, Builds, LeasedBuild};
pub use entrypoint::MAX_BYTES as MAX_ENTRYPOINT;
pub use entrypoint::{Entrypoint, NoRuntime, PackagePath, Runtime};
pub use follow::{FollowDeps, Followed, Follower};
pub use input::{AuthRequest, DeploymentRequest, DeploymentRules, SourceRequest};
pub use input::{MAX_REF, MAX_TOKEN, MAX_URL, MAX_VALUE, MAX_VARIABLES, MAX_VERSION};
pub use input::{REGION_PATTERN, TOKEN_PATTERN, VARIABLE_PATTERN};
pub use lines::keep;
pub use model::{
    AppVersion, BuildLease, Deployment, DeploymentSecret, DeploymentSource, DeploymentStatus, SealedDeployment,
};
pub use ports::{
    Build, BuildFailure, BuildSource, BuildStep, Builder, Built, BuiltApp, Environment, InspectedPackage, Line, Lines,
    PackageArchives,
};
#[cfg(feature = "mocks")]
pub use ports::{MockBuilder, MockLines, MockPackageArchives};
pub use repository::{
    AppFilter, ChangeNotifier, ChangeWaiter, DeploymentFilter, DeploymentRepository, DeploymentStored, LineRange,
    LineStore, ListedApp, Registered, SealedDeploymentSecret, StoredLines, Subject, WakeReason,
};
#[cfg(feature = "mocks")]
pub use repository::{MockChangeNotifier, MockChangeWaiter, MockDeploymentRepository, MockLineStore};
pub use service::{DeploymentDeps, DeploymentError, Deployments, MAX_PACKAGE_BYTES, reseal};
pub use transitions::{DeploymentEvent, DeploymentRefused, reason};
