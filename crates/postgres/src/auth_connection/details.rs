//! The fields of a flow that no query filters by, stored as JSON.

use casement_domain::auth_connection::{
    Flow, FlowError, FlowFailure, FlowRequirement, FlowSettings, RequestedChoice, RequestedField,
};
use casement_domain::login_page::Progress;
use casement_domain::{CredentialId, ProxyId, ReplayId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::row::CredentialColumns;
use crate::column::{ColumnValue, Stored, row};
use crate::error::BadRow;

const COLUMN: &str = "auth_flows.details";

/// The stored form of these fields of [`Flow`]. Every field has a default, so that rows of other versions can be read.
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
    handoff_used_at: Option<Seconds>,
    found: Option<(String, String)>,
}

row! {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct BegunWithForm for FlowSettings {
        allowed_domains: Vec<String>,
        save_credentials: bool,
        #[serde(flatten)]
        credential: CredentialColumns,
        organization_credential: bool,
        credential_id: Option<String>,
        login_url: Option<String>,
        #[serde(rename = "told_at")]
        connection_updated_at: Microseconds,
    }
}

row! {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct FieldForm for RequestedField {
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
        rejected: bool,
    }
}

row! {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct ChoiceForm for RequestedChoice {
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
}

row! {
    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct ProgressForm for Progress {
        identifier: bool,
        password: bool,
        code: bool,
        choice: bool,
        external: bool,
        captcha: bool,
    }
}

/// A time in microseconds since the epoch, the precision of the database.
#[derive(Default, Serialize, Deserialize)]
struct Microseconds(i64);

impl Stored<OffsetDateTime> for Microseconds {
    fn of(time: &OffsetDateTime) -> Self {
        Self(i64::try_from(time.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX))
    }

    fn value(self) -> Result<OffsetDateTime, BadRow> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1000).map_err(bad)
    }
}

/// A time in seconds since the epoch.
#[derive(Default, Serialize, Deserialize)]
struct Seconds(i64);

impl Stored<OffsetDateTime> for Seconds {
    fn of(time: &OffsetDateTime) -> Self {
        Self(time.unix_timestamp())
    }

    fn value(self) -> Result<OffsetDateTime, BadRow> {
        OffsetDateTime::from_unix_timestamp(self.0).map_err(bad)
    }
}

fn bad(why: impl ToString) -> BadRow {
    BadRow::new(COLUMN, why)
}

/// A value that is stored as text in a column has the same text here.
impl<T: ColumnValue<Raw = String>> Stored<T> for String {
    fn of(value: &T) -> Self {
        value.to_raw()
    }

    fn value(self) -> Result<T, BadRow> {
        T::from_raw(self).map_err(bad)
    }
}

macro_rules! ids {
    ($($id:ident),+) => {$(
        impl Stored<$id> for String {
            fn of(id: &$id) -> Self {
                id.to_string()
            }

            fn value(self) -> Result<$id, BadRow> {
                self.parse().map_err(bad)
            }
        }
    )+};
}
ids!(CredentialId, ProxyId, ReplayId);

impl Stored<FlowFailure> for (String, String) {
    fn of(failure: &FlowFailure) -> Self {
        (failure.code.as_str().to_owned(), failure.message.clone())
    }

    fn value(self) -> Result<FlowFailure, BadRow> {
        Ok(FlowFailure { code: FlowError::from_raw(self.0).map_err(bad)?, message: self.1 })
    }
}

/// Requirements that only a later version knows are left out.
impl Stored<Vec<FlowRequirement>> for Vec<String> {
    fn of(needs: &Vec<FlowRequirement>) -> Self {
        needs.iter().map(FlowRequirement::to_text).collect()
    }

    fn value(self) -> Result<Vec<FlowRequirement>, BadRow> {
        Ok(self.iter().filter_map(|text| FlowRequirement::parse(text)).collect())
    }
}

impl Details {
    pub(super) fn of(flow: &Flow) -> Self {
        Self {
            unattended: flow.unattended,
            session_made: flow.session_made,
            proxy: Stored::of(&flow.proxy),
            record_session: flow.record_session,
            begun_with: flow.begun_with.as_deref().map(BegunWithForm::of),
            replay: Stored::of(&flow.replay),
            fields: Stored::of(&flow.fields),
            choices: Stored::of(&flow.choices),
            external_action: flow.external_action.clone(),
            website_error: flow.website_error.clone(),
            failure: Stored::of(&flow.failure),
            post_login_url: flow.post_login_url.clone(),
            saving: flow.saving,
            outdated: flow.outdated,
            begun_again: flow.begun_again,
            needs: Stored::of(&flow.needs),
            progress: ProgressForm::of(&flow.progress),
            acts: flow.acts,
            refusals: flow.refusals,
            handoff_used_at: Stored::of(&flow.handoff_used_at),
            found: Stored::of(&flow.found),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| unreachable!("it is made of texts, numbers and lists"))
    }

    pub(super) fn read(value: Value) -> Result<Self, BadRow> {
        serde_json::from_value(value).map_err(bad)
    }

    /// Returns `flow` with these fields.
    pub(super) fn into_flow(self, flow: Flow) -> Result<Flow, BadRow> {
        Ok(Flow {
            unattended: self.unattended,
            session_made: self.session_made,
            proxy: self.proxy.value()?,
            record_session: self.record_session,
            begun_with: self.begun_with.value()?.map(Box::new),
            replay: self.replay.value()?,
            fields: self.fields.value()?,
            choices: self.choices.value()?,
            external_action: self.external_action,
            website_error: self.website_error,
            failure: self.failure.value()?,
            post_login_url: self.post_login_url,
            saving: self.saving,
            outdated: self.outdated,
            begun_again: self.begun_again,
            needs: self.needs.value()?,
            progress: self.progress.value()?,
            acts: self.acts,
            refusals: self.refusals,
            handoff_used_at: self.handoff_used_at.value()?,
            found: self.found.value()?,
            ..flow
        })
    }
}

#[cfg(test)]
mod tests;
