//! Scripts: code of callers that runs in the session's sandbox with access to the browser.

mod model;
mod ports;
mod service;

pub use model::{NewScript, ScriptEnd};
#[cfg(feature = "mocks")]
pub use ports::MockScriptMachine;
pub use ports::ScriptMachine;
pub use service::Scripts;
