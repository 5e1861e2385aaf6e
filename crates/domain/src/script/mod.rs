//! Scripts: a caller's code, run beside the browser with the browser at hand.

mod model;
mod ports;
mod service;

pub use model::{ExecuteScript, NewScript, ScriptEnd};
#[cfg(feature = "mocks")]
pub use ports::MockScriptMachine;
pub use ports::ScriptMachine;
pub use service::Scripts;
