//! What the page is told. Texts are the site's: the page shows them as text alone.

use casement_domain::{
    auth_connection::{Flow, FlowStatus, FlowStep, HostedFlow, RequestedChoice, RequestedField},
    login_page::{ChoiceKind, FieldKind, InputKind},
};
use serde::Serialize;

use crate::answer::Moment;

/// What a login is at, for the person who goes on with it.
#[derive(Serialize)]
pub(super) struct PageState {
    /// Where it logs in.
    domain: String,
    status: &'static str,
    step: &'static str,
    expires_at: Moment,
    /// Tells what is asked for now from what was asked for before.
    revision: i64,
    fields: Vec<PageField>,
    choices: Vec<PageChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    website_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Whether its browser can be seen.
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
    /// What it is one of.
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
    pub(super) fn of(hosted: HostedFlow) -> Self {
        let HostedFlow { connection, flow } = hosted;
        let running = flow.status == FlowStatus::InProgress;
        let awaiting = running && flow.is_awaiting();
        let Flow { fields, choices, external_action, failure, .. } = flow;
        let elsewhere = flow.step == FlowStep::AwaitingExternalAction;
        Self {
            domain: connection.domain,
            status: flow.status.as_str(),
            step: flow.step.as_str(),
            expires_at: Moment(flow.expires_at),
            revision: flow.revision,
            fields: if awaiting { fields.into_iter().map(PageField::from).collect() } else { Vec::new() },
            choices: if awaiting { choices.into_iter().map(PageChoice::from).collect() } else { Vec::new() },
            message: external_action.filter(|_| awaiting && elsewhere),
            website_error: flow.website_error,
            error: failure.map(|failure| failure.message),
            live: running && flow.session_made,
        }
    }

    /// Whether nothing comes after it.
    pub(super) fn is_last(&self) -> bool {
        self.status != FlowStatus::InProgress.as_str()
    }

    /// As it is once a later login has taken its place, or its connection is gone.
    pub(super) fn over(mut self) -> Self {
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
