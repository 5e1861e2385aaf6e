//! Browsers: each runs in a sandbox, and a session is one use of it.

mod installation;
mod location;
mod memory;
mod model;
mod policy;
mod ports;
mod region;
mod transitions;
mod viewport;

pub use installation::Installation;
pub use location::{Locale, Location, LocationChange, LocationRequest, TimeZone};
pub use memory::{Memory, MemoryBounds, ReservedMemory};
pub use model::{Browser, BrowserState, Shape, StartUrl};
pub use policy::BrowserPolicy;
pub use ports::{BrowserEngine, BrowserRepository, EngineError, EngineFault, HandOut, Launch, SpareBrowsers, Started};
#[cfg(feature = "mocks")]
pub use ports::{MockBrowserEngine, MockBrowserRepository, MockSpareBrowsers};
pub use region::BrowserRegion;
pub use transitions::{BrowserEvent, BrowserRefused};
pub use viewport::{Region, Viewport};
