//! A login flow: its state and its data.

use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::{AuthConnection, ConnectionStatus, CredentialRef, RequestedChoice, RequestedField};
use crate::ids::{AuthConnectionId, AuthFlowId, CredentialId, NodeId, ProxyId, ReplayId, SessionId};
use crate::login_page::{HostPattern, Progress};
use crate::text_enum::text_enum;

/// The number of bytes of the id of an interaction.
const INTERACTION_ID_BYTES: usize = 16;

text_enum! {
    /// The purpose of a flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowKind {
        /// A login with a person.
        Login => "LOGIN",
        /// A login with stored values.
        Reauth => "REAUTH",
        /// A health check of the login. It is shown in the timeline only.
        HealthCheck => "HEALTH_CHECK",
    }
}

text_enum! {
    /// The status of a flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowStatus {
        /// The flow is running.
        InProgress => "IN_PROGRESS",
        /// The profile was logged in and saved.
        Success => "SUCCESS",
        /// The flow failed.
        Failed => "FAILED",
        /// The flow did not end in time.
        Expired => "EXPIRED",
        /// The connection was deleted.
        Canceled => "CANCELED",
    }
}

text_enum! {
    /// The current step of a flow, or the last one of an ended flow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowStep {
        /// The page is being read.
        Discovering => "DISCOVERING",
        /// The flow waits for values or a choice.
        AwaitingInput => "AWAITING_INPUT",
        /// The flow waits for an action of a person elsewhere.
        AwaitingExternalAction => "AWAITING_EXTERNAL_ACTION",
        /// The page is being filled in.
        Submitting => "SUBMITTING",
        /// The login is complete.
        Completed => "COMPLETED",
    }
}

text_enum! {
    /// The reason why a flow failed: the closed list of values of `error_code`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowError {
        /// The site refused the stored values, or locked the account.
        CredentialsRejected => "credentials_rejected",
        /// The site asks for something that is not stored, and the flow is unattended.
        CredentialMissing => "credential_missing",
        /// The page was not understood.
        PageNotUnderstood => "page_not_understood",
        /// The login went to a host that is not allowed.
        DomainNotAllowed => "domain_not_allowed",
        /// The page has a captcha, and the flow is unattended.
        Captcha => "captcha",
        /// A page could not be loaded.
        NavigationFailed => "navigation_failed",
        /// The browser ended.
        BrowserEnded => "browser_ended",
        /// The credential provider failed.
        ProviderError => "provider_error",
        /// An internal error.
        Internal => "internal",
    }
}

/// The reason why a flow failed, with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFailure {
    /// The code, for programs.
    pub code: FlowError,
    /// The message, for people: no secrets, at most 1,000 characters.
    pub message: String,
}

impl FlowFailure {
    /// Creates a failure. A message that is too long is cut.
    pub fn new(code: FlowError, message: impl Into<String>) -> Self {
        let message: String = message.into().chars().take(1000).collect();
        Self { code, message }
    }
}

/// A requirement of a login, which an unattended login therefore needs as well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowRequirement {
    /// The value with this name.
    Value(String),
    /// A code of an authenticator app.
    Totp,
    /// A code by text message or phone call.
    SmsCode,
    /// A code by e-mail.
    EmailCode,
    /// A code of unknown origin.
    OtherCode,
    /// An action of a person elsewhere, or in the live view.
    External,
    /// A choice, by its label.
    Choice(String),
}

impl FlowRequirement {
    /// Returns the stored form.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Value(name) => format!("value:{name}"),
            Self::Totp => "totp".to_owned(),
            Self::SmsCode => "sms_code".to_owned(),
            Self::EmailCode => "email_code".to_owned(),
            Self::OtherCode => "other_code".to_owned(),
            Self::External => "external".to_owned(),
            Self::Choice(label) => format!("choice:{label}"),
        }
    }

    /// Parses the stored form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "totp" => Self::Totp,
            "sms_code" => Self::SmsCode,
            "email_code" => Self::EmailCode,
            "other_code" => Self::OtherCode,
            "external" => Self::External,
            _ => match text.split_once(':')? {
                ("value", name) => Self::Value(name.to_owned()),
                ("choice", label) => Self::Choice(label.to_owned()),
                _ => return None,
            },
        })
    }
}

