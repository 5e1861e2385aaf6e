//! Classic WebDriver and WebDriver BiDi. Both use the chromedriver inside the session and are bound to the browser that
//! runs there.

mod bidi;
mod capabilities;
mod classic;
mod public_url;
mod sessions;

pub use self::{
    bidi::BidiRelay,
    capabilities::{BadCapabilities, Bidi, bind},
    classic::{ClassicError, ClassicRequest, ClassicResponse, CommandKind, MAX_BODY_BYTES, forward},
    public_url::{BadSessionId, WebDriverSessionId},
};
pub(crate) use self::{capabilities::ALLOWED_CAPABILITIES, classic::MAX_NEW_SESSION_BYTES, sessions::ClassicSessions};
