//! Evaluates a source and adds the tools that it defines.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::WebMcp;
use super::definition;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::script::ExecuteScript;
use casement_agent_protocol::webmcp::{AddTools, CustomTools, MAX_CUSTOM_TOOLS, MAX_SOURCE};

/// The timeout for the evaluation of a source, with the scripts before it.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(30);

/// What the evaluation of a source returns.
#[derive(Deserialize)]
struct Evaluated {
    #[serde(default)]
    definitions: Vec<Value>,
    #[serde(default)]
    error: Option<String>,
}

impl WebMcp {
    /// Evaluates a source as a script and adds the tools that it defines.
    ///
    /// # Errors
    /// [`ErrorCode::NotAllowed`] if the source or a definition is invalid, [`ErrorCode::Exists`] if a tool exists,
    /// [`ErrorCode::InvalidState`] if the session has too many tools or the source was not evaluated in time.
    pub(in super::super) async fn add_custom(&self, request: AddTools) -> Result<CustomTools, Refusal> {
        let AddTools { namespace, source, overwrite } = request;
        if source.len() > MAX_SOURCE {
            return Err(invalid(format_args!("it may have at most {MAX_SOURCE} bytes")));
        }
        let code = include_str!("define.js")
            .replace("MAX_TOOLS", &MAX_CUSTOM_TOOLS.to_string())
            .replace("MAX_BYTES", &MAX_SOURCE.to_string());
        let timeout_ms = u64::try_from(EVALUATION_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let code = format!("const source = {};\n{code}", json!(source));
        let script = ExecuteScript { code, timeout_ms, within_ms: Some(timeout_ms), executor: None };
        let end = self.scripts.run(script, None).await?;
        let Some(result) = end.result.filter(|_| end.success) else {
            let why = end.error.unwrap_or_default();
            let message = format_args!("the source was not evaluated: {}", why.lines().next().unwrap_or_default());
            return Err(Refusal::new(ErrorCode::InvalidState, message));
        };
        let evaluated: Evaluated = serde_json::from_str(result.get()).map_err(invalid)?;
        if let Some(error) = evaluated.error {
            return Err(invalid(error));
        }
        let definitions = definition::read(evaluated.definitions).map_err(invalid)?;
        self.custom.add(&namespace, &Arc::from(source), definitions, overwrite)
    }
}

fn invalid(why: impl ToString) -> Refusal {
    Refusal::new(ErrorCode::NotAllowed, why).of_field("source")
}
