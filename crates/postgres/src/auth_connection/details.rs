//! What of a flow nobody looks for, as JSON.

use casement_domain::auth_connection::{
    ConnectionStatus, Flow, FlowError, FlowFailure, FlowRequirement, FlowSettings, RequestedChoice, RequestedField,
};
use casement_domain::login_page::{ChoiceKind, FieldKind, InputKind, MfaKind, Progress};
use casement_domain::{CredentialId, ProxyId, ReplayId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::row::{parts, patterns, texts, whole};
use crate::convert::by_text;
use crate::error::BadRow;

const COLUMN: &str = "auth_flows.details";

/// See [`Flow`]. What a later version adds has a default, so that this one reads it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    unattended: bool,
    session_made: bool,
    proxy: Option<String>,
    record_session: bool,
    begun_with: Option<BegunWithForm>,
    replay: Option<String>,
    fields: Vec<FieldForm>,
    choices: Vec<ChoiceForm>,
    external_action: Option<String>,
    website_error: Option<String>,
    failure: Option<(String, String)>,
    post_login_url: Option<String>,
    saving: bool,
    outdated: bool,
    begun_again: u32,
    needs: Vec<String>,
    progress: ProgressForm,
    acts: u32,
    refusals: u32,
    handoff_used_at: Option<i64>,
    found: Option<(String, String)>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct BegunWithForm {
    allowed_domains: Vec<String>,
    save_credentials: bool,
    credential_name: Option<String>,
    credential_provider: Option<String>,
    credential_path: Option<String>,
    organization_credential: bool,
    credential_id: Option<String>,
    login_url: Option<String>,
    /// In microseconds, as the database keeps times.
    #[serde(rename = "told_at")]
    connection_updated_at: i64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct FieldForm {
    id: String,
    name: String,
    kind: String,
    input: String,
    label: String,
    hint: Option<String>,
    placeholder: Option<String>,
    selector: String,
    required: bool,
    mfa: Option<String>,
    options: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ChoiceForm {
    id: String,
    kind: String,
    label: String,
    description: Option<String>,
    selector: String,
    xpath: String,
    mfa: Option<String>,
    target: Option<String>,
    provider: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ProgressForm {
    identifier: bool,
    password: bool,
    code: bool,
    choice: bool,
    external: bool,
    captcha: bool,
}

impl Details {
    pub(super) fn of(flow: &Flow) -> Self {
        Self {
            unattended: flow.unattended,
            session_made: flow.session_made,
            proxy: flow.proxy.map(|id| id.to_string()),
            record_session: flow.record_session,
            begun_with: flow.begun_with.as_deref().map(BegunWithForm::from),
            replay: flow.replay.map(|id| id.to_string()),
            fields: flow.fields.iter().map(FieldForm::from).collect(),
            choices: flow.choices.iter().map(ChoiceForm::from).collect(),
            external_action: flow.external_action.clone(),
            website_error: flow.website_error.clone(),
            failure: flow.failure.as_ref().map(|why| (why.code.as_str().to_owned(), why.message.clone())),
            post_login_url: flow.post_login_url.clone(),
            saving: flow.saving,
            outdated: flow.outdated,
            begun_again: flow.begun_again,
            needs: flow.needs.iter().map(FlowRequirement::to_text).collect(),
            progress: flow.progress.into(),
            acts: flow.acts,
            refusals: flow.refusals,
            handoff_used_at: flow.handoff_used_at.map(OffsetDateTime::unix_timestamp),
            found: flow.found.map(|(before, after)| (before.as_str().to_owned(), after.as_str().to_owned())),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| unreachable!("it is made of texts, numbers and lists"))
    }

    pub(super) fn read(value: Value) -> Result<Self, BadRow> {
        serde_json::from_value(value).map_err(|error| BadRow::new(COLUMN, error))
    }

    /// Puts what is here into `flow`.
    pub(super) fn into_flow(self, flow: Flow) -> Result<Flow, BadRow> {
        let bad = |error: &dyn ToString| BadRow::new(COLUMN, error.to_string());
        let status = |text: &str| by_text(COLUMN, &ConnectionStatus::ALL, ConnectionStatus::as_str, text);
        let proxy = self.proxy.map(|id| id.parse::<ProxyId>().map_err(|error| bad(&error))).transpose()?;
        let replay = self.replay.map(|id| id.parse::<ReplayId>().map_err(|error| bad(&error))).transpose()?;
        let failure = match self.failure {
            Some((code, message)) => {
                Some(FlowFailure { code: by_text(COLUMN, &FlowError::ALL, FlowError::as_str, code)?, message })
            }
            None => None,
        };
        let found = match self.found {
            Some((before, after)) => Some((status(&before)?, status(&after)?)),
            None => None,
        };
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| bad(&error));
        Ok(Flow {
            unattended: self.unattended,
            session_made: self.session_made,
            proxy,
            record_session: self.record_session,
            begun_with: self.begun_with.map(BegunWithForm::begun_with).transpose()?.map(Box::new),
            replay,
            fields: self.fields.into_iter().map(FieldForm::field).collect::<Result<_, _>>()?,
            choices: self.choices.into_iter().map(ChoiceForm::choice).collect::<Result<_, _>>()?,
            external_action: self.external_action,
            website_error: self.website_error,
            failure,
            post_login_url: self.post_login_url,
            saving: self.saving,
            outdated: self.outdated,
            begun_again: self.begun_again,
            needs: self.needs.iter().filter_map(|text| FlowRequirement::parse(text)).collect(),
            progress: self.progress.into(),
            acts: self.acts,
            refusals: self.refusals,
            handoff_used_at: self.handoff_used_at.map(at).transpose()?,
            found,
            ..flow
        })
    }
}

fn mfa(text: Option<String>) -> Result<Option<MfaKind>, BadRow> {
    text.map(|text| by_text(COLUMN, &MfaKind::ALL, MfaKind::as_str, text)).transpose()
}

impl From<&FlowSettings> for BegunWithForm {
    fn from(begun: &FlowSettings) -> Self {
        let (name, provider, path) = parts(begun.credential.as_ref());
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            allowed_domains: texts(&begun.allowed_domains),
            save_credentials: begun.save_credentials,
            credential_name: owned(name),
            credential_provider: owned(provider),
            credential_path: owned(path),
            organization_credential: begun.organization_credential,
            credential_id: begun.credential_id.map(|id| id.to_string()),
            login_url: begun.login_url.clone(),
            connection_updated_at: i64::try_from(begun.connection_updated_at.unix_timestamp_nanos() / 1000)
                .unwrap_or(i64::MAX),
        }
    }
}

impl BegunWithForm {
    fn begun_with(self) -> Result<FlowSettings, BadRow> {
        let bad = |error: &dyn ToString| BadRow::new(COLUMN, error.to_string());
        let id = self.credential_id.map(|id| id.parse::<CredentialId>().map_err(|error| bad(&error))).transpose()?;
        let updated_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.connection_updated_at) * 1000);
        Ok(FlowSettings {
            allowed_domains: patterns(COLUMN, &self.allowed_domains)?,
            save_credentials: self.save_credentials,
            credential: whole(self.credential_name, self.credential_provider, self.credential_path),
            organization_credential: self.organization_credential,
            credential_id: id,
            login_url: self.login_url,
            connection_updated_at: updated_at.map_err(|error| bad(&error))?,
        })
    }
}

