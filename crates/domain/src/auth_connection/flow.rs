//! One login on its way.

use time::{Duration, OffsetDateTime};

use super::{AuthConnection, ConnectionStatus, CredentialRef, RequestedChoice, RequestedField};
use crate::ids::{AuthConnectionId, AuthFlowId, CredentialId, NodeId, ProxyId, ReplayId, SessionId};
use crate::login_page::{HostPattern, Progress};
use crate::text_enum::text_enum;

text_enum! {
    /// What a flow is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowKind {
        /// Logs in, with a person at hand.
        Login => "LOGIN",
        /// Logs in with what is stored.
        Reauth => "REAUTH",
        /// Looks whether the login holds. No caller sees it as a flow; it stands in the timeline.
        HealthCheck => "HEALTH_CHECK",
    }
}

text_enum! {
    /// Whether a flow goes on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowStatus {
        /// It does.
        InProgress => "IN_PROGRESS",
        /// The profile is logged in and saved.
        Success => "SUCCESS",
        /// It cannot go on.
        Failed => "FAILED",
        /// Its time was over.
        Expired => "EXPIRED",
        /// Its connection was deleted.
        Canceled => "CANCELED",
    }
}

text_enum! {
    /// Where a flow stands, or stood when it ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowStep {
        /// Looks what the page asks for.
        Discovering => "DISCOVERING",
        /// Waits for values or a choice.
        AwaitingInput => "AWAITING_INPUT",
        /// Waits for something that a person does elsewhere.
        AwaitingExternalAction => "AWAITING_EXTERNAL_ACTION",
        /// Fills the page in.
        Submitting => "SUBMITTING",
        /// Is logged in.
        Completed => "COMPLETED",
    }
}

text_enum! {
    /// Why a flow cannot go on; the closed list of `error_code`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum FlowError {
        /// The site refused what was stored, or locked the account.
        CredentialsRejected => "credentials_rejected",
        /// The site asks for something that is not stored, and nobody is there to be asked.
        CredentialMissing => "credential_missing",
        /// Nobody knows what the page wants.
        PageNotUnderstood => "page_not_understood",
        /// The login went to a host that is not allowed.
        DomainNotAllowed => "domain_not_allowed",
        /// A captcha stands in the way, and nobody is there to solve it.
        Captcha => "captcha",
        /// A page could not be loaded.
        NavigationFailed => "navigation_failed",
        /// The browser ended.
        BrowserEnded => "browser_ended",
        /// The credential provider failed.
        ProviderError => "provider_error",
        /// Our fault.
        Internal => "internal",
    }
}

/// Why a flow failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFailure {
    /// For programs.
    pub code: FlowError,
    /// For people; no secrets, at most 1,000 characters.
    pub message: String,
}

impl FlowFailure {
    /// The failure, with a message that is cut where it is too long.
    pub fn new(code: FlowError, message: impl Into<String>) -> Self {
        let message: String = message.into().chars().take(1000).collect();
        Self { code, message }
    }
}

/// Something that a login asked for: what a login by itself needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowRequirement {
    /// The value of that name.
    Value(String),
    /// A code of an app.
    Totp,
    /// A code by text message or call.
    SmsCode,
    /// A code by e-mail.
    EmailCode,
    /// A code of which nobody knows from where.
    OtherCode,
    /// Something that a person did elsewhere, or in the live view.
    External,
    /// That a person chose, by what the choice said.
    Choice(String),
}

impl FlowRequirement {
    /// As it is stored.
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

    /// Reads what was stored.
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

/// What a flow goes on with, whatever its connection is told meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Where it may go.
    pub allowed_domains: Vec<HostPattern>,
    /// Whether what it is given is kept.
    pub save_credentials: bool,
    /// What it logs in with.
    pub credential: Option<CredentialRef>,
    /// See [`Settings`](super::Settings).
    pub organization_credential: bool,
    /// The credential of that name, which may be called otherwise since.
    pub credential_id: Option<CredentialId>,
    /// Where it begins.
    pub login_url: Option<String>,
    /// When the connection was told so. As long as it was told nothing since, it is right: also of what was renamed.
    pub told_at: OffsetDateTime,
}

impl FlowSettings {
    /// What a flow of the connection begins with now.
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
            told_at: connection.updated_at,
        }
    }
}

