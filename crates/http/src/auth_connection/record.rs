//! The record of an auth connection, and the parts of it that the stream and the login page use too.

use casement_domain::access::Scope;
use casement_domain::auth_connection::{
    AuthConnection, CredentialRef, Flow, FlowKind, FlowStatus, FlowStep, Reauth, RequestedChoice, RequestedField,
    TimelineEvent,
};
use casement_domain::login_page::{ChoiceKind, InputKind, MfaKind};
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::may_use;
use crate::{answer::Moment, error::ApiError, schema::ToSchema, session::Urls, state::Api};

/// An auth connection, which keeps a profile logged in to a site.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthConnection)]
pub(crate) struct ConnectionBody {
    id: String,
    domain: String,
    profile_name: String,
    /// `AUTHENTICATED` or `NEEDS_AUTH`.
    status: &'static str,
    record_session: bool,
    save_credentials: bool,
    /// The further hosts that a login may visit.
    allowed_domains: Vec<String>,
    auto_reauth: bool,
    health_checks: bool,
    /// The interval of the health checks in seconds.
    health_check_interval: u32,
    /// Whether the connection can log in automatically.
    can_reauth: bool,
    /// The reason why the connection can or cannot log in automatically.
    can_reauth_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<CredentialReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_url: Option<String>,
    /// The SSO provider of the credential. A login presses its button first.
    #[serde(skip_serializing_if = "Option::is_none")]
    sso_provider: Option<String>,
    /// The time of the last check of the login, successful or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_auth_check_at: Option<Moment>,
    /// The old name of `last_auth_check_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_auth_at: Option<Moment>,
    /// The status of the latest login.
    flow_status: Option<&'static str>,
    flow_step: Option<&'static str>,
    flow_type: Option<&'static str>,
    /// The time at which a running login expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    flow_expires_at: Option<Moment>,
    /// The session of a running login.
    #[serde(skip_serializing_if = "Option::is_none")]
    browser_session_id: Option<String>,
    #[serde(flatten)]
    facts: FlowFacts,
}

/// See [`CredentialRef`].
#[derive(Serialize, ToSchema)]
#[schema(as = AuthCredential)]
struct CredentialReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto: Option<bool>,
}

/// The progress of a login, and the input that it waits for.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = AuthFlowState)]
pub(crate) struct FlowFacts {
    /// The URL of the page on which a person continues the login.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosted_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_view_url: Option<String>,
    /// The id of the present fields and choices. It changes whenever the login asks again.
    #[serde(skip_serializing_if = "Option::is_none")]
    interaction_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<FieldBody>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<ChoiceBody>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discovered_fields: Option<Vec<DiscoveredField>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mfa_options: Option<Vec<MfaOption>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_sso_buttons: Option<Vec<SsoButton>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in_options: Option<Vec<SignInOption>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_action_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    website_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_login_url: Option<String>,
}

