//! One HTTP request through a session's browser: its network stack, its cookies, its proxy.

mod input;
mod model;
mod ports;
mod service;

pub use input::RawRequest;
pub use model::{CurlAnswer, CurlRequest};
pub use ports::CurlMachine;
#[cfg(feature = "mocks")]
pub use ports::MockCurlMachine;
pub use service::Curl;
