//! Engines: what starts the browsers of an installation, and what each of them can do.

mod configured;
mod model;
mod ports;

pub use configured::{ConfiguredEngines, EngineSetError};
pub use model::{Capability, EngineDescription, EngineKind, EngineName, EngineRefused, Support};
pub use ports::Engines;
