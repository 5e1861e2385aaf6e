//! The state of a login that is sent to its page. Texts of the site are untrusted: the page shows them as plain text.

use casement_domain::{
    auth_connection::{Flow, FlowStatus, FlowStep, HostedFlow, RequestedChoice, RequestedField},
    login_page::{ChoiceKind, FieldKind, InputKind},
};
use serde::Serialize;

use crate::answer::Moment;

/// The state of a login, for the person who continues it.
#[derive(Serialize)]
pub(super) struct PageState {
    /// The site of the login.
    domain: String,
    status: &'static str,
    step: &'static str,
    expires_at: Moment,
    /// Distinguishes the current inputs from earlier ones.
    revision: i64,
    fields: Vec<PageField>,
    choices: Vec<PageChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    website_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Whether the live view of the login's browser is available.
    live: bool,
}

#[derive(Serialize)]
struct PageField {
    id: String,
    label: String,
    kind: &'static str,
    input: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    required: bool,
    /// The allowed values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

#[derive(Serialize)]
struct PageChoice {
    id: String,
    label: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl PageState {
    pub(super) fn new(hosted: HostedFlow) -> Self {
        let HostedFlow { connection, flow } = hosted;
        let is_running = flow.status == FlowStatus::InProgress;
        let is_awaiting = is_running && flow.is_awaiting();
        let Flow { fields, choices, external_action, failure, .. } = flow;
        let is_external = flow.step == FlowStep::AwaitingExternalAction;
        Self {
            domain: connection.domain,
            status: flow.status.as_str(),
            step: flow.step.as_str(),
            expires_at: Moment(flow.expires_at),
            revision: flow.revision,
            fields: if is_awaiting { fields.into_iter().map(PageField::from).collect() } else { Vec::new() },
            choices: if is_awaiting { choices.into_iter().map(PageChoice::from).collect() } else { Vec::new() },
            message: external_action.filter(|_| is_awaiting && is_external),
            website_error: flow.website_error,
            error: failure.map(|failure| failure.message),
            live: is_running && flow.session_made,
        }
    }

    /// Returns whether no other state follows.
    pub(super) fn is_last(&self) -> bool {
        self.status != FlowStatus::InProgress.as_str()
    }

    /// Returns the state after a later login has replaced this one, or its connection was deleted.
    pub(super) fn canceled(mut self) -> Self {
        if !self.is_last() {
            self.status = FlowStatus::Canceled.as_str();
        }
        Self { fields: Vec::new(), choices: Vec::new(), message: None, live: false, ..self }
    }
}

impl From<RequestedField> for PageField {
    fn from(field: RequestedField) -> Self {
        let (kind, input): (FieldKind, InputKind) = (field.kind, field.input);
        Self {
            id: field.id,
            label: field.label,
            kind: kind.as_str(),
            input: input.as_str(),
            hint: field.hint,
            placeholder: field.placeholder,
            required: field.required,
            options: field.options,
        }
    }
}

impl From<RequestedChoice> for PageChoice {
    fn from(choice: RequestedChoice) -> Self {
        let kind: ChoiceKind = choice.kind;
        Self {
            id: choice.id,
            label: choice.label,
            kind: kind.as_str(),
            description: choice.description.or(choice.target),
        }
    }
}
