//! The port to the engines of an installation.

use std::sync::Arc;

use super::{EngineDescription, EngineName};

/// The engines of an installation, which do not change while it runs.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Engines: Send + Sync {
    /// Returns all engines, ordered by name, the local one first. There is at least one.
    fn all(&self) -> Vec<Arc<EngineDescription>>;

    /// Finds an engine.
    fn find(&self, name: &EngineName) -> Option<Arc<EngineDescription>>;

    /// Returns the engine of requests that name none.
    fn default_engine(&self) -> Arc<EngineDescription>;
}
