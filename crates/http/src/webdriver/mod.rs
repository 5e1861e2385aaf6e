//! WebDriver, classic and BiDi: both reach the chromedriver inside the session, both bound to the browser that already
//! runs there.

mod bidi;
mod capabilities;
mod classic;
mod public_url;
mod sessions;

pub(crate) use self::sessions::ClassicSessions;
pub use self::{
    bidi::BidiRelay,
    capabilities::{BadCapabilities, Bidi, bind},
    classic::{ClassicAnswer, ClassicError, ClassicRequest, CommandKind, MAX_BODY, forward},
    public_url::{BadSessionId, WebDriverSessionId},
};
