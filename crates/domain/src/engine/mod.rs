//! Engines: what starts the browsers of an installation, and what each of them can do.

mod configured;
mod model;
mod ports;
mod refusals;
mod table;

pub use configured::{ConfiguredEngines, EngineSetError};
pub use model::{Capability, EngineDescription, EngineKind, EngineName, EngineRefused, Support};
pub use ports::Engines;
#[cfg(feature = "mocks")]
pub use ports::MockEngines;
pub use refusals::check;
pub(crate) use refusals::{check_fields, choose, describe};
pub use table::{TABLE_BEGIN, TABLE_END, table};
