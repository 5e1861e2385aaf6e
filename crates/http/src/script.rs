//! The route `…/playwright/execute`: runs a script with access to the session's browser.

use actix_web::HttpResponse;
use casement_domain::script::{NewScript, ScriptEnd};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    answer::Answer,
    client_timeout::client_timeout,
    error::ApiError,
    operation::Operations,
    request::{ActiveSession, Request},
};

/// The script to run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ExecuteScript)]
pub(crate) struct Execute {
    /// TypeScript or JavaScript, 1 byte to 1 MiB: the body of an asynchronous function with `page`, `context` and
    /// `browser`, which may `await` and `return`. Required.
    #[schema(required, nullable = false)]
    code: Option<String>,
    /// The timeout in seconds, 1 to 600. Default: 60.
    timeout_sec: Option<i64>,
}

/// The result of a script.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScriptEnd)]
pub(crate) struct EndBody {
    /// Whether the script completed with a JSON value or `undefined`.
    success: bool,
    /// The returned value; absent for `undefined`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The message and the stack of an error, with the lines and columns of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The beginning of the script's standard output, at most 1 MiB.
    stdout: String,
    /// The beginning of the script's standard error, at most 1 MiB.
    stderr: String,
}

impl EndBody {
    fn new(end: ScriptEnd) -> Result<Self, ApiError> {
        let ScriptEnd { success, result, error, stdout, stderr } = end;
        let result = result.map(RawValue::from_string).transpose().map_err(ApiError::internal)?;
        Ok(Self { success, result, error, stdout, stderr })
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Scripts", "The session does not exist");
    api.post("/browsers/{id_or_name}/playwright/execute", "execute_script", execute_script)
        .summary("Runs a script in a new context with access to the session's browser. Scripts of one session run one after the other.")
        .body::<Execute>()
        .responds::<EndBody>("200", "The script has ended; `success` says how")
        .refuses([
            ("400", "A field breaks a rule, or no script runner is installed"),
            ("429", "Too many scripts of the session wait"),
        ]);
}

async fn execute_script(mut request: Request<ActiveSession>) -> Answer {
    let Execute { code, timeout_sec } = request.json().await?;
    let script = NewScript::parse(code, timeout_sec, client_timeout(request.headers()))?;
    let end = request.while_served(request.services().scripts.execute(request.session(), script)).await?;
    Ok(HttpResponse::Ok().json(EndBody::new(end)?))
}
