//! Scripts: code of callers that runs beside the browser with access to it.

mod model;
mod ports;
mod service;

pub use model::{NewScript, ScriptEnd};
#[cfg(feature = "mocks")]
pub use ports::MockScriptMachine;
pub use ports::ScriptMachine;
pub use service::Scripts;
