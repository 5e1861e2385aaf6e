//! `POST …/curl`: sends a request described in JSON and returns the target's response as JSON.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use actix_web::HttpResponse;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::{
    browser::{EngineError, EngineFault},
    curl::{CurlAnswer, CurlRequest},
    field::{FieldCode, InvalidInput, InvalidValue},
    session::Session,
    session_operation::{ByteStream, OperationError, UpstreamFault},
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    answer::Answer,
    client_timeout::client_timeout,
    error::ApiError,
    image_response,
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// The maximum size of the target's body, in bytes.
const MAX_BYTES: usize = 10 * 1024 * 1024;
/// A larger body, in bytes, needs one of a few slots while it is received, and a larger response one while it is sent.
const MAX_UNSLOTTED_BYTES: usize = 1024 * 1024;

/// The request to send.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CurlBrowser {
    /// The URL of the target, with `http` or `https`. Required.
    #[schema(required, nullable = false)]
    url: Option<String>,
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE` or `OPTIONS`. Default: `GET`.
    method: Option<String>,
    /// Headers that replace those of the browser or are added to them.
    headers: Option<BTreeMap<String, String>>,
    body: Option<String>,
    /// The encoding of the body of the response: `utf8`, or `base64` for binary content. Default: `utf8`.
    response_encoding: Option<String>,
    /// The timeout in milliseconds, 1 to 300000. Default: 30000.
    timeout_ms: Option<i64>,
}

/// The response of the target. A redirect is not followed and has no body.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurledAnswer)]
pub(crate) struct CurlBody {
    status: u16,
    /// The headers by their names in lower case.
    headers: BTreeMap<String, Vec<String>>,
    /// The body, at most 10 MiB.
    body: String,
    duration_ms: u64,
}

pub(crate) async fn curl(mut request: Request<ActiveSession>) -> Answer {
    let CurlBrowser { url, method, headers, body, response_encoding, timeout_ms } = request.json().await?;
    let base64 = match response_encoding.as_deref() {
        None | Some("utf8") => false,
        Some("base64") => true,
        Some(_) => {
            let bad = InvalidValue::new(FieldCode::NotAllowed, "must be utf8 or base64");
            return Err(InvalidInput::of("response_encoding", bad).into());
        }
    };
    let client_timeout = client_timeout(request.headers());
    let curl_request = CurlRequest::parse(url.as_deref(), method, headers, body, timeout_ms, client_timeout)?;
    let limit = curl_request.within;
    let began = Instant::now();
    let requested = async {
        let CurlAnswer { status, headers, body } =
            request.services().curl.send(request.session(), curl_request).await?;
        let rest = limit.saturating_sub(began.elapsed());
        let body = tokio::time::timeout(rest, read_body(body, request.session()))
            .await
            .map_err(|_| timeout_error(limit))??;
        Ok::<_, ApiError>((status, headers, body))
    };
    let (status, headers, body) = request.while_served(requested).await?;
    let body = match base64 {
        true => STANDARD.encode(body),
        false => String::from_utf8(body).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()),
    };
    let mut by_name = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in headers {
        by_name.entry(name.to_ascii_lowercase()).or_default().push(value);
    }
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let answer = CurlBody { status, headers: by_name, body, duration_ms };
    let answer = serde_json::to_vec(&answer).map_err(ApiError::internal)?;
    Ok(match answer.len() {
        0..=MAX_UNSLOTTED_BYTES => HttpResponse::Ok().content_type("application/json").body(answer),
        // The request was sent, so a missing slot must not be reported as if nothing was done.
        _ => image_response::acquire_slot(request.session())
            .await
            .map_err(|_| timeout_error(limit))?
            .answer("application/json", answer),
    })
}

fn timeout_error(limit: Duration) -> ApiError {
    let seconds = u32::try_from(limit.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
    OperationError::Unanswered { seconds }.into()
}

async fn read_body(mut parts: ByteStream, session: &Session) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    let mut place = None;
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| match error {
            // The browser still works, so the target has ended the response early.
            OperationError::Engine(EngineError::Lost { fault: EngineFault::AgentError, .. }) => {
                let message = "the response was interrupted".to_owned();
                ApiError::from(OperationError::Upstream { fault: UpstreamFault::Connect, message }).caused_by(error)
            }
            other => other.into(),
        })?;
        if body.len() + part.len() > MAX_UNSLOTTED_BYTES && place.is_none() {
            place = Some(image_response::acquire_site_slot(session).await?);
        }
        if body.len() + part.len() > MAX_BYTES {
            let message = format!("the answer is longer than {MAX_BYTES} bytes; curl/raw has no such limit");
            return Err(OperationError::Upstream { fault: UpstreamFault::HttpStatus, message }.into());
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}
