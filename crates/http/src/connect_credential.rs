//! The credentials of clients that connect by one address. Their libraries send a key in many places; it is moved to
//! `Authorization: Bearer` before anything reads or logs the request.

use actix_web::{
    HttpMessage as _, HttpRequest,
    dev::ServiceRequest,
    http::{
        Uri,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    error::ApiError,
    host,
    query::{Query, decoded},
    request_uri,
};

/// The query parameters that hold a key.
const KEY_PARAMETERS: [&str; 2] = ["token", "apiKey"];
/// The query parameter that takes the place of the header with the project.
const PROJECT_PARAMETER: &str = "project";
/// The query parameter that holds a connect token.
pub(crate) const CONNECT_TOKEN: &str = "connect_token";
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const PROJECT_HEADER: HeaderName = HeaderName::from_static("x-kernel-project-id");
/// The base path of WebDriver clients.
const HUB: &str = "/wd/hub/";
/// The first segments below [`HUB`] that are commands. Any other first segment is a key.
const COMMANDS: [&str; 4] = ["session", "sessions", "status", "se"];
/// The paths of WebSockets, which accept a connect token.
const SOCKETS: [&str; 2] = ["/connect", "/connect/webdriver"];

/// Moves the key of a connecting client to `Authorization: Bearer`, and the project to its header. Several different
/// keys or projects become several headers, which are refused. Empty segments before and after a key in the path are
/// skipped. Basic credentials stay for [`accept_basic`].
pub(crate) fn move_to_headers(request: &mut ServiceRequest) {
    if !is_connecting(request.uri().path()) {
        return;
    }
    let Moved { uri, mut keys, projects } = moved(request.uri());
    request_uri::replace(request, &uri);
    let headers = request.headers_mut();
    keys.extend(headers.remove(KEY_HEADER).filter_map(|value| value.to_str().map(str::to_owned).ok()));
    keys.into_iter().for_each(|key| add(headers, header::AUTHORIZATION, &format!("Bearer {key}")));
    let was_in_header = headers.contains_key(PROJECT_HEADER);
    let is_in_query = !projects.is_empty();
    projects.into_iter().for_each(|project| add(headers, PROJECT_HEADER, &project));
    if is_in_query {
        request.extensions_mut().insert(ProjectOfQuery { was_in_header });
    }
}

/// The mark of a request whose query names a project, which was moved to [`PROJECT_HEADER`].
#[derive(Clone, Copy)]
struct ProjectOfQuery {
    was_in_header: bool,
}

/// Returns what the caller wrote where a request has this header.
pub(crate) fn as_written(request: &HttpRequest, header: &str) -> String {
    match request.extensions().get::<ProjectOfQuery>() {
        Some(ProjectOfQuery { was_in_header }) if header == PROJECT_HEADER.as_str() => {
            let parameter = format!("the query parameter {PROJECT_PARAMETER}");
            if *was_in_header { format!("{parameter} with the header {header}") } else { parameter }
        }
        _ => format!("the header {header}"),
    }
}

/// Turns Basic credentials of a connecting client into `Authorization: Bearer`. Called after the check of the request's
/// origin, because a browser sends such credentials by itself. Beside a token in the query they are left as they are,
/// which admits nobody: the token alone has passed that check.
pub(crate) fn accept_basic(request: &mut ServiceRequest) {
    if !is_connecting(request.uri().path()) || host::has_token(request.uri()) {
        return;
    }
    let headers = request.headers_mut();
    let (pairs, others): (Vec<_>, Vec<_>) =
        headers.remove(header::AUTHORIZATION).partition(|value| basic(value).is_some());
    others.into_iter().for_each(|value| headers.append(header::AUTHORIZATION, value));
    for (user, password) in pairs.iter().filter_map(basic) {
        let key = if password.is_empty() { user } else { password };
        add(headers, header::AUTHORIZATION, &format!("Bearer {key}"));
    }
}

fn is_connecting(path: &str) -> bool {
    let below = |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ["/connect", "/json", "/wd/hub"].into_iter().any(below)
}

/// Adds a header, unless it is there with this value already. A text that no header can hold is added as `-`, which is
/// refused like every other wrong value.
fn add(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    let mut value = HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("-"));
    value.set_sensitive(name == header::AUTHORIZATION);
    if !headers.get_all(&name).any(|present| *present == value) {
        headers.append(name, value);
    }
}

/// A URI without what belongs into headers.
struct Moved {
    /// The path and the query.
    uri: String,
    keys: Vec<String>,
    projects: Vec<String>,
}

