//! One HTTP request through a session's browser: its network stack, its cookies, its proxy.

mod input;
mod model;
mod ports;
mod service;

pub use input::{MAX_HEADERS, MAX_TIMEOUT_MS, MAX_URL, METHODS, RawRequest};
pub use model::{CurlAnswer, CurlRequest};
pub use ports::CurlMachine;
#[cfg(feature = "mocks")]
pub use ports::MockCurlMachine;
pub use service::Curl;
