//! The page phases of a runner, and their transitions.

use time::OffsetDateTime;

use crate::login_page::Mark;

/// The progress of a runner with the page of its flow. It is held in memory and never stored: a runner that takes over
/// a flow begins with [`PagePhase::default`], which costs time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePhase {
    /// The page is neither opened nor taken over.
    Unopened {
        /// The number of attempts that failed in a row.
        failures: u32,
    },
    /// The page is in the state in which the previous runner left it.
    TakenOver {
        /// The counts of the readings.
        readings: Readings,
        /// The time since which the page asks for sent values without settling.
        loading_since: Option<OffsetDateTime>,
    },
    /// The page is examined. No sent answer awaits a reaction.
    Examining {
        /// The counts of the readings.
        readings: Readings,
        /// The time since which the page asks for sent values without settling.
        loading_since: Option<OffsetDateTime>,
        /// The number of actions that failed in a row.
        failed_actions: u32,
        /// The error that the page showed before the last answer was sent.
        previous_refusal: Option<String>,
    },
    /// An answer was sent, and the page has asked for nothing since.
    Answered {
        /// The counts of the readings.
        readings: Readings,
        /// The time at which the answer was sent.
        sent_at: OffsetDateTime,
        /// The number of actions that failed in a row.
        failed_actions: u32,
        /// The error that the page showed before the answer was sent.
        previous_refusal: Option<String>,
    },
    /// The flow waits for a person.
    Waiting {
        /// True if no action was taken on the page since it was taken over.
        taken_over: bool,
        /// The number of unproductive readings, before and during the wait.
        unproductive: u32,
        /// The number of readings in a row that found another page that had not settled.
        unsettled: u32,
        /// The number of times that a new external action replaced the previous one.
        external_updates: u32,
        /// True if the live view accepts input, because the password fields of the page were emptied.
        live_view_input: bool,
    },
}

/// The counts of the readings of a page, and the last mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// The number of unproductive readings in a row.
    pub unproductive: u32,
    /// The number of times that a new external action replaced the previous one.
    pub external_updates: u32,
    /// The mark that the next reading must differ from.
    pub stale_mark: Option<Mark>,
}

impl Readings {
    const fn new(unproductive: u32, external_updates: u32) -> Self {
        Self { unproductive, external_updates, stale_mark: None }
    }
}

impl Default for PagePhase {
    fn default() -> Self {
        Self::Unopened { failures: 0 }
    }
}

/// An event between a runner and the page of its flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// The login page was opened.
    Opened,
    /// The page is used in the state in which the previous runner left it.
    TakenOver,
    /// A reading or an action failed, perhaps temporarily.
    Failed,
    /// The page was busy, or not understood.
    NotUnderstood {
        /// The number of readings that the event counts as.
        weight: u32,
        /// The mark of the reading.
        mark: Mark,
    },
    /// An action other than an answer was taken, as on a banner or a link to the login.
    Acted {
        /// The mark of the reading before.
        mark: Mark,
    },
    /// The page could not be acted on.
    ActionFailed,
    /// The page asks for sent values, and may still be loading.
    Loading {
        /// The mark of the reading.
        mark: Mark,
        /// The time since which it does.
        since: OffsetDateTime,
    },
    /// The page asks for something.
    QuestionShown {
        /// The time since which the page asks for sent values without settling; `None`: it asks for others, or has
        /// settled.
        loading_since: Option<OffsetDateTime>,
    },
    /// An answer was sent.
    Sent {
        /// The mark of the reading before.
        mark: Mark,
        /// The error that the page showed before.
        refusal: Option<String>,
        /// The time of sending.
        at: OffsetDateTime,
    },
    /// The flow has begun to wait for a person.
    WaitBegan,
    /// The page was read during the wait.
    Watched {
        /// True if the page was another one and had not settled.
        unsettled: bool,
    },
    /// The live view was switched between accepting and refusing input.
    LiveViewInput {
        /// True if the live view accepts input.
        accepted: bool,
    },
    /// A new external action was shown to the person.
    ExternalUpdated,
    /// A person submitted values or a choice.
    Submitted,
    /// A person acted on the page or elsewhere, and the page changed.
    MovedOn,
    /// The page was lost.
    Lost,
}