/// One login, one login by itself, or one look whether the login holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Which one.
    pub id: AuthFlowId,
    /// Whose.
    pub connection: AuthConnectionId,
    /// What for.
    pub kind: FlowKind,
    /// Whether nobody asked for it, so that nobody is there to be asked.
    pub unattended: bool,
    /// Whether it goes on.
    pub status: FlowStatus,
    /// Where it stands.
    pub step: FlowStep,
    /// Counts what was stored of it: whoever stores it must have seen the last.
    pub revision: i64,
    /// Which node carries it.
    pub node: Option<NodeId>,
    /// The session that it runs in, known before there is one.
    pub session: SessionId,
    /// Whether that session was made.
    pub session_made: bool,
    /// Whether there may be something of that session that has to end.
    pub open: bool,
    /// What the session is sent through.
    pub proxy: Option<ProxyId>,
    /// Whether it is recorded.
    pub record_session: bool,
    /// What else it goes on with; `None`: with what its connection is told now.
    pub begun_with: Option<Box<FlowSettings>>,
    /// The recording.
    pub replay: Option<ReplayId>,
    /// The values that it waits for.
    pub fields: Vec<RequestedField>,
    /// The choices that it waits for.
    pub choices: Vec<RequestedChoice>,
    /// What a person is to do elsewhere.
    pub external_action: Option<String>,
    /// What the site said.
    pub website_error: Option<String>,
    /// Why it failed.
    pub failure: Option<FlowFailure>,
    /// Where it was when it was logged in. Set before the profile is saved: from then on only that is left.
    pub post_login_url: Option<String>,
    /// Whether its session was let save its profile.
    pub saving: bool,
    /// Whether its session is to give way to one that has the profile as it is by now.
    pub outdated: bool,
    /// How often it has begun again.
    pub begun_again: u32,
    /// What was submitted and not yet typed, sealed.
    pub submission: Option<Vec<u8>>,
    /// What was typed so far, by name, sealed.
    pub entered: Option<Vec<u8>>,
    /// What it was asked for so far.
    pub needs: Vec<FlowRequirement>,
    /// What has been done so far.
    pub progress: Progress,
    /// How often it has acted on a page, or somebody else has while it waited.
    pub acts: u32,
    /// How often the site has refused what was typed.
    pub refusals: u32,
    /// The code that opens the hosted page once, sealed.
    pub handoff: Option<Vec<u8>>,
    /// When that was used.
    pub handoff_used_at: Option<OffsetDateTime>,
    /// SHA-256 of the key that the hosted page's cookie holds.
    pub page_key: Option<[u8; 32]>,
    /// Of a look: what the connection was before, and is after it.
    pub found: Option<(ConnectionStatus, ConnectionStatus)>,
    /// When its time is over.
    pub expires_at: OffsetDateTime,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When it last moved.
    pub updated_at: OffsetDateTime,
}

impl Flow {
    /// How long a flow may take.
    pub const LIFE: Duration = Duration::minutes(15);
    /// How often it begins again because its page was lost, or its profile was saved by another.
    pub const MAX_BEGUN_AGAIN: u32 = 3;
    /// What a session lives longer than a flow, should nobody end it.
    pub const GRACE: Duration = Duration::minutes(2);

    /// Where the code of its hosted page is sealed.
    #[must_use]
    pub fn handoff_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/handoff")
    }

    /// Where what was submitted is sealed.
    #[must_use]
    pub fn submission_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/submission")
    }

    /// Where what was typed is sealed.
    #[must_use]
    pub fn entered_place(id: AuthFlowId) -> String {
        format!("auth_flows/{id}/entered")
    }

    /// Whether it goes on at `now`. One that is logged in already is given the time to save that.
    #[must_use]
    pub fn is_running(&self, now: OffsetDateTime) -> bool {
        self.status == FlowStatus::InProgress && (now < self.expires_at || self.post_login_url.is_some())
    }

    /// As it is to be shown at `now`: one whose time is over is expired, also if nobody has noted it yet.
    #[must_use]
    pub fn as_of(self, now: OffsetDateTime) -> Self {
        if self.status == FlowStatus::InProgress && !self.is_running(now) {
            return Self { status: FlowStatus::Expired, fields: Vec::new(), choices: Vec::new(), ..self };
        }
        self
    }

    /// Whether it waits for somebody.
    #[must_use]
    pub fn is_awaiting(&self) -> bool {
        matches!(self.step, FlowStep::AwaitingInput | FlowStep::AwaitingExternalAction)
    }
}

/// One line of a connection's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The flow.
    pub flow: Flow,
}
