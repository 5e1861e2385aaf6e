//! How far a runner is with the page of its flow, and how it moves from one phase to the next.

use time::OffsetDateTime;

use crate::login_page::Mark;

/// How far a runner is with the page of its flow. It is held in memory and never stored: a runner that takes a flow over begins with
/// [`PagePhase::default`], which costs time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagePhase {
    /// The page is neither opened nor taken over.
    Unopened {
        /// How many attempts failed in a row.
        failures: u32,
    },
    /// The page is as the runner before left it.
    TakenOver {
        /// The counts of its readings.
        readings: Readings,
        /// Since when it asks for what was sent without coming to rest.
        loading_since: Option<OffsetDateTime>,
    },
    /// The page is examined. Nothing that was sent to it is unanswered.
    Examining {
        /// The counts of its readings.
        readings: Readings,
        /// Since when it asks for what was sent without coming to rest.
        loading_since: Option<OffsetDateTime>,
        /// How many actions in a row failed.
        failed_actions: u32,
        /// The error that the page showed before the last answer was sent.
        previous_refusal: Option<String>,
    },
    /// An answer was sent, and the page has asked for nothing since.
    Answered {
        /// The counts of its readings.
        readings: Readings,
        /// When the answer was sent.
        sent_at: OffsetDateTime,
        /// How many actions in a row failed.
        failed_actions: u32,
        /// The error that the page showed before the answer was sent.
        previous_refusal: Option<String>,
    },
    /// The flow waits for a person.
    Waiting {
        /// Whether nothing was done to the page since it was taken over.
        taken_over: bool,
        /// How many readings came to nothing, before and during the wait.
        unproductive: u32,
        /// How often in a row the page was another one and had not come to rest.
        unsettled: u32,
        /// How often a new external action took the place of the one before.
        external_updates: u32,
        /// Whether the live view accepts input: the page was freed of passwords.
        live_view_input: bool,
    },
}

/// The counts of the readings of a page, and the last mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// How many readings in a row came to nothing.
    pub unproductive: u32,
    /// How often a new external action took the place of the one before.
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
    /// The page is used as the runner before left it.
    TakenOver,
    /// A reading or an action failed in a way that may pass.
    Failed,
    /// The page was busy, or not understood.
    NotUnderstood {
        /// How many readings it counts as.
        weight: u32,
        /// The mark of the reading.
        mark: Mark,
    },
    /// The page was acted on without an answer: a banner, a link to the login.
    Acted {
        /// The mark of the reading before.
        mark: Mark,
    },
    /// The page could not be acted on.
    ActionFailed,
    /// The page asks for what was sent, and may still be loading.
    Loading {
        /// The mark of the reading.
        mark: Mark,
        /// Since when.
        since: OffsetDateTime,
    },
    /// The page asks for something.
    QuestionShown {
        /// Since when it asks for what was sent without coming to rest; `None`: it asks for something else, or is at rest.
        loading_since: Option<OffsetDateTime>,
    },
    /// An answer was sent.
    Sent {
        /// The mark of the reading before.
        mark: Mark,
        /// The error that the page showed before.
        refusal: Option<String>,
        /// When.
        at: OffsetDateTime,
    },
    /// The flow has begun to wait for a person.
    WaitBegan,
    /// The page was read during the wait.
    Watched {
        /// Whether it was another one and had not come to rest.
        unsettled: bool,
    },
    /// The live view was switched between accepting and refusing input.
    LiveViewInput {
        /// Whether it accepts input.
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
    /// The event's name in tables and errors.
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

/// The event is not possible in this phase; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page of the login is {phase}, so '{event}' is not possible")]
pub struct PageEventRefused {
    /// Which phase.
    pub phase: &'static str,
    /// Which event.
    pub event: &'static str,
}

impl PagePhase {
    /// The phase's name in tables and errors.
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

    /// Takes what the next reading must differ from.
    pub(super) fn take_stale_mark(&mut self) -> Option<Mark> {
        match self {
            Self::TakenOver { readings, .. } | Self::Examining { readings, .. } | Self::Answered { readings, .. } => {
                readings.stale_mark.take()
            }
            Self::Unopened { .. } | Self::Waiting { .. } => None,
        }
    }

    /// Returns how many readings came to nothing.
    pub(super) const fn unproductive(&self) -> u32 {
        match self {
            Self::Unopened { failures: count } | Self::Waiting { unproductive: count, .. } => *count,
            Self::TakenOver { readings, .. } | Self::Examining { readings, .. } | Self::Answered { readings, .. } => {
                readings.unproductive
            }
        }
    }

    /// Returns how many actions in a row failed.
    pub(super) const fn failed_actions(&self) -> u32 {
        match self {
            Self::Examining { failed_actions, .. } | Self::Answered { failed_actions, .. } => *failed_actions,
            Self::Unopened { .. } | Self::TakenOver { .. } | Self::Waiting { .. } => 0,
        }
    }

    /// Returns since when the page asks for what was sent without coming to rest.
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

    /// Returns whether nothing was done to the page since it was taken over.
    pub(super) const fn is_taken_over(&self) -> bool {
        matches!(self, Self::TakenOver { .. } | Self::Waiting { taken_over: true, .. })
    }
}
