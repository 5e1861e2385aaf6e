//! The transitions of a login flow.

use time::OffsetDateTime;

use super::{Flow, FlowFailure, FlowStatus, FlowStep, RequestedChoice, RequestedField};
use crate::ids::{AuthFlowId, SessionId};
use crate::login_page::Progress;

/// An event of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// The page asks for values or a choice that are not known.
    InputRequested {
        /// The fields.
        fields: Vec<RequestedField>,
        /// The choices.
        choices: Vec<RequestedChoice>,
    },
    /// Known values answer the page, and are being typed.
    Filling,
    /// A person must act elsewhere.
    Elsewhere {
        /// The action, as a text for people.
        message: String,
        /// The choices that a person may select instead.
        choices: Vec<RequestedChoice>,
    },
    /// The page changed by itself, or because a person acted elsewhere or in the live view.
    MovedOn,
    /// The flow begins again in this session, because its page was lost, or another flow saved the profile.
    BegunAgain(SessionId),
    /// Values or a choice were submitted; sealed.
    Submitted(Vec<u8>),
    /// The browser is logged in, at a URL. The profile is not saved yet.
    LoggedIn(String),
    /// The profile is saved, or the health check is over.
    Completed,
    /// The flow failed.
    Failed(FlowFailure),
    /// The time of the flow is over.
    Expired,
    /// The connection was deleted.
    Canceled,
}

impl FlowEvent {
    /// Returns the name of the event in tables and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InputRequested { .. } => "asked",
            Self::Filling => "filling",
            Self::Elsewhere { .. } => "elsewhere",
            Self::MovedOn => "moved on",
            Self::BegunAgain(_) => "begun again",
            Self::Submitted(_) => "submitted",
            Self::LoggedIn(_) => "logged in",
            Self::Completed => "completed",
            Self::Failed(_) => "failed",
            Self::Expired => "expired",
            Self::Canceled => "canceled",
        }
    }
}

/// The error of an event that is not possible in the current state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the login flow is {} at {}, so '{event}' is not possible", status.as_str(), step.as_str())]
pub struct FlowRefused {
    /// The flow.
    pub id: AuthFlowId,
    /// The status of the flow.
    pub status: FlowStatus,
    /// The step of the flow.
    pub step: FlowStep,
    /// The name of the event.
    pub event: &'static str,
}

impl Flow {
    /// Returns the flow after `event`, at `now`; `self` is unchanged.
    ///
    /// # Errors
    /// [`FlowRefused`] if the event is not possible in the current state.
    pub fn on(&self, event: FlowEvent, now: OffsetDateTime) -> Result<Self, FlowRefused> {
        use FlowEvent as E;
        use FlowStep::{AwaitingExternalAction, AwaitingInput, Discovering, Submitting};

        let refused = || FlowRefused { id: self.id, status: self.status, step: self.step, event: event.name() };
        if self.status != FlowStatus::InProgress {
            return Err(refused());
        }
        let logged_in = self.post_login_url.is_some();
        // Every transition removes the question.
        let moved =
            Self { fields: Vec::new(), choices: Vec::new(), external_action: None, updated_at: now, ..self.clone() };
        let ended = |status| Self { status, submission: None, entered: None, ..moved.clone() };
        Ok(match (self.step, event) {
            // After the login, only saving the profile is left.
            (_, E::Completed) if logged_in => {
                Self { step: FlowStep::Completed, website_error: None, ..ended(FlowStatus::Success) }
            }
            (_, E::Failed(failure)) => Self { failure: Some(failure), ..ended(FlowStatus::Failed) },
            (_, E::Expired) => ended(FlowStatus::Expired),
            (_, E::Canceled) => ended(FlowStatus::Canceled),
            // The entered values stay, and are typed again.
            (_, E::BegunAgain(session)) if !self.saving => Self {
                step: Discovering,
                session,
                session_made: self.session_made && session == self.session,
                website_error: None,
                post_login_url: None,
                outdated: false,
                begun_again: self.begun_again + 1,
                needs: Vec::new(),
                progress: Progress::default(),
                acts: 0,
                ..moved
            },
            (_, event) if logged_in => {
                return Err(FlowRefused { id: self.id, status: self.status, step: self.step, event: event.name() });
            }
            (_, E::LoggedIn(url)) => Self { post_login_url: Some(url), step: Submitting, submission: None, ..moved },
            (
                Discovering | Submitting | AwaitingExternalAction | AwaitingInput,
                E::InputRequested { fields, choices },
            ) => Self { step: AwaitingInput, fields, choices, submission: None, ..moved },
            (Discovering | Submitting, E::Filling) => Self { step: Submitting, ..moved },
            (Discovering | Submitting | AwaitingExternalAction, E::Elsewhere { message, choices }) => {
                let external_action = Some(message);
                // The submission stays, because it is typed after a captcha is solved.
                Self { step: AwaitingExternalAction, external_action, choices, ..moved }
            }
            (AwaitingInput | AwaitingExternalAction, E::MovedOn) => {
                Self { step: Discovering, website_error: None, ..moved }
            }
            (AwaitingInput | AwaitingExternalAction, E::Submitted(sealed)) => {
                // The fields and choices stay, because the answer is matched against them.
                let (fields, choices) = (self.fields.clone(), self.choices.clone());
                Self { step: Submitting, submission: Some(sealed), website_error: None, fields, choices, ..moved }
            }
            (step, event) => {
                return Err(FlowRefused { id: self.id, status: self.status, step, event: event.name() });
            }
        })
    }
}