/// The settings with which a flow began. Later changes of the connection do not apply to the flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// The allowed hosts.
    pub allowed_domains: Vec<HostPattern>,
    /// True if entered values are stored as a credential.
    pub save_credentials: bool,
    /// The credential.
    pub credential: Option<CredentialRef>,
    /// See [`Settings`](super::Settings).
    pub organization_credential: bool,
    /// The id of the named credential, which may have been renamed since.
    pub credential_id: Option<CredentialId>,
    /// The URL where the login begins.
    pub login_url: Option<String>,
    /// The time of the last change of the connection. If it has not changed since, its present settings apply, because
    /// they follow renamed credentials.
    pub connection_updated_at: OffsetDateTime,
}

impl FlowSettings {
    /// Returns the settings of a flow that begins now.
    #[must_use]
    pub fn of(connection: &AuthConnection) -> Self {
        let settings = connection.settings.clone();
        Self {
            allowed_domains: settings.allowed_domains,
            save_credentials: settings.save_credentials,
            credential: settings.credential,
            organization_credential: settings.organization_credential,
            credential_id: connection.credential.as_ref().map(|credential| credential.id),
            login_url: settings.login_url,
            connection_updated_at: connection.updated_at,
        }
    }
}

/// A login, an unattended login, or a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The id.
    pub id: AuthFlowId,
    /// The connection.
    pub connection: AuthConnectionId,
    /// The purpose.
    pub kind: FlowKind,
    /// True if no person takes part.
    pub unattended: bool,
    /// The status.
    pub status: FlowStatus,
    /// The step.
    pub step: FlowStep,
    /// The number of stored changes. A write succeeds only with the latest number.
    pub revision: i64,
    /// The node that runs the flow.
    pub node: Option<NodeId>,
    /// The id of the session, known before the session is created.
    pub session: SessionId,
    /// True if the session was created.
    pub session_made: bool,
    /// True if the session may exist and must be ended.
    pub open: bool,
    /// The proxy of the session.
    pub proxy: Option<ProxyId>,
    /// True if the session is recorded.
    pub record_session: bool,
    /// The settings with which the flow began; `None`: the present settings of the connection apply.
    pub begun_with: Option<Box<FlowSettings>>,
    /// The recording of the session.
    pub replay: Option<ReplayId>,
    /// The fields that the flow waits for.
    pub fields: Vec<RequestedField>,
    /// The choices that the flow waits for.
    pub choices: Vec<RequestedChoice>,
    /// The action that a person has to take elsewhere, as text.
    pub external_action: Option<String>,
    /// The error that the site showed.
    pub website_error: Option<String>,
    /// The reason why the flow failed.
    pub failure: Option<FlowFailure>,
    /// The URL after the login. It is set before the profile is saved; from then on only the saving remains.
    pub post_login_url: Option<String>,
    /// True if the session has the permission to save the profile.
    pub saving: bool,
    /// True if the session must be replaced, because the profile has a newer version.
    pub outdated: bool,
    /// The number of times that the flow has begun again.
    pub begun_again: u32,
    /// The submission that is not typed yet, sealed.
    pub submission: Option<Vec<u8>>,
    /// The values typed so far, by name, sealed.
    pub entered: Option<Vec<u8>>,
    /// The requirements of the site so far.
    pub needs: Vec<FlowRequirement>,
    /// The progress so far.
    pub progress: Progress,
    /// The number of actions of the flow on pages, and of changes of the page by a person while the flow waited.
    pub acts: u32,
    /// The number of answers that the site refused.
    pub refusals: u32,
    /// The one-time code of the hosted page, sealed.
    pub handoff: Option<Vec<u8>>,
    /// The time at which the code was used.
    pub handoff_used_at: Option<OffsetDateTime>,
    /// The SHA-256 hash of the key in the cookie of the hosted page.
    pub page_key: Option<[u8; 32]>,
    /// The result of a health check: the status of the connection before and after it.
    pub found: Option<(ConnectionStatus, ConnectionStatus)>,
    /// The time of expiry.
    pub expires_at: OffsetDateTime,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

