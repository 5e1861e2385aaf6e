//! The records of invocations.

use casement_domain::invocation::Invocation;
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema};

/// An invocation.
#[derive(Serialize, ToSchema)]
#[schema(as = Invocation)]
pub(crate) struct InvocationBody {
    id: String,
    app_name: String,
    version: String,
    action_name: String,
    /// `queued`, `running`, `succeeded` or `failed`.
    status: &'static str,
    /// The time at which the invocation was accepted.
    #[schema(value_type = String, format = DateTime)]
    started_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Moment>,
    /// The payload: the JSON text, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The output: JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<String>,
}

impl From<Invocation> for InvocationBody {
    fn from(one: Invocation) -> Self {
        Self {
            id: one.id.to_string(),
            app_name: one.app.as_str().to_owned(),
            version: one.version,
            action_name: one.action.as_str().to_owned(),
            status: one.status.as_str(),
            started_at: Moment(one.started_at),
            finished_at: one.finished_at.map(Moment),
            payload: one.payload,
            output: one.output,
            status_reason: one.status_reason,
        }
    }
}

/// The response of the request that creates an invocation.
#[derive(Serialize, ToSchema)]
pub(crate) struct InvokedBody {
    id: String,
    action_name: String,
    /// `queued`, `running`, `succeeded` or `failed`.
    status: &'static str,
    /// The output: JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<String>,
}

impl From<Invocation> for InvokedBody {
    fn from(one: Invocation) -> Self {
        Self {
            id: one.id.to_string(),
            action_name: one.action.as_str().to_owned(),
            status: one.status.as_str(),
            output: one.output,
            status_reason: one.status_reason,
        }
    }
}
