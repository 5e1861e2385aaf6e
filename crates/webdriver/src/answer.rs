//! Answers of WebDriver servers.

use casement_domain::untrusted_json;
use http::StatusCode;
use serde_json::Value;

use crate::error::GridError;

/// The maximum number of characters of a server's message.
const MAX_MESSAGE: usize = 500;
/// The beginning of the message of a Selenium Grid that does not reach the node of a session.
const NODE_AWAY: &str = "Unable to execute request for an existing session";

/// Parses an answer: its `value`.
///
/// # Errors
/// The error that the server answers, or [`GridError::Nonsense`].
pub(crate) fn parse(status: StatusCode, body: &[u8], secrets: &[String]) -> Result<Value, GridError> {
    if status.is_redirection() {
        return Err(GridError::Redirect { status: status.as_u16() });
    }
    let value = untrusted_json::parse(body).ok().and_then(|mut answer| {
        let object = answer.as_object_mut()?;
        object.remove("value")
    });
    let Some(value) = value else { return Err(without_value(status)) };
    if status.is_success() {
        return Ok(value);
    }
    let text = |name| value.get(name).and_then(Value::as_str);
    let Some(code) = text("error") else { return Err(without_value(status)) };
    let message = safe(text("message").unwrap_or_default(), secrets);
    Err(match code {
        "invalid session id" => GridError::NoSession { message },
        _ if message.starts_with(NODE_AWAY) => GridError::NodeAway { message },
        _ => GridError::Refused { code: safe(code, secrets), message },
    })
}

/// The error of an answer that no WebDriver server gives.
fn without_value(status: StatusCode) -> GridError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            GridError::Unauthorized { status: status.as_u16() }
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            GridError::away(format!("the answer is {}", status.as_u16()))
        }
        StatusCode::NOT_FOUND => GridError::nonsense("404 without an error of WebDriver; is the URL's path right?"),
        status => GridError::nonsense(format!("{} without a value of WebDriver", status.as_u16())),
    }
}

/// Makes a text of a server safe to show: one line without control characters and secrets, and bounded.
pub(crate) fn safe(text: &str, secrets: &[String]) -> String {
    // A Selenium Grid appends lines about its build and its machine.
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // Secrets are found in the whole line, so that none is cut in half.
    let mut line: String = first.chars().filter(|c| !c.is_control()).collect();
    for secret in secrets {
        line = line.replace(secret.as_str(), "***");
    }
    line.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(status: u16, body: &Value) -> Result<Value, GridError> {
        let status = StatusCode::from_u16(status).expect("a status");
        parse(status, body.to_string().as_bytes(), &["geheim".to_owned()])
    }

    #[test]
    fn a_message_of_the_server_is_one_bounded_line_without_secrets() {
        let message = format!("\nA geheim \u{7}message {}\nBuild info: x", "ä".repeat(1000));
        let answer = json!({ "value": { "error": "unknown error", "message": message } });
        let Err(GridError::Refused { message, .. }) = parsed(500, &answer) else { panic!("an error") };
        assert_eq!(message.chars().count(), MAX_MESSAGE);
        assert!(message.starts_with("A *** message ää"), "{message}");
    }

    #[test]
    fn a_session_is_gone_only_if_the_server_says_so_in_webdriver() {
        let gone = json!({ "value": { "error": "invalid session id", "message": "gone" } });
        assert!(matches!(parsed(404, &gone), Err(GridError::NoSession { .. })));
        assert!(matches!(parsed(404, &json!({ "message": "not found" })), Err(GridError::Nonsense { .. })));
        assert!(matches!(parsed(502, &json!("bad gateway")), Err(GridError::Away { .. })));
        let node =
            json!({ "value": { "error": "unknown error", "message": format!("{NODE_AWAY}: Connection error") } });
        assert!(matches!(parsed(500, &node), Err(GridError::NodeAway { .. })));
    }

    #[test]
    fn an_answer_of_too_many_values_is_not_parsed() {
        let many = json!({ "value": vec![json!({ "": 0 }); untrusted_json::MAX_VALUES] });
        assert!(matches!(parsed(200, &many), Err(GridError::Nonsense { .. })));
    }

    #[test]
    fn answers_of_other_servers_are_errors() {
        assert_eq!(parsed(200, &json!({ "value": null })), Ok(Value::Null));
        assert!(matches!(parsed(200, &json!({})), Err(GridError::Nonsense { .. })));
        assert!(matches!(parsed(200, &json!([])), Err(GridError::Nonsense { .. })));
        assert!(matches!(parsed(302, &json!({ "value": {} })), Err(GridError::Redirect { status: 302 })));
        assert!(matches!(parsed(401, &json!({})), Err(GridError::Unauthorized { status: 401 })));
    }
}
