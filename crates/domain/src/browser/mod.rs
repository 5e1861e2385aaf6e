//! The running browser in its sandbox; a session is one lease of it.

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
