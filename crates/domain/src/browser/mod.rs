//! Browsers: each runs in a sandbox, and a session is one use of it.

mod model;
mod policy;
mod ports;
mod transitions;
mod viewport;

pub use model::{Browser, BrowserState, Shape, StartUrl};
pub use policy::BrowserPolicy;
pub use ports::{BrowserEngine, BrowserRepository, EngineError, EngineFault, HandOut, Launch, SpareBrowsers, Started};
#[cfg(feature = "mocks")]
pub use ports::{MockBrowserEngine, MockBrowserRepository, MockSpareBrowsers};
pub use transitions::{BrowserEvent, BrowserRefused};
pub use viewport::{Region, Viewport};
