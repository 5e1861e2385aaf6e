//! A login flow: its state and its data.

use time::{Duration, OffsetDateTime};

use super::{AuthConnection, ConnectionStatus, CredentialRef, RequestedChoice, RequestedField};
use crate::ids::{AuthConnectionId, AuthFlowId, CredentialId, NodeId, ProxyId, ReplayId, SessionId};
use crate::login_page::{HostPattern, Progress};
use crate::text_enum::text_enum;

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
        /// It is running.
        InProgress => "IN_PROGRESS",
        /// The profile was logged in and saved.
        Success => "SUCCESS",
        /// It failed.
        Failed => "FAILED",
        /// Its time was over before it ended.
        Expired => "EXPIRED",
        /// Its connection was deleted.
        Canceled => "CANCELED",
    }
}

text_enum! {
    /// The step of a flow, or its last one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowStep {
        /// The page is being read.
        Discovering => "DISCOVERING",
        /// It waits for values or a choice.
        AwaitingInput => "AWAITING_INPUT",
        /// It waits for a step that a person does elsewhere.
        AwaitingExternalAction => "AWAITING_EXTERNAL_ACTION",
        /// The page is being filled in.
        Submitting => "SUBMITTING",
        /// The login is complete.
        Completed => "COMPLETED",
    }
}

text_enum! {
    /// Why a flow failed; the closed list of `error_code`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowError {
        /// The site refused the stored values, or locked the account.
        CredentialsRejected => "credentials_rejected",
        /// The site asks for something that is not stored, and the flow is unattended.
        CredentialMissing => "credential_missing",
        /// It is unknown what the page wants.
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

/// Why a flow failed.
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

/// Something that a login asked for, and that an unattended login therefore needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowRequirement {
    /// The value of a name.
    Value(String),
    /// A code of an authenticator app.
    Totp,
    /// A code by text message or phone call.
    SmsCode,
    /// A code by e-mail.
    EmailCode,
    /// A code of unknown origin.
    OtherCode,
    /// A step that a person did elsewhere, or in the live view.
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

/// The settings with which a flow began. Later changes of its connection do not apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// The allowed hosts.
    pub allowed_domains: Vec<HostPattern>,
    /// Whether entered values are stored as a credential.
    pub save_credentials: bool,
    /// The credential.
    pub credential: Option<CredentialRef>,
    /// See [`Settings`](super::Settings).
    pub organization_credential: bool,
    /// The id of the named credential, which may have another name by now.
    pub credential_id: Option<CredentialId>,
    /// The URL where the login begins.
    pub login_url: Option<String>,
    /// When the connection was last changed. Without a later change, its own settings apply, because they follow renamed credentials.
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
    /// Its id.
    pub id: AuthFlowId,
    /// Its connection.
    pub connection: AuthConnectionId,
    /// Its purpose.
    pub kind: FlowKind,
    /// Whether no person is there to be asked.
    pub unattended: bool,
    /// Its status.
    pub status: FlowStatus,
    /// Its step.
    pub step: FlowStep,
    /// The number of its stored changes. A write succeeds only with the latest one.
    pub revision: i64,
    /// The node that runs it.
    pub node: Option<NodeId>,
    /// The id of its session, known before the session is created.
    pub session: SessionId,
    /// Whether the session was created.
    pub session_made: bool,
    /// Whether the session may exist and has to be ended.
    pub open: bool,
    /// The proxy of the session.
    pub proxy: Option<ProxyId>,
    /// Whether the session is recorded.
    pub record_session: bool,
    /// The settings with which it began; `None`: the present settings of its connection apply.
    pub begun_with: Option<Box<FlowSettings>>,
    /// The recording of the session.
    pub replay: Option<ReplayId>,
    /// The fields that it waits for.
    pub fields: Vec<RequestedField>,
    /// The choices that it waits for.
    pub choices: Vec<RequestedChoice>,
    /// What a person has to do elsewhere.
    pub external_action: Option<String>,
    /// The error that the site showed.
    pub website_error: Option<String>,
    /// Why it failed.
    pub failure: Option<FlowFailure>,
    /// The URL after the login. It is set before the profile is saved; from then on only saving is left.
    pub post_login_url: Option<String>,
    /// Whether its session has the permission to save the profile.
    pub saving: bool,
    /// Whether its session must be replaced, because the profile has a newer version.
    pub outdated: bool,
    /// How often it has begun again.
    pub begun_again: u32,
    /// What was submitted and not yet typed, sealed.
    pub submission: Option<Vec<u8>>,
    /// The values typed so far, by name, sealed.
    pub entered: Option<Vec<u8>>,
    /// The requirements of the site so far.
    pub needs: Vec<FlowRequirement>,
    /// The progress so far.
    pub progress: Progress,
    /// How often it acted on a page, or a person did while it waited.
    pub acts: u32,
    /// How often the site refused an answer.
    pub refusals: u32,
    /// The one-time code of the hosted page, sealed.
    pub handoff: Option<Vec<u8>>,
    /// When the code was used.
    pub handoff_used_at: Option<OffsetDateTime>,
    /// The SHA-256 of the key in the cookie of the hosted page.
    pub page_key: Option<[u8; 32]>,
    /// The result of a health check: the status of the connection before and after it.
    pub found: Option<(ConnectionStatus, ConnectionStatus)>,
    /// When it expires.
    pub expires_at: OffsetDateTime,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When it last changed.
    pub updated_at: OffsetDateTime,
}

impl Flow {
    /// How long a flow may take.
    pub const LIFE: Duration = Duration::minutes(15);
    /// How often a flow begins again because its page was lost, or another flow saved the profile.
    pub const MAX_BEGUN_AGAIN: u32 = 3;
    /// How long a session outlives its flow, unless it is ended.
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

    /// Returns whether it is running at `now`. A flow that is logged in does not expire before the profile is saved.
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

    /// Returns whether it waits for a person.
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