fn moved(uri: &Uri) -> Moved {
    let (mut keys, mut projects) = (Vec::new(), Vec::new());
    let mut path = uri.path().to_owned();
    if let Some(below) = path.strip_prefix(HUB) {
        let below = below.trim_start_matches('/');
        let (first, rest) = below.split_once('/').unwrap_or((below, ""));
        if first.is_empty() || COMMANDS.contains(&first) {
            path = format!("{HUB}{below}");
        } else {
            keys.push(decoded(first).unwrap_or_else(|_| first.to_owned()));
            path = format!("{HUB}{}", rest.trim_start_matches('/'));
        }
    }
    let mut remaining = Vec::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = || decoded(&value.replace('+', " ")).unwrap_or_default();
        match decoded(name).unwrap_or_default() {
            name if KEY_PARAMETERS.contains(&name.as_str()) => keys.push(value()),
            name if name == PROJECT_PARAMETER => projects.push(value()),
            _ => remaining.push(pair),
        }
    }
    let uri = if remaining.is_empty() { path } else { format!("{path}?{}", remaining.join("&")) };
    Moved { uri, keys, projects }
}

/// Returns the user's name and the password of Basic credentials.
fn basic(value: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

/// Returns the connect token of a request, if its path accepts one.
///
/// # Errors
/// `bad_request`.
pub(crate) fn connect_token(request: &HttpRequest) -> Result<Option<String>, ApiError> {
    if !SOCKETS.contains(&request.path()) {
        return Ok(None);
    }
    Ok(Query::parse(request.query_string())?.raw(CONNECT_TOKEN)?.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    /// Returns the path and query of a request, and its values of `Authorization`, after the move.
    fn after(uri: &str, headers: &[(&'static str, &str)]) -> (String, Vec<String>) {
        let request = headers.iter().fold(TestRequest::with_uri(uri), |request, header| request.append_header(*header));
        let mut request = request.to_srv_request();
        move_to_headers(&mut request);
        accept_basic(&mut request);
        let values = request.headers().get_all(header::AUTHORIZATION);
        let values = values.map(|value| value.to_str().unwrap_or_default().to_owned()).collect();
        (request.uri().to_string(), values)
    }

    fn basic_header(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn a_key_in_any_place_becomes_a_bearer_credential() {
        let bearer = vec!["Bearer KEY".to_owned()];
        for (uri, headers, left) in [
            ("/connect?token=KEY&pool=a%20b", vec![], "/connect?pool=a%20b"),
            ("/connect?apiKey=KEY", vec![], "/connect"),
            ("/connect?token=K%45Y&apiKey=KEY", vec![], "/connect"),
            ("/connect/json/version/?token=KEY", vec![], "/connect/json/version/"),
            ("/json/version?token=KEY", vec![], "/json/version"),
            ("/wd/hub/KEY/session", vec![], "/wd/hub/session"),
            ("/wd/hub//KEY///session", vec![], "/wd/hub/session"),
            ("/wd/hub/session", vec![("x-api-key", "KEY".to_owned())], "/wd/hub/session"),
            ("/wd/hub/session", vec![("authorization", basic_header("user:KEY"))], "/wd/hub/session"),
            ("/wd/hub/session/a/url", vec![("authorization", basic_header("KEY:"))], "/wd/hub/session/a/url"),
            ("/connect?token=KEY", vec![("authorization", "Bearer KEY".to_owned())], "/connect"),
        ] {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(after(uri, &headers), (left.to_owned(), bearer.clone()), "{uri}");
        }
    }

    #[test]
    fn several_different_keys_stay_several() {
        let (_, values) = after("/connect?token=A", &[("authorization", "Bearer B")]);
        assert_eq!(values, ["Bearer B", "Bearer A"]);
    }

    #[test]
    fn basic_credentials_beside_another_credential_replace_nothing() {
        let ours = basic_header("user:A");
        for other in ["Bearer B".to_owned(), basic_header("user:B")] {
            for headers in [
                [("authorization", &*ours), ("authorization", &*other)],
                [("authorization", &*other), ("authorization", &*ours)],
            ] {
                let (_, mut values) = after("/connect", &headers);
                values.sort_unstable();
                assert_eq!(values, ["Bearer A", "Bearer B"], "{other}");
            }
        }
        for uri in ["/connect?jwt=x", "/connect?connect_token=x"] {
            assert_eq!(after(uri, &[("authorization", &ours)]), (uri.to_owned(), vec![ours.clone()]));
        }
    }

    #[test]
    fn requests_of_other_paths_are_left_as_they_are() {
        for uri in ["/browsers?token=KEY", "/connected?token=KEY", "/vm/x/wd/hub/KEY"] {
            assert_eq!(after(uri, &[("x-api-key", "KEY")]), (uri.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn no_log_line_can_show_the_key_of_a_header() {
        let mut request = TestRequest::with_uri("/connect?token=KEY").to_srv_request();
        move_to_headers(&mut request);
        assert!(!format!("{:?} {}", request.headers(), request.uri()).contains("KEY"));
    }
}
