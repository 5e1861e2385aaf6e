//! The cookie of a hosted page, and who may send it.

use actix_web::{HttpRequest, http::header};
use casement_domain::AuthConnectionId;
use secrecy::{ExposeSecret as _, SecretString};

use crate::state::Api;

/// Longer than any login, so that its end is seen too.
const MAX_SECONDS: u32 = 3600;

/// What the cookie of this connection's page holds.
pub(super) fn of(api: &Api, request: &HttpRequest) -> Option<SecretString> {
    let lines = request.headers().get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
    let mut found = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    found.find(|(given, _)| *given == name(api)).map(|(_, value)| value.into())
}

/// The header that sets it. `Lax`, since a person comes from a link in a mail or a chat; it goes along with no change that another site
/// makes all the same.
pub(super) fn set(api: &Api, id: AuthConnectionId, key: &SecretString) -> String {
    let secure = if is_secure(api) { "; Secure" } else { "" };
    // Each connection's page has one of its own: its path is in no other's.
    format!(
        "{}={}; Path=/login/{id}; HttpOnly; SameSite=Lax; Max-Age={MAX_SECONDS}{secure}",
        name(api),
        key.expose_secret()
    )
}

fn name(api: &Api) -> &'static str {
    if is_secure(api) { "__Secure-casement_login" } else { "casement_login" }
}

fn is_secure(api: &Api) -> bool {
    api.public_url.scheme() == "https"
}
