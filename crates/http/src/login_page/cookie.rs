//! The cookie of a hosted login page.

use actix_web::HttpRequest;
use casement_domain::AuthConnectionId;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{state::Api, ui::cookies};

/// The lifetime of the cookie: longer than any login, so that the page can show the end of the login.
const MAX_AGE_SECONDS: u32 = 3600;

/// Returns the value of the request's login cookie.
pub(super) fn read(api: &Api, request: &HttpRequest) -> Option<SecretString> {
    cookies(request).find(|(cookie_name, _)| *cookie_name == name(api)).map(|(_, value)| value.into())
}

/// Returns the `Set-Cookie` value. `SameSite=Lax`, because a person follows a link from a mail or a chat; the cookie is
/// still not sent with POST requests from other sites.
pub(super) fn set(api: &Api, id: AuthConnectionId, key: &SecretString) -> String {
    let secure = if api.is_https() { "; Secure" } else { "" };
    // The path separates the cookies of different connections.
    format!(
        "{}={}; Path=/login/{id}; HttpOnly; SameSite=Lax; Max-Age={MAX_AGE_SECONDS}{secure}",
        name(api),
        key.expose_secret()
    )
}

fn name(api: &Api) -> &'static str {
    if api.is_https() { "__Secure-casement_login" } else { "casement_login" }
}
