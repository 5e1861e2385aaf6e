//! The handlers for signing in and out.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web::{Data, Payload},
};
use casement_domain::api_key::{AuthenticateError, Caller};
use casement_domain::sign_in::SignIn;
use serde::{Deserialize, Serialize};

use super::guard::{check_own_page, cookie, set_cookie, signed_in};
use crate::{
    answer::{self, Answer, Moment},
    audit::{self, Identity, caller_ip},
    body,
    error::{ApiError, Code},
    json,
    state::Api,
};

/// The maximum size of the body of a sign-in, in bytes; the client is not authenticated yet.
const MAX_SIGN_IN_BYTES: usize = 4096;

/// The body of a sign-in.
#[derive(Deserialize)]
pub(crate) struct SignInRequest {
    key: Option<String>,
}

/// The current sign-in, for the pages of the web interface.
#[derive(Debug, Serialize)]
struct SignInBody {
    api_key_id: String,
    /// The only project that the key opens; absent: all projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<String>,
    /// The token that requests must send to change something.
    csrf_token: String,
    /// The time at which the sign-in ends at the latest.
    ends_at: Moment,
}

impl SignInBody {
    fn new(caller: &Caller, sign_in: SignIn) -> Self {
        Self {
            api_key_id: caller.key.to_string(),
            project_id: caller.project.map(|project| project.to_string()),
            csrf_token: sign_in.token,
            ends_at: Moment(sign_in.started_at + SignIn::MAX_DURATION),
        }
    }
}

/// `GET /ui/session`: returns the current sign-in; 204 if there is none, which is no error.
pub(crate) async fn get_sign_in(api: Data<Api>, request: HttpRequest) -> Answer {
    match signed_in(&api, &request).await {
        Ok((caller, sign_in)) => Ok(answer::record(StatusCode::OK, &SignInBody::new(&caller, sign_in))),
        Err(refusal) if refusal.code() == Code::Unauthorized => Ok(answer::nothing()),
        Err(refusal) => Err(refusal),
    }
}

/// `POST /ui/session`: signs in with an API key.
pub(crate) async fn sign_in(api: Data<Api>, request: HttpRequest, mut payload: Payload) -> Answer {
    check_own_page(&request)?;
    api.sign_in_attempts.admit(caller_ip(request.peer_addr(), request.headers(), &api))?;
    let body: SignInRequest = json::read(&body::json_within(MAX_SIGN_IN_BYTES, &request, &mut payload).await?)?;
    let text = body.key.unwrap_or_default();
    let caller = match api.services.api_keys.authenticate(text.trim()).await {
        Ok(caller) => caller,
        Err(error) => {
            if matches!(error, AuthenticateError::Refused) {
                Identity::refused(&request, text.trim());
            }
            return Err(error.into());
        }
    };
    Identity::key(&request, caller.key, caller.project);
    audit::begin(&request).await?;
    // An earlier sign-in of this browser ends.
    if let Some(before) = cookie(&api, &request) {
        api.services.sign_ins.end(&before).await?;
    }
    let (content, sign_in) = api.services.sign_ins.begin(caller.key).await?;
    let mut response = answer::record(StatusCode::OK, &SignInBody::new(&caller, sign_in));
    add_cookie(&mut response, &set_cookie(&api, Some(&content)))?;
    Ok(response)
}

/// `DELETE /ui/session`: signs out.
pub(crate) async fn sign_out(api: Data<Api>, request: HttpRequest) -> Answer {
    let (caller, _) = signed_in(&api, &request).await?;
    Identity::key(&request, caller.key, caller.project);
    audit::begin(&request).await?;
    if let Some(content) = cookie(&api, &request) {
        api.services.sign_ins.end(&content).await?;
    }
    let mut response = answer::nothing();
    add_cookie(&mut response, &set_cookie(&api, None))?;
    Ok(response)
}

fn add_cookie(response: &mut HttpResponse, cookie: &str) -> Result<(), ApiError> {
    let value = header::HeaderValue::from_str(cookie).map_err(ApiError::internal)?;
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(())
}