impl Flow {
    /// The maximum duration of a flow.
    pub const LIFE: Duration = Duration::minutes(15);
    /// The maximum number of times that a flow begins again, because its page was lost or another flow saved the
    /// profile.
    pub const MAX_BEGUN_AGAIN: u32 = 3;
    /// The time for which a session outlives its flow, unless it is ended.
    pub const GRACE: Duration = Duration::minutes(2);

    /// Creates a flow that begins at `now`, with nothing done yet.
    #[must_use]
    pub fn new(
        id: AuthFlowId,
        connection: AuthConnectionId,
        kind: FlowKind,
        session: SessionId,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            id,
            connection,
            kind,
            unattended: false,
            status: FlowStatus::InProgress,
            step: FlowStep::Discovering,
            revision: 0,
            node: None,
            session,
            session_made: false,
            open: false,
            proxy: None,
            record_session: false,
            begun_with: None,
            replay: None,
            fields: Vec::new(),
            choices: Vec::new(),
            external_action: None,
            website_error: None,
            failure: None,
            post_login_url: None,
            saving: false,
            outdated: false,
            begun_again: 0,
            submission: None,
            entered: None,
            needs: Vec::new(),
            progress: Progress::default(),
            acts: 0,
            refusals: 0,
            handoff: None,
            handoff_used_at: None,
            page_key: None,
            found: None,
            expires_at: now + Self::LIFE,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns the place for which the code of the hosted page is sealed.
    #[must_use]
    pub fn handoff_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/handoff")
    }

    /// Returns the place for which a submission is sealed.
    #[must_use]
    pub fn submission_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/submission")
    }

    /// Returns the place for which the entered values are sealed.
    #[must_use]
    pub fn entered_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/entered")
    }

    /// Returns whether the flow is running at `now`. A flow that is logged in does not expire before the profile is
    /// saved.
    #[must_use]
    pub fn is_running(&self, now: OffsetDateTime) -> bool {
        self.status == FlowStatus::InProgress && (now < self.expires_at || self.post_login_url.is_some())
    }

    /// Returns the flow as it is shown at `now`: expired as soon as its time is over, even before that is stored.
    #[must_use]
    pub fn as_of(self, now: OffsetDateTime) -> Self {
        if self.status == FlowStatus::InProgress && !self.is_running(now) {
            return Self { status: FlowStatus::Expired, fields: Vec::new(), choices: Vec::new(), ..self };
        }
        self
    }

    /// Returns the id of what the flow asks a person for; `None` if it asks for nothing. It changes whenever the flow asks
    /// again.
    #[must_use]
    pub fn interaction_id(&self) -> Option<String> {
        let asks = !self.fields.is_empty() || !self.choices.is_empty();
        if self.status != FlowStatus::InProgress || !self.is_awaiting() || !asks {
            return None;
        }
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {} {}", self.id, self.begun_again, self.acts, self.refusals));
        let fields = self.fields.iter().map(|field| &field.id);
        for id in fields.chain(self.choices.iter().map(|choice| &choice.id)) {
            hash.update((id.len() as u64).to_le_bytes());
            hash.update(id);
        }
        Some(hash.finalize()[..INTERACTION_ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns whether the flow waits for a person.
    #[must_use]
    pub fn is_awaiting(&self) -> bool {
        matches!(self.step, FlowStep::AwaitingInput | FlowStep::AwaitingExternalAction)
    }
}

/// An entry of a connection's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The flow.
    pub flow: Flow,
}
