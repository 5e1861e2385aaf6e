//! Requests through the browser.

use std::time::{Duration, Instant};

use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::curl::{CurlHead, CurlRequest, REQUEST};

use crate::headless::refusal;
use crate::sandbox::{Sandbox, config};

const SHORT_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) fn get(url: &str) -> CurlRequest {
    CurlRequest { url: url.to_owned(), method: "GET".to_owned(), headers: vec![], body_b64: None, timeout_ms: 60_000 }
}

pub(crate) async fn send(client: &AgentClient, request: &CurlRequest) -> Result<(CurlHead, String), ClientError> {
    let bytes = client.download(REQUEST, request, SHORT_TIMEOUT).await?.collect(usize::MAX).await?;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let head = serde_json::from_slice(&bytes[..end]).unwrap();
    Ok((head, String::from_utf8(bytes[end + 1..].to_vec()).unwrap()))
}

#[tokio::test]
async fn a_request_goes_through_the_browser_and_disturbs_no_page() {
    let (sandbox, _, client) = Sandbox::with_browser(&config(true), "curl").await;
    let mut request = get("http://localhost/headers");
    request.headers.push(("X-Mine".to_owned(), "1".to_owned()));
    let (head, body) = send(&client, &request).await.unwrap();
    assert_eq!(head.status, 200);
    assert!(body.to_ascii_lowercase().contains("x-mine: 1") && body.contains("Mozilla/5.0"), "{body}");

    // The proxy of these tests refuses unknown addresses.
    let (head, body) = send(&client, &get("http://nowhere.test/")).await.unwrap();
    assert_eq!((head.status, body.as_str()), (403, "refused"));
    let refused = send(&client, &get("https://nowhere.test/")).await;
    match refused {
        Err(ClientError::Refused(body)) => {
            assert_eq!(body.code, ErrorCode::Upstream);
            assert!(body.message.contains("net::ERR_"), "{}", body.message);
        }
        other => panic!("{other:?}"),
    }
    let mut request = get("http://localhost/");
    request.timeout_ms = 1;
    assert_eq!(refusal(send(&client, &request).await), ErrorCode::TimedOut);

    // The session has the same pages as before, and no hidden page.
    let deadline = Instant::now() + SHORT_TIMEOUT;
    loop {
        let left = sandbox.processes("--type=renderer").len();
        if left <= 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{left} renderers are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
