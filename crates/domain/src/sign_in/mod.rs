//! Sign-ins to the web interface. Every node accepts them, and a sign-out ends them everywhere.

mod model;
mod ports;
mod service;

pub use model::{CookieHash, SignIn};
#[cfg(feature = "mocks")]
pub use ports::MockSignInRepository;
pub use ports::{SignInBounds, SignInRepository};
pub use service::SignIns;
