//! Classic WebDriver and WebDriver BiDi. Both use the chromedriver inside the session and are bound to the browser that
//! runs there; or the server of a remote browser, and are bound to its session there.

mod bidi;
mod capabilities;
mod classic;
mod public_url;
mod remote;
mod remote_bidi;
mod remote_capabilities;
mod remote_uploads;
mod sessions;

pub use self::{
    bidi::BidiRelay,
    capabilities::{BadCapabilities, Bidi, bind},
    classic::{ClassicError, ClassicRequest, ClassicResponse, CommandKind, MAX_BODY_BYTES, forward},
    public_url::{BadSessionId, WebDriverSessionId},
    remote_bidi::RemoteBidi,
};
pub(crate) use self::{
    capabilities::ALLOWED_CAPABILITIES,
    classic::MAX_NEW_SESSION_BYTES,
    remote::{RemoteAnswer, RemoteClassic},
    remote_uploads::RemoteUploads,
    sessions::ClassicSessions,
};
