//! `/connect`: a browser is had by connecting to one address, without a call before.

mod browser_arguments;
mod discovery;
mod options;
mod parameters;
mod sockets;
mod start;

#[cfg(any(test, feature = "openapi"))]
pub(crate) use self::options::size_pattern;
#[cfg(any(test, feature = "openapi"))]
pub(crate) use self::parameters::MAX_DURATION_MS;
pub(crate) use self::{
    browser_arguments::apply as apply_browser_argument,
    discovery::{list, version},
    options::{BrowserOptions, set, size},
    parameters::asks_for_nothing,
    start::{Made, make},
};
use self::{discovery::BrowserVersion, parameters::ConnectParams};
use crate::operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operation, Operations, Refusal};

const BAD_PARAMETER: Refusal =
    ("400", "A parameter is unknown or breaks a rule, or the request is no WebSocket upgrade");
const NOT_FOUND: Refusal = ("404", "The pool or the session does not exist");

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Connect", "The session does not exist");
    let socket = |operation: &mut Operation| {
        operation.is_stream = true;
        operation
            .query::<ConnectParams>()
            .no_content_with("101", "The WebSocket is open; `X-Casement-Session-Id` names the session")
            .refuses([BAD_PARAMETER, ARCHIVED, NOT_FOUND, NAME_TAKEN, LIMIT_REACHED])
            .fails("No browser could be started");
    };
    let connect = api.get("/connect", "connect_browser", sockets::connect_browser);
    socket(connect.summary("Opens a WebSocket of the DevTools protocol to a browser of its own."));
    let connect = api.get("/connect/webdriver", "connect_webdriver", sockets::connect_webdriver);
    socket(connect.summary("Opens a WebSocket of WebDriver BiDi to a browser of its own."));
    api.get("/connect/json/version", "get_connect_version", discovery::version)
        .summary("Returns the address of a WebSocket of the DevTools protocol, which makes a session when it opens.")
        .query::<ConnectParams>()
        .returns::<BrowserVersion>();
}