/// A value that a login waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthField)]
struct FieldBody {
    id: String,
    #[serde(rename = "ref")]
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    observed_selector: String,
    required: bool,
    /// `missing`, or `rejected`: the site refused the value that was sent.
    reason: &'static str,
    /// The text beside the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The keyboard that fits: `text`, `email`, `tel` or `numeric`; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_mode: Option<&'static str>,
    /// The accepted values, if the site accepts no others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

/// A choice that a login waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthChoice)]
struct ChoiceBody {
    id: String,
    label: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The kind of second factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    mfa_type: Option<&'static str>,
    /// The masked phone number or e-mail address that a code goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    masked_destination: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    observed_selector: String,
}

/// A value that a login waits for, in the older form.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthDiscoveredField)]
struct DiscoveredField {
    name: String,
    label: String,
    selector: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    linked_mfa_type: Option<&'static str>,
}

/// A second factor to choose, in the older form.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthMfaOption)]
struct MfaOption {
    label: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// The button of an SSO provider, in the older form.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthSsoButton)]
struct SsoButton {
    label: String,
    provider: String,
    selector: String,
}

/// Any other choice, in the older form.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthSignInOption)]
struct SignInOption {
    id: String,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// A running login.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthLogin)]
pub(super) struct LoginRecord {
    pub(super) id: String,
    /// `LOGIN` or `REAUTH`.
    pub(super) flow_type: &'static str,
    pub(super) hosted_url: String,
    #[schema(value_type = String, format = DateTime)]
    pub(super) flow_expires_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live_view_url: Option<String>,
    /// The one-time code that is also part of `hosted_url`.
    pub(super) handoff_code: String,
}

/// An event of an auth connection.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthTimelineEvent)]
pub(super) struct TimelineBody {
    id: String,
    /// `login`, `reauth` or `health_check`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status of a login, or the result of a check.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'static str>,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    browser_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    website_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_status: Option<&'static str>,
}

impl From<CredentialRef> for CredentialReference {
    fn from(credential: CredentialRef) -> Self {
        let none = Self { name: None, provider: None, path: None, auto: None };
        match credential {
            CredentialRef::Named(name) => Self { name: Some(name), ..none },
            CredentialRef::Item { provider, path } => Self { provider: Some(provider), path: Some(path), ..none },
            CredentialRef::Auto { provider } => Self { provider: Some(provider), auto: Some(true), ..none },
            CredentialRef::AutoAny => Self { auto: Some(true), ..none },
        }
    }
}

impl ConnectionBody {
    /// Returns the record for a caller with this scope, with the URLs of a running login if the caller may use it.
    pub(super) async fn of(api: &Api, scope: &Scope, connection: AuthConnection) -> Result<Self, ApiError> {
        let reauth = api.services.auth_connections.reauth(&connection).await?;
        let facts = match &connection.flow {
            Some(flow) if may_use(scope, connection.id) => FlowFacts::of(api, flow).await?,
            Some(flow) => FlowFacts::without_addresses(flow),
            None => FlowFacts::default(),
        };
        Ok(Self::new(connection, reauth, facts))
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn new(connection: AuthConnection, reauth: Reauth, facts: FlowFacts) -> Self {
        let flow = connection.flow;
        let running = flow.as_ref().filter(|flow| flow.status == FlowStatus::InProgress);
        let settings = connection.settings;
        Self {
            id: connection.id.to_string(),
            domain: connection.domain,
            profile_name: connection.profile_name,
            status: connection.status.as_str(),
            record_session: settings.record_session,
            save_credentials: settings.save_credentials,
            allowed_domains: settings.allowed_domains.iter().map(ToString::to_string).collect(),
            auto_reauth: settings.auto_reauth,
            health_checks: settings.health_checks,
            health_check_interval: settings.health_check_interval_seconds,
            can_reauth: reauth.can,
            can_reauth_reason: reauth.reason.as_str(),
            credential: settings.credential.map(Into::into),
            proxy_id: settings.proxy.map(|id| id.to_string()),
            login_url: settings.login_url,
            sso_provider: connection.credential.and_then(|credential| credential.sso_provider),
            last_auth_check_at: connection.last_check_at.map(Moment),
            last_auth_at: connection.last_check_at.map(Moment),
            flow_status: flow.as_ref().map(|flow| flow.status.as_str()),
            flow_step: flow.as_ref().map(|flow| flow.step.as_str()),
            flow_type: flow.as_ref().map(|flow| flow.kind.as_str()),
            flow_expires_at: running.map(|flow| Moment(flow.expires_at)),
            browser_session_id: running.filter(|flow| flow.session_made).map(|flow| flow.session.to_string()),
            facts,
        }
    }
}

/// Returns the URL of the page on which a person continues a login.
pub(super) fn hosted_url(api: &Api, flow: &Flow, code: &str) -> String {
    let mut url = api.public_url.get();
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    format!("{}/login/{}?code={code}", url.as_str().trim_end_matches('/'), flow.connection)
}

/// Returns the URL of the live view of a login.
pub(crate) async fn live_view_url(api: &Api, flow: &Flow) -> Option<String> {
    if !flow.session_made {
        return None;
    }
    let session = api.services.sessions.active(flow.session).await.ok()?;
    Some(Urls::new(&api.public_url.get(), &api.services.tokens, &session).live_view())
}

impl FlowFacts {
    /// Returns the progress, with the URLs of a running login.
    pub(super) async fn of(api: &Api, flow: &Flow) -> Result<Self, ApiError> {
        let mut facts = Self::without_addresses(flow);
        if flow.status == FlowStatus::InProgress {
            let code = api.services.auth_connections.handoff_code(flow).map_err(ApiError::internal)?;
            facts.hosted_url = code.map(|code| hosted_url(api, flow, code.expose_secret()));
            facts.live_view_url = live_view_url(api, flow).await;
        }
        Ok(facts)
    }

