//! The HTTP endpoints by which clients of the DevTools protocol find their WebSocket. No browser runs yet: the session
//! is made when the WebSocket opens.

use actix_web::HttpResponse;
use serde::Serialize;
use time::Duration;
use url::Url;

use super::parameters;
use crate::{
    answer::Answer,
    connect_credential::CONNECT_TOKEN,
    request::{ProjectKey, Request},
    schema::ToSchema,
};

/// The time for which the WebSocket's address is valid.
const CONNECT_TOKEN_LIFETIME: Duration = Duration::seconds(60);

/// The answer to `/json/version`, with the names of the DevTools protocol. There are no version numbers, because the
/// browser is not started yet.
#[derive(Serialize, ToSchema)]
pub(super) struct BrowserVersion {
    #[serde(rename = "Browser")]
    browser: &'static str,
    #[serde(rename = "Protocol-Version")]
    protocol_version: &'static str,
    #[serde(rename = "User-Agent")]
    user_agent: &'static str,
    #[serde(rename = "V8-Version")]
    v8_version: &'static str,
    #[serde(rename = "WebKit-Version")]
    webkit_version: &'static str,
    /// The address of a WebSocket that makes a session. It holds a connect token that is valid for 60 seconds.
    #[serde(rename = "webSocketDebuggerUrl")]
    web_socket_debugger_url: String,
}

/// `GET /connect/json/version` and `GET /json/version`.
pub(crate) async fn version(request: Request<ProjectKey>) -> Answer {
    let query = request.raw_query()?;
    if let parameters::Target::Own(_, options) = parameters::read(&query)? {
        options.into_source(request.services().sessions.engines())?;
    }
    Ok(HttpResponse::Ok().json(BrowserVersion {
        browser: "Chromium",
        protocol_version: "1.3",
        user_agent: "",
        v8_version: "",
        webkit_version: "",
        web_socket_debugger_url: socket_url(&request, query.all()),
    }))
}

/// `GET /connect/json/list` and `GET /json/list`: the targets of the browser, which is not started yet.
pub(crate) async fn list(_: Request<ProjectKey>) -> Answer {
    Ok(HttpResponse::Ok().json([(); 0]))
}

/// Returns the address of the WebSocket with a connect token in place of the key, the project and the parameters.
fn socket_url<'a>(request: &Request<ProjectKey>, parameters: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let services = request.services();
    let token = services.tokens.connect_token(request.key(), services.clock.now() + CONNECT_TOKEN_LIFETIME);
    let public: &Url = &request.api().public_url.get();
    let root = public.as_str().split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair(CONNECT_TOKEN, &token);
    query.append_pair("project", &request.scope().project_id().to_string());
    query.extend_pairs(parameters.filter(|(name, _)| *name != CONNECT_TOKEN));
    // The schemes http and https become ws and wss.
    let root = root.strip_prefix("http").unwrap_or(root);
    format!("ws{root}/connect?{}", query.finish())
}