impl From<&RequestedField> for FieldForm {
    fn from(field: &RequestedField) -> Self {
        Self {
            id: field.id.clone(),
            name: field.name.clone(),
            kind: field.kind.as_str().to_owned(),
            input: field.input.as_str().to_owned(),
            label: field.label.clone(),
            hint: field.hint.clone(),
            placeholder: field.placeholder.clone(),
            selector: field.selector.clone(),
            required: field.required,
            mfa: field.mfa.map(|mfa| mfa.as_str().to_owned()),
            options: field.options.clone(),
        }
    }
}

impl FieldForm {
    fn field(self) -> Result<RequestedField, BadRow> {
        Ok(RequestedField {
            id: self.id,
            name: self.name,
            kind: by_text(COLUMN, &FieldKind::ALL, FieldKind::as_str, self.kind)?,
            input: by_text(COLUMN, &InputKind::ALL, InputKind::as_str, self.input)?,
            label: self.label,
            hint: self.hint,
            placeholder: self.placeholder,
            selector: self.selector,
            required: self.required,
            mfa: mfa(self.mfa)?,
            options: self.options,
        })
    }
}

impl From<&RequestedChoice> for ChoiceForm {
    fn from(choice: &RequestedChoice) -> Self {
        Self {
            id: choice.id.clone(),
            kind: choice.kind.as_str().to_owned(),
            label: choice.label.clone(),
            description: choice.description.clone(),
            selector: choice.selector.clone(),
            xpath: choice.xpath.clone(),
            mfa: choice.mfa.map(|mfa| mfa.as_str().to_owned()),
            target: choice.target.clone(),
            provider: choice.provider.clone(),
        }
    }
}

impl ChoiceForm {
    fn choice(self) -> Result<RequestedChoice, BadRow> {
        Ok(RequestedChoice {
            id: self.id,
            kind: by_text(COLUMN, &ChoiceKind::ALL, ChoiceKind::as_str, self.kind)?,
            label: self.label,
            description: self.description,
            selector: self.selector,
            xpath: self.xpath,
            mfa: mfa(self.mfa)?,
            target: self.target,
            provider: self.provider,
        })
    }
}

impl From<Progress> for ProgressForm {
    fn from(progress: Progress) -> Self {
        let Progress { identifier, password, code, choice, external, captcha } = progress;
        Self { identifier, password, code, choice, external, captcha }
    }
}

impl From<ProgressForm> for Progress {
    fn from(form: ProgressForm) -> Self {
        let ProgressForm { identifier, password, code, choice, external, captcha } = form;
        Self { identifier, password, code, choice, external, captcha }
    }
}

#[cfg(test)]
mod tests;