    /// Returns the progress without URLs, for readers that have the page open.
    pub(crate) fn without_addresses(flow: &Flow) -> Self {
        let awaiting = flow.status == FlowStatus::InProgress && flow.is_awaiting();
        let fields = |any: bool| (awaiting && any).then_some(&flow.fields);
        let fields = fields(!flow.fields.is_empty());
        let choices = (awaiting && !flow.choices.is_empty()).then_some(&flow.choices);
        let failed = flow.failure.as_ref();
        Self {
            hosted_url: None,
            live_view_url: None,
            interaction_id: flow.interaction_id(),
            fields: fields.map(|fields| fields.iter().map(FieldBody::from).collect()),
            choices: choices.map(|choices| choices.iter().map(ChoiceBody::from).collect()),
            discovered_fields: fields.map(|fields| fields.iter().map(DiscoveredField::from).collect()),
            mfa_options: older(choices, MfaOption::of),
            pending_sso_buttons: older(choices, SsoButton::of),
            sign_in_options: older(choices, SignInOption::of),
            external_action_message: flow
                .external_action
                .clone()
                .filter(|_| awaiting && flow.step == FlowStep::AwaitingExternalAction),
            website_error: flow.website_error.clone(),
            error_code: failed.map(|failure| failure.code.as_str()),
            error_message: failed.map(|failure| failure.message.clone()),
            post_login_url: flow.post_login_url.clone().filter(|_| flow.status == FlowStatus::Success),
        }
    }
}

/// Returns the choices that have an older form, or `None` if there is none.
fn older<T>(choices: Option<&Vec<RequestedChoice>>, of: impl Fn(&RequestedChoice) -> Option<T>) -> Option<Vec<T>> {
    let found: Vec<T> = choices?.iter().filter_map(of).collect();
    (!found.is_empty()).then_some(found)
}

impl From<&RequestedField> for FieldBody {
    fn from(field: &RequestedField) -> Self {
        Self {
            id: field.id.clone(),
            name: field.name.clone(),
            kind: field.kind.as_str(),
            label: field.label.clone(),
            observed_selector: field.selector.clone(),
            required: field.required,
            reason: if field.rejected { "rejected" } else { "missing" },
            hint: field.hint.clone(),
            input_mode: input_mode(field.input),
            options: field.options.clone(),
        }
    }
}

/// Returns the keyboard for a type of input. A code may have letters.
const fn input_mode(input: InputKind) -> Option<&'static str> {
    match input {
        InputKind::Text => Some("text"),
        InputKind::Email => Some("email"),
        InputKind::Tel => Some("tel"),
        InputKind::Number | InputKind::Totp => Some("numeric"),
        InputKind::Password | InputKind::Url | InputKind::Code => None,
    }
}

impl From<&RequestedChoice> for ChoiceBody {
    fn from(choice: &RequestedChoice) -> Self {
        Self {
            id: choice.id.clone(),
            label: choice.label.clone(),
            kind: choice.kind.as_str(),
            description: choice.description.clone(),
            mfa_type: choice.mfa.map(MfaKind::as_str),
            masked_destination: choice.target.clone(),
            observed_selector: choice.selector.clone(),
        }
    }
}

impl From<&RequestedField> for DiscoveredField {
    fn from(field: &RequestedField) -> Self {
        Self {
            name: field.name.clone(),
            label: field.label.clone(),
            selector: field.selector.clone(),
            kind: field.input.as_str(),
            hint: field.hint.clone(),
            placeholder: field.placeholder.clone(),
            required: field.required,
            linked_mfa_type: field.mfa.map(MfaKind::as_str),
        }
    }
}

impl MfaOption {
    fn of(choice: &RequestedChoice) -> Option<Self> {
        Some(Self {
            label: choice.label.clone(),
            kind: choice.mfa?.as_str(),
            target: choice.target.clone(),
            description: choice.description.clone(),
        })
    }
}

impl SsoButton {
    fn of(choice: &RequestedChoice) -> Option<Self> {
        let provider = choice.provider.clone().filter(|_| choice.kind == ChoiceKind::SsoProvider)?;
        Some(Self { label: choice.label.clone(), provider, selector: choice.xpath.clone() })
    }
}

impl SignInOption {
    fn of(choice: &RequestedChoice) -> Option<Self> {
        (choice.mfa.is_none() && choice.kind != ChoiceKind::SsoProvider).then(|| Self {
            id: choice.id.clone(),
            label: choice.label.clone(),
            description: choice.description.clone(),
        })
    }
}

impl From<TimelineEvent> for TimelineBody {
    fn from(event: TimelineEvent) -> Self {
        let flow = event.flow;
        let (kind, status) = match (flow.kind, flow.found) {
            (FlowKind::Login, _) => ("login", flow.status.as_str()),
            (FlowKind::Reauth, _) => ("reauth", flow.status.as_str()),
            (FlowKind::HealthCheck, Some((_, found))) => ("health_check", found.as_str()),
            (FlowKind::HealthCheck, None) => ("health_check", flow.status.as_str()),
        };
        let (error_code, error_message) = flow.failure.map(|failure| (failure.code.as_str(), failure.message)).unzip();
        Self {
            id: flow.id.to_string(),
            kind,
            status,
            timestamp: Moment(flow.created_at),
            step: (flow.kind != FlowKind::HealthCheck).then(|| flow.step.as_str()),
            updated_at: Moment(flow.updated_at),
            browser_session_id: flow.session_made.then(|| flow.session.to_string()),
            replay_id: flow.replay.map(|id| id.to_string()),
            error_code,
            error_message,
            website_error: flow.website_error,
            previous_status: flow.found.map(|(before, _)| before.as_str()),
        }
    }
}