impl PageEvent {
    /// Returns the name of the event in tables and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::TakenOver => "taken over",
            Self::Failed => "failed",
            Self::NotUnderstood { .. } => "not understood",
            Self::Acted { .. } => "acted on",
            Self::ActionFailed => "action failed",
            Self::Loading { .. } => "loading",
            Self::QuestionShown { .. } => "question",
            Self::Sent { .. } => "answer sent",
            Self::WaitBegan => "wait began",
            Self::Watched { .. } => "watched",
            Self::LiveViewInput { .. } => "live view input",
            Self::ExternalUpdated => "external action updated",
            Self::Submitted => "submitted",
            Self::MovedOn => "moved on",
            Self::Lost => "lost",
        }
    }
}

/// The error of an event that is not possible in the current phase; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page of the login is {phase}, so '{event}' is not possible")]
pub struct PageEventRefused {
    /// The name of the phase.
    pub phase: &'static str,
    /// The name of the event.
    pub event: &'static str,
}

impl PagePhase {
    /// Returns the name of the phase in tables and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unopened { .. } => "unopened",
            Self::TakenOver { .. } => "taken over",
            Self::Examining { .. } => "examining",
            Self::Answered { .. } => "answered",
            Self::Waiting { .. } => "waiting",
        }
    }

    /// Returns the phase after `event`; `self` is unchanged.
    ///
    /// # Errors
    /// [`PageEventRefused`] if the event is not possible in this phase.
    pub fn on(&self, event: PageEvent) -> Result<Self, PageEventRefused> {
        use PageEvent as E;
        match (self.clone(), event) {
            (_, E::Lost) => Ok(Self::default()),
            (Self::Unopened { failures }, E::Failed) => Ok(Self::Unopened { failures: failures + 1 }),
            (Self::Unopened { failures }, E::Opened) => Ok(Self::examining(Readings::new(failures, 0))),
            (Self::Unopened { failures }, E::TakenOver) => Ok(Self::taken_over(Readings::new(failures, 0))),
            (Self::Waiting { taken_over, unproductive, external_updates, .. }, E::Submitted) => {
                let readings = Readings::new(unproductive, external_updates);
                Ok(if taken_over { Self::taken_over(readings) } else { Self::examining(readings) })
            }
            (Self::Waiting { external_updates, .. }, E::MovedOn) => {
                Ok(Self::examining(Readings::new(0, external_updates)))
            }
            (phase @ Self::Waiting { .. }, event) => phase.waiting_on(event),
            (phase, event) => phase.examined_on(event),
        }
    }

    /// Changes to the phase after `event`. A refused event changes nothing.
    pub(super) fn apply(&mut self, event: PageEvent) {
        if let Ok(next) = self.on(event) {
            *self = next;
        }
    }

    fn waiting_on(mut self, event: PageEvent) -> Result<Self, PageEventRefused> {
        let refused = self.refused(&event);
        let Self::Waiting { unproductive, unsettled, external_updates, live_view_input, .. } = &mut self else {
            return Err(refused);
        };
        match event {
            PageEvent::Failed => *unproductive += 1,
            PageEvent::Watched { unsettled: true } => *unsettled += 1,
            PageEvent::Watched { unsettled: false } => *unsettled = 0,
            PageEvent::LiveViewInput { accepted } => *live_view_input = accepted,
            PageEvent::ExternalUpdated => *external_updates += 1,
            _ => return Err(refused),
        }
        Ok(self)
    }

    /// Returns the phase of a page that is opened or taken over after `event`.
    fn examined_on(mut self, event: PageEvent) -> Result<Self, PageEventRefused> {
        use PageEvent as E;
        let refused = self.refused(&event);
        if matches!(event, E::Acted { .. } | E::ActionFailed | E::Sent { .. })
            && let Self::TakenOver { readings, loading_since } = self
        {
            self = Self::Examining { readings, loading_since, failed_actions: 0, previous_refusal: None };
        }
        let (Self::TakenOver { readings, .. } | Self::Examining { readings, .. } | Self::Answered { readings, .. }) =
            &mut self
        else {
            return Err(refused);
        };
        match event {
            E::Failed => readings.unproductive += 1,
            E::NotUnderstood { weight, mark } => {
                readings.unproductive += weight;
                readings.stale_mark = Some(mark);
            }
            E::Loading { mark, since } => {
                readings.unproductive = 0;
                readings.stale_mark = Some(mark);
                if let Self::TakenOver { loading_since, .. } | Self::Examining { loading_since, .. } = &mut self {
                    *loading_since = Some(since);
                }
            }
            E::Acted { mark } => {
                readings.stale_mark = Some(mark);
                self.count_actions(|_| 0);
            }
            E::ActionFailed => self.count_actions(|failed| failed + 1),
            E::QuestionShown { loading_since } => return Ok(self.question_shown(loading_since)),
            E::Sent { mark, refusal, at } => match self {
                Self::Examining { readings, .. } => {
                    return Ok(Self::Answered {
                        readings: Readings { stale_mark: Some(mark), ..readings },
                        sent_at: at,
                        failed_actions: 0,
                        previous_refusal: refusal,
                    });
                }
                _ => return Err(refused),
            },
            E::WaitBegan => {
                let (unproductive, external_updates) = (readings.unproductive, readings.external_updates);
                return Ok(Self::Waiting {
                    taken_over: self.is_taken_over(),
                    unproductive,
                    unsettled: 0,
                    external_updates,
                    live_view_input: false,
                });
            }
            _ => return Err(refused),
        }
        Ok(self)
    }

    fn question_shown(self, loading_since: Option<OffsetDateTime>) -> Self {
        match self {
            Self::TakenOver { readings, .. } => {
                Self::TakenOver { readings: Readings { unproductive: 0, ..readings }, loading_since }
            }
            Self::Examining { readings, failed_actions, previous_refusal, .. }
            | Self::Answered { readings, failed_actions, previous_refusal, .. } => {
                let readings = Readings { unproductive: 0, ..readings };
                Self::Examining { readings, loading_since, failed_actions, previous_refusal }
            }
            other @ (Self::Unopened { .. } | Self::Waiting { .. }) => other,
        }
    }

    fn count_actions(&mut self, count: impl Fn(u32) -> u32) {
        if let Self::Examining { failed_actions, .. } | Self::Answered { failed_actions, .. } = self {
            *failed_actions = count(*failed_actions);
        }
    }

    const fn examining(readings: Readings) -> Self {
        Self::Examining { readings, loading_since: None, failed_actions: 0, previous_refusal: None }
    }

    const fn taken_over(readings: Readings) -> Self {
        Self::TakenOver { readings, loading_since: None }
    }

    const fn refused(&self, event: &PageEvent) -> PageEventRefused {
        PageEventRefused { phase: self.name(), event: event.name() }
    }

    /// Takes the mark that the next reading must differ from.
    pub(super) fn take_stale_mark(&mut self) -> Option<Mark> {
        match self {
            Self::TakenOver { readings, .. } | Self::Examining { readings, .. } | Self::Answered { readings, .. } => {
                readings.stale_mark.take()
            }
            Self::Unopened { .. } | Self::Waiting { .. } => None,
        }
    }

    /// Returns the number of unproductive readings.
    pub(super) const fn unproductive(&self) -> u32 {
        match self {
            Self::Unopened { failures: count } | Self::Waiting { unproductive: count, .. } => *count,
            Self::TakenOver { readings, .. } | Self::Examining { readings, .. } | Self::Answered { readings, .. } => {
                readings.unproductive
            }
        }
    }

    /// Returns the number of actions that failed in a row.
    pub(super) const fn failed_actions(&self) -> u32 {
        match self {
            Self::Examining { failed_actions, .. } | Self::Answered { failed_actions, .. } => *failed_actions,
            Self::Unopened { .. } | Self::TakenOver { .. } | Self::Waiting { .. } => 0,
        }
    }

    /// Returns the time since which the page asks for sent values without settling.
    pub(super) const fn loading_since(&self) -> Option<OffsetDateTime> {
        match self {
            Self::TakenOver { loading_since, .. } | Self::Examining { loading_since, .. } => *loading_since,
            Self::Answered { sent_at, .. } => Some(*sent_at),
            Self::Unopened { .. } | Self::Waiting { .. } => None,
        }
    }

    /// Returns the error that the page showed before the last answer was sent.
    pub(super) fn previous_refusal(&self) -> Option<&str> {
        match self {
            Self::Examining { previous_refusal, .. } | Self::Answered { previous_refusal, .. } => {
                previous_refusal.as_deref()
            }
            Self::Unopened { .. } | Self::TakenOver { .. } | Self::Waiting { .. } => None,
        }
    }

    /// Returns whether no action was taken on the page since it was taken over.
    pub(super) const fn is_taken_over(&self) -> bool {
        matches!(self, Self::TakenOver { .. } | Self::Waiting { taken_over: true, .. })
    }
}
