//! Deployments: programs that callers bring, built once and kept ready to run.

mod entrypoint;
mod ports;

pub use entrypoint::{Entrypoint, NoRuntime, PackagePath, Runtime};
pub use ports::{
    Build, BuildFailure, BuildSource, BuildStep, Builder, Built, BuiltApp, Environment, InspectedPackage, Line, Lines,
    PackageArchives,
};
#[cfg(feature = "mocks")]
pub use ports::{MockBuilder, MockLines, MockPackageArchives};
