//! The route `…/repl`: code with access to the session's browser, whose variables persist between calls.

use actix_web::HttpResponse;
use casement_domain::script::{Evaluation, NewEvaluation, ReplChannel, ReplContent};
use serde::{Deserialize, Serialize};

use crate::{
    answer::Answer,
    client_timeout::client_timeout,
    operation::Operations,
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// The code to evaluate.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = EvaluateCode)]
pub(crate) struct Evaluate {
    /// TypeScript or JavaScript, at most 1 MiB, with `page`, `context`, `browser`, `repl` and `require`; it may
    /// `await`. May be empty only with `reset`. Required.
    #[schema(required, nullable = false)]
    code: Option<String>,
    /// Whether a fresh REPL evaluates the code. Default: false.
    reset: Option<bool>,
    /// The timeout in seconds, 1 to 600. Default: 60. A timeout ends the REPL.
    timeout_sec: Option<i64>,
}

/// The result of code in the REPL.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Evaluation)]
pub(crate) struct EvaluationBody {
    /// The process that holds the variables. Another id means that the variables of earlier calls are gone.
    repl_id: String,
    /// Whether the code ended without an error.
    success: bool,
    /// The output, in order: at most 1 MiB of text and 8 MiB of pictures in base64.
    content: Vec<ContentBody>,
    /// Whether a part of the output is missing.
    content_truncated: bool,
    duration_ms: u64,
    /// The message of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The stack of the error, with the lines and columns of the code; `repl-2.ts` is the second call of the REPL.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<String>,
    /// Whether the REPL has ended with this call: after a timeout, or because the code ended its process.
    repl_terminated: bool,
}

/// A part of the output.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplContent)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBody {
    /// A text.
    Text {
        /// `write` for `repl.write`, `stdout` and `stderr` for the console.
        channel: &'static str,
        text: String,
    },
    /// A picture of `repl.emitImage`.
    Image { data_b64: String, mime_type: String },
}

impl From<ReplContent> for ContentBody {
    fn from(content: ReplContent) -> Self {
        match content {
            ReplContent::Text { channel, text } => {
                let channel = match channel {
                    ReplChannel::Write => "write",
                    ReplChannel::Stdout => "stdout",
                    ReplChannel::Stderr => "stderr",
                };
                Self::Text { channel, text }
            }
            ReplContent::Image { data_b64, mime_type } => Self::Image { data_b64, mime_type },
        }
    }
}

impl From<Evaluation> for EvaluationBody {
    fn from(evaluation: Evaluation) -> Self {
        Self {
            repl_id: evaluation.repl_id,
            success: evaluation.success,
            content: evaluation.content.into_iter().map(ContentBody::from).collect(),
            content_truncated: evaluation.is_content_truncated,
            duration_ms: u64::try_from(evaluation.duration.as_millis()).unwrap_or(u64::MAX),
            error: evaluation.error,
            stack: evaluation.stack,
            repl_terminated: evaluation.is_terminated,
        }
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Scripts", "The session does not exist");
    api.post("/browsers/{id_or_name}/repl", "evaluate_code", evaluate_code)
        .summary(
            "Evaluates code with access to the session's browser. Its top-level variables persist until the REPL ends. Calls run one after \
             the other.",
        )
        .body::<Evaluate>()
        .responds::<EvaluationBody>("200", "The code has ended; `success` says how")
        .refuses([
            ("400", "A field breaks a rule, or no script runner is installed"),
            ("409", "A page has an open dialog"),
            ("429", "16 calls of the session wait"),
        ]);
}

async fn evaluate_code(mut request: Request<ActiveSession>) -> Answer {
    let Evaluate { code, reset, timeout_sec } = request.json().await?;
    let code = NewEvaluation::parse(code, reset, timeout_sec, client_timeout(request.headers()))?;
    let evaluation = request.while_served(request.services().scripts.evaluate(request.session(), code)).await?;
    Ok(HttpResponse::Ok().json(EvaluationBody::from(evaluation)))
}
